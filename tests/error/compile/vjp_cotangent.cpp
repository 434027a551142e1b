// expect: stowage: the cotangent must be of the type the function returns
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::vjp([](const stow::Array& a) { return std::pair(a, a); }, x, x);
}
