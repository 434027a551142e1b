// Collects the notes of a partition: values that cost more than the shardings of a program suggest.
// Not the notes themselves (ir/partition_report.h).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/partition.h"
#include "stowage/passes/reshard.h"

namespace stow {

/// Collects notes while a program is partitioned. Equal notes count once.
class ShardingNotes {
 public:
  ShardingNotes(const MeshShape& mesh, const PartitionOptions& options)
      : mesh_(mesh), options_(options) {}

  /// Adds a note if `plan` has a form larger than both ends. `source` names the value.
  void through_larger(const ArrayType& type, const ReshardPlan& plan, const AxisSharding& from,
                      const AxisSharding& to, std::string source);
  /// Adds a note if one more mesh axis could cut the value. `source` names it.
  void value(const ArrayType& type, const AxisSharding& sharding, std::string source);
  /// Moves out all notes, the largest first.
  std::vector<ShardingNote> take();

 private:
  void add(ShardingNote note);

  const MeshShape& mesh_;
  const PartitionOptions& options_;
  std::vector<ShardingNote> notes_;
  std::set<std::string> seen_;
};

/// Throws a TraceError that shows the first notes.
[[noreturn]] void refuse_notes(const std::vector<ShardingNote>& notes);

}  // namespace stow
