// Options of the partitioner, and its notes about a program.
// Not the pass; that is passes/partition.h.
#pragma once

#include <cstdint>
#include <string>

#include "stowage/core/array_type.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/ir/op_list.h"

namespace stow {

/// The reason why a value costs more memory or traffic than its shardings suggest.
enum class ShardingNoteKind : uint8_t {
  kThroughLarger,  ///< Resharding passes through a form that is larger than both ends.
  kStaysWhole,     ///< One more mesh axis could cut the value.
};

struct ShardingNote {
  ShardingNoteKind kind = ShardingNoteKind::kStaysWhole;
  ArrayType type;        ///< Type of the whole array.
  /// Bytes at one position. kThroughLarger: of the largest form. kStaysWhole: of the value.
  int64_t bytes = 0;
  /// Bytes at one position. kThroughLarger: of the larger end. kStaysWhole: of the value, cut by
  /// one more mesh axis.
  int64_t achievable_bytes = 0;
  std::string source;  ///< Place in the user's program, or the name of an input.
};

/// The collectives of one op that a position runs, with loops multiplied out; a while loop counts
/// once.
struct CollectiveCount {
  ir::OpKind op = ir::OpKind::kAllGather;
  int64_t count = 0;
  double bytes = 0;  ///< Bytes that one position sends in ring algorithms.
};

struct PartitionOptions {
  /// True if a note is an error.
  bool strict = false;
  /// Forms of fewer bytes a position get no note.
  int64_t least_noted_bytes = 64 * 1024;
  /// Mesh axes over which the parts of a bf16 or f16 product are summed in f32 and rounded once:
  /// the data axes, for gradients. Sums over other axes cross the mesh in the product's dtype.
  MeshAxes f32_sum_axes = {};
};

/// "f32[128,64] takes 32 KiB a position at mlp/up (model.cpp:41); one more mesh axis would make
/// that 8 KiB".
std::string to_string(const ShardingNote& note);

}  // namespace stow
