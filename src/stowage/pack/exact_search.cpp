#include "stowage/pack/exact_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

namespace stow::pack {
namespace {

constexpr int32_t kBlock = 32;
// The most candidates at the lowest base that are examined. Only large components have more.
constexpr int32_t kMostTies = 256;
// Between two calls of stop(): near a tenth of a millisecond.
constexpr int64_t kStepsAsked = 100'000;
// The most changes of one propagation. Items that rest only on one another lift themselves to the
// capacity by their own sizes, in as many steps as there are bytes; the search does not wait for
// that.
constexpr size_t kMostChanges = 100'000;
constexpr int64_t kNothing = INT64_MAX;  // The lowest bound, or the slack, of nothing unplaced.

}  // namespace

ExactSearch::ExactSearch(std::vector<Item> items, int32_t n_sections, int64_t capacity)
    : items_(std::move(items)), capacity_(capacity) {
  const auto n = static_cast<int32_t>(items_.size());
  std::vector<std::vector<int32_t>> members(n_sections);
  for (int32_t i = 0; i < n; ++i)
    for (int32_t s = items_[i].first; s <= items_[i].last; ++s) members[s].push_back(i);
  for (const auto& m : members) {
    member_begin_.push_back(static_cast<int32_t>(members_.size()));
    members_.insert(members_.end(), m.begin(), m.end());
  }
  member_begin_.push_back(static_cast<int32_t>(members_.size()));

  by_first_.resize(n);
  std::iota(by_first_.begin(), by_first_.end(), 0);
  std::sort(by_first_.begin(), by_first_.end(), [&](int32_t a, int32_t b) {
    return std::tuple(items_[a].first, a) < std::tuple(items_[b].first, b);
  });
  std::vector<std::vector<int32_t>> neighbours(n);
  for (int32_t a = 0; a < n; ++a) {
    const int32_t i = by_first_[a];
    for (int32_t b = a + 1; b < n && items_[by_first_[b]].first <= items_[i].last; ++b) {
      neighbours[i].push_back(by_first_[b]);
      neighbours[by_first_[b]].push_back(i);
    }
  }
  for (const auto& list : neighbours) {
    neighbour_begin_.push_back(static_cast<int32_t>(neighbours_.size()));
    neighbours_.insert(neighbours_.end(), list.begin(), list.end());
  }
  neighbour_begin_.push_back(static_cast<int32_t>(neighbours_.size()));

  twin_.assign(n, -1);
  std::map<std::tuple<int32_t, int32_t, int64_t>, int32_t> last;
  for (int32_t i = 0; i < n; ++i) {
    const auto key = std::tuple(items_[i].first, items_[i].last, items_[i].size);
    const auto [at, fresh] = last.try_emplace(key, i);
    if (!fresh) twin_[at->second] = i;
    at->second = i;
  }
  position_.resize(n);
  for (int32_t p = 0; p < n; ++p) position_[by_first_[p]] = p;
  weight_.assign(n_sections, 1);
  rank_.resize(n);
  is_dirty_.assign(n_sections, 0);
  is_in_support_queue_.assign(n, 0);
}

Outcome ExactSearch::run(const Strategy& strategy, int64_t fail_limit, uint64_t seed,
                         const std::function<bool()>& stop) {
  const size_t n = items_.size();
  strategy_ = strategy;
  fails_left_ = fail_limit;
  stop_ = &stop;
  bound_.assign(n, 0);
  key_.assign(n, 0);
  witness_.assign(n, -1);
  supported_.assign(n, 1);
  placed_.assign(n, 0);
  slack_.assign(weight_.size(), 0);
  trail_.clear();
  decisions_.clear();
  block_lowest_.assign(n / kBlock + 1, -1);
  crossing_.assign(weight_.size(), 0);
  for (size_t i = 0; i < n; ++i) cross(static_cast<int32_t>(i), 1);
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < n; ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1.0p-53;
    rank_[i] = std::pow(static_cast<double>(items_[i].size), strategy.size_power) *
               std::pow(items_[i].last - items_[i].first + 1, strategy.length_power) *
               (1 + strategy.noise * (2 * unit - 1));
  }
  for (size_t s = 0; s < weight_.size(); ++s) {
    is_dirty_[s] = 1;
    dirty_.push_back(static_cast<int32_t>(s));
  }
  bool open = true;
  for (size_t i = 0; i < n && open; ++i) {
    open = items_[i].size <= capacity_;
    for (int32_t t = twin_[i]; open && t >= 0 && bound_[t] == 0; t = twin_[t])
      open = raise(t, bound_[i] + items_[i].size, false);
  }
  gave_up_ = false;
  if (!propagate() || !open) return gave_up_ ? Outcome::kStopped : Outcome::kInfeasible;
  return solve(0, static_cast<int32_t>(n));
}

