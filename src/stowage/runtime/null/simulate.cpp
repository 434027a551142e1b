#include "stowage/runtime/null/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <unordered_map>

#include "stowage/runtime/null/kernel_cost.h"

namespace stow {
namespace {

constexpr size_t kCompute = static_cast<size_t>(StreamKind::kCompute),
                 kCopyIn = static_cast<size_t>(StreamKind::kCopyIn),
                 kCopyOut = static_cast<size_t>(StreamKind::kCopyOut);
// The least share of its rate that compute keeps beside transfers.
constexpr double kLeastShare = 0.05;

// An instruction with all that time asks of it.
struct Item {
  enum class Kind : uint8_t { kKernel, kMove, kStart, kDone, kLoop, kBlock };
  Kind kind = Kind::kKernel;
  Guard guard;
  const Kernel* kernel = nullptr;
  size_t stream = kCompute;
  double seconds = 0, bytes = 0;
  int64_t ticks = 0;
  int64_t delay_ticks = 0;  // from when it is given to its stream
  size_t transfer = 0;      // of a start, a done
  int64_t trip_count = 0;   // of a loop
  // Iterations of a loop before which a guard changes, and the number of all iterations.
  std::vector<int64_t> ends;
  std::vector<Item> body;  // of a loop; of a branch the alternative that runs
};

// Seconds of all that runs, one after another.
double total_seconds(const std::vector<Item>& items) {
  double sum = 0;
  for (const Item& item : items)
    sum += item.kind == Item::Kind::kLoop
               ? static_cast<double>(item.trip_count) * total_seconds(item.body)
               : item.seconds + total_seconds(item.body);
  return sum;
}

// Makes items of instructions.
class Reader {
 public:
  Reader(const Schedule& schedule, const DeviceDescription& description,
         const SimulateOptions& options, Simulation& result)
      : schedule_(schedule), description_(description), options_(options), result_(result) {}

  std::vector<Item> read(const std::vector<Instruction>& body) {
    std::vector<Item> items;
    for (const Instruction& instruction : body) {
      if (const Kernel* kernel = instruction.kernel()) {
        items.push_back(read(*kernel));
      } else if (const Loop* loop = instruction.loop()) {
        items.push_back(read(*loop));
      } else {
        items.push_back(read(*instruction.branch()));
      }
      items.back().guard = instruction.guard;
    }
    return items;
  }

  size_t n_transfers() const { return transfers_.size(); }

 private:
  Item read(const Kernel& kernel) {
    Item item;
    const KernelCost work = kernel_cost(kernel, schedule_);
    item.kernel = &kernel;
    item.seconds = kernel_seconds(work, description_);
    if (options_.measured_s)
      if (const double measured = options_.measured_s(kernel, 0); measured >= 0)
        item.seconds = measured;
    item.stream = static_cast<size_t>(work.stream());
    if (item.stream != kCompute) item.bytes = work.bytes;
    if (kernel.phase == MovePhase::kWhole) {
      item.kind = item.stream == kCompute ? Item::Kind::kKernel : Item::Kind::kMove;
      return item;
    }
    item.kind = kernel.phase == MovePhase::kStart ? Item::Kind::kStart : Item::Kind::kDone;
    item.transfer = transfers_.emplace(kernel.transfer, transfers_.size()).first->second;
    if (item.kind == Item::Kind::kDone) item.seconds = item.bytes = 0;
    return item;
  }

  Item read(const Loop& loop) {
    Item item;
    item.kind = Item::Kind::kLoop;
    const bool open = loop.trip_count == Loop::kOpen;
    item.trip_count = open ? options_.open_iterations : loop.trip_count;
    if (open) item.body = read(loop.condition);
    for (Item& i : read(loop.body)) item.body.push_back(std::move(i));
    collect_ends(item.body, item.trip_count, item.ends);
    item.ends.push_back(item.trip_count);
    std::sort(item.ends.begin(), item.ends.end());
    item.ends.erase(std::unique(item.ends.begin(), item.ends.end()), item.ends.end());
    if (!open) return item;
    // The condition runs once more than the body.
    result_.every_run = false;
    Item both;
    both.kind = Item::Kind::kBlock;
    both.body = read(loop.condition);
    for (Item& i : both.body) i.guard = Guard{};
    both.body.insert(both.body.begin(), std::move(item));
    return both;
  }

