#include "stowage/pack/exact.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "stowage/pack/exact_search.h"
#include "stowage/pack/heuristics.h"
#include "stowage/pack/large.h"
#include "stowage/pack/sections.h"

namespace stow::pack {
namespace {

using Clock = std::chrono::steady_clock;

// The search keeps every pair that overlaps: 4 bytes each.
// Beyond these sizes it is hopeless, and all the time goes to greedy packing.
constexpr int64_t kMaxPairs = 4'000'000;
constexpr size_t kMaxItems = 4000;
// Skylines to start a smaller component with.
constexpr int64_t kFirstPasses = 40;
// Seconds between two queries of the time, roughly, for callers that count queries in place of a
// clock.
constexpr double kSecondsAsked = 1e-4;

// The time to a solution has a heavy tail whatever the strategy, so each dive draws its own: mostly
// the lowest base and the longest buffer first, which solved the known hard instances soonest.
Strategy draw_strategy(std::mt19937_64& random) {
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  Strategy s{.lowest_first = true, .size_power = 0, .length_power = 1};
  s.noise = chance(50) ? 0.05 : chance(60) ? 0.2 : 0.5;
  if (chance(60)) return s;
  s.lowest_first = chance(90);
  s.size_power = chance(50) ? 0 : chance(60) ? 0.3 : 1;
  if (s.size_power > 0 && chance(15)) s.length_power = 0;
  return s;
}

// Buffers that no instant separates from each other: packed on their own.
struct Component {
  std::vector<int32_t> buffers;
  std::vector<Item> items;  // Sizes in units of `unit`, sections from 0.
  int32_t n_sections = 0;
  int64_t unit = 1;
  int64_t largest_live = 0;
  int64_t lower_bound = 0;
  int64_t n_pairs = 0;
  std::vector<int64_t> offsets;  // The best packing so far.
  int64_t height = 0;
};

std::vector<Component> split(const Problem& problem) {
  const Sections sections = cut_sections(problem);
  std::vector<int32_t> order;
  for (int32_t b = 0; b + 1 < static_cast<int32_t>(sections.begin.size()); ++b)
    if (sections.begin[b] != sections.begin[b + 1]) order.push_back(b);
  const auto rect = [&](int32_t b) { return sections.rects[sections.begin[b]]; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(rect(a).first, a) < std::pair(rect(b).first, b);
  });
  std::vector<Component> components;
  int32_t reach = -1, origin = 0;
  for (const int32_t b : order) {
    const SectionRect r = rect(b);
    if (r.first > reach) {
      components.emplace_back();
      origin = r.first;
    }
    reach = std::max(reach, r.last);
    Component& c = components.back();
    c.buffers.push_back(b);
    c.items.push_back({r.size, r.first - origin, r.last - origin});
    c.n_sections = reach - origin + 1;
  }
  for (Component& c : components) {
    c.unit = 0;
    std::vector<int64_t> live(c.n_sections + 1), count(c.n_sections + 1);
    for (const Item& item : c.items) {
      c.unit = std::gcd(c.unit, item.size);
      live[item.first] += item.size;
      live[item.last + 1] -= item.size;
      ++count[item.first];
    }
    std::partial_sum(live.begin(), live.end(), live.begin());
    c.largest_live = c.lower_bound = *std::max_element(live.begin(), live.end());
    // Pairs that overlap: each buffer with those that start no later and still live.
    std::vector<int64_t> started(c.n_sections + 1);
    std::partial_sum(count.begin(), count.end(), started.begin());
    for (const Item& item : c.items) c.n_pairs += started[item.last] - started[item.first];
    for (Item& item : c.items) item.size /= c.unit;
  }
  return components;
}

class Driver {
 public:
  Driver(const Problem& problem, const ExactOptions& options)
      : problem_(problem), options_(options), start_(Clock::now()), components_(split(problem)) {}