// Places the unplaced buffers of by_first_[begin, end), in which nothing depends on any other. When
// it cannot, the trail is the caller's to undo.
Outcome ExactSearch::solve(int32_t begin, int32_t end) {
  const size_t base = decisions_.size();
  for (;;) {
    Decision decision{choose(begin, end), trail_.size()};
    if (decision.item < 0) {
      decisions_.resize(base);
      return Outcome::kSolved;
    }
    if (place(decision.item)) {
      if (!cut_) {
        decisions_.push_back(decision);
        continue;
      }
      const Outcome outcome = solve_parts(begin, end);
      if (outcome == Outcome::kSolved) decisions_.resize(base);
      if (outcome != Outcome::kInfeasible) return outcome;
    }
    for (;;) {
      if (gave_up_) return Outcome::kStopped;
      undo(decision.mark);
      if (--fails_left_ < 0) return Outcome::kStopped;
      for (; steps_ >= kStepsAsked; steps_ -= kStepsAsked)
        if ((*stop_)()) return Outcome::kStopped;
      if (postpone(decision.item)) break;
      if (decisions_.size() == base) return Outcome::kInfeasible;
      decision = decisions_.back();
      decisions_.pop_back();
    }
  }
}

// Solves the runs of buffers that share sections, the tightest first.
Outcome ExactSearch::solve_parts(int32_t begin, int32_t end) {
  std::vector<Part> parts;
  int32_t reach = -1;
  for (int32_t p = begin; p < end; ++p) {
    const Item& item = items_[by_first_[p]];
    if (placed_[by_first_[p]]) continue;
    if (parts.empty() || item.first > reach) parts.push_back({p, p, 0});
    parts.back().end = p + 1;
    reach = std::max(reach, item.last);
  }
  if (parts.size() > 1) {
    for (Part& part : parts) part.slack = weighted_slack(tightest_section(part.begin, part.end));
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return std::tuple(a.slack, a.begin) < std::tuple(b.slack, b.begin);
    });
  }
  for (const Part& part : parts) {
    const Outcome outcome = solve(part.begin, part.end);
    if (outcome != Outcome::kSolved) return outcome;
  }
  return Outcome::kSolved;
}

double ExactSearch::weighted_slack(int32_t section) const {
  if (slack_[section] == kNothing) return HUGE_VAL;
  return static_cast<double>(slack_[section] + 1) / weight_[section];
}

// Sections of other parts may follow the last of this one; they are not looked at, and sections
// without unplaced buffers have more slack than any.
int32_t ExactSearch::tightest_section(int32_t begin, int32_t end) const {
  const auto n = static_cast<int32_t>(by_first_.size());
  const int32_t first = items_[by_first_[begin]].first;
  const int32_t after =
      end < n ? items_[by_first_[end]].first : static_cast<int32_t>(slack_.size());
  int32_t tightest = first;
  for (int32_t s = first + 1; s < after; ++s)
    if (weighted_slack(s) < weighted_slack(tightest)) tightest = s;
  return tightest;
}

// The buffer to decide on: nothing unplaced that overlaps it fits below its bound. -1 if all of the
// part are placed.
int32_t ExactSearch::choose(int32_t begin, int32_t end) {
  return strategy_.lowest_first ? choose_lowest(begin, end) : choose_in_tightest(begin, end);
}

int64_t ExactSearch::lowest_in_block(int32_t block) {
  int64_t& lowest = block_lowest_[block];
  if (lowest >= 0) return lowest;
  lowest = kNothing;
  const auto end = std::min<int32_t>((block + 1) * kBlock, static_cast<int32_t>(by_first_.size()));
  for (int32_t p = block * kBlock; p < end; ++p)
    if (key_[by_first_[p]] >= 0) lowest = std::min(lowest, key_[by_first_[p]]);
  return lowest;
}

