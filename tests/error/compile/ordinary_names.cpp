// expect: nothing
// A program that uses all of stow keeps the ordinary words for itself.
#include "stowage/stowage.h"
using namespace stow;
#define NAMES(X)                                                                                   \
  X(Params)                                                                                        \
  X(P) X(Node) X(Graph) X(Value) X(Policy) X(Result) X(Schedule) X(Tree) X(Region) X(Place)        \
      X(Mesh) X(Scalar) X(Pass) X(Provenance) X(Failure) X(NodeId) X(ValueId) X(OpClass) X(State)  \
          X(Model) X(Layer) X(Config) X(Batch) X(Loss) X(Buffer) X(Kernel) X(Loop) X(Branch)       \
              X(View) X(Program) X(Event) X(Leaf) X(Leaves) X(Mask) X(Stream) X(Streams) X(Target) \
                  X(Mapping) X(Disk)
#define DEFINE(name) \
  struct name {      \
    Array x;         \
  };
NAMES(DEFINE)
#define USE(name) name v##name;
void f() { NAMES(USE) }
stow::sharding::P spec("data");
stow::sharding::Mesh mesh = stow::make_mesh({1}, {"data"});
template <stow::concepts::Tree T, stow::concepts::Scalar S>
T scaled(const T& tree, S factor) {
  return stow::tree_map([&](const Array& x) { return x * factor; }, tree);
}
