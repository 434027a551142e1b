// expect: stowage: the body cannot be called with what it is given: scan's takes (carry, slice),
// fori_loop's (counter, carry)
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::fori_loop(0, 3, [](const stow::Array& c) { return c; }, x);
}
