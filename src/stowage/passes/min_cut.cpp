#include "stowage/passes/min_cut.h"

#include <algorithm>

namespace stow {

void MinCut::add_edge(int from, int to, int64_t capacity) {
  edges_of_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::levels(int source, int sink) {
  level_.assign(edges_of_.size(), -1);
  level_[static_cast<size_t>(source)] = 0;
  std::vector<int> queue = {source};
  for (size_t q = 0; q < queue.size(); ++q)
    for (int e : edges_of_[static_cast<size_t>(queue[q])]) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.capacity <= 0 || level_[static_cast<size_t>(edge.to)] >= 0) continue;
      level_[static_cast<size_t>(edge.to)] = level_[static_cast<size_t>(queue[q])] + 1;
      queue.push_back(edge.to);
    }
  return level_[static_cast<size_t>(sink)] >= 0;
}

// One augmenting path along the levels, walked without recursion: graphs may be deep.
int64_t MinCut::push(int source, int sink, int64_t limit) {
  std::vector<int> path;
  int v = source;
  while (v != sink) {
    size_t& next = next_[static_cast<size_t>(v)];
    const auto& out = edges_of_[static_cast<size_t>(v)];
    for (; next < out.size(); ++next) {
      const Edge& edge = edges_[static_cast<size_t>(out[next])];
      if (edge.capacity > 0 &&
          level_[static_cast<size_t>(edge.to)] == level_[static_cast<size_t>(v)] + 1)
        break;
    }
    if (next < out.size()) {
      path.push_back(out[next]);
      v = edges_[static_cast<size_t>(out[next])].to;
    } else if (path.empty()) {
      return 0;
    } else {
      level_[static_cast<size_t>(v)] = -1;
      v = edges_[static_cast<size_t>(path.back() ^ 1)].to;
      path.pop_back();
    }
  }
  for (int e : path) limit = std::min(limit, edges_[static_cast<size_t>(e)].capacity);
  for (int e : path) {
    edges_[static_cast<size_t>(e)].capacity -= limit;
    edges_[static_cast<size_t>(e ^ 1)].capacity += limit;
  }
  return limit;
}

int64_t MinCut::solve(int source, int sink) {
  int64_t flow = 0;
  while (flow < kInfinite && levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    while (const int64_t pushed = push(source, sink, kInfinite)) {
      flow += pushed;
      if (flow >= kInfinite) break;
    }
  }
  sink_side_.assign(edges_of_.size(), false);
  sink_side_[static_cast<size_t>(sink)] = true;
  std::vector<int> queue = {sink};
  for (size_t q = 0; q < queue.size(); ++q)
    for (int e : edges_of_[static_cast<size_t>(queue[q])]) {
      const int from = edges_[static_cast<size_t>(e)].to;
      if (edges_[static_cast<size_t>(e ^ 1)].capacity <= 0 || sink_side_[static_cast<size_t>(from)])
        continue;
      sink_side_[static_cast<size_t>(from)] = true;
      queue.push_back(from);
    }
  return flow;
}

}  // namespace stow
