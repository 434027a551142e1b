// expect: stowage: expected argnums from 0 to the number of arguments, less 1
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::grad<1>([](const stow::Array& a) { return sum(a); })(x);
}
