#include "fmt/words.h"

#include <string>

const char *words(long stars, const char *from) {
  static std::string text;
  text = std::to_string(stars) + " stars, " + from + ", fmt of the recipe";
  return text.c_str();
}
