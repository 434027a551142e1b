// expect: stowage: expected trees of arrays as arguments. Trees are Array, C++ scalars, Static,
// structs named in STOW_TREE
#include <map>

#include "stowage/stowage.h"
void f(const std::map<int, stow::Array>& nets) {
  stow::grad([](const std::map<int, stow::Array>& n) { return sum(n.at(0)); })(nets);
}
