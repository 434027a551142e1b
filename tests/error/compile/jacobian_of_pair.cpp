// expect: stowage: the function must return one Array, of which there is a Jacobian
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::hessian([](const stow::Array& a) { return std::pair(sum(a), a); })(x);
}