  // Guards speak of the innermost loop: those in branches do, those in loops inside do not.
  static void collect_ends(const std::vector<Item>& body, int64_t trip_count,
                           std::vector<int64_t>& ends) {
    for (const Item& item : body) {
      for (const int64_t at : {item.guard.begin, item.guard.end})
        if (at > 0 && at < trip_count) ends.push_back(at);
      if (item.kind == Item::Kind::kBlock) collect_ends(item.body, trip_count, ends);
    }
  }

  Item read(const Branch& branch) {
    result_.every_run = false;
    Item item;
    item.kind = Item::Kind::kBlock;
    double longest = -1;
    for (const auto& alternative : branch.alternatives) {
      std::vector<Item> body = read(alternative);
      const double seconds = total_seconds(body);
      if (seconds <= longest) continue;
      longest = seconds;
      item.body = std::move(body);
    }
    return item;
  }

  const Schedule& schedule_;
  const DeviceDescription& description_;
  const SimulateOptions& options_;
  Simulation& result_;
  std::map<int, size_t> transfers_;
};

// Ticks a second: so many that the longest conceivable step does not overflow.
double ticks_per_second(const std::vector<Item>& items) {
  double ticks = 1e12;
  while (total_seconds(items) * ticks > 0x1p61) ticks /= 1000;
  return ticks;
}
void count_ticks(std::vector<Item>& items, double per_second, double link_latency_s) {
  for (Item& item : items) {
    item.ticks = std::llround(item.seconds * per_second);
    if (item.stream == kCopyIn || item.stream == kCopyOut)
      item.delay_ticks = std::llround(link_latency_s * per_second);
    count_ticks(item.body, per_second, link_latency_s);
  }
}

// Returns the share of its speed that compute loses while each stream is busy.
std::array<double, kNumStreams> slows_of(const DeviceDescription& d) {
  std::array<double, kNumStreams> slows{};
  for (const size_t s : {kCopyIn, kCopyOut}) slows[s] = d.link.slows_compute;
  for (const StreamKind s : {StreamKind::kDiskRead, StreamKind::kDiskWrite})
    slows[static_cast<size_t>(s)] = d.disk.slows_compute;
  return slows;
}

class Simulator {
 public:
  Simulator(const DeviceDescription& description, const SimulateOptions& options,
            double ticks_per_second, size_t n_transfers, Simulation& result)
      : options_(options),
        tick_s_(1 / ticks_per_second),
        description_(description),
        slows_(slows_of(description)),
        under_way_(n_transfers),
        result_(result) {
  }

  void run(const std::vector<Item>& items) {
    walk(items, 0);
    const int64_t end = *std::max_element(clock_.begin(), clock_.end());
    std::array<double, kNumStreams> work_s;
    for (size_t s = 0; s < kNumStreams; ++s) {
      result_.streams[s] = {static_cast<double>(totals_[s].busy) * tick_s_, totals_[s].runs,
                            totals_[s].bytes};
      work_s[s] = static_cast<double>(totals_[s].work) * tick_s_;
    }
    result_.step_s = static_cast<double>(end) * tick_s_;
    // Slowed work is counted in whole ticks, which may be a little less than the bound.
    result_.bound_s = std::min(step_bound_s(work_s, description_), result_.step_s);
    result_.exposed_s = static_cast<double>(end - totals_[kCompute].busy) * tick_s_;
  }

 private:
  struct Total {
    int64_t busy = 0, runs = 0;
    int64_t work = 0;  // busy, less what others slowed it
    double bytes = 0;
  };
  using Totals = std::array<Total, kNumStreams>;
  // The state of all streams, as far as it matters for what follows.
  struct Mark {
    int64_t iteration = -1;
    int64_t now = 0;
    std::vector<int64_t> state;
    Totals totals;
  };

