#include "stowage/pack/large.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "stowage/pack/core.h"
#include "stowage/pack/eject.h"
#include "stowage/pack/skyline_pass.h"
#include "stowage/pack/staged_pass.h"

namespace stow::pack {
namespace {

// More than this many left out are not repaired.
constexpr int32_t kMostToRepair = 300;
// Work of a repair, an item.
constexpr double kFirstRepair = 100, kMostRepair = 1000;
// Cores: how far below its largest the live sum is where they live, and the most buffers that one
// has, as a share of those of the next larger one.
constexpr double kDepths[] = {0.3, 0.15, 0.08, 0.04}, kMostOfLarger = 0.5;
// Passes around a core.
constexpr int kCompletions = 4;
// Work beside that of passes: of an ejection in buffers placed, a unit of its own, and of a try of
// a staged pass, a buffer of the problem.
constexpr double kEjectionWork = 2e-3, kTryWork = 1 / 70.0;

constexpr double kPowers[] = {0, 0.15, 0.3, 0.6, 1},
                 kFocuses[] = {0.01, 0.02, 0.03, 0.05, 0.2, HUGE_VAL},
                 kNoises[] = {0.001, 0.005, 0.02},
                 kTolerances[] = {0, 0.0003, 0.001, 0.002, 0.004, 0.01, 0.03},
                 kLevellings[] = {0, 0.002, 0.004, 0.006, 0.01, 0.02};

// A strategy, as places in these lists.
struct Choice {
  size_t power = 0, focus = 3, noise = 0, tolerance = 0, levelling = 0;
};
const std::vector<Choice> kSurvey = {{.focus = 2, .tolerance = 2, .levelling = 2},
                                     {.focus = 1, .tolerance = 3, .levelling = 3},
                                     {.focus = 1, .tolerance = 1},
                                     {.focus = 2, .tolerance = 5, .levelling = 5},
                                     {.power = 2, .focus = 2, .tolerance = 2},
                                     {.power = 2, .focus = 2, .tolerance = 4, .levelling = 5},
                                     {.focus = 5, .noise = 2, .tolerance = 5},
                                     {.power = 2, .focus = 5, .noise = 2, .tolerance = 5}};

struct Repair {
  double growth, share;  // Of a weight, as in EjectStrategy; work, an item.
};

// A share of the work, in proportion to a weight that rises with success.
struct Share {
  double weight = 1, work = 0;

  void add(double more, bool success) {
    work += more;
    weight = success ? std::min(2 * weight, 4.0) : std::max(0.7 * weight, 0.1);
  }
  bool operator<(const Share& o) const { return work / weight < o.work / o.weight; }
};

// To a capacity: a few whole passes, or one pass in so many stages.
struct Way {
  int n_stages;
  Share share;
};

// All buffers or a core of them, and what was learned of it.
struct Part {
  explicit Part(Core c)
      : core(std::move(c)),
        skyline(core.items, core.n_sections),
        ejector(core.items, core.n_sections) {}
  Part(const Part&) = delete;

  const Core core;
  SkylinePass skyline;
  Ejector ejector;
  Choice favourite, around;  // The latter around the next smaller part.
  bool surveyed = false;
  Repair repairs[3] = {{1.1, kFirstRepair}, {1.01, kFirstRepair}, {1.0, kFirstRepair}};
  Repair completion = {1.01, kMostRepair};
  Way ways[5] = {{1}, {25}, {50}, {100}, {200}};
  Share share;
  int64_t failed = 0;  // A capacity out of reach.
};

class Search {
 public:
  Search(const std::vector<Item>& items, int32_t n_sections, const LargeOptions& options)
      : options_(options), items_(items), live_(n_sections) {
    std::vector<int64_t> change(n_sections + 1);
    for (const Item& item : items) {
      change[item.first] += item.size;
      change[item.last + 1] -= item.size;
    }
    std::partial_sum(change.begin(), change.end() - 1, live_.begin());
    bound_ = *std::max_element(live_.begin(), live_.end());
    parts_.push_back(std::make_unique<Part>(core_of(items, live_, 0)));
  }

