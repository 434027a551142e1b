#include "stowage/passes/beam_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "stowage/passes/live_sequence.h"

namespace stow {
namespace {

// Beam search over topological orders. A state is the set of units that have run; of two states
// with one set the one of the lower peak survives.
class BeamSearch {
 public:
  BeamSearch(const Graph& graph, const Units& units, const std::vector<UnitFacts>& facts,
             const std::vector<int64_t>& bytes, const std::vector<size_t>& place,
             size_t most_windows)
      : units_(units),
        facts_(facts),
        bytes_(bytes),
        place_(place),
        n_(units.units.size()),
        most_windows_(most_windows) {
    readers_of_.resize(graph.n_values());
    returned_.resize(graph.n_values());
    users_.resize(n_);
    for (size_t u = 0; u < n_; ++u) {
      for (const Read& read : facts[u].reads)
        readers_of_[read.root.index()].push_back(static_cast<int>(u));
      for (int o : units.units[u].operand_units)
        users_[static_cast<size_t>(o)].push_back(static_cast<int>(u));
    }
    for (ValueId v : graph.outputs()) returned_[units.uses[v.index()].root.index()] = true;
  }

  int64_t peak_of(const std::vector<int>& order) const {
    return order.empty() ? 0 : walk_of(order).peak();
  }

  std::vector<int> run(std::vector<std::string>& limits) {
    std::vector<int> order = search();
    improve(order, limits);
    return order;
  }

  // Moves units that can wait down the order, then improves windows of a long order.
  void improve(std::vector<int>& order, std::vector<std::string>& limits) {
    delay(order);
    if (n_ > kWholeSearch) refine(order, limits);
  }

 private:
  using Set = std::vector<uint64_t>;  // of units, a bit each
  struct HashOfSet {
    size_t operator()(const Set& set) const {
      uint64_t hash = 0;
      for (const uint64_t word : set)
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
      return hash;
    }
  };
  struct State {
    Set done;
    std::vector<int> ready;  // the earliest first
    int64_t live = 0, peak = 0;
    int link = -1;  // the order so far, shared between states
  };
  struct Link {
    int parent, unit;
  };
  struct Move {
    int64_t live, peak;
    uint32_t state, rank;  // its place among equals
    int unit;
  };

  // Bytes that die when a unit has run, and how many of them the unit may overwrite.
  struct Freed {
    int64_t all = 0, covered = 0;
    void add(int64_t bytes, bool may_overwrite) {
      all += bytes;
      if (may_overwrite) covered += bytes;
    }
  };

  // Lists up to this length are searched nearly completely by the beam.
  static constexpr size_t kWholeSearch = 48;
  static constexpr size_t kWindow = 20, kWindowWidth = 256;
  static constexpr int kMaxLeft = 2;

