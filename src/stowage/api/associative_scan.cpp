#include "stowage/api/associative_scan.h"

#include "stowage/api/math_internal.h"
#include "stowage/api/shaping.h"

namespace stow {
namespace {

template <typename F>
std::vector<Array> each(const std::vector<Array>& leaves, const F& f) {
  std::vector<Array> result;
  for (const Array& leaf : leaves) result.push_back(f(leaf));
  return result;
}

}  // namespace

std::vector<Array> scan_every_second(const std::vector<Array>& leaves, int axis, int64_t first,
                                     int64_t stop) {
  return each(leaves, [&](const Array& x) { return slice(x, axis, first, stop, 2); });
}

std::vector<Array> scan_range(const std::vector<Array>& leaves, int axis, int64_t start,
                              int64_t stop) {
  return each(leaves, [&](const Array& x) { return slice(x, axis, start, stop); });
}

std::vector<Array> scan_after_first(const std::vector<Array>& leaves,
                                    const std::vector<Array>& rest, int axis) {
  std::vector<Array> result;
  for (size_t i = 0; i < leaves.size(); ++i)
    result.push_back(concatenate({slice(leaves[i], axis, 0, 1), rest[i]}, axis));
  return result;
}

std::vector<Array> scan_interleave(const std::vector<Array>& even, const std::vector<Array>& odd,
                                   int axis) {
  std::vector<Array> result;
  for (size_t i = 0; i < even.size(); ++i) {
    const auto k =
        static_cast<int>(normalize_axis("associative_scan", axis, odd[i].rank(), odd[i].type()));
    const int64_t n = odd[i].shape()[k], n_even = even[i].shape()[k];
    Dims dims = odd[i].shape().dims();
    dims[static_cast<size_t>(k)] = 2 * n;
    const Array pairs = reshape(stack({slice(even[i], k, 0, n), odd[i]}, k + 1), dims);
    result.push_back(n_even == n ? pairs : concatenate({pairs, slice(even[i], k, n, n_even)}, k));
  }
  return result;
}

std::vector<Array> scan_flip(const std::vector<Array>& leaves, int axis) {
  return each(leaves, [&](const Array& x) { return flip(x, axis); });
}

int64_t scan_length(const std::vector<Array>& leaves, int axis, SourceLocation at) {
  const CallSiteScope site(at);
  std::optional<int64_t> length;
  for (const Array& x : leaves) {
    const int64_t n =
        x.shape()[static_cast<int>(normalize_axis("associative_scan", axis, x.rank(), x.type()))];
    if (length.value_or(n) != n)
      trace_error_here(
          "[associative_scan] expected leaves of one extent along axis {}, got {} and {}", axis,
          to_string(leaves[0].type()), to_string(x.type()));
    length = n;
  }
  return length.value_or(0);
}

}  // namespace stow
