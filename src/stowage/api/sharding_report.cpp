#include "stowage/api/sharding_report.h"

#include <fmt/format.h>

#include "stowage/base/bytes.h"
#include "stowage/base/inside.h"
#include "stowage/ir/op_list.h"

namespace stow {

ShardingReport sharding_report_of(const Executable& program) {
  return {program.sharding_notes(), program.collectives()};
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
