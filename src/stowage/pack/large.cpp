#include "stowage/pack/large.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "stowage/pack/eject.h"
#include "stowage/pack/rise.h"

namespace stow::pack {
namespace {

constexpr int kPassesPerCapacity = 3;
// More than this many left out are not repaired.
constexpr int32_t kMostToRepair = 300;
// Work of a repair, an item.
constexpr double kFirstRepair = 100, kMostRepair = 1000;

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
    for (const double power : {0.0, 0.3, 1.0}) {
      const RiseStrategy strategy{.size_power = power};
      if (!pass(strategy, Rise::kNoCapacity)) return best_;
      if (rise_.height() < best_.height || best_.offsets.empty()) {
        best_ = {rise_.offsets(), rise_.height()};
        favourite_ = strategy;
      }
      if (done()) return best_;
    }
    // Then what leaves out least half a per cent above the goal: such a capacity tells more of what
    // suits than a height does.
    const int64_t goal = std::max(bound_, options_.target);
    RiseStrategy best_suited = favourite_;
    double least = -1;
    for (const double tolerance : {0.01, 0.03, 0.003}) {
      std::vector<RiseStrategy> survey;
      for (const auto& [size, length] : {std::pair(0.0, 1.0), {0.3, 1.0}, {0.0, 0.5}})
        survey.push_back(
            {.size_power = size, .length_power = length, .noise = 0.02, .tolerance = tolerance});
      const bool reached = reach(std::min(best_.height - 1, goal + goal / 200), survey);
      if (done()) return best_;
      if (least < 0 || reached || left_out_area_ < least) {
        least = left_out_area_;
        best_suited = favourite_;
      }
      if (reached) break;
    }
    favourite_ = best_suited;
    // Then below what was reached: halfway to the goal, and closer to the best after each failure.
    double share = 0.5;
    while (!done()) {
      const auto room = static_cast<double>(best_.height - goal);
      std::vector<RiseStrategy> varied;
      for (int k = 0; k < kPassesPerCapacity; ++k) varied.push_back(vary());
      varied[0] = favourite_;
      varied[0].seed = random_();
      const bool reached = reach(goal + static_cast<int64_t>(share * room), varied);
      share = reached ? std::max(0.3, 2 * share - 1) : std::min(0.97, (1 + share) / 2);
    }
    return best_;
  }

 private:
  bool done() const {
    return best_.height <= std::max(bound_, options_.target) || passes_ >= options_.passes ||
           (options_.stop && options_.stop());
  }

  bool pass(const RiseStrategy& strategy, int64_t capacity) {
    static const std::function<bool()> kNever;
    return rise_.run(strategy, capacity, passes_++ == 0 ? kNever : options_.stop);
  }

  // A strategy beside the favourite one.
  RiseStrategy vary() {
    static constexpr double kPowers[] = {0, 0.15, 0.3, 0.6, 1}, kLengths[] = {1, 0.5, 0.25},
                            kNoises[] = {0.01, 0.05, 0.2},
                            kTolerances[] = {0, 0.001, 0.003, 0.01, 0.02, 0.04, 0.1};
    const auto draw = [&](const auto& values) { return values[random_() % std::size(values)]; };
    const auto change = [&] { return random_() % 3 == 0; };
    RiseStrategy s = favourite_;
    if (change()) s.size_power = draw(kPowers);
    if (change()) s.length_power = draw(kLengths);
    if (change()) s.noise = draw(kNoises);
    if (change()) s.tolerance = draw(kTolerances);
    s.seed = random_();
    return s;
  }

  // Whether a pass stays within the capacity, or the one that left out least once it is repaired.
  // That one becomes the favourite.
  bool reach(int64_t capacity, const std::vector<RiseStrategy>& strategies) {
    double least = -1;
    RiseStrategy favourite = favourite_;
    std::vector<int64_t> offsets;
    int32_t n_left_out = 0;
    for (const RiseStrategy& strategy : strategies) {
      if (least >= 0 && done()) break;
      if (!pass(strategy, capacity)) return false;
      if (least < 0 || rise_.area_left_out() < least) {
        least = rise_.area_left_out();
        favourite = strategy;
        offsets = rise_.offsets();
        n_left_out = rise_.n_left_out();
      }
      if (rise_.n_left_out() == 0) break;
    }
    favourite_ = favourite;
    left_out_area_ = least;
    if (n_left_out > kMostToRepair) return false;
    if (n_left_out > 0 && !repair(&offsets, capacity)) {
      // What is above the capacity of the best packing may be little as well.
      offsets = best_.offsets;
      if (!repair(&offsets, capacity)) return false;
    }
    best_ = {offsets, 0};
    for (size_t i = 0; i < items_.size(); ++i)
      best_.height = std::max(best_.height, offsets[i] + items_[i].size);
    return true;
  }

  bool repair(std::vector<int64_t>* offsets, int64_t capacity) {
    const auto work = static_cast<int64_t>(repair_share_ * static_cast<double>(items_.size()));
    for (const double growth : {1.1, 1.01, 1.0}) {
      const EjectStrategy strategy{.growth = growth, .seed = random_()};
      if (ejector_.run(*offsets, capacity, strategy, work, options_.stop)) {
        *offsets = ejector_.offsets();
        return true;
      }
    }
    repair_share_ = std::min(1.2 * repair_share_, kMostRepair);
    return false;
  }

  const LargeOptions& options_;
  const std::vector<Item>& items_;
  Rise rise_;
  Ejector ejector_;
  double repair_share_ = kFirstRepair;
  int64_t bound_ = 0, passes_ = 0;
  LargeResult best_;
  RiseStrategy favourite_;
  double left_out_area_ = 0;  // The least at the last capacity asked for.
  std::mt19937_64 random_{1};
};

}  // namespace

LargeResult pack_large(const std::vector<Item>& items, int32_t n_sections,
                       const LargeOptions& options) {
  if (items.empty()) return {};
  return Search(items, n_sections, options).solve();
}

}  // namespace stow::pack
