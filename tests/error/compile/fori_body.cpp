// expect: stowage: the body must return the carry, of the type that it is given: one Array, or one
// tree
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::fori_loop(
      0, 3, [](const stow::Array&, const stow::Array& c) { return std::pair(c, c); }, x);
}
