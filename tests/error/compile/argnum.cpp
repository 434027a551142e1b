// expect: stowage: an argnum names no argument of the function
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::grad<1>([](const stow::Array& a) { return sum(a); })(x);
}
