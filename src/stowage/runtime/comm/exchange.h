// Exchange: what every collective is made of, and all that a transport has to do.
// Not for users of collectives; those call the Communicator.
#pragma once

#include <functional>
#include <string>

#include "stowage/runtime/comm/communicator.h"
#include "stowage/runtime/comm/strided.h"

namespace stow::comm {

/// Memory of a rank for pieces under way: two halves, one written while the other is read.
inline constexpr int64_t kHalfWindowBytes = int64_t{1} << 20;

/// `bytes` bytes of a piece: they begin at offset `at` of `where`.
struct Arrived {
  Strided where;
  int64_t at = 0;
  int64_t bytes = 0;
};

/// Every member gives others a piece each; pieces move chunk by chunk. Members are indices of the group.
struct Exchange {
  const Group* group = nullptr;
  std::string_view op;     ///< "all_gather".
  std::string_view label;  ///< The place in the source.
  std::string detail;      ///< Dtype, sizes and whatever else must agree between members.

  /// Bytes of the longest piece of any member: the number of chunks is the same for all.
  int64_t longest_bytes = 0;
  int64_t elem_bytes = 1;       ///< A chunk is a multiple of it.
  bool same_for_all = false;    ///< Every reader of a member gets the same piece.
  std::vector<int32_t> readers;  ///< Whom the caller gives a piece; not itself.
  std::vector<int32_t> writers;  ///< The ranks whose pieces the caller gets; not itself.
  /// The piece for a reader; of same_for_all for any.
  std::function<Strided(int32_t reader)> give;
  /// Bytes of the piece that comes from a writer.
  std::function<int64_t(int32_t writer)> take_bytes;
  /// Takes a chunk from a writer, bytes [from, from + bytes) of the piece. Null where take_all is set.
  std::function<void(int32_t writer, int64_t from, const Arrived&)> take;
  /// Takes the same chunk of all writers at a time, in the order of `writers`.
  std::function<void(int64_t from, std::span<const Arrived>)> take_all;

  /// A digest of the fields that must be equal at all members.
  uint64_t signature() const;
  /// "all_gather at layers/mlp (llama.cpp:95)".
  std::string name() const;
  /// Bytes of a chunk when `n_slots` pieces share a half of a window.
  int64_t chunk_bytes() const;
  /// How many chunks there are; at least one, which may be empty.
  int64_t n_chunks() const;
};

/// A reduction that a transport may make by its own means: of every member's [outer, n, inner] the part
/// at the caller's index, [outer, inner], or, of an all_reduce, the whole. There outer is 1, and `inner`
/// elements are all of the array.
struct NativeReduction {
  const Group* group = nullptr;
  std::string_view op, label;  ///< As an exchange has them.
  std::string detail;
  ReduceKind kind = ReduceKind::kSum;
  DType dtype = DType::kF32;
  bool scatters = false;
  int64_t outer = 1, inner = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  ///< An all_reduce may have `in` here.

  std::string name() const;  ///< "all_reduce at layers/mlp (llama.cpp:95)".
};

/// All members but the caller, in the order in which it serves them: those behind it first, so that
/// not all begin with the same one.
std::vector<int32_t> others(const Group& group);

/// The message if the caller is in an exchange and `writer` has sent a chunk of another one.
std::string differing(const Communicator& caller, const Exchange& exchange, int32_t writer,
                      const std::string& other_name, const std::string& other_detail);

}  // namespace stow::comm
