// The notes of a partition: what costs more than the shardings of a program say.
// Not their form in text, which partition.h declares.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/partition.h"
#include "stowage/passes/reshard.h"

namespace stow {

/// Gathers notes while a program is written. Those alike in all but how often they come count once.
class ShardingNotes {
 public:
  ShardingNotes(const MeshShape& mesh, const PartitionOptions& options)
      : mesh_(mesh), options_(options) {}

  /// Notes a plan whose largest form is larger than both ends. `source` names the value.
  void through_larger(const ArrayType& type, const ReshardPlan& plan, const AxisSharding& from,
                      const AxisSharding& to, std::string source);
  /// Notes a value that one more mesh axis could cut.
  void value(const ArrayType& type, const AxisSharding& sharding, std::string source);
  /// All of them, the largest first.
  std::vector<ShardingNote> take();

 private:
  void add(ShardingNote note);

  const MeshShape& mesh_;
  const PartitionOptions& options_;
  std::vector<ShardingNote> notes_;
  std::set<std::string> seen_;
};

/// Throws TraceError that shows the first notes.
[[noreturn]] void refuse_notes(const std::vector<ShardingNote>& notes);

}  // namespace stow
