// expect: stowage: the body must return the carry, of the type that it is given: one Array, or one
// tree
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::while_loop([](const stow::Array& c) { return c < 3; },
                   [](const stow::Array& c) { return std::tuple(c, c); }, x);
}
