// Exchange: the one operation that a transport implements; all collectives are built from it.
// Not for users of collectives; those call the Communicator.
#pragma once

#include <functional>
#include <string>

#include "stowage/runtime/comm/communicator.h"
#include "stowage/runtime/comm/strided.h"

namespace stow::comm {

/// Bytes of one half of a rank's window, the memory for chunks in transit. The rank writes one half
/// while others read the other half.
inline constexpr int64_t kHalfWindowBytes = int64_t{1} << 20;

/// A received chunk of a piece: `bytes` bytes from offset `at` of `where`.
struct ReceivedChunk {
  Strided where;
  int64_t at = 0;
  int64_t bytes = 0;
};

/// Every member sends a piece to each of its readers, and receives one from each of its writers. A
/// piece moves chunk by chunk. `reader` and `writer` are indices in the group.
struct Exchange {
  const Group* group = nullptr;
  std::string_view op;     ///< "all_gather".
  std::string_view label;  ///< The place in the source.
  std::string detail;      ///< Dtype, sizes and other parameters that must agree between members.

  /// Bytes of the longest piece of any member. All members use it, and so count equally many
  /// chunks.
  int64_t longest_bytes = 0;
  int64_t elem_bytes = 1;        ///< Chunk sizes are multiples of it.
  bool same_for_all = false;     ///< True if all readers of a member get the same piece.
  std::vector<int32_t> readers;  ///< Members that get a piece from the caller; not itself.
  std::vector<int32_t> writers;  ///< Members whose pieces the caller gets; not itself.
  /// Returns the piece for a reader. Under same_for_all it may be called for one reader only.
  std::function<Strided(int32_t reader)> piece_for;
  /// Returns the size of the piece that comes from a writer.
  std::function<int64_t(int32_t writer)> bytes_from;
  /// Consumes a chunk from a writer, bytes [from, from + bytes) of the piece. Null if consume_all
  /// is set.
  std::function<void(int32_t writer, int64_t from, const ReceivedChunk&)> consume;
  /// Consumes the same chunk of all writers at once; the span has the order of `writers`. Null if
  /// consume is set.
  std::function<void(int64_t from, std::span<const ReceivedChunk>)> consume_all;

  /// Returns a digest of the fields that must be equal at all members.
  uint64_t signature() const;
  /// Returns "all_gather at layers/mlp (llama.cpp:95)".
  std::string name() const;
  /// Returns the bytes of a chunk: the pieces for all readers share one half of a window.
  int64_t chunk_bytes() const;
  /// Returns the number of chunks: at least one, which may be empty.
  int64_t n_chunks() const;
};

/// A reduction for Communicator::reduce_natively(). A reduce_scatter (`scatters`) reduces the part
/// at the caller's index, [outer, inner], of every member's [outer, n, inner]. An all_reduce
/// reduces whole arrays of `inner` elements, and `outer` is 1.
struct NativeReduction {
  const Group* group = nullptr;
  std::string_view op, label;  ///< See Exchange.
  std::string detail;
  ReduceKind kind = ReduceKind::kSum;
  DType dtype = DType::kF32;
  bool scatters = false;
  int64_t outer = 1, inner = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  ///< May be `in` for an all_reduce.

  std::string name() const;  ///< Returns "all_reduce at layers/mlp (llama.cpp:95)".
};

/// Returns the indices of all members but the caller, in the order in which the caller serves them:
/// it begins with the next index, so that members do not all begin with the same one.
std::vector<int32_t> other_members(const Group& group);

/// Returns the error message for a chunk from the rank `writer` that belongs to another exchange
/// than the caller's.
std::string mismatch_message(const Communicator& caller, const Exchange& exchange, int32_t writer,
                             const std::string& other_name, const std::string& other_detail);

}  // namespace stow::comm