  std::vector<int> search() {
    // The work stays bounded: wide beams for loop bodies, narrow ones for long straight programs.
    const size_t width = std::clamp<size_t>(40'000 / (n_ + 1), 1, 200);
    std::vector<State> beam(1);
    beam[0].done.resize((n_ + 63) / 64);
    for (size_t u = 0; u < n_; ++u)
      if (units_.units[u].operand_units.empty()) make_ready(beam[0], static_cast<int>(u));
    const auto better = [](const Move& a, const Move& b) {
      return std::tie(a.peak, a.live, a.rank) < std::tie(b.peak, b.live, b.rank);
    };
    std::vector<Move> moves;
    // States of the next step; those behind the first n_next keep their memory for steps to come.
    std::vector<State> next(1);
    size_t n_beam = 1, n_next = 0;
    // 1 + the index in `next`, at the hash of the state's set; 0 if there is none.
    std::vector<uint32_t> seen;
    size_t slots = 64;
    while (slots < 4 * width) slots *= 2;
    Set done;
    for (size_t step = 0; step < n_; ++step) {
      moves.clear();
      for (size_t s = 0; s < n_beam; ++s) {
        // Only some of the ready units, the earliest: the rest come later anyway.
        const size_t looked_at = std::min<size_t>(beam[s].ready.size(), 24);
        for (size_t i = 0; i < looked_at; ++i)
          moves.push_back(weigh(beam[s], s, beam[s].ready[i], moves.size()));
      }
      // Takes the best states first, more at a time until there are enough.
      n_next = 0;
      seen.assign(slots, 0);
      // True if no state of `next` has that set; the next one to be added has it.
      const auto is_new = [&](const Set& set) {
        size_t at = HashOfSet()(set) % slots;
        for (; seen[at] != 0; at = (at + 1) % slots)
          if (next[seen[at] - 1].done == set) return false;
        seen[at] = static_cast<uint32_t>(n_next + 1);
        return true;
      };
      for (auto from = moves.begin(); from != moves.end() && n_next < width;) {
        const auto to = from + std::min<std::ptrdiff_t>(2 * static_cast<std::ptrdiff_t>(width),
                                                        moves.end() - from);
        std::nth_element(from, to, moves.end(), better);
        std::sort(from, to, better);
        for (; from != to && n_next < width; ++from) {
          done = beam[from->state].done;
          add(done, from->unit);
          if (!is_new(done)) continue;
          if (n_next == next.size()) next.emplace_back();
          apply(beam[from->state], *from, next[n_next++]);
        }
      }
      std::swap(beam, next);
      n_beam = n_next;
    }
    std::vector<int> order(n_);
    int link = beam[0].link;
    for (size_t i = n_; i-- > 0; link = links_[static_cast<size_t>(link)].parent)
      order[i] = links_[static_cast<size_t>(link)].unit;
    return order;
  }

  // Live bytes while each unit runs, and after it.
  struct Course {
    std::vector<int64_t> during, after;
  };
  // An order with its live bytes, the place of each unit, and the place of each value's last
  // reader.
  struct Walk {
    Course course;
    std::vector<size_t> at, last;
    int64_t peak() const {
      return *std::max_element(course.during.begin(), course.during.end());
    }
  };
  Walk walk_of(const std::vector<int>& order) const {
    Walk walk{{std::vector<int64_t>(n_), std::vector<int64_t>(n_)},
              std::vector<size_t>(n_),
              std::vector<size_t>(readers_of_.size())};
    follow(order, 0, n_, walk);
    return walk;
  }
  // Updates the walk after the units of [begin, end) have changed places among each other.
  void follow(const std::vector<int>& order, size_t begin, size_t end, Walk& walk) const {
    const auto reads = [&](size_t i) -> const std::vector<Read>& {
      return facts_[static_cast<size_t>(order[i])].reads;
    };
    for (size_t i = begin; i < end; ++i) {
      walk.at[static_cast<size_t>(order[i])] = i;
      for (const Read& read : reads(i))
        if (size_t& last = walk.last[read.root.index()]; begin <= last && last < end) last = i;
    }
    int64_t live = begin > 0 ? walk.course.after[begin - 1] : 0;
    for (size_t i = begin; i < end; ++i) {
      Freed freed;
      for (const auto& [v, may_overwrite] : reads(i))
        if (walk.last[v.index()] == i && !returned_[v.index()])
          freed.add(bytes_[v.index()], may_overwrite);
      const auto [during, after] = bytes_around(order[i], live, freed);
      walk.course.during[i] = std::max(during, after);
      walk.course.after[i] = live = after;
    }
  }

  // Moves a unit that takes at least as many bytes as it frees to just before its first reader,
  // unless that raises the peak; the units that it reads follow. A unit that takes nothing, such as
  // a move to another memory, would only keep its operands live.
  void delay(std::vector<int>& order) const {
    if (n_ < 2) return;
    const Walk walk = walk_of(order);
    std::vector<int64_t> live(n_), extra(n_);
    for (size_t i = 0; i < n_; ++i) {
      const auto u = static_cast<size_t>(order[i]);
      live[u] = i > 0 ? walk.course.after[i - 1] : 0;
      extra[u] = walk.course.during[i] - live[u];
    }
    LiveSequence sequence(order, live, extra);
    std::vector<int> last(readers_of_.size());  // reader of each value
    for (size_t v = 0; v < last.size(); ++v)
      if (!readers_of_[v].empty()) last[v] = order[walk.last[v]];
    int64_t peak = sequence.peak();
    for (size_t i = n_; i-- > 0;) {
      const int u = order[i];
      if (facts_[static_cast<size_t>(u)].write_bytes == 0 ||
          facts_[static_cast<size_t>(u)].write_bytes < freed_by(u, last).all)
        continue;
      const size_t from = sequence.place(u);
      size_t first = n_;
      for (int r : users_[static_cast<size_t>(u)]) first = std::min(first, sequence.place(r));
      if (first == n_ || first <= from + 1) continue;
      const std::vector<Takeover> taken = move_down(u, from, first, last, sequence);
      if (const int64_t highest = sequence.peak(); highest <= peak)
        peak = highest;
      else
        move_back(u, from, first, taken, last, sequence);
    }
    order = sequence.order();
  }

  // A value whose last reader became the unit that moved.
  struct Takeover {
    ValueId value;
    int from;  // the last reader before
  };
  std::vector<Takeover> move_down(int u, size_t from, size_t to, std::vector<int>& last,
                                  LiveSequence& sequence) const {
    const UnitFacts& f = facts_[static_cast<size_t>(u)];
    const int64_t live_behind = sequence.live(sequence.at(to));
    sequence.add_live(from + 1, to, freed_by(u, last).all - f.write_bytes);
    std::vector<Takeover> taken;
    for (const Read& read : f.reads) {
      int& reader = last[read.root.index()];
      if (reader == u || returned_[read.root.index()]) continue;
      const size_t place = sequence.place(reader);
      if (place >= to) continue;
      sequence.add_live(place + 1, to, bytes_[read.root.index()]);
      taken.push_back({read.root, std::exchange(reader, u)});
    }
    for (const Takeover& t : taken) sequence.set_extra(t.from, extra_of(t.from, last));
    sequence.set_extra(u, extra_of(u, last));
    sequence.set_live(u, live_behind + freed_by(u, last).all - f.write_bytes);
    sequence.relocate(from, to - 1);
    return taken;
  }
  void move_back(int u, size_t from, size_t to, const std::vector<Takeover>& taken,
                 std::vector<int>& last, LiveSequence& sequence) const {
    const UnitFacts& f = facts_[static_cast<size_t>(u)];
    sequence.relocate(to - 1, from);
    for (const Takeover& t : taken) {
      last[t.value.index()] = t.from;
      sequence.add_live(sequence.place(t.from) + 1, to, -bytes_[t.value.index()]);
    }
    for (const Takeover& t : taken) sequence.set_extra(t.from, extra_of(t.from, last));
    sequence.set_extra(u, extra_of(u, last));
    sequence.add_live(from + 1, to, f.write_bytes - freed_by(u, last).all);
    const int64_t live_behind = sequence.live(sequence.at(from + 1));
    sequence.set_live(u, live_behind + freed_by(u, last).all - f.write_bytes);
  }
  Freed freed_by(int u, const std::vector<int>& last) const {
    Freed freed;
    for (const auto& [v, may_overwrite] : facts_[static_cast<size_t>(u)].reads)
      if (last[v.index()] == u && !returned_[v.index()])
        freed.add(bytes_[v.index()], may_overwrite);
    return freed;
  }
  int64_t extra_of(int u, const std::vector<int>& last) const {
    const auto [during, after] = bytes_around(u, 0, freed_by(u, last));
    return std::max(during, after);
  }

  // A long list has a peak in each of its layers: the units around the highest are put in their
  // best order, time and again. One that cannot be lowered is left, with what is around it, for the
  // next: in the plan it may be none, as moves and writes in place are not seen here.
  void refine(std::vector<int>& order, std::vector<std::string>& limits) {
    Walk walk = walk_of(order);
    std::vector<bool> left(n_);  // by place
    int n_left = 0;
    // The highest peak first, and the earliest of equal ones. A peak that a window has changed is
    // entered again.
    using Peak = std::pair<int64_t, size_t>;  // bytes, place from the end
    std::priority_queue<Peak> peaks;
    const auto enter = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) peaks.emplace(walk.course.during[i], n_ - i);
    };
    enter(0, n_);
    n_searched_ = 0;
    for (size_t windows = 0; n_left < kMaxLeft && !peaks.empty();) {
      const auto [bytes, from_end] = peaks.top();
      const size_t top = n_ - from_end;
      if (left[top] || walk.course.during[top] != bytes) {
        peaks.pop();
        continue;
      }
      if (n_searched_ >= most_windows_ || windows++ >= n_ + most_windows_) {
        limits.push_back(fmt::format(
            "order: {} windows of {} units were searched for a lower peak; later ones were not",
            n_searched_, kWindow));
        return;
      }
      bool lowered = false;
      // The peak in the middle of the window, then near its end, then near its begin.
      for (const size_t before : {kWindow / 2, kWindow - 4, size_t{4}}) {
        const size_t begin = top > before ? top - before : 0;
        const size_t end = std::min(n_, begin + kWindow);
        const std::vector<int> piece = best_piece(order, begin, end, walk);
        if (piece.empty()) continue;
        std::copy(piece.begin(), piece.end(), order.begin() + static_cast<std::ptrdiff_t>(begin));
        follow(order, begin, end, walk);
        enter(begin, end);
        lowered = true;
        break;
      }
      if (lowered) continue;
      ++n_left;
      for (size_t i = top - std::min(top, kWindow / 4); i < std::min(n_, top + kWindow / 4); ++i)
        left[i] = true;
    }
  }

