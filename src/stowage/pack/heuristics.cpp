#include "stowage/pack/heuristics.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "stowage/base/inside.h"
#include "stowage/pack/orders.h"
#include "stowage/pack/placer.h"
#include "stowage/pack/reorder.h"
#include "stowage/pack/sections.h"
#include "stowage/pack/skyline.h"
#include "stowage/pack/window.h"

namespace stow::pack {
namespace {

// Rigid groups come by the hundred; far larger problems are left to the other ways.
constexpr int64_t kWindowFails = 2000;
// Overlaps are kept if this much work is left for each. To find one takes at most half of it; the
// other half is for passes and repairs.
constexpr int64_t kWorkPerOverlap = 32;
// Failures to go lower before repairs begin again.
constexpr int kFailures = 64;

class Search {
 public:
  Search(const Problem& problem, const Options& options)
      : options_(options),
        sections_(cut_sections(problem)),
        problem_(problem),
        placer_(problem, sections_),
        measures_(measure(sections_)) {
    best_.offsets.assign(problem.buffers.size(), 0);
    bound_ = std::max(sections_.largest_live, options.target);
    for (size_t b = 0; b < problem.buffers.size(); ++b)
      bound_ = std::max(bound_, placer_.extent(static_cast<int32_t>(b)));
  }

  Solution solve() {
    if (sections_.rects.empty()) return best_;
    for (const Order order : kAllOrders) {
      const std::vector<int32_t> buffers =
          with_first_buffers(make_order(sections_, measures_, order));
      orders_.push_back(buffers);
      for (const Fit fit : {Fit::kFirst, Fit::kBest}) {
        attempt(buffers, fit);
        if (done()) return best_;
      }
      if (orders_.size() == 1) keep_overlaps();
    }
    justify(best_.offsets);
    if (!done() && problem_.buffers.size() <= options_.window_buffers) follow_window();
    if (reorder_) {
      reorder();
      return best_;
    }
    // With too many overlaps to follow, two ways to go on alternate, each with the same share of
    // the work.
    int64_t repairing = 0, rising = 0;
    while (!done()) {
      const bool rise = rising <= repairing;
      const int64_t before = work();
      rise ? raise_skyline() : repair();
      (rise ? rising : repairing) += work() - before;
    }
    return best_;
  }

 private:
  int64_t work() const {
    return placer_.work() + skyline_work_ + (reorder_ ? reorder_->work() : 0);
  }

  // Finds the overlaps if enough work is left. Runs after the first order, because the first passes
  // of most problems end at the bound.
  void keep_overlaps() {
    if (count_overlaps(sections_) > (options_.work - work()) / kWorkPerOverlap) return;
    std::vector<int64_t> alignments;
    for (const Buffer& b : problem_.buffers) alignments.push_back(b.alignment);
    reorder_.emplace(sections_, std::move(alignments));
  }

  bool done() const {
    return best_.height <= bound_ || work() >= options_.work || (options_.stop && options_.stop());
  }

  // Returns the order with Options::first_buffers moved to its front.
  std::vector<int32_t> with_first_buffers(std::vector<int32_t> order) const {
    std::vector<uint8_t> is_first(measures_.lifetime.size());
    for (const int32_t b : options_.first_buffers) is_first[b] = 1;
    std::vector<int32_t> out = options_.first_buffers;
    for (const int32_t b : order)
      if (!is_first[b]) out.push_back(b);
    return out;
  }

  // One pass. Takes over what beats the best. Returns how many buffers were placed below `limit`.
  size_t attempt(const std::vector<int32_t>& order, Fit fit, int64_t limit) {
    // A first fit by kept overlaps takes a tenth of the time of one by the placer's tree.
    const bool reorders = reorder_ && fit == Fit::kFirst;
    size_t placed = 0;
    if (reorders) {
      reorder_->start(order);
      placed = reorder_->place(limit);
    } else {
      placed = placer_.run(order, fit, limit, best_order_.empty() ? nullptr : options_.stop);
    }
    if (placed < order.size()) return placed;
    last_ = reorders ? Solution{reorder_->offsets(), reorder_->height()}
                     : Solution{placer_.offsets(), placer_.height()};
    if (last_.height < best_height()) {
      best_ = last_;
      best_order_ = order;
      best_fit_ = fit;
    }
    return placed;
  }
  size_t attempt(const std::vector<int32_t>& order, Fit fit) {
    return attempt(order, fit, best_height() - 1);
  }
  int64_t best_height() const { return best_order_.empty() ? INT64_MAX : best_.height; }