int32_t ExactSearch::choose_lowest(int32_t begin, int32_t end) {
  // A block across the border of the part may hold lower buffers of another.
  const auto inside = [&](int32_t block) {
    return block * kBlock >= begin && (block + 1) * kBlock <= end;
  };
  const int32_t first_block = begin / kBlock, end_block = (end + kBlock - 1) / kBlock;
  int64_t lowest = kNothing;
  for (int32_t block = first_block; block < end_block; ++block) {
    if (inside(block)) {
      lowest = std::min(lowest, lowest_in_block(block));
      continue;
    }
    const int32_t to = std::min(end, (block + 1) * kBlock);
    for (int32_t p = std::max(begin, block * kBlock); p < to; ++p)
      if (key_[by_first_[p]] >= 0) lowest = std::min(lowest, key_[by_first_[p]]);
  }
  if (lowest == kNothing) return -1;
  int32_t best = -1, ties = 0;
  double best_slack = 0;
  for (int32_t block = first_block; block < end_block && ties < kMostTies; ++block) {
    if (inside(block) && lowest_in_block(block) != lowest) continue;
    const int32_t to = std::min(end, (block + 1) * kBlock);
    for (int32_t p = std::max(begin, block * kBlock); p < to; ++p) {
      const int32_t i = by_first_[p];
      if (key_[i] != lowest) continue;
      ++ties;
      double slack = HUGE_VAL;
      for (int32_t s = items_[i].first; s <= items_[i].last; ++s)
        slack = std::min(slack, weighted_slack(s));
      if (best < 0 || slack < best_slack || (slack == best_slack && rank_[i] > rank_[best])) {
        best = i;
        best_slack = slack;
      }
    }
  }
  return best;
}

int32_t ExactSearch::choose_in_tightest(int32_t begin, int32_t end) {
  const int32_t tightest = tightest_section(begin, end);
  int32_t best = -1;
  for (int32_t m = member_begin_[tightest]; m < member_begin_[tightest + 1]; ++m) {
    const int32_t i = members_[m];
    if (placed_[i]) continue;
    if (best < 0 || bound_[i] < bound_[best] ||
        (bound_[i] == bound_[best] && rank_[i] > rank_[best]))
      best = i;
  }
  return best < 0 ? -1 : descend(best);
}

int32_t ExactSearch::descend(int32_t item) const {
  for (bool lower = true; lower;) {
    lower = false;
    int32_t under = -1;
    for (int32_t a = neighbour_begin_[item]; a < neighbour_begin_[item + 1]; ++a) {
      const int32_t j = neighbours_[a];
      if (placed_[j] || bound_[j] + items_[j].size > bound_[item]) continue;
      if (under < 0 || std::tuple(bound_[j], -rank_[j]) < std::tuple(bound_[under], -rank_[under]))
        under = j;
    }
    if (under >= 0) {
      item = under;
      lower = true;
    }
  }
  return item;
}

bool ExactSearch::place(int32_t item) {
  const int64_t top = bound_[item] + items_[item].size;
  set(Kind::kPlaced, item, 1);
  cut_ = false;
  cross(item, -1);
  bool open = true;
  for (int32_t s = items_[item].first; s <= items_[item].last; ++s)
    if (!is_dirty_[s]) is_dirty_[s] = 1, dirty_.push_back(s);
  for (int32_t a = neighbour_begin_[item]; a < neighbour_begin_[item + 1] && open; ++a) {
    const int32_t j = neighbours_[a];
    if (placed_[j]) continue;
    if (bound_[j] < top) {
      open = raise(j, top, true);
    } else if (bound_[j] == top) {
      set(Kind::kSupported, j, 1);
    } else if (!supported_[j] && witness_[j] == item && !is_in_support_queue_[j]) {
      is_in_support_queue_[j] = 1;
      support_queue_.push_back(j);
    }
  }
  return propagate() && open;
}

void ExactSearch::cross(int32_t item, int32_t change) {
  for (int32_t s = items_[item].first; s < items_[item].last; ++s)
    if ((crossing_[s] += change) == 0) cut_ = true;
}

bool ExactSearch::postpone(int32_t item) {
  const bool open = raise(item, bound_[item] + 1, false);
  return propagate() && open;
}

// Brings bounds to a fixed point and checks the sections they touch. Always empties the queues.
bool ExactSearch::propagate() {
  bool open = true;
  const size_t before = trail_.size();
  while (!support_queue_.empty()) {
    const int32_t i = support_queue_.back();
    support_queue_.pop_back();
    is_in_support_queue_[i] = 0;
    if (trail_.size() - before > kMostChanges) gave_up_ = true, open = false;
    if (open && !placed_[i] && !supported_[i]) open = raise_to_support(i);
  }
  for (const int32_t s : dirty_) {
    is_dirty_[s] = 0;
    if (open && !check_section(s)) open = false;
  }
  dirty_.clear();
  return open;
}

// An unsupported buffer lies on an unplaced one: its bound is at least the lowest such top.
bool ExactSearch::raise_to_support(int32_t item) {
  int32_t lowest = -1;
  int64_t top = INT64_MAX;
  steps_ += neighbour_begin_[item + 1] - neighbour_begin_[item];
  for (int32_t a = neighbour_begin_[item]; a < neighbour_begin_[item + 1]; ++a) {
    const int32_t j = neighbours_[a];
    if (placed_[j] || bound_[j] + items_[j].size >= top) continue;
    lowest = j;
    top = bound_[j] + items_[j].size;
    if (top <= bound_[item]) break;
  }
  if (lowest < 0) {
    blame(item);
    return false;
  }
  set(Kind::kWitness, item, lowest);
  return top <= bound_[item] || raise(item, top, false);
}

