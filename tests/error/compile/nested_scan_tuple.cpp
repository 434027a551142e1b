// expect: stowage: the body must return the carry, of the type that it is given, or
// std::pair(carry, what is stacked)
#include "stowage/stowage.h"
void f(const stow::Array& h, const stow::Array& x) {
  stow::nested_scan([](const stow::Array& c, const stow::Array& v) { return std::tuple(c + v, v); },
                    h, x);
}
