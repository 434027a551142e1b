// expect: stowage: the body cannot be called with what it is given: scan's takes (carry, slice)
#include "stowage/stowage.h"
void f(const stow::Array& h, const stow::Array& x) {
  stow::scan([](const stow::Array& c) { return c; }, h, x);
}
