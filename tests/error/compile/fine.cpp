// expect: nothing
#include "stowage/stowage.h"
struct Net {
  stow::Array w;
};
STOW_TREE(Net, w);
stow::Array f(const Net& net, const stow::Array& x) {
  return stow::jit([](const Net& n, const stow::Array& a) {
    return stow::grad([&](const Net& m) { return sum(m.w * a); })(n).w;
  })(net, x);
}