  // A window as its search sees it: units by their places in it.
  struct Local {
    uint32_t needs = 0;
    struct Free {
      uint32_t readers;  // once all these have run
      int64_t bytes;
      bool may_overwrite;
    };
    std::vector<Free> frees;
  };

  // Returns the units of a window in an order of a lower peak; empty if there is none. Equal layers
  // have equal windows, and each is searched once.
  std::vector<int> best_piece(const std::vector<int>& order, size_t begin, size_t end,
                              const Walk& walk) {
    const size_t n = end - begin;
    const int64_t live = begin > 0 ? walk.course.after[begin - 1] : 0;
    const auto during = walk.course.during.begin();
    const int64_t peak = *std::max_element(during + static_cast<std::ptrdiff_t>(begin),
                                           during + static_cast<std::ptrdiff_t>(end));
    // Returns the bit of a unit in the window.
    const auto bit_of = [&](int u) {
      const size_t at = walk.at[static_cast<size_t>(u)];
      return begin <= at && at < end ? 1u << (at - begin) : 0;
    };
    std::vector<Local> local(n);
    std::vector<int64_t> problem = {peak - live};
    for (size_t i = 0; i < n; ++i) {
      const auto u = static_cast<size_t>(order[begin + i]);
      for (int o : units_.units[u].operand_units) local[i].needs |= bit_of(o);
      for (const auto& [v, may_overwrite] : facts_[u].reads) {
        if (returned_[v.index()] || bytes_[v.index()] == 0 || walk.last[v.index()] >= end) continue;
        uint32_t readers = 0;
        for (int r : readers_of_[v.index()]) readers |= bit_of(r);
        local[i].frees.push_back({readers, bytes_[v.index()], may_overwrite});
      }
      const UnitFacts& f = facts_[u];
      for (int64_t fact : {int64_t{local[i].needs}, f.epilogue_output_bytes, f.write_bytes,
                           f.scratch_bytes, static_cast<int64_t>(local[i].frees.size())})
        problem.push_back(fact);
      for (const auto& [readers, bytes, may_overwrite] : local[i].frees)
        for (int64_t fact : {int64_t{readers}, bytes, int64_t{may_overwrite}})
          problem.push_back(fact);
    }
    const auto [known, is_new] = known_pieces_.try_emplace(std::move(problem));
    if (is_new) {
      ++n_searched_;
      known->second = search_window(order, begin, local, live, peak);
    }
    std::vector<int> piece;
    for (uint8_t i : known->second) piece.push_back(order[begin + i]);
    return piece;
  }

