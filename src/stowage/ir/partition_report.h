// Options of the partitioner, and its notes on a program beside the program itself.
// Not the pass; that is passes/partition.h.
#pragma once

#include <cstdint>
#include <string>

#include "stowage/core/array_type.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/ir/op_list.h"

namespace stow {

/// Why a value costs more memory or traffic than its shardings alone say.
enum class ShardingNoteKind : uint8_t {
  kThroughLarger,  ///< On its way to another sharding it takes a form larger than both.
  kStaysWhole,     ///< Each position holds more of it than it must: a mesh axis divides an axis.
};

struct ShardingNote {
  ShardingNoteKind kind = ShardingNoteKind::kStaysWhole;
  ArrayType type;        ///< Whole.
  int64_t bytes = 0;     ///< At one position: of the larger form; of the value as it stays.
  int64_t could_be = 0;  ///< Bytes of the larger of both ends; of the value cut by the axis too.
  std::string source;    ///< Place in the user's program, or the name of an input.
};

/// Collectives that a position runs, loops multiplied out; a loop whose end is open counts once.
struct CollectiveCount {
  ir::OpKind op = ir::OpKind::kAllGather;
  int64_t count = 0;
  double bytes = 0;  ///< Sent by one position, as a ring sends them.
};

struct PartitionOptions {
  /// True: a note is an error.
  bool strict = false;
  /// Values of fewer bytes a position stay whole without a note.
  int64_t least_noted_bytes = 64 * 1024;
  /// Mesh axes over which parts of a bf16 or f16 product are summed in f32 and rounded once, as
  /// gradients over data want it. Sums over other axes cross the mesh in the product's dtype.
  MeshAxes f32_sum_axes = {};
};

/// "f32[128,64] stays whole on each position: 32 KiB at mlp/up (model.cpp:41); could be 8 KiB".
std::string to_string(const ShardingNote& note);

}  // namespace stow
