// expect: stowage: the branches must return trees of one type
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::cond(x > 0, [](const stow::Array& a) { return a; },
             [](const stow::Array& a) { return std::pair(a, a); }, x);
}