  LargeResult solve() {
    // Without a capacity, for a first packing and for what suits this problem.
    Part& whole = *parts_[0];
    for (const size_t power : {0, 2, 4}) {
      if (!pass(whole, {.power = power}, SkylinePass::kNoCapacity)) return best_;
      if (whole.skyline.height() < best_.height || best_.offsets.empty())
        best_ = {whole.skyline.offsets(), whole.skyline.height()};
      if (done()) return best_;
    }
    // Then what leaves out least half a per cent above the goal: such a capacity tells more of what
    // suits than a height does.
    const int64_t goal = std::max(bound_, options_.target);
    reach(0, std::min(best_.height - 1, goal + goal / 200), kSurvey);
    whole.surveyed = true;
    if (done()) return best_;
    add_cores();
    // Then halfway between the best and what was out of reach, which luck may reach later.
    for (const auto& part : parts_) part->failed = goal;
    while (!done()) {
      const size_t which = next_part();
      Part& part = *parts_[which];
      const int64_t capacity =
          std::min(part.failed + (best_.height - part.failed) / 2, best_.height - 1);
      Way& way = *std::min_element(std::begin(part.ways), std::end(part.ways),
                                   [](const Way& a, const Way& b) { return a.share < b.share; });
      const double before = work_;
      const bool reached =
          way.n_stages > 1
              ? staged_pass_to(which, capacity, way.n_stages)
              : reach(which, capacity, part.surveyed ? around_favourite(part) : kSurvey);
      part.surveyed |= way.n_stages == 1;
      way.share.add(work_ - before, reached);
      part.share.add(work_ - before, reached);
      part.failed =
          reached ? goal + (std::min(part.failed, best_.height) - goal) / 4 * 3 : capacity;
    }
    return best_;
  }

 private:
  bool done() const {
    return best_.height <= std::max(bound_, options_.target) ||
           work_ >= static_cast<double>(options_.passes) * static_cast<double>(items_.size()) ||
           (options_.stop && options_.stop());
  }

  void add_cores() {
    for (const double depth : kDepths) {
      const Part& larger = *parts_.back();
      Core core =
          core_of(items_, live_, static_cast<int64_t>((1 - depth) * static_cast<double>(bound_)));
      if (static_cast<double>(core.items.size()) >
          kMostOfLarger * static_cast<double>(larger.core.items.size()))
        continue;
      const Choice favourite = parts_[0]->favourite;
      parts_.push_back(std::make_unique<Part>(std::move(core)));
      parts_.back()->favourite = parts_.back()->around = favourite;
    }
    parts_[0]->around = parts_[0]->favourite;
  }

  size_t next_part() const {
    const auto least =
        std::min_element(parts_.begin(), parts_.end(),
                         [](const auto& a, const auto& b) { return a->share < b->share; });
    return least - parts_.begin();
  }

  SkylineStrategy strategy_of(const Choice& choice) {
    return {.size_power = kPowers[choice.power],
            .focus = kFocuses[choice.focus],
            .noise = kNoises[choice.noise],
            .tolerance = kTolerances[choice.tolerance],
            .levelling = kLevellings[choice.levelling],
            .seed = random_()};
  }

  bool pass(Part& part, const Choice& choice, int64_t capacity, double most_left_out = HUGE_VAL) {
    static const std::function<bool()> kNever;
    const bool first = work_ == 0;
    work_ += static_cast<double>(part.core.items.size());
    return part.skyline.run(strategy_of(choice), capacity, first ? kNever : options_.stop,
                            most_left_out);
  }

  // A choice beside this one.
  Choice vary(Choice c) {
    const auto move = [&](size_t& place, const auto& list) {
      if (random_() % 3 != 0) return;
      const bool up = random_() % 2 == 0;
      if (up ? place + 1 < std::size(list) : place > 0) place += up ? 1 : -1;
    };
    move(c.power, kPowers);
    move(c.focus, kFocuses);
    move(c.noise, kNoises);
    move(c.tolerance, kTolerances);
    move(c.levelling, kLevellings);
    return c;
  }
  std::vector<Choice> around_favourite(const Part& part) {
    return {part.favourite, vary(part.favourite), vary(part.favourite),
            vary(kSurvey[random_() % kSurvey.size()])};
  }

  // Returns true if one of these passes stays within the capacity, or if the pass that left out
  // least does once it is repaired. That pass becomes the favourite.
  bool reach(size_t which, int64_t capacity, const std::vector<Choice>& choices) {
    Part& part = *parts_[which];
    double least = HUGE_VAL;
    std::vector<int64_t> offsets;
    int32_t n_left_out = 1;
    for (const Choice& choice : choices) {
      if (n_left_out == 0 || done()) break;
      if (!pass(part, choice, capacity, least)) continue;
      least = part.skyline.area_left_out();
      part.favourite = choice;
      offsets = part.skyline.offsets();
      n_left_out = part.skyline.n_left_out();
    }
    return !offsets.empty() && take(which, std::move(offsets), n_left_out, capacity);
  }