  ExactResult run() {
    for (const Component& c : components_) bound_ = std::max(bound_, c.lower_bound);
    const int64_t goal = options_.capacity ? std::max(*options_.capacity, bound_) : bound_;
    // Greedy first: it is done with most of the components, and an answer whatever comes.
    double large_items = 0;
    for (Component& c : components_) {
      if (too_large(c)) {
        large_items += static_cast<double>(c.items.size());
        continue;
      }
      raise_skylines(c, goal, kFirstPasses, remaining() * 0.1);
      if (c.height > goal)
        pack_greedily(c, goal, 2'000'000 + 2000 * c.items.size(), remaining() * 0.5);
    }
    for (Component& c : components_) {
      if (!too_large(c)) continue;
      const auto items = static_cast<double>(c.items.size());
      raise_skylines(c, goal, INT64_MAX, remaining() * items / large_items);
      large_items -= items;
    }
    if (options_.capacity && *options_.capacity < bound_) return result(Verdict::kImpossible);
    if (options_.capacity) return reach(*options_.capacity);
    return minimise();
  }

 private:
  // Seconds since the start; where work is counted, by how often the solvers asked for the time.
  double now() {
    if (options_.counted) return kSecondsAsked * static_cast<double>(++n_asked_);
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }
  double remaining() { return options_.time_limit_s - now(); }

  std::function<bool()> stop_after(double seconds) {
    return [this, end = now() + std::max(0.0, seconds)] { return now() >= end; };
  }

  static bool too_large(const Component& c) {
    return c.items.size() > kMaxItems || c.n_pairs > kMaxPairs;
  }

  Problem problem_of(const Component& c) const {
    Problem part;
    for (const int32_t b : c.buffers) {
      part.buffers.push_back(problem_.buffers[b]);
      part.buffers.back().alignment = 1;
    }
    return part;
  }

  static void offer(Component& c, const Solution& found) {
    if (!c.offsets.empty() && found.height >= c.height) return;
    c.offsets = found.offsets;
    c.height = found.height;
  }

  // The first packing of a component.
  void pack_greedily(Component& c, int64_t goal, int64_t work, double seconds) {
    offer(c,
          pack_greedy(problem_of(c), {.work = work, .target = goal, .stop = stop_after(seconds)}));
  }

  // Skylines, for a component beyond exact search or to start one.
  void raise_skylines(Component& c, int64_t goal, int64_t passes, double seconds) {
    const LargeResult found =
        pack_large(c.items, c.n_sections,
                   {.target = goal / c.unit, .passes = passes, .stop = stop_after(seconds)});
    if (c.offsets.empty() || found.height * c.unit < c.height) take(c, found.offsets);
  }

  int64_t height() const {
    int64_t height = 0;
    for (const Component& c : components_) height = std::max(height, c.height);
    return height;
  }

  // Searches one component for a packing of at most `capacity` bytes: dives of a few restarts that
  // share section weights, each dive with a new strategy and a slightly larger limit of failures.
  Outcome search(Component& c, int64_t capacity, double seconds) {
    if (c.height <= capacity) return Outcome::kSolved;
    if (c.lower_bound > capacity) return Outcome::kInfeasible;
    if (too_large(c)) return Outcome::kStopped;
    const std::function<bool()> stop = stop_after(seconds);
    ExactSearch tree(c.items, c.n_sections, capacity / c.unit);
    std::mt19937_64 random(1);
    for (double limit = 300;; limit *= 1.05) {
      const Strategy strategy = draw_strategy(random);
      const int restarts = random() % 2 == 0 ? 1 : 1 << random() % 4;
      tree.forget();
      double dive_limit = limit;
      for (int k = 0; k < restarts; ++k, dive_limit *= 1.3) {
        const auto fails = static_cast<int64_t>(std::min(dive_limit, 1e18));
        const Outcome outcome = tree.run(strategy, fails, random(), stop);
        if (outcome == Outcome::kSolved) take(c, tree.offsets());
        if (outcome == Outcome::kInfeasible) c.lower_bound = (capacity / c.unit + 1) * c.unit;
        if (outcome != Outcome::kStopped) return outcome;
        if (stop()) return Outcome::kStopped;
      }
    }
  }

