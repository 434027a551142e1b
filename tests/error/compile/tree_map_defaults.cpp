// expect: stowage: the function cannot be called with one leaf of each tree. If it has more
// parameters, with defaults
#include "stowage/stowage.h"
void f(const std::vector<stow::Array>& x) {
  stow::tree_map(stow::rms_norm, x);
}
