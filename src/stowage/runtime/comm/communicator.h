// Communicator: one rank's end of the collectives, over any transport.
// Not a mesh and not a device: a rank is a number here, and groups are lists of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/core/dtype.h"
#include "stowage/core/reduce_kind.h"
#include "stowage/runtime/comm/reduce_order.h"

namespace stow::comm {

struct Exchange;
struct NativeReduction;

/// A collective that cannot end: a process is lost or late, or two of them run different programs. The
/// message names rank and collective. The communicator is of no use after it.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The ranks that take part in a collective, by their index in it, and the index of the caller.
struct Group {
  std::vector<int32_t> ranks;
  int32_t index = 0;

  int32_t size() const { return static_cast<int32_t>(ranks.size()); }
  /// The group of those ranks, seen from `rank`, which is one of them.
  static Group of(std::vector<int32_t> ranks, int32_t rank);
};

/// The digest of the content of a leaf; equal contents have equal ones.
using Fingerprint = std::array<uint64_t, 2>;

/// A rank is one device of one process; ranks number the devices process by process. Its collectives block
/// and are called by one thread at a time. Every member of a group calls the same ones in the same order.
///
/// An array is seen as [outer, n, inner], cut in n along its middle axis: so a gather or scatter along any
/// axis goes straight into place. Counts are elements of `dtype`, a `label` is the collective's place in
/// the source ("layers/mlp (llama.cpp:95)") and part of every message.
/// Errors: CommunicationError, of every call.
class Communicator {
 public:
  Communicator(int32_t rank, int32_t size, int32_t devices_per_process);
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }  ///< The number of ranks.
  int32_t process() const { return rank_ / devices_per_process_; }
  int32_t n_processes() const { return size_ / devices_per_process_; }
  int32_t devices_per_process() const { return devices_per_process_; }
  Group all() const;  ///< The group of all ranks, in their order.

  /// Writes every member's part, [outer, inner], to its index of whole, [outer, n, inner].
  void all_gather(const Group& group, std::string_view label, DType dtype, int64_t outer,
                  int64_t inner, const std::byte* part, std::byte* whole);
  /// Writes the reduction of every member's whole, [outer, n, inner], at the caller's index to part,
  /// [outer, inner]. A sum is the tree of tree_reduce.h over the group's index.
  void reduce_scatter(const Group& group, std::string_view label, ReduceKind kind, DType dtype,
                      int64_t outer, int64_t inner, const std::byte* whole, std::byte* part);
  /// Writes the reduction of every member's `n_elems` elements to `out`, which may be `in`. The same
  /// tree as that of reduce_scatter.
  void all_reduce(const Group& group, std::string_view label, ReduceKind kind, DType dtype,
                  int64_t n_elems, const std::byte* in, std::byte* out);
  /// Gives every member a part of `in`, [in_outer, n, in_inner], at its index, and puts the one that
  /// comes from a member at that one's index of `out`, [out_outer, n, out_inner]. Parts keep their order
  /// of elements: in_outer * in_inner = out_outer * out_inner.
  void all_to_all(const Group& group, std::string_view label, DType dtype, int64_t in_outer,
                  int64_t in_inner, int64_t out_outer, int64_t out_inner, const std::byte* in,
                  std::byte* out);
  /// Sends `n_elems` elements from the first index of each pair to the second. An index is the first of
  /// at most one pair and the second of at most one; who is no second gets zeros. `in` is not `out`.
  void permute(const Group& group, std::string_view label, DType dtype,
               std::span<const std::pair<int32_t, int32_t>> pairs, int64_t n_elems,
               const std::byte* in, std::byte* out);
  /// Returns once every member has called it.
  void barrier(const Group& group, std::string_view label);
  /// Copies the bytes of the member at index `root` to all others. All give as many.
  void broadcast(const Group& group, std::string_view label, int32_t root,
                 std::span<std::byte> bytes);
  /// The members, as ranks, whose fingerprint of each item is not the one that most have; of two that
  /// equally many have, the one of the lower index counts. Empty lists where all are equal. Sends constant
  /// bytes if all are, however many items there are, else 16 bytes an item and member.
  std::vector<std::vector<int32_t>> compare(const Group& group, std::string_view label,
                                            std::span<const Fingerprint> items);

  /// Bytes this rank has sent in collectives, counted as those of a ring: S (n - 1) / n of a whole of S
  /// bytes for all_gather, reduce_scatter and all_to_all, twice that for all_reduce.
  int64_t sent_bytes() const { return sent_bytes_; }
  int64_t n_collectives() const { return n_collectives_; }  ///< Calls so far.

  /// How reduce_scatter and all_reduce put numbers together from here on; compare() and all else stay as
  /// they are. All ranks set the same before the next reduction, and have compared that they do.
  void set_reduce_order(ReduceOrder order) { reduce_order_ = order; }
  ReduceOrder reduce_order() const { return reduce_order_; }  ///< kTree where nothing was set.
  /// True if ReduceOrder::kNative differs from the tree here: the transport has a reduction of its own.
  virtual bool has_native_reduction() const { return false; }

  /// Ends the collectives of all ranks with that message: each that waits, or calls one later, throws
  /// it. Of several messages the first counts.
  virtual void abort(const std::string& message) = 0;
  /// Bytes of host memory through which this rank meets others, at most. Of "shared", all ranks of the host
  /// share them; of "mpi" they are this rank's.
  virtual int64_t window_bytes() const { return 0; }
  /// "shared", "mpi" or "null".
  virtual std::string_view transport() const = 0;
  /// "rank 3", or "process 3" where every process has one device.
  std::string name_of(int32_t rank) const;

 protected:
  /// Moves the pieces of one exchange (runtime/comm/exchange.h) and returns when the caller's memory may
  /// be written again.
  virtual void exchange(const Exchange& exchange) = 0;
  /// Reduces by the transport's own means, and returns true; false where it has none for that group.
  virtual bool reduce_natively(const NativeReduction&) { return false; }

 private:
  struct Call;
  // Reduces natively if the reduce order and the transport allow it. False if nothing was done.
  bool try_native(const NativeReduction& reduction, int64_t sent_bytes);
  void all_reduce_by_tree(const Group& group, std::string_view label, ReduceKind kind, DType dtype,
                          int64_t n_elems, const std::byte* in, std::byte* out);
  void run(const Call& call, Exchange& exchange);

  int32_t rank_, size_, devices_per_process_;
  int64_t sent_bytes_ = 0, n_collectives_ = 0;
  ReduceOrder reduce_order_ = ReduceOrder::kTree;
};

/// One communicator a rank for `n_ranks` threads of this process.
struct ThreadOptions {
  double timeout_s = 60;     ///< How long a member may be late.
  bool use_windows = false;  ///< Bytes go through the windows, as between processes.
};
std::vector<std::unique_ptr<Communicator>> communicators_of_threads(int32_t n_ranks,
                                                                    const ThreadOptions& = {});

/// Counts calls and bytes of one rank of `n_ranks` and moves nothing: for plans without devices.
std::unique_ptr<Communicator> null_communicator(int32_t rank, int32_t n_ranks,
                                                int32_t devices_per_process = 1);

}  // namespace stow::comm
