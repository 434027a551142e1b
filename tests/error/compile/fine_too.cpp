// expect: nothing
#include "stowage/stowage.h"
template <typename T>
struct Two {
  T a, b;
};
STOW_TREE(Two, a, b);
template <size_t n, size_t m>
struct Grid {
  std::array<std::array<stow::Array, n>, m> cells;
};
STOW_TREE(Grid, cells);
template <typename T, int n>
struct Row {
  std::array<T, n> cells;
};
STOW_TREE(Row, cells);
Two<Row<stow::Array, 2>> f(const Two<Row<stow::Array, 2>>& x, const Grid<1, 2>& y) {
  auto [a, b] = stow::random::split(stow::random::key(0));
  auto [c, d, e] = stow::random::split<3>(a);
  const stow::Array v = stow::Array::from(std::vector<float>{1, 2});
  const stow::Array w = stow::Array::from(std::vector<double>{1, 2}, stow::DType::kF32);
  const stow::Array scalar = stow::Array::from(std::vector<float>{1}, {});
  stow::tree_map(stow::ones_like, y);
  stow::tree_map(stow::sin, y);
  stow::tree_map(stow::add, y, y);
  return stow::tree_map(stow::zeros_like, x);
}