bool ExactSearch::raise(int32_t item, int64_t bound, bool supported) {
  set(Kind::kBound, item, bound);
  if (supported_[item] != supported) set(Kind::kSupported, item, supported);
  if (bound + items_[item].size > capacity_) {
    blame(item);
    return false;
  }
  steps_ += items_[item].last - items_[item].first + 1 + neighbour_begin_[item + 1] -
            neighbour_begin_[item];
  for (int32_t s = items_[item].first; s <= items_[item].last; ++s)
    if (!is_dirty_[s]) is_dirty_[s] = 1, dirty_.push_back(s);
  const auto recheck = [&](int32_t j) {
    if (is_in_support_queue_[j]) return;
    is_in_support_queue_[j] = 1;
    support_queue_.push_back(j);
  };
  if (!supported) recheck(item);
  for (int32_t a = neighbour_begin_[item]; a < neighbour_begin_[item + 1]; ++a) {
    const int32_t j = neighbours_[a];
    if (!placed_[j] && !supported_[j] && witness_[j] == item) recheck(j);
  }
  const int32_t t = twin_[item];
  if (t >= 0 && !placed_[t] && bound_[t] < bound + items_[item].size)
    return raise(t, bound + items_[item].size, false);
  return true;
}

bool ExactSearch::check_section(int32_t section) {
  // The unplaced first, from the highest bound down. Nearly sorted from the last time.
  int32_t* const begin = members_.data() + member_begin_[section];
  const int32_t count = member_begin_[section + 1] - member_begin_[section];
  int64_t total = 0, worst = 0;
  steps_ += 2 * count;
  for (int32_t m = 1; m < count; ++m) {
    const int32_t i = begin[m];
    const int64_t k = key_[i];
    int32_t at = m;
    for (; at > 0 && key_[begin[at - 1]] < k; --at) begin[at] = begin[at - 1];
    if (at != m) begin[at] = i;
  }
  for (int32_t m = 0; m < count; ++m) {
    const int32_t i = begin[m];
    if (key_[i] < 0) break;
    total += items_[i].size;
    worst = std::max(worst, key_[i] + total);
  }
  const int64_t slack = total == 0 ? kNothing : capacity_ - worst;
  if (slack != slack_[section]) set(Kind::kSlack, section, slack);
  if (slack >= 0) return true;
  weight_[section] += 1;
  return false;
}

void ExactSearch::blame(int32_t item) {
  int32_t tightest = items_[item].first;
  for (int32_t s = tightest; s <= items_[item].last; ++s)
    if (slack_[s] < slack_[tightest]) tightest = s;
  weight_[tightest] += 1;
}

void ExactSearch::set(Kind kind, int32_t index, int64_t value) {
  const auto swap = [&](auto& slot) {
    trail_.push_back({kind, index, static_cast<int64_t>(slot)});
    slot = static_cast<std::remove_reference_t<decltype(slot)>>(value);
  };
  switch (kind) {
    case Kind::kBound:
      key_[index] = value;
      block_lowest_[position_[index] / kBlock] = -1;
      return swap(bound_[index]);
    case Kind::kWitness:
      return swap(witness_[index]);
    case Kind::kSupported:
      return swap(supported_[index]);
    case Kind::kPlaced:
      key_[index] = -1;
      block_lowest_[position_[index] / kBlock] = -1;
      return swap(placed_[index]);
    case Kind::kSlack:
      return swap(slack_[index]);
  }
}

void ExactSearch::undo(size_t mark) {
  steps_ += static_cast<int64_t>(trail_.size() - mark);
  for (; trail_.size() > mark; trail_.pop_back()) {
    const Change& change = trail_.back();
    switch (change.kind) {
      case Kind::kBound:
        key_[change.index] = bound_[change.index] = change.old;
        block_lowest_[position_[change.index] / kBlock] = -1;
        break;
      case Kind::kWitness:
        witness_[change.index] = static_cast<int32_t>(change.old);
        break;
      case Kind::kSupported:
        supported_[change.index] = change.old != 0;
        break;
      case Kind::kPlaced:
        placed_[change.index] = 0;
        key_[change.index] = bound_[change.index];
        block_lowest_[position_[change.index] / kBlock] = -1;
        cross(change.index, 1);
        break;
      case Kind::kSlack:
        slack_[change.index] = change.old;
        break;
    }
  }
}

}  // namespace stow::pack
