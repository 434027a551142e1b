// expect: stowage: the body must return the carry, of the type that it is given, or
// std::pair(carry, what is stacked)
#include "stowage/stowage.h"
struct State {
  stow::Array h;
};
STOW_TREE(State, h);
void f(const State& init, const stow::Array& x) {
  stow::scan([](const State& s, const stow::Array& v) { return std::pair(s.h + v, v); }, init, x);
}
