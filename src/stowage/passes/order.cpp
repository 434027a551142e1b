#include "stowage/passes/order.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <set>

namespace stow {
namespace {

struct UnitFacts {
  std::vector<ValueId> reads;   // roots that lie in memory
  std::vector<ValueId> writes;  // roots that it makes and something needs
  int64_t write_bytes = 0;
};

std::vector<UnitFacts> collect_facts(const Graph& graph, const Units& units,
                                     const std::vector<int64_t>& bytes) {
  std::vector<UnitFacts> facts(units.units.size());
  for (size_t u = 0; u < units.units.size(); ++u) {
    std::set<ValueId> reads;
    for (NodeId m : units.units[u].nodes) {
      for (ValueId v : graph.node(m).operands) {
        const ValueId root = units.uses[v.index()].root;
        if (units.uses[root.index()].unit != static_cast<int>(u)) reads.insert(root);
      }
      for (int i = 0; i < graph.node(m).n_results; ++i) {
        const ValueId v = graph.node(m).result(i);
        if (!units.uses[v.index()].needed || units.uses[v.index()].root != v) continue;
        facts[u].writes.push_back(v);
        facts[u].write_bytes += bytes[v.index()];
      }
    }
    facts[u].reads.assign(reads.begin(), reads.end());
  }
  return facts;
}

}  // namespace

std::vector<int> order_units(const Graph& graph, const Units& units,
                             const std::vector<int64_t>& value_bytes, OrderStrategy strategy) {
  const size_t n = units.units.size();
  std::vector<int> waiting(n, 0);
  std::vector<std::vector<int>> readers(n);
  for (size_t u = 0; u < n; ++u)
    for (int o : units.units[u].operand_units) {
      ++waiting[u];
      readers[static_cast<size_t>(o)].push_back(static_cast<int>(u));
    }
  // A unit stands where its last node stood; a fill stands before its first reader.
  std::vector<size_t> place(n);
  for (size_t u = 0; u < n; ++u) place[u] = units.units[u].nodes.back().index();
  for (size_t u = 0; u < n; ++u)
    if (units.units[u].operand_units.empty() && !readers[u].empty() &&
        op_class(graph.node(units.units[u].nodes[0]).op) != OpClass::kOther) {
      size_t first = std::numeric_limits<size_t>::max();
      for (int r : readers[u]) first = std::min(first, place[static_cast<size_t>(r)]);
      const bool leaf = graph.node(units.units[u].nodes[0]).operands.empty();
      if (leaf) place[u] = first;
    }
  const auto earlier = [&](int a, int b) {
    const size_t pa = place[static_cast<size_t>(a)], pb = place[static_cast<size_t>(b)];
    return pa != pb ? pa < pb : a > b;  // fills come last in the list and go first
  };

  const std::vector<UnitFacts> facts = collect_facts(graph, units, value_bytes);
  std::vector<int> uses_left(graph.n_values(), 0);
  for (const UnitFacts& f : facts)
    for (ValueId v : f.reads) ++uses_left[v.index()];
  for (ValueId v : graph.outputs()) ++uses_left[units.uses[v.index()].root.index()];

  std::vector<int> ready, order;
  for (size_t u = 0; u < n; ++u)
    if (waiting[u] == 0) ready.push_back(static_cast<int>(u));
  const auto score = [&](int u) {
    const UnitFacts& f = facts[static_cast<size_t>(u)];
    int64_t freed = 0;
    for (ValueId v : f.reads)
      if (uses_left[v.index()] == 1) freed += value_bytes[v.index()];
    return f.write_bytes - freed;
  };
  // kEager: what only makes memory waits until nothing else is ready, latest first.
  const auto delayed = [&](int u) {
    return strategy == OrderStrategy::kEager && units.units[static_cast<size_t>(u)].operand_units.empty();
  };
  // The window keeps a 25 000-unit graph linear: only so many of the earliest are looked at.
  constexpr size_t kWindow = 48;
  std::set<int, decltype(earlier)> queue(ready.begin(), ready.end(), earlier);
  while (!queue.empty()) {
    auto best = queue.begin();
    if (strategy != OrderStrategy::kProgram) {
      int64_t best_score = std::numeric_limits<int64_t>::max();
      bool best_delayed = true;
      size_t seen = 0;
      for (auto it = queue.begin(); it != queue.end() && seen < kWindow; ++it, ++seen) {
        const int64_t s = score(*it);
        const bool d = delayed(*it);
        if (d < best_delayed || (d == best_delayed && s < best_score)) {
          best = it;
          best_score = s;
          best_delayed = d;
        }
      }
    }
    const int u = *best;
    queue.erase(best);
    order.push_back(u);
    for (ValueId v : facts[static_cast<size_t>(u)].reads) --uses_left[v.index()];
    for (int r : readers[static_cast<size_t>(u)])
      if (--waiting[static_cast<size_t>(r)] == 0) queue.insert(r);
  }
  STOW_CHECK(order.size() == n, "the units depend on each other in a circle");
  return order;
}

}  // namespace stow
