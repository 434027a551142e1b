#include "stowage/pack/large.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

#include "stowage/pack/climb.h"
#include "stowage/pack/eject.h"
#include "stowage/pack/rise.h"

namespace stow::pack {
namespace {

// More than this many left out are not repaired.
constexpr int32_t kMostToRepair = 300;
// Work of a repair, an item.
constexpr double kFirstRepair = 100, kMostRepair = 1000;

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

class Search {
 public:
  Search(const std::vector<Item>& items, int32_t n_sections, const LargeOptions& options)
      : options_(options), items_(items), rise_(items, n_sections), ejector_(items, n_sections) {
    std::vector<int64_t> live(n_sections + 1);
    for (const Item& item : items) {
      live[item.first] += item.size;
      live[item.last + 1] -= item.size;
    }
    int64_t sum = 0;
    for (const int64_t change : live) bound_ = std::max(bound_, sum += change);
  }

  LargeResult solve() {
    // Without a capacity, for a first packing and for what suits this problem.
    for (const size_t power : {0, 2, 4}) {
      if (!pass({.power = power}, Rise::kNoCapacity)) return best_;
      if (rise_.height() < best_.height || best_.offsets.empty())
        best_ = {rise_.offsets(), rise_.height()};
      if (done()) return best_;
    }
    // Then what leaves out least half a per cent above the goal: such a capacity tells more of what
    // suits than a height does.
    const int64_t goal = std::max(bound_, options_.target);
    reach(std::min(best_.height - 1, goal + goal / 200), kSurvey);
    // Then halfway between the best and what was out of reach, which luck may reach later.
    int64_t failed = goal;
    while (!done()) {
      const int64_t capacity = std::min(failed + (best_.height - failed) / 2, best_.height - 1);
      Way& way = choose_way();
      const bool reached = way.n_stages == 1 ? reach(capacity, around_favourite())
                                             : climb_to(capacity, way.n_stages);
      way.weight = reached ? std::min(2 * way.weight, 4.0) : std::max(0.7 * way.weight, 0.1);
      failed = reached ? goal + (std::min(failed, best_.height) - goal) / 4 * 3 : capacity;
    }
    return best_;
  }

 private:
  // To a capacity: a few whole passes, or a climb in so many stages.
  struct Way {
    int n_stages;
    double weight = 1;
  };

  bool done() const {
    return best_.height <= std::max(bound_, options_.target) || passes_ >= options_.passes ||
           (options_.stop && options_.stop());
  }

  RiseStrategy strategy_of(const Choice& choice) {
    return {.size_power = kPowers[choice.power],
            .focus = kFocuses[choice.focus],
            .noise = kNoises[choice.noise],
            .tolerance = kTolerances[choice.tolerance],
            .levelling = kLevellings[choice.levelling],
            .seed = random_()};
  }

  bool pass(const Choice& choice, int64_t capacity, double most_left_out = HUGE_VAL) {
    static const std::function<bool()> kNever;
    return rise_.run(strategy_of(choice), capacity, passes_++ == 0 ? kNever : options_.stop,
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
  std::vector<Choice> around_favourite() {
    return {favourite_, vary(favourite_), vary(favourite_),
            vary(kSurvey[random_() % kSurvey.size()])};
  }

  // What reached its capacity before is chosen more often.
  Way& choose_way() {
    double sum = 0;
    for (const Way& way : ways_) sum += way.weight;
    double at = sum * static_cast<double>(random_() >> 11) * 0x1.0p-53;
    for (Way& way : ways_)
      if ((at -= way.weight) < 0) return way;
    return ways_[0];
  }

  // Whether a pass stays within the capacity, or the one that left out least once it is repaired.
  // That one becomes the favourite.
  bool reach(int64_t capacity, const std::vector<Choice>& choices) {
    double least = HUGE_VAL;
    std::vector<int64_t> offsets;
    int32_t n_left_out = 1;
    for (const Choice& choice : choices) {
      if (n_left_out == 0 || done()) break;
      if (!pass(choice, capacity, least)) continue;
      least = rise_.area_left_out();
      favourite_ = choice;
      offsets = rise_.offsets();
      n_left_out = rise_.n_left_out();
    }
    return !offsets.empty() && take(std::move(offsets), n_left_out, capacity);
  }

  // The same of a climb by the favourite's order of buffers; what is given up for it is drawn.
  bool climb_to(int64_t capacity, int n_stages) {
    ClimbOptions options{
        .capacity = capacity, .n_stages = n_stages, .most_left_out = kMostToRepair};
    options.draw = [&] {
      return strategy_of({.power = favourite_.power,
                          .focus = random_() % std::size(kFocuses),
                          .noise = 1,
                          .tolerance = random_() % std::size(kTolerances),
                          .levelling = random_() % std::size(kLevellings)});
    };
    options.stop = options_.stop;
    passes_ += 2 * options.n_tries;  // As much work.
    return climb(rise_, options) && take(rise_.offsets(), rise_.n_left_out(), capacity);
  }

  // Whether what was left out of these offsets can be put below the capacity; they are the best
  // then.
  bool take(std::vector<int64_t> offsets, int32_t n_left_out, int64_t capacity) {
    if (n_left_out > kMostToRepair) return false;
    if (n_left_out > 0 && !repair(&offsets, capacity)) return false;
    best_ = {std::move(offsets), 0};
    for (size_t i = 0; i < items_.size(); ++i)
      best_.height = std::max(best_.height, best_.offsets[i] + items_[i].size);
    return true;
  }

  // What is above the capacity of the best packing may be little as well.
  bool repair(std::vector<int64_t>* offsets, int64_t capacity) {
    for (const auto* from : {&*offsets, &best_.offsets}) {
      for (Repair& r : repairs_) {
        const auto work = static_cast<int64_t>(r.share * static_cast<double>(items_.size()));
        const EjectStrategy strategy{.growth = r.growth, .seed = random_()};
        if (ejector_.run(*from, capacity, strategy, work, options_.stop)) {
          *offsets = ejector_.offsets();
          return true;
        }
        // More work for what came nearer.
        const bool nearer = ejector_.n_left_out() < ejector_.n_first_left_out();
        if (nearer) r.share = std::min(1.2 * r.share, kMostRepair);
      }
    }
    return false;
  }

  const LargeOptions& options_;
  const std::vector<Item>& items_;
  Rise rise_;
  Ejector ejector_;
  struct Repair {
    double growth, share;
  };
  Way ways_[5] = {{1}, {25}, {50}, {100}, {200}};
  Repair repairs_[3] = {{1.1, kFirstRepair}, {1.01, kFirstRepair}, {1.0, kFirstRepair}};
  int64_t bound_ = 0, passes_ = 0;
  LargeResult best_;
  Choice favourite_;
  std::mt19937_64 random_{1};
};

}  // namespace

LargeResult pack_large(const std::vector<Item>& items, int32_t n_sections,
                       const LargeOptions& options) {
  if (items.empty()) return {};
  return Search(items, n_sections, options).solve();
}

}  // namespace stow::pack
