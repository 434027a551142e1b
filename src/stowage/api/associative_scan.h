// associative_scan: all partial results of an associative function along an axis, in parallel
// steps. Not a loop; the function is called on whole slices, O(log n) times.
#pragma once

#include "stowage/api/tree.h"

namespace stow {

struct AssociativeScanOptions {
  bool reverse = false;
  int axis = 0;
};

// Helpers of associative_scan. Each works on every leaf.
/// Every second element along the axis, from `first` on, up to but not including `stop`.
std::vector<Array> scan_every_second(const std::vector<Array>& leaves, int axis, int64_t first,
                                     int64_t stop);
/// Elements [start, stop) along the axis.
std::vector<Array> scan_range(const std::vector<Array>& leaves, int axis, int64_t start,
                              int64_t stop);
/// first[0] of `leaves`, then `rest`.
std::vector<Array> scan_after_first(const std::vector<Array>& leaves,
                                    const std::vector<Array>& rest, int axis);
/// even[0], odd[0], even[1], ...: `even` is as long as `odd` or longer by one.
std::vector<Array> scan_interleave(const std::vector<Array>& even, const std::vector<Array>& odd,
                                   int axis);
/// The elements along the axis in reverse order.
std::vector<Array> scan_flip(const std::vector<Array>& leaves, int axis);
/// The common extent of the leaves. Errors: TraceError "[associative_scan] ..." where leaves differ
/// or have none.
int64_t scan_length(const std::vector<Array>& leaves, int axis, SourceLocation at);

/// result[i] = fn(... fn(fn(x[0], x[1]), x[2]) ..., x[i]) for an associative `fn`, which is given
/// two trees of equally many slices and combines them slice by slice.
/// Order: that of jax.lax.associative_scan, so sums have its roundings.
/// Errors: TraceError if the leaves have no common extent along the axis.
template <typename F, concepts::Tree T>
T associative_scan(F fn, const T& x, AssociativeScanOptions options = {}, STOW_AT) {
  static_assert(std::is_invocable_r_v<T, F&, T, T>,
                "stowage: the function must take two trees like the one that is scanned and return "
                "one such tree");
  using Leaves = std::vector<Array>;
  const int axis = options.axis;
  const auto combine = [&](const Leaves& a, const Leaves& b) {
    return tree_leaves(T(fn(tree_unflatten(x, a), tree_unflatten(x, b))));
  };
  const auto run = [&](const auto& self, const Leaves& leaves) -> Leaves {
    const int64_t n = scan_length(leaves, axis, at);
    if (n < 2) return leaves;
    const Leaves odd = self(self, combine(scan_every_second(leaves, axis, 0, n - 1),
                                          scan_every_second(leaves, axis, 1, n)));
    const Leaves before = n % 2 == 0 ? scan_range(odd, axis, 0, n / 2 - 1) : odd;
    const Leaves after = scan_every_second(leaves, axis, 2, n);
    const Leaves even = n == 2 ? scan_range(leaves, axis, 0, 1)
                               : scan_after_first(leaves, combine(before, after), axis);
    return scan_interleave(even, odd, axis);
  };
  Leaves leaves = tree_leaves(x);
  if (options.reverse) leaves = scan_flip(leaves, axis);
  Leaves result = run(run, leaves);
  if (options.reverse) result = scan_flip(result, axis);
  return tree_unflatten(x, result);
}

}  // namespace stow
