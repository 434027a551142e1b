// expect: stowage: the function must take two trees like the one that is scanned and return one
// such tree
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::associative_scan([](const stow::Array& a, const stow::Array& b) { return std::pair(a, b); },
                         x);
}
