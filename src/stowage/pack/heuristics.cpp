#include "stowage/pack/heuristics.h"

#include <algorithm>
#include <random>

#include "stowage/pack/orders.h"
#include "stowage/pack/placer.h"
#include "stowage/pack/sections.h"

namespace stow::pack {
namespace {

class Search {
 public:
  Search(const Problem& problem, const Options& options)
      : options_(options), sections_(cut_sections(problem)), placer_(problem, sections_) {
    best_.offsets.assign(problem.buffers.size(), 0);
    bound_ = sections_.largest_live;
    for (size_t b = 0; b < problem.buffers.size(); ++b)
      bound_ = std::max(bound_, placer_.extent(static_cast<int32_t>(b)));
    bound_ = std::max(bound_, options.target);
  }

  Solution solve() {
    if (sections_.rects.empty()) return best_;
    for (const Order order : kAllOrders) {
      const std::vector<int32_t> buffers = make_order(sections_, order);
      for (const Fit fit : {Fit::kFirst, Fit::kBest}) {
        attempt(buffers, fit);
        if (done()) return best_;
      }
    }
    repair();
    return best_;
  }

 private:
  bool done() const {
    return best_.height <= bound_ || placer_.work() >= options_.work ||
           (options_.stop && options_.stop());
  }

  // One pass that must beat the best. Returns how many buffers it placed.
  size_t attempt(const std::vector<int32_t>& order, Fit fit) {
    const size_t placed = placer_.run(order, fit, has_best_ ? best_.height - 1 : INT64_MAX);
    if (placed == order.size()) {
      best_ = {placer_.offsets(), placer_.height()};
      best_order_ = order;
      best_fit_ = fit;
      has_best_ = true;
    }
    return placed;
  }

  // Moves the buffer that does not fit below the best height earlier, and tries again.
  void repair() {
    std::mt19937_64 random(1);
    std::vector<int32_t> order = best_order_;
    int failures = 0;
    while (!done()) {
      const size_t placed = attempt(order, best_fit_);
      if (placed == order.size()) {
        failures = 0;
        continue;
      }
      if (++failures % 64 == 0) {
        order = best_order_;
        continue;
      }
      const size_t to = placed == 0 ? 0 : random() % placed;
      std::rotate(order.begin() + to, order.begin() + placed, order.begin() + placed + 1);
    }
  }

  const Options& options_;
  const Sections sections_;
  Placer placer_;
  int64_t bound_ = 0;
  Solution best_;
  bool has_best_ = false;
  std::vector<int32_t> best_order_;
  Fit best_fit_ = Fit::kFirst;
};

}  // namespace

Solution pack_greedy(const Problem& problem, const Options& options) {
  return Search(problem, options).solve();
}

}  // namespace stow::pack
