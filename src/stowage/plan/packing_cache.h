// A cache of greedy packings, which lives as long as a scope.
// Not the packer; pack/heuristics.h has that.
#pragma once

#include <cstddef>

namespace stow {

/// While a scope lives, make_plan() keeps every greedy packing that it finds, on any thread, and
/// returns it again for an equal problem. The plans of one search differ in a few kernels, and most
/// of them pack some memory kind alike. Scopes nest and overlap: packings are dropped when the last
/// scope ends. When the problems exceed 64 MB, all earlier ones are dropped.
class PackingCacheScope {
 public:
  PackingCacheScope();
  ~PackingCacheScope();
  PackingCacheScope(const PackingCacheScope&) = delete;
  PackingCacheScope& operator=(const PackingCacheScope&) = delete;

  /// Number of packings that were reused since the oldest living scope began.
  static size_t n_reused();
};

}  // namespace stow
