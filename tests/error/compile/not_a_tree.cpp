// expect: stowage: expected trees of arrays as arguments. Trees are Array, C++ scalars, Static,
// structs named in STOW_TREE
#include "stowage/stowage.h"
struct Net {
  stow::Array w;
};
void f(const Net& net) {
  stow::jit([](const Net& n) { return n.w; })(net);
}
