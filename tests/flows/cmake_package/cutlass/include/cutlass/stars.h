#define STARS 7
#define CUTLASS "cutlass of the recipe"
