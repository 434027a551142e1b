#include "stowage/passes/order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <set>

namespace stow {
namespace {

struct UnitFacts {
  std::vector<ValueId> reads;   // roots that lie in memory
  std::vector<ValueId> writes;  // roots that it makes and something needs
  int64_t write_bytes = 0;
  int64_t scratch_bytes = 0;
};

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
        if (!units.uses[v.index()].needed || units.uses[v.index()].root != v) continue;
        facts[u].writes.push_back(v);
        facts[u].write_bytes += bytes[v.index()];
      }
    }
    facts[u].reads.assign(reads.begin(), reads.end());
  }
  return facts;
}

// Beam search over topological orders. A state is the set of units that have run; of two states
// with one set the one of the lower peak survives.
class BeamSearch {
 public:
  BeamSearch(const Graph& graph, const Units& units, const std::vector<UnitFacts>& facts,
             const std::vector<int64_t>& bytes, const std::vector<size_t>& place)
      : units_(units), facts_(facts), bytes_(bytes), place_(place), n_(units.units.size()) {
    readers_of_.resize(graph.n_values());
    returned_.resize(graph.n_values());
    users_.resize(n_);
    for (size_t u = 0; u < n_; ++u) {
      for (ValueId v : facts[u].reads) readers_of_[v.index()].push_back(static_cast<int>(u));
      for (int o : units.units[u].operand_units)
        users_[static_cast<size_t>(o)].push_back(static_cast<int>(u));
    }
    for (ValueId v : graph.outputs()) returned_[units.uses[v.index()].root.index()] = true;
  }

  int64_t peak_of(const std::vector<int>& order) const {
    const Course course = follow(order);
    return order.empty() ? 0 : *std::max_element(course.during.begin(), course.during.end());
  }

  std::vector<int> run() {
    std::vector<int> order = search();
    improve(order);
    return order;
  }

  // What can wait goes down; of a long order pieces are then put as well as can be.
  void improve(std::vector<int>& order) const {
    delay(order);
    if (n_ > kWholeSearch) refine(order);
  }

 private:
  struct State {
    std::vector<uint64_t> done;
    std::vector<int> ready;
    int64_t live = 0, peak = 0;
    int link = -1;  // the order so far, shared between states
  };
  struct Link {
    int parent, unit;
  };
  struct Move {
    size_t state;
    int unit;
    int64_t live, peak;
  };

  // Lists as short as this the beam searches nearly whole.
  static constexpr size_t kWholeSearch = 48;
  static constexpr size_t kWindow = 20, kWindowWidth = 256;
  static constexpr int kMaxWindows = 600, kMaxLeft = 2;
  static constexpr size_t kMaxDelayed = 2500;  // each costs a walk of the list