  void walk(const std::vector<Item>& items, int64_t iteration) {
    for (const Item& item : items) {
      if (!item.guard.holds(iteration)) continue;
      switch (item.kind) {
        case Item::Kind::kLoop: walk_loop(item); break;
        case Item::Kind::kBlock: walk(item.body, iteration); break;
        case Item::Kind::kKernel:
        case Item::Kind::kMove:
        case Item::Kind::kStart:
        case Item::Kind::kDone: visit(item); break;
      }
    }
  }

  // Ticks of the next run of an item.
  int64_t ticks_of(const Item& item) {
    if (!options_.measured_s || item.kind == Item::Kind::kDone) return item.ticks;
    const double measured = options_.measured_s(*item.kernel, n_runs_[item.kernel]++);
    return measured < 0 ? item.ticks : std::llround(measured / tick_s_);
  }

  void visit(const Item& item) {
    ++result_.walked;
    int64_t& now = clock_[kCompute];
    int64_t begin = now;
    size_t stream = item.stream;
    if (item.kind == Item::Kind::kDone) {
      stream = kCompute;
      std::deque<int64_t>& ends = under_way_[item.transfer];
      STOW_CHECK(!ends.empty() || !result_.exact, "transfer {} is awaited and was not started",
                 item.kernel->transfer);
      if (!ends.empty()) {
        now = std::max(now, ends.front());
        ends.pop_front();
      }
    } else {
      int64_t& clock = clock_[stream];
      const int64_t ticks = ticks_of(item);
      begin = std::max(now + item.delay_ticks, clock);
      clock = begin + (stream == kCompute ? slowed(ticks) : ticks);
      if (item.kind == Item::Kind::kStart) under_way_[item.transfer].push_back(clock);
      if (item.kind == Item::Kind::kMove) now = clock;
      totals_[stream].busy += clock - begin;
      totals_[stream].work += ticks;
      totals_[stream].runs += 1;
      totals_[stream].bytes += item.bytes;
    }
    if (static_cast<int64_t>(result_.events.size()) < options_.max_events) {
      const int64_t end = item.kind == Item::Kind::kDone ? now : clock_[stream];
      result_.events.push_back({item.kernel, static_cast<StreamKind>(stream), instant_,
                                static_cast<double>(begin) * tick_s_,
                                static_cast<double>(end) * tick_s_});
    }
    ++instant_;
  }

  // Ticks that so many ticks of computing take from now on beside the transfers that are under way.
  int64_t slowed(int64_t work) const {
    const int64_t now = clock_[kCompute];
    int64_t at = now;
    while (work > 0) {
      double share = 1;
      int64_t until = std::numeric_limits<int64_t>::max();
      for (size_t s = 0; s < kNumStreams; ++s) {
        if (clock_[s] <= at || slows_[s] == 0) continue;
        share -= slows_[s];
        until = std::min(until, clock_[s]);
      }
      if (share == 1) return at - now + work;
      share = std::max(share, kLeastShare);
      const int64_t done = std::llround(static_cast<double>(until - at) * share);
      if (done >= work) return at - now + std::llround(static_cast<double>(work) / share);
      work -= done;
      at = until;
    }
    return at - now;
  }

  // Between two changes of a guard all iterations do the same. Where the streams stand towards one
  // another as they stood some iterations before, everything repeats from there.
  void walk_loop(const Item& loop) {
    int64_t i = 0;
    for (const int64_t end : loop.ends) {
      Mark mark;
      int64_t walked = 0;
      bool may_skip = options_.skips && !options_.measured_s;
      for (; i < end; ++i) {
        walk(loop.body, i);
        ++walked;
        if (!may_skip || end - i <= 2 ||
            static_cast<int64_t>(result_.events.size()) < options_.max_events)
          continue;
        const bool tired = result_.walked > options_.max_walked && mark.iteration >= 0;
        std::vector<int64_t> state = state_now();
        if (mark.iteration >= 0 && (tired || state == mark.state)) {
          result_.exact &= state == mark.state;
          i += skip(mark, i, end);
          may_skip = false;
        } else if ((walked & (walked - 1)) == 0) {
          mark = {i, clock_[kCompute], std::move(state), totals_};
        }
      }
    }
  }