  // Returns places in the window, in an order of a lower peak; empty if there is none.
  std::vector<uint8_t> search_window(const std::vector<int>& order, size_t begin,
                                     const std::vector<Local>& local, int64_t live,
                                     int64_t peak) const {
    const size_t n = local.size();
    struct Piece {
      uint32_t done = 0;
      int64_t live = 0, peak = 0;
      std::array<uint8_t, kWindow> order{};
    };
    std::vector<Piece> pieces = {{0, live, 0, {}}}, next;
    PlaceOfSet place_of;
    for (size_t step = 0; step < n; ++step) {
      next.clear();
      place_of.clear();
      for (const Piece& p : pieces)
        for (size_t i = 0; i < n; ++i) {
          const uint32_t bit = 1u << i;
          if (p.done & bit || (local[i].needs & ~p.done)) continue;
          const uint32_t done = p.done | bit;
          Freed freed;
          for (const auto& [readers, bytes, may_overwrite] : local[i].frees)
            if ((readers & ~done) == 0) freed.add(bytes, may_overwrite);
          const auto [during, after] = bytes_around(order[begin + i], p.live, freed);
          const int64_t so_far = std::max({p.peak, during, after});
          if (so_far >= peak) continue;
          const size_t at = place_of.find_or_add(done, next.size());
          if (at == next.size()) {
            next.push_back({done, after, so_far, {}});
          } else if (next[at].peak <= so_far) {
            continue;
          }
          next[at].peak = so_far;
          next[at].order = p.order;
          next[at].order[step] = static_cast<uint8_t>(i);
        }
      if (next.empty()) return {};
      if (next.size() > kWindowWidth) {
        const auto kept = next.begin() + static_cast<std::ptrdiff_t>(kWindowWidth);
        std::partial_sort(next.begin(), kept, next.end(), [](const Piece& a, const Piece& b) {
          return std::tie(a.peak, a.live, a.done) < std::tie(b.peak, b.live, b.done);
        });
        next.resize(kWindowWidth);
      } else {
        std::sort(next.begin(), next.end(),
                  [](const Piece& a, const Piece& b) { return a.done < b.done; });
      }
      std::swap(pieces, next);
    }
    const auto best = pieces[0].order.begin();
    return {best, best + static_cast<std::ptrdiff_t>(n)};
  }