  std::vector<int> search() {
    // The work stays bounded: wide beams for loop bodies, narrow ones for long straight programs.
    const size_t width = std::clamp<size_t>(40'000 / (n_ + 1), 1, 200);
    std::vector<State> beam(1);
    beam[0].done.resize((n_ + 63) / 64);
    for (size_t u = 0; u < n_; ++u)
      if (units_.units[u].operand_units.empty()) beam[0].ready.push_back(static_cast<int>(u));
    for (size_t step = 0; step < n_; ++step) {
      std::vector<Move> moves;
      for (size_t s = 0; s < beam.size(); ++s) {
        // Only some of the ready units, the earliest: the rest come later anyway.
        std::vector<int>& ready = beam[s].ready;
        const size_t looked_at = std::min<size_t>(ready.size(), 24);
        std::partial_sort(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(looked_at),
                          ready.end(), [&](int a, int b) { return before(a, b); });
        for (size_t i = 0; i < looked_at; ++i) moves.push_back(weigh(beam[s], s, ready[i]));
      }
      std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
        return a.peak != b.peak ? a.peak < b.peak : a.live < b.live;
      });
      std::vector<State> next;
      std::set<std::vector<uint64_t>> seen;
      for (const Move& move : moves) {
        if (next.size() == width) break;
        State state = apply(beam[move.state], move);
        if (!seen.insert(state.done).second) continue;
        next.push_back(std::move(state));
      }
      beam = std::move(next);
    }
    std::vector<int> order(n_);
    int link = beam[0].link;
    for (size_t i = n_; i-- > 0; link = links_[static_cast<size_t>(link)].parent)
      order[i] = links_[static_cast<size_t>(link)].unit;
    return order;
  }

  // Bytes while each unit runs, and behind it.
  struct Course {
    std::vector<int64_t> during, after;
  };
  Course follow(const std::vector<int>& order) const {
    std::vector<size_t> left(readers_of_.size());  // readers that have not run
    for (size_t v = 0; v < left.size(); ++v) left[v] = readers_of_[v].size();
    Course course;
    int64_t live = 0;
    for (int u : order) {
      int64_t freed = 0;
      for (ValueId v : facts_[static_cast<size_t>(u)].reads)
        if (--left[v.index()] == 0 && !returned_[v.index()]) freed += bytes_[v.index()];
      const auto [during, after] = bytes_around(u, live, freed);
      course.during.push_back(std::max(during, after));
      course.after.push_back(live = after);
    }
    return course;
  }

  // What takes as much as it frees, or more, goes down to just before its first reader, unless that
  // raises the peak; so does then what it reads. What takes nothing, as a move to elsewhere, would only
  // hold what it reads.
  void delay(std::vector<int>& order) const {
    if (n_ < 2 || n_ > kMaxDelayed) return;
    Course course = follow(order);
    int64_t peak = *std::max_element(course.during.begin(), course.during.end());
    std::vector<size_t> at(n_);
    for (size_t i = 0; i < n_; ++i) at[static_cast<size_t>(order[i])] = i;
    const std::vector<int> from_last(order.rbegin(), order.rend());
    for (int u : from_last) {
      if (facts_[static_cast<size_t>(u)].write_bytes == 0) continue;
      const size_t from = at[static_cast<size_t>(u)];
      size_t first = n_;
      for (int r : users_[static_cast<size_t>(u)])
        first = std::min(first, at[static_cast<size_t>(r)]);
      const int64_t live = from > 0 ? course.after[from - 1] : 0;
      if (course.after[from] < live || first == n_ || first <= from + 1) continue;
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(from);
      const auto end = order.begin() + static_cast<std::ptrdiff_t>(first);
      std::rotate(begin, begin + 1, end);
      Course moved = follow(order);
      const int64_t highest = *std::max_element(moved.during.begin(), moved.during.end());
      if (highest > peak) {
        std::rotate(begin, end - 1, end);
        continue;
      }
      peak = highest;
      course = std::move(moved);
      for (size_t j = from; j < first; ++j) at[static_cast<size_t>(order[j])] = j;
    }
  }

  // A long list has a peak in each of its layers: the units around the highest are put in their best
  // order, time and again. One that cannot be lowered is left, with what is around it, for the next:
  // in the plan it may be none, as moves and writes in place are not seen here.
  void refine(std::vector<int>& order) const {
    Course course = follow(order);
    std::vector<bool> left(n_);  // by place
    int n_left = 0;
    for (int windows = 0; windows < kMaxWindows && n_left < kMaxLeft; ++windows) {
      size_t top = n_;
      for (size_t i = 0; i < n_; ++i)
        if (!left[i] && (top == n_ || course.during[i] > course.during[top])) top = i;
      bool lowered = false;
      // The peak in the middle of the window, then near its end, then near its begin.
      for (const size_t before : {kWindow / 2, kWindow - 4, size_t{4}}) {
        const size_t begin = top > before ? top - before : 0;
        const size_t end = std::min(n_, begin + kWindow);
        const std::vector<int> piece = best_piece(order, begin, end, course);
        if (piece.empty()) continue;
        std::copy(piece.begin(), piece.end(), order.begin() + static_cast<std::ptrdiff_t>(begin));
        course = follow(order);
        lowered = true;
        break;
      }
      if (lowered) continue;
      ++n_left;
      for (size_t i = top - std::min(top, kWindow / 4); i < std::min(n_, top + kWindow / 4); ++i)
        left[i] = true;
    }
  }

  // The units of a window in an order of a lower peak; empty where there is none.
  std::vector<int> best_piece(const std::vector<int>& order, size_t begin, size_t end,
                              const Course& course) const {
    const size_t n = end - begin;
    const int64_t live = begin > 0 ? course.after[begin - 1] : 0;
    const int64_t peak = *std::max_element(course.during.begin() + static_cast<std::ptrdiff_t>(begin),
                                           course.during.begin() + static_cast<std::ptrdiff_t>(end));
    std::vector<int> index(n_, -1);
    for (size_t i = 0; i < n; ++i) index[static_cast<size_t>(order[begin + i])] = static_cast<int>(i);
    std::vector<bool> past(n_);
    for (size_t i = 0; i < begin; ++i) past[static_cast<size_t>(order[i])] = true;
    struct Local {
      uint32_t needs = 0;
      std::vector<std::pair<uint32_t, int64_t>> frees;  // once all these have run, so many bytes
    };
    std::vector<Local> local(n);
    for (size_t i = 0; i < n; ++i) {
      const auto u = static_cast<size_t>(order[begin + i]);
      for (int o : units_.units[u].operand_units)
        if (index[static_cast<size_t>(o)] >= 0) local[i].needs |= 1u << index[static_cast<size_t>(o)];
      for (ValueId v : facts_[u].reads) {
        if (returned_[v.index()] || bytes_[v.index()] == 0) continue;
        uint32_t readers = 0;
        bool later = false;
        for (int r : readers_of_[v.index()]) {
          const auto unit = static_cast<size_t>(r);
          if (index[unit] >= 0)
            readers |= 1u << index[unit];
          else
            later |= !past[unit];
        }
        if (!later) local[i].frees.emplace_back(readers, bytes_[v.index()]);
      }
    }
    struct Piece {
      uint32_t done;
      int64_t live, peak;
      std::vector<uint8_t> order;
    };
    std::vector<Piece> pieces = {{0, live, 0, {}}};
    for (size_t step = 0; step < n; ++step) {
      std::map<uint32_t, Piece> next;
      for (const Piece& p : pieces)
        for (size_t i = 0; i < n; ++i) {
          const uint32_t bit = 1u << i;
          if (p.done & bit || (local[i].needs & ~p.done)) continue;
          const uint32_t done = p.done | bit;
          int64_t freed = 0;
          for (const auto& [readers, bytes] : local[i].frees)
            if ((readers & ~done) == 0) freed += bytes;
          const auto u = static_cast<size_t>(order[begin + i]);
          const auto [during, after] = bytes_around(static_cast<int>(u), p.live, freed);
          const int64_t so_far = std::max({p.peak, during, after});
          if (so_far >= peak) continue;
          const auto [it, fresh] = next.try_emplace(done, Piece{done, after, so_far, {}});
          if (!fresh && it->second.peak <= so_far) continue;
          it->second.peak = so_far;
          it->second.order = p.order;
          it->second.order.push_back(static_cast<uint8_t>(i));
        }
      pieces.clear();
      for (auto& [done, p] : next) pieces.push_back(std::move(p));
      if (pieces.empty()) return {};
      if (pieces.size() > kWindowWidth) {
        std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
          return a.peak != b.peak ? a.peak < b.peak : a.live < b.live;
        });
        pieces.resize(kWindowWidth);
      }
    }
    std::vector<int> piece;
    for (uint8_t i : pieces[0].order) piece.push_back(order[begin + i]);
    return piece;
  }

  // While a unit runs and behind it, where it frees so many bytes.
  std::pair<int64_t, int64_t> bytes_around(int u, int64_t live, int64_t freed) const {
    const UnitFacts& f = facts_[static_cast<size_t>(u)];
    // A row program may write over what it frees, a product over the sum that it adds to.
    const Unit& unit = units_.units[static_cast<size_t>(u)];
    const bool in_place =
        unit.kind == UnitKind::kRows || (unit.kind == UnitKind::kOp && unit.nodes.size() == 2);
    const int64_t during =
        live + f.scratch_bytes +
        (in_place ? std::max<int64_t>(0, f.write_bytes - freed) : f.write_bytes);
    return {during, live + f.write_bytes - freed};
  }

  bool before(int a, int b) const {
    const size_t pa = place_[static_cast<size_t>(a)], pb = place_[static_cast<size_t>(b)];
    return pa != pb ? pa < pb : a > b;
  }
  static bool has(const State& s, int u) {
    return s.done[static_cast<size_t>(u) / 64] >> (u % 64) & 1;
  }

  Move weigh(const State& s, size_t index, int u) const {
    const UnitFacts& f = facts_[static_cast<size_t>(u)];
    int64_t freed = 0;
    for (ValueId v : f.reads) {
      if (returned_[v.index()] || bytes_[v.index()] == 0) continue;
      bool last = true;
      for (int r : readers_of_[v.index()]) last &= r == u || has(s, r);
      if (last) freed += bytes_[v.index()];
    }
    const auto [during, after] = bytes_around(u, s.live, freed);
    return {index, u, after, std::max({s.peak, during, after})};
  }

  State apply(const State& from, const Move& move) {
    State s = from;
    s.done[static_cast<size_t>(move.unit) / 64] |= uint64_t{1} << (move.unit % 64);
    s.live = move.live;
    s.peak = move.peak;
    s.ready.erase(std::find(s.ready.begin(), s.ready.end(), move.unit));
    for (int r : users_[static_cast<size_t>(move.unit)]) {
      const auto& needs = units_.units[static_cast<size_t>(r)].operand_units;
      if (std::all_of(needs.begin(), needs.end(), [&](int o) { return has(s, o); }))
        s.ready.push_back(r);
    }
    links_.push_back({from.link, move.unit});
    s.link = static_cast<int>(links_.size() - 1);
    return s;
  }

  const Units& units_;
  const std::vector<UnitFacts>& facts_;
  const std::vector<int64_t>& bytes_;
  const std::vector<size_t>& place_;
  size_t n_;
  std::vector<std::vector<int>> readers_of_, users_;
  std::vector<bool> returned_;
  std::vector<Link> links_;
};

}  // namespace

