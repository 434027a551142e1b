// expect: stowage: expected trees of arrays as arguments. Trees are Array, C++ scalars, Static,
// structs named in STOW_TREE
#include "stowage/stowage.h"
void f(const stow::Array& x) {
  stow::checkpoint([](const stow::Array& a, const std::string&) { return a; })(x, std::string("x"));
}