  // The past does not matter, only how far the work under way lies ahead of the compute stream.
  std::vector<int64_t> state_now() const {
    std::vector<int64_t> state;
    const int64_t now = clock_[kCompute];
    for (const int64_t clock : clock_) state.push_back(std::max<int64_t>(clock - now, 0));
    for (const auto& ends : under_way_) {
      state.push_back(static_cast<int64_t>(ends.size()));
      for (const int64_t end : ends) state.push_back(std::max<int64_t>(end - now, 0));
    }
    return state;
  }

  // Repeats what happened since the mark as often as it fits before `end`; the iterations passed
  // by.
  int64_t skip(const Mark& mark, int64_t i, int64_t end) {
    const int64_t period = i - mark.iteration, times = (end - 1 - i) / period;
    const int64_t shift = times * (clock_[kCompute] - mark.now);
    for (int64_t& clock : clock_) clock += shift;
    for (auto& ends : under_way_)
      for (int64_t& e : ends) e += shift;
    for (size_t s = 0; s < kNumStreams; ++s) {
      totals_[s].busy += times * (totals_[s].busy - mark.totals[s].busy);
      totals_[s].work += times * (totals_[s].work - mark.totals[s].work);
      totals_[s].runs += times * (totals_[s].runs - mark.totals[s].runs);
      totals_[s].bytes += static_cast<double>(times) * (totals_[s].bytes - mark.totals[s].bytes);
    }
    return times * period;
  }

  const SimulateOptions& options_;
  double tick_s_;
  const DeviceDescription& description_;
  const std::array<double, kNumStreams> slows_;  // share of compute that a busy stream takes
  std::array<int64_t, kNumStreams> clock_{};
  std::vector<std::deque<int64_t>> under_way_;  // of each transfer number, when its starts end
  Totals totals_;
  std::unordered_map<const Kernel*, int64_t> n_runs_;  // where each run has a time of its own
  int64_t instant_ = 0;  // true until the first skip, and then nothing asks for it
  Simulation& result_;
};

}  // namespace

double step_bound_s(const std::array<double, kNumStreams>& work_s,
                    const DeviceDescription& description) {
  const std::array<double, kNumStreams> slows = slows_of(description);
  double all = 0;
  for (size_t s = 0; s < kNumStreams; ++s)
    if (work_s[s] > 0) all += slows[s];
  // Compute keeps a least share however many streams are busy.
  const double kept = all > 1 - kLeastShare ? (1 - kLeastShare) / all : 1;
  double computes = work_s[kCompute], longest = 0;
  for (size_t s = 0; s < kNumStreams; ++s) {
    computes += kept * slows[s] * work_s[s];
    longest = std::max(longest, work_s[s]);
  }
  return std::max(longest, computes);
}

Simulation simulate(const Schedule& schedule, const DeviceDescription& description,
                    const SimulateOptions& options) {
  Simulation result;
  Reader reader(schedule, description, options, result);
  std::vector<Item> items = reader.read(schedule.instructions);
  const double per_second = ticks_per_second(items);
  count_ticks(items, per_second, description.link.latency_s);
  Simulator(description, options, per_second, reader.n_transfers(), result).run(items);
  return result;
}

std::array<StreamUse, kNumStreams> moved_bytes(const Schedule& schedule) {
  // Any device moves the same.
  DeviceDescription any;
  any.compute = {
      .f32_flops = 1, .bf16_flops = 1, .f64_flops = 1, .vector_flops = 1, .special_flops = 1};
  any.memory.bandwidth = 1;
  any.link = {.to_device = 1, .to_host = 1};
  any.disk = {.read = 1, .write = 1};
  auto streams = simulate(schedule, any).streams;
  for (StreamUse& use : streams) use.busy_s = 0;
  return streams;
}

std::string_view stream_name(StreamKind stream) {
  switch (stream) {
    case StreamKind::kCompute: return "compute";
    case StreamKind::kCopyIn: return "copy in";
    case StreamKind::kCopyOut: return "copy out";
    case StreamKind::kDiskRead: return "disk read";
    case StreamKind::kDiskWrite: return "disk write";
    case StreamKind::kCollective: return "collective";
  }
  return "";
}

}  // namespace stow
