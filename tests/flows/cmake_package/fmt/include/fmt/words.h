#pragma once
const char *words(long stars, const char *from);
