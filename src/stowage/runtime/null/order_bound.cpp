#include "stowage/runtime/null/order_bound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "stowage/ir/schedule_walk.h"
#include "stowage/runtime/null/kernel_cost.h"

namespace stow {
namespace {

// When each byte of a buffer was written last.
class WriteTimes {
 public:
  double latest(int64_t low, int64_t high) const {
    double latest = 0;
    for (auto it = first_over(low); it != ranges_.end() && it->first < high; ++it)
      latest = std::max(latest, it->second.written_s);
    return latest;
  }

  void write(int64_t low, int64_t high, double at_s) {
    if (low >= high) return;
    for (auto it = first_over(low); it != ranges_.end() && it->first < high;) {
      const auto [begin, old] = *it;
      it = ranges_.erase(it);
      if (begin < low) ranges_.emplace(begin, Range{low, old.written_s});
      if (old.end > high) ranges_.emplace(high, Range{old.end, old.written_s});
    }
    ranges_.emplace(low, Range{high, at_s});
  }

 private:
  struct Range {
    int64_t end;
    double written_s;
  };
  using Ranges = std::map<int64_t, Range>;

  Ranges::const_iterator first_over(int64_t low) const {
    auto it = ranges_.upper_bound(low);
    return it != ranges_.begin() && std::prev(it)->second.end > low ? std::prev(it) : it;
  }

  Ranges ranges_;  // by their beginnings; none over another
};

class Walker {
 public:
  Walker(const Schedule& schedule, const DeviceDescription& description,
         const SimulateOptions& options)
      : schedule_(schedule),
        description_(description),
        options_(options),
        iterations_(schedule.n_loops),
        written_(schedule.buffers.size()) {}

  std::optional<double> run() {
    if (!walk(schedule_.instructions, 0)) return std::nullopt;
    return std::max(*std::max_element(clock_.begin(), clock_.end()),
                    step_bound_s(work_s_, description_));
  }

 private:
  // False once there was too much.
  bool walk(const std::vector<Instruction>& body, int64_t iteration) {
    for (const Instruction& i : body) {
      if (!i.guard.holds(iteration)) continue;
      if (const Kernel* kernel = i.kernel()) {
        if (++walked_ > options_.max_walked) return false;
        if (kernel->phase != MovePhase::kDone) visit(*kernel);
      } else if (const Loop* loop = i.loop()) {
        if (!walk_loop(*loop)) return false;
      } else if (!walk(longest(*i.branch()), 0)) {
        return false;
      }
    }
    return true;
  }

  bool walk_loop(const Loop& loop) {
    const bool open = loop.trip_count == Loop::kOpen;
    const int64_t trips = open ? options_.open_iterations : loop.trip_count;
    for (int64_t i = 0; i < trips; ++i) {
      iterations_[loop.id.index()] = i;
      if (!walk(loop.condition, 0) || !walk(loop.body, i)) return false;
    }
    return walk(loop.condition, 0);
  }

  // The same in every iteration, so it is looked for once.
  const std::vector<Instruction>& longest(const Branch& branch) {
    const std::vector<Instruction>*& found = longest_[&branch];
    if (!found)
      found = &*std::max_element(branch.alternatives.begin(), branch.alternatives.end(),
                                 [&](const auto& a, const auto& b) { return total(a) < total(b); });
    return *found;
  }
  double total(const std::vector<Instruction>& body) {
    double sum = 0;
    for (const Instruction& i : body) {
      if (const Kernel* kernel = i.kernel()) {
        if (kernel->phase != MovePhase::kDone) sum += work_of(*kernel).seconds;
      } else if (const Loop* loop = i.loop()) {
        const bool open = loop->trip_count == Loop::kOpen;
        const auto trips =
            static_cast<double>(open ? options_.open_iterations : loop->trip_count);
        sum += trips * total(loop->body) + (trips + 1) * total(loop->condition);
      } else {
        sum += total(longest(*i.branch()));
      }
    }
    return sum;
  }

  void visit(const Kernel& kernel) {
    const Work& work = work_of(kernel);
    double begin_s = 0;
    for (const View& view : kernel.inputs) {
      const auto [low, high] = bytes_of(view);
      begin_s = std::max(begin_s, written_[view.buffer.index()].latest(low, high));
    }
    double& clock = clock_[static_cast<size_t>(work.stream)];
    clock = std::max(clock, begin_s + work.delay_s) + work.seconds;
    work_s_[static_cast<size_t>(work.stream)] += work.seconds;
    for (const View& view : kernel.outputs) {
      const auto [low, high] = bytes_of(view);
      written_[view.buffer.index()].write(low, high, clock);
    }
  }

  std::pair<int64_t, int64_t> bytes_of(const View& view) const {
    const auto [low, high] = reach_of(view);
    int64_t shift = 0;
    for (const LoopTerm& term : view.terms)
      shift += term.bytes_at(iterations_[term.loop.index()]);
    return {low + shift, high + shift};
  }

  struct Work {
    StreamKind stream = StreamKind::kCompute;
    double seconds = 0;
    double delay_s = 0;  // from when it may begin
  };
  const Work& work_of(const Kernel& kernel) {
    const auto [it, is_new] = works_.try_emplace(&kernel);
    Work& work = it->second;
    if (!is_new) return work;
    const KernelCost cost = kernel_cost(kernel, schedule_);
    work.stream = cost.stream();
    work.seconds = whole_ticks(kernel_seconds(cost, description_));
    if (work.stream == StreamKind::kCopyIn || work.stream == StreamKind::kCopyOut)
      work.delay_s = whole_ticks(description_.link.latency_s);
    return work;
  }
  // As the simulation counts.
  static double whole_ticks(double seconds) { return std::round(seconds * 1e12) / 1e12; }

  const Schedule& schedule_;
  const DeviceDescription& description_;
  const SimulateOptions& options_;
  std::vector<int64_t> iterations_;
  std::vector<WriteTimes> written_;  // [buffers]
  std::unordered_map<const Kernel*, Work> works_;
  std::unordered_map<const Branch*, const std::vector<Instruction>*> longest_;
  std::array<double, kNumStreams> clock_{}, work_s_{};
  int64_t walked_ = 0;
};

}  // namespace

std::optional<double> order_bound(const Schedule& schedule, const DeviceDescription& description,
                                  const SimulateOptions& options) {
  return Walker(schedule, description, options).run();
}

}  // namespace stow
