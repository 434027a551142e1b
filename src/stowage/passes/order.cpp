#include "stowage/passes/order.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "stowage/base/scoped_cache.h"
#include "stowage/passes/beam_order.h"
#include "stowage/passes/order_cache.h"

namespace stow {

namespace {

struct FoundOrder {
  std::vector<int> order;
  std::vector<std::string> limits;
};

ScopedCache<FoundOrder>& order_cache() {
  static ScopedCache<FoundOrder> cache;
  return cache;
}

// Returns all numbers on which an order depends, as the key of a cache.
std::vector<int64_t> numbers_of(const Graph& graph, const Units& units,
                                const std::vector<UnitFacts>& facts,
                                const std::vector<int64_t>& value_bytes,
                                const std::vector<size_t>& place, OrderStrategy strategy,
                                size_t most_windows) {
  std::vector<int64_t> numbers;
  const auto add = [&](auto... more) { (numbers.push_back(static_cast<int64_t>(more)), ...); };
  const auto add_value = [&](ValueId v) { add(v.index(), value_bytes[v.index()]); };
  add(strategy, most_windows, facts.size(), graph.outputs().size());
  for (ValueId v : graph.outputs()) add(units.uses[v.index()].root.index());
  for (size_t u = 0; u < facts.size(); ++u) {
    const UnitFacts& f = facts[u];
    const auto& operands = units.units[u].operand_units;
    add(place[u], f.epilogue_output_bytes, f.write_bytes, f.scratch_bytes, operands.size(),
        f.reads.size(), f.writes.size());
    for (int o : operands) add(o);
    for (const Read& read : f.reads) {
      add(read.may_overwrite);
      add_value(read.root);
    }
    for (ValueId v : f.writes) add_value(v);
  }
  return numbers;
}

std::vector<UnitFacts> collect_facts(const Graph& graph, const Units& units,
                                     const std::vector<int64_t>& bytes,
                                     const std::vector<int64_t>& scratch_bytes) {
  std::vector<UnitFacts> facts(units.units.size());
  for (size_t u = 0; u < units.units.size(); ++u) {
    facts[u].scratch_bytes = scratch_bytes[u];
    std::set<ValueId> reads;
    for (NodeId m : units.units[u].nodes) {
      for (ValueId v : graph.node(m).operands) {
        const ValueId root = units.uses[v.index()].root;
        if (units.uses[root.index()].unit != static_cast<int>(u)) reads.insert(root);
      }
      for (int i = 0; i < graph.node(m).n_results; ++i) {
        const ValueId v = graph.node(m).result(i);
        if (!units.uses[v.index()].needs_memory || units.uses[v.index()].root != v) continue;
        facts[u].writes.push_back(v);
        facts[u].write_bytes += bytes[v.index()];
      }
    }
    // A row program may write over the values that it frees, and a product over the sum to which it
    // adds. An epilogue may not write over the product's operands or over the place of its result.
    const Unit& unit = units.units[u];
    const bool in_place = unit.kind == UnitKind::kRows || adds_to_sum(unit);
    for (ValueId root : reads) facts[u].reads.push_back({root, in_place});
    if (!unit.epilogue_output.valid()) continue;
    facts[u].epilogue_output_bytes = bytes[unit.epilogue_output.index()];
    for (NodeId m : unit.nodes) {
      if (!is_product_or_prologue(unit, m)) continue;
      for (ValueId v : graph.node(m).operands)
        for (Read& read : facts[u].reads)
          if (read.root == units.uses[v.index()].root) read.may_overwrite = false;
    }
  }
  return facts;
}

// `waiting`: the number of units for which each unit waits; `readers`: the units that wait for each
// unit.
std::vector<int> find_order(const OrderProblem& problem, OrderStrategy strategy,
                            std::vector<int> waiting, const std::vector<std::vector<int>>& readers,
                            std::vector<std::string>& limits) {
  const std::vector<UnitFacts>& facts = problem.facts;
  const std::vector<int64_t>& value_bytes = problem.bytes;
  const size_t n = facts.size();
  if (strategy == OrderStrategy::kBeam && n > 0) return beam_order(problem, limits);
  const auto earlier = [&](int a, int b) {
    const size_t pa = problem.place[static_cast<size_t>(a)],
                 pb = problem.place[static_cast<size_t>(b)];
    return pa != pb ? pa < pb : a > b;  // fills come last in the list and go first
  };
  std::vector<int> uses_left(problem.graph.n_values(), 0);
  for (const UnitFacts& f : facts)
    for (const Read& read : f.reads) ++uses_left[read.root.index()];
  for (ValueId v : problem.graph.outputs())
    ++uses_left[problem.units.uses[v.index()].root.index()];

  std::vector<int> ready, order;
  for (size_t u = 0; u < n; ++u)
    if (waiting[u] == 0) ready.push_back(static_cast<int>(u));
  const auto score = [&](int u) {
    const UnitFacts& f = facts[static_cast<size_t>(u)];
    int64_t freed = 0;
    for (const Read& read : f.reads)
      if (uses_left[read.root.index()] == 1) freed += value_bytes[read.root.index()];
    return f.write_bytes - freed;
  };
  // Only this many of the earliest units are considered, which keeps an order of 25 000 units
  // linear.
  constexpr size_t kWindow = 48;
  std::set<int, decltype(earlier)> queue(ready.begin(), ready.end(), earlier);
  while (!queue.empty()) {
    auto best = queue.begin();
    if (strategy != OrderStrategy::kProgram) {
      int64_t best_score = std::numeric_limits<int64_t>::max();
      size_t seen = 0;
      for (auto it = queue.begin(); it != queue.end() && seen < kWindow; ++it, ++seen) {
        const int64_t s = score(*it);
        if (s < best_score) {
          best = it;
          best_score = s;
        }
      }
    }
    const int u = *best;
    queue.erase(best);
    order.push_back(u);
    for (const Read& read : facts[static_cast<size_t>(u)].reads) --uses_left[read.root.index()];
    for (int r : readers[static_cast<size_t>(u)])
      if (--waiting[static_cast<size_t>(r)] == 0) queue.insert(r);
  }
  STOW_CHECK(order.size() == n, "the units depend on each other in a circle");
  if (strategy == OrderStrategy::kGreedy) improve_order(problem, order, limits);
  return order;
}

}  // namespace

std::vector<int> order_units(const Graph& graph, const Units& units,
                             const std::vector<int64_t>& value_bytes,
                             const std::vector<int64_t>& scratch_bytes, OrderStrategy strategy,
                             std::vector<std::string>& limits, size_t most_windows) {
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
  for (size_t u = 0; u < n; ++u)
    for (NodeId m : units.units[u].nodes) place[u] = std::max(place[u], m.index());
  for (size_t u = 0; u < n; ++u)
    if (units.units[u].operand_units.empty() && !readers[u].empty() &&
        op_class(graph.node(units.units[u].nodes[0]).op) != OpClass::kOther) {
      size_t first = std::numeric_limits<size_t>::max();
      for (int r : readers[u]) first = std::min(first, place[static_cast<size_t>(r)]);
      const bool leaf = graph.node(units.units[u].nodes[0]).operands.empty();
      if (leaf) place[u] = first;
    }
  const std::vector<UnitFacts> facts = collect_facts(graph, units, value_bytes, scratch_bytes);
  const auto find = [&] {
    FoundOrder found;
    found.order = find_order({graph, units, facts, value_bytes, place, most_windows}, strategy,
                             waiting, readers, found.limits);
    return found;
  };
  const auto numbers = [&] {
    return numbers_of(graph, units, facts, value_bytes, place, strategy, most_windows);
  };
  FoundOrder found =
      strategy == OrderStrategy::kProgram ? find() : order_cache().find(numbers, find);
  limits.insert(limits.end(), found.limits.begin(), found.limits.end());
  return std::move(found.order);
}

OrderCacheScope::OrderCacheScope() { order_cache().begin_scope(); }
OrderCacheScope::~OrderCacheScope() { order_cache().end_scope(); }
size_t OrderCacheScope::n_reused() { return order_cache().n_reused(); }

int64_t peak_bytes(const Graph& graph, const Units& units, const std::vector<int64_t>& value_bytes,
                   const std::vector<int64_t>& scratch_bytes, const std::vector<int>& order) {
  const std::vector<UnitFacts> facts = collect_facts(graph, units, value_bytes, scratch_bytes);
  return peak_of_order({graph, units, facts, value_bytes, {}}, order);
}

}  // namespace stow