  // The place of each set of units of a window in a list: a hash table.
  class PlaceOfSet {
   public:
    void clear() { ++round_; }
    // Returns the place of a known set; enters an unknown one with the place `fresh`.
    size_t find_or_add(uint32_t set, size_t fresh) {
      for (size_t at = set * 0x9e3779b1u >> (32 - kBits);; at = (at + 1) % entries_.size()) {
        Entry& entry = entries_[at];
        if (entry.round != round_) {
          entry = {set, static_cast<uint32_t>(fresh), round_};
          return fresh;
        }
        if (entry.set == set) return entry.place;
      }
    }

   private:
    struct Entry {
      uint32_t set = 0, place = 0, round = 0;
    };
    static constexpr int kBits = 14;  // more than twice what a step can add
    static_assert(size_t{1} << kBits > 2 * kWindowWidth * kWindow);
    std::vector<Entry> entries_ = std::vector<Entry>(size_t{1} << kBits);
    uint32_t round_ = 0;  // entries of other rounds are not valid
  };

  // Returns the live bytes while a unit runs and after it, given the bytes that it frees.
  std::pair<int64_t, int64_t> bytes_around(int u, int64_t live, const Freed& freed) const {
    const UnitFacts& f = facts_[static_cast<size_t>(u)];
    const int64_t during =
        live + f.scratch_bytes + std::max(f.epilogue_output_bytes, f.write_bytes - freed.covered);
    return {during, live + f.write_bytes - freed.all};
  }

