// expect: stowage: the function cannot be called with these arguments
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::vmap([](const stow::Array& a, const stow::Array& b) { return a + b; })(x);
}
