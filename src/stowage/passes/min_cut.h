// Minimum cut of a small directed network with capacities.
// Not specific to graphs of operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stow {

/// Dinic's algorithm. Vertices are 0 .. n-1.
class MinCut {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 60;

  explicit MinCut(size_t n) : edges_of_(n) {}
  void add_edge(int from, int to, int64_t capacity);
  /// Finds the minimum cut nearest to the sink. Returns its capacity; kInfinite or more if there is
  /// no cut of finite capacity.
  int64_t solve(int source, int sink);
  /// True if the vertex lies on the sink's side of the cut that solve() found.
  bool on_sink_side(int v) const { return sink_side_[static_cast<size_t>(v)]; }

 private:
  struct Edge {
    int to;
    int64_t capacity;
  };
  // Computes the distance of each vertex from the source. Returns false if the sink cannot be
  // reached.
  bool levels(int source, int sink);
  int64_t push(int v, int sink, int64_t limit);

  std::vector<Edge> edges_;  // edge i and its reverse i ^ 1
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;
  std::vector<bool> sink_side_;
};

}  // namespace stow