  static void take(Component& c, const std::vector<int64_t>& offsets) {
    c.height = 0;
    c.offsets.resize(c.items.size());
    for (size_t i = 0; i < c.items.size(); ++i) {
      c.offsets[i] = offsets[i] * c.unit;
      c.height = std::max(c.height, c.offsets[i] + c.items[i].size * c.unit);
    }
  }

  Outcome search_all(int64_t capacity, double seconds) {
    const double end = now() + seconds;
    Outcome all = Outcome::kSolved;
    for (Component& c : components_) {
      const Outcome outcome = search(c, capacity, end - now());
      if (outcome == Outcome::kInfeasible) return outcome;
      if (outcome == Outcome::kStopped) all = outcome;
    }
    return all;
  }

  ExactResult reach(int64_t capacity) {
    switch (search_all(capacity, remaining())) {
      case Outcome::kSolved:
        return result(Verdict::kReached);
      case Outcome::kInfeasible:
        return result(Verdict::kImpossible);
      case Outcome::kStopped:
        return result(Verdict::kOutOfTime);
    }
    return result(Verdict::kOutOfTime);
  }

  // The bound itself first, then halving what is left between it and the best packing. Where a
  // capacity is not decided in its slice, the search goes on above it; when nothing is left above,
  // it begins again with longer slices.
  ExactResult minimise() {
    for (double slice = 0.25;; slice *= 2) {
      int64_t low = bound_;
      while (low < height()) {
        if (remaining() <= 0) return result(Verdict::kOutOfTime);
        const int64_t target = low == bound_ ? low : low + (height() - 1 - low) / 2;
        const Outcome outcome = search_all(target, std::min(remaining(), slice));
        for (const Component& c : components_) bound_ = std::max(bound_, c.lower_bound);
        if (outcome != Outcome::kSolved) low = std::max(bound_, target + 1);
      }
      if (height() <= bound_) return result(Verdict::kOptimal);
      // The exact search leaves a large component as greedy packing left it, even if it has the
      // peak.
      for (const Component& c : components_)
        if (too_large(c) && c.height == height()) return result(Verdict::kOutOfTime);
    }
  }

  ExactResult result(Verdict verdict) {
    ExactResult out;
    for (const Component& c : components_) bound_ = std::max(bound_, c.lower_bound);
    out.solution.offsets.assign(problem_.buffers.size(), 0);
    for (const Component& c : components_)
      for (size_t i = 0; i < c.buffers.size(); ++i)
        out.solution.offsets[c.buffers[i]] = c.offsets[i];
    out.solution.height = height();
    out.lower_bound = bound_;
    out.verdict = verdict;
    return out;
  }

  const Problem& problem_;
  const ExactOptions options_;
  const Clock::time_point start_;
  int64_t n_asked_ = 0;
  std::vector<Component> components_;
  int64_t bound_ = 0;
};

}  // namespace

Result<ExactResult> pack_exact(const Problem& problem, const ExactOptions& options) {
  const auto empty = [](const Buffer& b) {
    return std::all_of(b.rects.begin(), b.rects.end(),
                       [](const Rect& r) { return r.size == 0 || r.lower == r.upper; });
  };
  int64_t alignment = 1;
  for (const Buffer& b : problem.buffers)
    if (!empty(b)) alignment = std::max(alignment, b.alignment);
  for (size_t b = 0; b < problem.buffers.size(); ++b) {
    if (empty(problem.buffers[b])) continue;
    const std::vector<Rect>& rects = problem.buffers[b].rects;
    if (rects.size() > 1 || rects[0].offset != 0)
      return fail("buffer {}: exact packing takes buffers of one rectangle at offset 0", b);
    if (rects[0].size % alignment != 0)
      return fail("buffer {}: expected a multiple of the largest alignment {} as size, got {}", b,
                  alignment, rects[0].size);
  }
  return Driver(problem, options).run();
}

}  // namespace stow::pack