  // The same with a staged pass in the favourite's order of buffers; what is given up for it is
  // drawn.
  bool staged_pass_to(size_t which, int64_t capacity, int n_stages) {
    Part& part = *parts_[which];
    StagedPassOptions options{
        .capacity = capacity, .n_stages = n_stages, .most_left_out = kMostToRepair};
    options.draw = [&] {
      return strategy_of({.power = part.favourite.power,
                          .focus = random_() % std::size(kFocuses),
                          .noise = 1,
                          .tolerance = random_() % std::size(kTolerances),
                          .levelling = random_() % std::size(kLevellings)});
    };
    options.stop = options_.stop;
    // As much as twice as many passes.
    work_ += 2 * options.n_tries * (1 + kTryWork * n_stages) *
             static_cast<double>(part.core.items.size());
    return staged_pass(part.skyline, options) &&
           take(which, part.skyline.offsets(), part.skyline.n_left_out(), capacity);
  }

  // Returns true if the buffers that these offsets of a part leave out can be put below the
  // capacity, and then all that are not in the part. The offsets become the best then.
  bool take(size_t which, std::vector<int64_t> offsets, int32_t n_left_out, int64_t capacity) {
    if (n_left_out > kMostToRepair) return false;
    if (n_left_out > 0 && !repair(*parts_[which], &offsets, capacity)) return false;
    for (; which > 0; --which)
      if (!complete(which, &offsets, capacity)) return false;
    best_ = {std::move(offsets), 0};
    for (size_t i = 0; i < items_.size(); ++i)
      best_.height = std::max(best_.height, best_.offsets[i] + items_[i].size);
    return true;
  }

  bool eject(Part& part, const std::vector<int64_t>& from, int64_t capacity, Repair& r) {
    const auto work = static_cast<int64_t>(r.share * static_cast<double>(from.size()));
    const EjectStrategy strategy{.growth = r.growth, .seed = random_()};
    const bool all = part.ejector.run(from, capacity, strategy, work, options_.stop);
    work_ += kEjectionWork * static_cast<double>(part.ejector.work());
    // More work for what came nearer.
    const bool nearer = part.ejector.n_left_out() < part.ejector.n_first_left_out();
    if (!all && nearer) r.share = std::min(1.2 * r.share, kMostRepair);
    return all;
  }

  // Repairs these offsets, or else the best packing: the part of it above the capacity may be small
  // as well.
  bool repair(Part& part, std::vector<int64_t>* offsets, int64_t capacity) {
    std::vector<int64_t> best;
    for (const int32_t i : part.core.ids) best.push_back(best_.offsets[i]);
    for (const auto* from : {&std::as_const(*offsets), &std::as_const(best)}) {
      for (Repair& r : part.repairs) {
        if (!eject(part, *from, capacity, r)) continue;
        *offsets = part.ejector.offsets();
        return true;
      }
    }
    return false;
  }

  // From offsets of a part to those of the next larger one: whether what that has more finds room
  // around it.
  bool complete(size_t which, std::vector<int64_t>* offsets, int64_t capacity) {
    const std::vector<int32_t>& ids = parts_[which]->core.ids;
    Part& larger = *parts_[which - 1];
    std::vector<int64_t> fixed;
    for (size_t k = 0; const int32_t i : larger.core.ids) {
      const bool inside = k < ids.size() && ids[k] == i;
      fixed.push_back(inside ? (*offsets)[k++] : FixedBuffers::kFree);
    }
    double least = HUGE_VAL;
    int32_t n_left_out = INT32_MAX;
    for (int k = 0; k < kCompletions && n_left_out > 0 && !done(); ++k) {
      const Choice choice = k == 0 ? larger.around : vary(larger.around);
      work_ += static_cast<double>(fixed.size());
      if (!larger.skyline.run_around(fixed, strategy_of(choice), capacity, options_.stop, least))
        continue;
      least = larger.skyline.area_left_out();
      larger.around = choice;
      *offsets = larger.skyline.offsets();
      n_left_out = larger.skyline.n_left_out();
    }
    if (n_left_out == 0) return true;
    if (n_left_out > kMostToRepair || !eject(larger, *offsets, capacity, larger.completion))
      return false;
    *offsets = larger.ejector.offsets();
    return true;
  }

  const LargeOptions& options_;
  const std::vector<Item>& items_;
  std::vector<int64_t> live_;  // [sections] bytes.
  // The whole first, then smaller and smaller cores: each has what the next has, and more.
  std::vector<std::unique_ptr<Part>> parts_;
  int64_t bound_ = 0;
  double work_ = 0;  // Buffers placed by passes, roughly.
  LargeResult best_;
  std::mt19937_64 random_{1};
};

}  // namespace

LargeResult pack_large(const std::vector<Item>& items, int32_t n_sections,
                       const LargeOptions& options) {
  if (items.empty()) return {};
  return Search(items, n_sections, options).solve();
}

}  // namespace stow::pack