  // Turns a packing upside down and lets everything fall, again and again, as schedules are
  // justified to the right and to the left.
  void justify(std::vector<int64_t> offsets) {
    std::vector<int32_t> order = best_order_;
    for (int since = 0; since < 6 && !done(); ++since) {
      const int64_t before = best_.height;
      const auto top = [&](int32_t b) { return offsets[b] + placer_.extent(b); };
      std::sort(order.begin(), order.end(),
                [&](int32_t a, int32_t b) { return top(a) != top(b) ? top(a) > top(b) : a < b; });
      // A little above the best is no loss: the next turn may fall below it.
      if (attempt(order, Fit::kFirst, before + before / 64) != order.size()) return;
      offsets = last_.offsets;
      if (best_.height < before) since = -1;
    }
  }

  // First fit in the order of an exact packing of the peak's surroundings, closer and closer to the
  // bound.
  void follow_window() {
    for (const double slack : {0.02, 0.01, 0.005, 0.0}) {
      if (done() || static_cast<double>(best_.height) <= (1 + slack) * static_cast<double>(bound_))
        continue;
      const std::vector<int32_t> order = window_order(problem_, slack, kWindowFails, options_.stop);
      if (order.empty()) break;
      if (attempt(order, Fit::kFirst, best_.height + best_.height / 16) == order.size())
        justify(last_.offsets);
    }
  }

  // First fit in the order of a rising skyline, the ranks drawn anew each time.
  void raise_skyline() {
    const size_t n = measures_.lifetime.size();
    const double life = rises_ % 3 == 2 ? 0.5 : 1, size = rises_ % 3 == 0 ? 0 : 0.5;
    const double noise = rises_ < 3 ? 0 : 0.02 * static_cast<double>(1 + random_() % 10);
    const bool by_pressure = rises_ % 2 == 0;
    const double bucket = static_cast<double>(sections_.largest_live) * (rises_ < 3 ? 1e-3 : 1e-2);
    ++rises_;
    std::vector<double> rank(n);
    for (size_t b = 0; b < n; ++b) {
      const double unit = static_cast<double>(random_() >> 11) * 0x1.0p-53;
      rank[b] = std::log(1 + measures_.lifetime[b]) * life + std::log(1 + measures_.size[b]) * size;
      rank[b] *= 1 + noise * (2 * unit - 1);
      if (by_pressure) rank[b] += 1e4 * std::floor(measures_.pressure[b] / bucket);
    }
    const int64_t limit = options_.work - work();
    const std::vector<int32_t> order =
        skyline_order(sections_, rank, limit, options_.stop, &skyline_work_);
    if (order.empty() || done()) return;
    if (attempt(order, Fit::kFirst, best_.height + best_.height / 16) == order.size())
      justify(last_.offsets);
  }

  // Moves the buffer that does not fit below the best height earlier, to anywhere, and places anew
  // what that changes; again and again.
  void reorder() {
    Reorder& packing = *reorder_;
    const int64_t patience = options_.patience * static_cast<int64_t>(problem_.buffers.size());
    int64_t last_gain = packing.work();
    size_t starts = 0;
    for (int failures = kFailures; !done();) {
      if (patience > 0 && packing.work() - last_gain > patience) return;
      if (failures == kFailures) {
        // From the best and from each other order in turn: the best alone may lead nowhere.
        packing.start(starts % 2 == 0 ? best_order_ : orders_[starts / 2 % orders_.size()]);
        ++starts;
        failures = 0;
      }
      const size_t placed = packing.place(best_.height - 1);
      if (placed < best_order_.size()) {
        ++failures;
        packing.move(placed, placed == 0 ? 0 : random_() % placed);
        continue;
      }
      best_ = {packing.offsets(), packing.height()};
      best_order_ = packing.order();
      last_gain = packing.work();
      failures = 0;
    }
  }

  // The same by whole passes, where there are too many overlaps to keep.
  void repair() {
    std::vector<int32_t> order = best_order_;
    const Fit fit = best_fit_;
    for (int failures = 0; failures < 64 && !done();) {
      const size_t placed = attempt(order, fit);
      if (placed == order.size()) {
        failures = 0;
        continue;
      }
      ++failures;
      const size_t to = placed == 0 ? 0 : random_() % placed;
      std::rotate(order.begin() + to, order.begin() + placed, order.begin() + placed + 1);
    }
  }

  const Options& options_;
  const Sections sections_;
  const Problem& problem_;
  Placer placer_;
  const Measures measures_;
  int64_t bound_ = 0;
  std::optional<Reorder> reorder_;  // If the overlaps are kept.
  Solution last_;                   // Result of the last pass that placed all buffers.
  Solution best_;
  std::vector<int32_t> best_order_;
  std::vector<std::vector<int32_t>> orders_;  // of the first passes
  Fit best_fit_ = Fit::kFirst;
  std::mt19937_64 random_{1};
  uint64_t rises_ = 0;
  int64_t skyline_work_ = 0;
};

}  // namespace

Solution pack_greedy(const Problem& problem, const Options& options) {
  return Search(problem, options).solve();
}

}  // namespace stow::pack
