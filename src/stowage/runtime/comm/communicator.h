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

/// A collective that cannot end: a process is lost or late, or two processes run different
/// programs. The message names the rank and the collective. The communicator cannot be used
/// afterwards.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The ranks that take part in a collective. A rank's index in the group is its place in `ranks`.
struct Group {
  std::vector<int32_t> ranks;
  int32_t index = 0;  ///< The caller's index.

  int32_t size() const { return static_cast<int32_t>(ranks.size()); }
  /// Returns the group of `ranks` with `rank`, one of them, as the caller.
  static Group of(std::vector<int32_t> ranks, int32_t rank);
};

/// A digest of some content: equal contents have equal fingerprints.
using Fingerprint = std::array<uint64_t, 2>;

/// One rank's access to collectives. A rank is one device of one process; ranks number the devices
/// process by process. Collectives block; one thread at a time calls them. Every member of a group
/// must call the same collectives in the same order.
///
/// Arrays have the form [outer, n, inner] and are cut into n parts along the middle axis: a gather
/// or scatter along any axis then needs no transposed copy. `outer`, `inner` and `n_elems` count
/// elements of `dtype`. `label`: the collective's place in the source ("layers/mlp
/// (llama.cpp:95)"), for messages.
/// Errors: every collective may throw CommunicationError.
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

  /// Writes every member's part, [outer, inner], to the member's index of whole, [outer, n, inner].
  void all_gather(const Group& group, std::string_view label, DType dtype, int64_t outer,
                  int64_t inner, const std::byte* part, std::byte* whole);
  /// Reduces every member's whole, [outer, n, inner], at the caller's index and writes the result
  /// to part, [outer, inner]. The order of a reduction is the tree of tree_reduce.h over the
  /// members' indices.
  void reduce_scatter(const Group& group, std::string_view label, ReduceKind kind, DType dtype,
                      int64_t outer, int64_t inner, const std::byte* whole, std::byte* part);
  /// Writes the reduction of every member's `n_elems` elements to `out`, which may be `in`. The
  /// order is that of reduce_scatter().
  void all_reduce(const Group& group, std::string_view label, ReduceKind kind, DType dtype,
                  int64_t n_elems, const std::byte* in, std::byte* out);
  /// Sends part i of `in`, [in_outer, n, in_inner], to the member at index i, and writes the part
  /// that comes from the member at index i to part i of `out`, [out_outer, n, out_inner]. Elements
  /// of a part keep their order: in_outer * in_inner = out_outer * out_inner.
  void all_to_all(const Group& group, std::string_view label, DType dtype, int64_t in_outer,
                  int64_t in_inner, int64_t out_outer, int64_t out_inner, const std::byte* in,
                  std::byte* out);
  /// Sends `n_elems` elements from the member at the first index of each pair to the member at the
  /// second. An index is the first of at most one pair and the second of at most one. A member
  /// whose index is the second of no pair gets zeros. `in` must not be `out`.
  void permute(const Group& group, std::string_view label, DType dtype,
               std::span<const std::pair<int32_t, int32_t>> pairs, int64_t n_elems,
               const std::byte* in, std::byte* out);
  /// Returns once every member has called it.
  void barrier(const Group& group, std::string_view label);
  /// Copies the bytes of the member at index `root` to all other members. All pass spans of equal
  /// size.
  void broadcast(const Group& group, std::string_view label, int32_t root,
                 std::span<std::byte> bytes);
  /// Returns, for each item, the ranks whose fingerprint differs from the most frequent one. If two
  /// fingerprints are equally frequent, the one at the lowest index counts. The lists are empty if
  /// all are equal. If all fingerprints of all items agree, the bytes sent do not depend on the
  /// number of items; else every member sends 16 bytes for each item.
  std::vector<std::vector<int32_t>> compare(const Group& group, std::string_view label,
                                            std::span<const Fingerprint> items);

  /// Bytes that this rank has sent in collectives, counted as in a ring of n members: S (n - 1) / n
  /// for an all_gather, reduce_scatter or all_to_all of an array of S bytes, twice that for an
  /// all_reduce.
  int64_t sent_bytes() const { return sent_bytes_; }
  int64_t n_collectives() const { return n_collectives_; }  ///< Calls so far.

  /// Sets the order of later calls of reduce_scatter() and all_reduce(); no other call depends on
  /// it. All ranks must set the same order before the next reduction; nothing here checks that.
  void set_reduce_order(ReduceOrder order) { reduce_order_ = order; }
  ReduceOrder reduce_order() const { return reduce_order_; }  ///< kTree where nothing was set.
  /// True if the transport has a reduction of its own, which ReduceOrder::kNative uses.
  virtual bool has_native_reduction() const { return false; }

  /// Ends the collectives of all ranks: every waiting and every later call throws
  /// CommunicationError with the message of the first abort().
  virtual void abort(const std::string& message) = 0;
  /// Most bytes of host memory through which this rank exchanges data. With transport "shared", all
  /// ranks of the host share these bytes; with "mpi", they belong to this rank.
  virtual int64_t window_bytes() const { return 0; }
  /// Returns "shared", "mpi" or "null".
  virtual std::string_view transport() const = 0;
  /// Returns "rank 3"; "process 3" if every process has one device; "rank 3 (device 1 of process
  /// 1)" if there are several processes with several devices each.
  std::string name_of(int32_t rank) const;

 protected:
  /// Moves the pieces of one exchange (runtime/comm/exchange.h) and returns when the caller's
  /// memory may be written again.
  virtual void exchange(const Exchange& exchange) = 0;
  /// Reduces with the transport's own reduction and returns true; false if it has none for this
  /// group.
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

struct ThreadOptions {
  double timeout_s = 60;     ///< Longest wait for a member.
  bool use_windows = false;  ///< True: data goes through the windows, as between processes.
};
/// Returns one communicator for each of `n_ranks` threads of this process.
std::vector<std::unique_ptr<Communicator>> communicators_of_threads(int32_t n_ranks,
                                                                    const ThreadOptions& = {});

/// Returns a communicator that counts the calls and bytes of one rank and moves no data, for plans
/// without devices.
std::unique_ptr<Communicator> null_communicator(int32_t rank, int32_t n_ranks,
                                                int32_t devices_per_process = 1);

}  // namespace stow::comm
