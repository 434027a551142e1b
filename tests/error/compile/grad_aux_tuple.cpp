// expect: stowage: the function must return std::pair(result, aux)
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::value_and_grad_aux([](const stow::Array& a) { return std::tuple(sum(a), a); })(x);
}
