// expect: stowage: the condition must take the carry and return one Array, a bool scalar
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::while_loop([](const stow::Array& c) { return std::pair(c, c); },
                   [](const stow::Array& c) { return c + 1; }, x);
}
