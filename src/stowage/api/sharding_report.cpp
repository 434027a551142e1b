#include "stowage/api/sharding_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "stowage/base/bytes.h"
#include "stowage/base/inside.h"
#include "stowage/ir/op_list.h"
#include "stowage/ir/schedule.h"

namespace stow {
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

// A loop whose end is open counts once.
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

ShardingReport sharding_report_of(const Executable& program) {
  Counts counts;
  count_list(program.schedule().instructions, 1, counts);
  ShardingReport report{program.sharding_notes(), {}};
  for (const auto& [op, count] : counts) report.collectives.push_back(count);
  return report;
}

std::string to_string(const ShardingReport& report) {
  std::string text;
  for (const CollectiveCount& c : report.collectives)
    text += fmt::format("{:<14} {:>6} a run, {} sent by a position\n", op_name(c.op), c.count,
                        format_bytes(static_cast<int64_t>(c.bytes)));
  if (report.collectives.empty()) text += "no collectives\n";
  for (const ShardingNote& note : report.notes) text += to_string(note) + "\n";
  return text;
}

}  // namespace stow
