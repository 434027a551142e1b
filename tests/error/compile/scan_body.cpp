// expect: stowage: the body must return the carry, or a pair of the carry and what is
#include "stowage/stowage.h"
struct State {
  stow::Array h;
};
STOW_TREE(State, h);
void f(const State& init, const stow::Array& x) {
  stow::scan([](const State& s, const stow::Array& v) { return std::pair(s.h + v, v); }, init, x);
}
