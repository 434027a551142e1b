#include "stowage/pack/window.h"

#include <algorithm>
#include <map>

#include "stowage/base/inside.h"
#include "stowage/pack/exact_search.h"

namespace stow::pack {
namespace {

struct Window {
  int64_t lower, upper;
};

// A buffer inside a window: one rectangle around all of its rectangles there.
struct Hull {
  int32_t buffer;
  int64_t bottom, top, lower, upper;
};

bool live(const Rect& r) { return r.size > 0 && r.lower < r.upper; }

int64_t fullest_instant(const Problem& problem) {
  std::map<int64_t, int64_t> change;
  for (const Buffer& b : problem.buffers)
    for (const Rect& r : b.rects) {
      if (!live(r)) continue;
      change[r.lower] += r.size;
      change[r.upper] -= r.size;
    }
  int64_t sum = 0, most = -1, at = 0;
  for (const auto& [time, delta] : change) {
    sum += delta;
    if (sum > most) {
      most = sum;
      at = time;
    }
  }
  return at;
}

// The limits to either side of a window, nearest first: beyond each, one buffer more comes again at
// an offset that it had.
struct Steps {
  std::vector<int64_t> lowers, uppers;
};

Steps steps_from(const Problem& problem, int64_t at) {
  // Where, beyond the instant, each buffer's second coming begins or ends.
  Steps steps;
  auto& [lowers, uppers] = steps;
  for (const Buffer& b : problem.buffers) {
    std::map<int64_t, std::vector<Window>> by_offset;
    for (const Rect& r : b.rects)
      if (live(r)) by_offset[r.offset].push_back({r.lower, r.upper});
    for (auto& [offset, lives] : by_offset) {
      std::sort(lives.begin(), lives.end(),
                [](const Window& x, const Window& y) { return x.lower < y.lower; });
      // The lives on both sides of the instant; the one that holds it counts for both.
      size_t next = 0;
      while (next < lives.size() && lives[next].upper <= at) ++next;
      const bool holds = next < lives.size() && lives[next].lower <= at;
      if (holds) {
        if (next > 0) lowers.push_back(lives[next - 1].upper);
        if (next + 1 < lives.size()) uppers.push_back(lives[next + 1].lower);
      } else {
        // One before and one after: the earlier is left out.
        if (next > 0)
          lowers.push_back(lives[next < lives.size() ? next - 1 : next - 2 + (next < 2)].upper);
        if (next + 1 < lives.size()) uppers.push_back(lives[next + 1].lower);
      }
    }
  }
  std::sort(lowers.rbegin(), lowers.rend());
  std::sort(uppers.begin(), uppers.end());
  lowers.push_back(INT64_MIN);
  uppers.push_back(INT64_MAX);
  lowers.erase(std::unique(lowers.begin(), lowers.end()), lowers.end());
  uppers.erase(std::unique(uppers.begin(), uppers.end()), uppers.end());
  return steps;
}

std::vector<Hull> hulls_in(const Problem& problem, const Window& w) {
  std::vector<Hull> hulls;
  for (size_t b = 0; b < problem.buffers.size(); ++b) {
    Hull h{static_cast<int32_t>(b), INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN};
    for (const Rect& r : problem.buffers[b].rects) {
      const int64_t lower = std::max(r.lower, w.lower), upper = std::min(r.upper, w.upper);
      if (!live(r) || lower >= upper) continue;
      h.bottom = std::min(h.bottom, r.offset);
      h.top = std::max(h.top, r.offset + r.size);
      h.lower = std::min(h.lower, lower);
      h.upper = std::max(h.upper, upper);
    }
    if (h.lower < h.upper) hulls.push_back(h);
  }
  return hulls;
}

int64_t largest_sum(const std::vector<Hull>& hulls) {
  std::map<int64_t, int64_t> change;
  for (const Hull& h : hulls) {
    change[h.lower] += h.top - h.bottom;
    change[h.upper] -= h.top - h.bottom;
  }
  int64_t sum = 0, most = 0;
  for (const auto& [time, delta] : change) most = std::max(most, sum += delta);
  return most;
}

// The window around the fullest instant, widened step by step, first one side and then the other,
// while standing for their hulls costs the buffers in it no more than `allowed` bytes live.
Window grow(const Problem& problem, int64_t allowed) {
  const Steps steps = steps_from(problem, fullest_instant(problem));
  size_t low = 0, high = 0;
  const auto fits = [&](size_t l, size_t h) {
    return largest_sum(hulls_in(problem, {steps.lowers[l], steps.uppers[h]})) <= allowed;
  };
  for (bool grew = true; grew;) {
    grew = false;
    if (high + 1 < steps.uppers.size() && fits(low, high + 1)) grew = ++high;
    if (low + 1 < steps.lowers.size() && fits(low + 1, high)) grew = ++low;
  }
  return {steps.lowers[low], steps.uppers[high]};
}

}  // namespace

std::vector<int32_t> window_order(const Problem& problem, double slack, int64_t fail_limit,
                                  const std::function<bool()>& stop) {
  constexpr int64_t kUnit = 64;
  const int64_t bound = lower_bound(problem);
  const int64_t allowed = bound + static_cast<int64_t>(slack * static_cast<double>(bound));
  const Window window = grow(problem, allowed);
  const std::vector<Hull> hulls = hulls_in(problem, window);
  std::vector<int64_t> times;
  for (const Hull& h : hulls) times.push_back(h.lower);
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto section = [&](int64_t time) {
    return static_cast<int32_t>(std::upper_bound(times.begin(), times.end(), time) -
                                times.begin()) - 1;
  };
  std::vector<Item> items;
  std::vector<int64_t> sums(times.size());
  for (const Hull& h : hulls) {
    const Item item{(h.top - h.bottom + kUnit - 1) / kUnit, section(h.lower),
                    section(h.upper - 1)};
    for (int32_t s = item.first; s <= item.last; ++s) sums[static_cast<size_t>(s)] += item.size;
    items.push_back(item);
  }
  if (items.empty()) return {};
  const int64_t most = *std::max_element(sums.begin(), sums.end());
  const int64_t capacity = std::max(most, allowed / kUnit);
  ExactSearch search(items, static_cast<int32_t>(times.size()), capacity);
  static const Strategy kStrategies[] = {
      {false, 1, 0, 0}, {true, 1, 0, 0}, {false, 1, 1, 0}, {true, 1, 1, 0}, {false, 1, 0.5, 0.2},
      {true, 0.5, 1, 0.2}};
  const std::function<bool()> give_up = stop ? stop : [] { return false; };
  uint64_t seed = 1;
  for (const Strategy& strategy : kStrategies) {
    const Outcome outcome = search.run(strategy, fail_limit, seed++, give_up);
    if (outcome == Outcome::kInfeasible) return {};
    if (outcome != Outcome::kSolved) continue;
    std::vector<int32_t> order;
    std::vector<size_t> by_offset(hulls.size());
    for (size_t i = 0; i < hulls.size(); ++i) by_offset[i] = i;
    std::stable_sort(by_offset.begin(), by_offset.end(), [&](size_t a, size_t b) {
      return search.offsets()[a] < search.offsets()[b];
    });
    std::vector<bool> taken(problem.buffers.size());
    for (size_t i : by_offset) {
      order.push_back(hulls[i].buffer);
      taken[static_cast<size_t>(hulls[i].buffer)] = true;
    }
    std::vector<std::pair<int64_t, int32_t>> rest;
    for (size_t b = 0; b < problem.buffers.size(); ++b) {
      int64_t top = 0;
      for (const Rect& r : problem.buffers[b].rects)
        if (live(r)) top = std::max(top, r.offset + r.size);
      if (!taken[b] && top > 0) rest.emplace_back(-top, static_cast<int32_t>(b));
    }
    std::sort(rest.begin(), rest.end());
    for (const auto& [top, b] : rest) order.push_back(b);
    return order;
  }
  return {};
}

}  // namespace stow::pack