  bool before(int a, int b) const {
    const size_t pa = place_[static_cast<size_t>(a)], pb = place_[static_cast<size_t>(b)];
    return pa != pb ? pa < pb : a > b;
  }
  static bool has(const Set& set, int u) {
    return set[static_cast<size_t>(u) / 64] >> (u % 64) & 1;
  }
  static void add(Set& set, int u) { set[static_cast<size_t>(u) / 64] |= uint64_t{1} << (u % 64); }
  void make_ready(State& s, int u) const {
    s.ready.insert(std::upper_bound(s.ready.begin(), s.ready.end(), u,
                                    [&](int a, int b) { return before(a, b); }),
                   u);
  }

  Move weigh(const State& s, size_t index, int u, size_t rank) const {
    const UnitFacts& f = facts_[static_cast<size_t>(u)];
    Freed freed;
    for (const auto& [v, may_overwrite] : f.reads) {
      if (returned_[v.index()] || bytes_[v.index()] == 0) continue;
      const std::vector<int>& readers = readers_of_[v.index()];
      if (std::all_of(readers.begin(), readers.end(),
                      [&](int r) { return r == u || has(s.done, r); }))
        freed.add(bytes_[v.index()], may_overwrite);
    }
    const auto [during, after] = bytes_around(u, s.live, freed);
    return {after, std::max({s.peak, during, after}), static_cast<uint32_t>(index),
            static_cast<uint32_t>(rank), u};
  }

  // Sets `s` to the state that follows `from` by a move.
  void apply(const State& from, const Move& move, State& s) {
    s = from;
    add(s.done, move.unit);
    s.live = move.live;
    s.peak = move.peak;
    s.ready.erase(std::find(s.ready.begin(), s.ready.end(), move.unit));
    for (int r : users_[static_cast<size_t>(move.unit)]) {
      const auto& needs = units_.units[static_cast<size_t>(r)].operand_units;
      if (std::all_of(needs.begin(), needs.end(), [&](int o) { return has(s.done, o); }))
        make_ready(s, r);
    }
    links_.push_back({from.link, move.unit});
    s.link = static_cast<int>(links_.size() - 1);
  }

  const Units& units_;
  const std::vector<UnitFacts>& facts_;
  const std::vector<int64_t>& bytes_;
  const std::vector<size_t>& place_;
  size_t n_;
  size_t most_windows_;
  std::vector<std::vector<int>> readers_of_, users_;
  std::vector<bool> returned_;
  std::vector<Link> links_;
  std::map<std::vector<int64_t>, std::vector<uint8_t>> known_pieces_;  // by window
  size_t n_searched_ = 0;                                              // windows, so far
};

BeamSearch search_of(const OrderProblem& p) {
  return BeamSearch(p.graph, p.units, p.facts, p.bytes, p.place, p.most_windows);
}

}  // namespace

std::vector<int> beam_order(const OrderProblem& problem, std::vector<std::string>& limits) {
  return search_of(problem).run(limits);
}

void improve_order(const OrderProblem& problem, std::vector<int>& order,
                   std::vector<std::string>& limits) {
  search_of(problem).improve(order, limits);
}

int64_t peak_of_order(const OrderProblem& problem, const std::vector<int>& order) {
  return search_of(problem).peak_of(order);
}

}  // namespace stow
