#include "stowage/ir/schedule_summary.h"

#include <algorithm>
#include <map>

namespace stow::ir {
namespace {

using Counts = std::map<OpKind, CollectiveCount>;

void count_kernel(const Kernel& kernel, int64_t times, Counts& counts) {
  if (!is_collective(kernel.op) || kernel.phase == MovePhase::kDone) return;
  const auto size = static_cast<double>(std::get<CollectiveParams>(kernel.params).group_size());
  const auto bytes_of = [](const View& v) { return v.elems() * dtype_bytes(v.dtype); };
  const double share = kernel.op == OpKind::kPermute     ? 1
                       : kernel.op == OpKind::kAllReduce ? 2 * (size - 1) / size
                                                         : (size - 1) / size;
  CollectiveCount& count = counts[kernel.op];
  count.op = kernel.op;
  count.count += times;
  count.bytes +=
      static_cast<double>(times) * share *
      static_cast<double>(std::max(bytes_of(kernel.inputs[0]), bytes_of(kernel.outputs[0])));
}

void count_list(const std::vector<Instruction>& list, int64_t times, Counts& counts) {
  for (const Instruction& instruction : list) {
    if (const Kernel* kernel = instruction.kernel()) {
      count_kernel(*kernel, times, counts);
    } else if (const Loop* loop = instruction.loop()) {
      const int64_t trips = loop->trip_count == Loop::kOpen ? 1 : loop->trip_count;
      count_list(loop->body, times * trips, counts);
      count_list(loop->condition, times * trips, counts);
    } else {
      for (const auto& alternative : instruction.branch()->alternatives)
        count_list(alternative, times, counts);
    }
  }
}

}  // namespace

std::vector<CollectiveCount> count_collectives(const Schedule& schedule) {
  Counts counts;
  count_list(schedule.instructions, 1, counts);
  std::vector<CollectiveCount> list;
  for (const auto& [op, count] : counts) list.push_back(count);
  return list;
}

}  // namespace stow::ir