std::vector<int> order_units(const Graph& graph, const Units& units,
                             const std::vector<int64_t>& value_bytes,
                             const std::vector<int64_t>& scratch_bytes, OrderStrategy strategy) {
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

  const std::vector<UnitFacts> facts = collect_facts(graph, units, value_bytes, scratch_bytes);
  if (strategy == OrderStrategy::kBeam && n > 0)
    return BeamSearch(graph, units, facts, value_bytes, place).run();
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
  // The window keeps a 25 000-unit graph linear: only so many of the earliest are looked at.
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
    for (ValueId v : facts[static_cast<size_t>(u)].reads) --uses_left[v.index()];
    for (int r : readers[static_cast<size_t>(u)])
      if (--waiting[static_cast<size_t>(r)] == 0) queue.insert(r);
  }
  STOW_CHECK(order.size() == n, "the units depend on each other in a circle");
  if (strategy == OrderStrategy::kGreedy)
    BeamSearch(graph, units, facts, value_bytes, place).improve(order);
  return order;
}

int64_t peak_bytes(const Graph& graph, const Units& units, const std::vector<int64_t>& value_bytes,
                   const std::vector<int64_t>& scratch_bytes, const std::vector<int>& order) {
  const std::vector<UnitFacts> facts = collect_facts(graph, units, value_bytes, scratch_bytes);
  return BeamSearch(graph, units, facts, value_bytes, {}).peak_of(order);
}

}  // namespace stow
