// Region: shared memory of the ranks of one host: their states, counters and windows.
// Not the protocol; that is in window.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/runtime/comm/exchange.h"
#include "stowage/runtime/comm/strided.h"

namespace stow::comm {

/// Largest number of ranks that may share a region.
inline constexpr int32_t kMostRanks = 4096;

/// A text that one rank writes while others may read it. A concurrent read may return a mixture of
/// the old and new text: use it for messages only. Longer texts are truncated.
template <int kWords>
class SharedText {
 public:
  void set(std::string_view text);
  std::string get() const;

 private:
  std::atomic<uint64_t> words_[kWords];
};

/// A collective that a rank has entered.
struct CallRecord {
  std::atomic<uint64_t> call;  // number of the call, as in RankState::call
  SharedText<32> name;    // "all_gather at layers/mlp (llama.cpp:95)"
  SharedText<16> detail;  // "f32[8, 64]"
};

/// The state of a rank that other ranks see.
struct alignas(64) RankState {
  std::atomic<uint32_t> bell;      // counter (futex) that others increment to wake the rank
  std::atomic<uint32_t> sleeping;  // 1 while the rank sleeps on its bell
  std::atomic<uint64_t> call;      // number of exchanges entered so far
  std::atomic<uint32_t> inside;    // 1 while the rank is in an exchange
  std::atomic<int32_t> waits_for;  // the rank that it waits for, or -1
  // The awaited event. 1: rank `waits_for` has read this rank's chunk `awaited_number`. 0: rank
  // `waits_for` has sent its chunk `awaited_number` to this rank.
  std::atomic<uint32_t> awaits_read;
  std::atomic<uint64_t> awaited_number;
  std::atomic<int64_t> since_ns;       // steady-clock time at which the wait began
  std::atomic<uint32_t> reads_memory;  // 1 while it reads memory of other ranks of its process
  // Records of the last calls. Two chunks of a pair may be in transit, so readers need only a few.
  static constexpr int kRecords = 4;
  CallRecord records[kRecords];
};

/// A chunk from one rank to another.
struct Slot {
  uint64_t signature;  // Exchange::signature() of the writer
  uint64_t call;       // number of the writer's call, for its CallRecord
  int64_t offset;      // of the chunk in the region; -1 if `direct` is used
  Strided direct;      // the whole piece in the writer's memory, for ranks of one process
};

/// Chunks from one rank to another, numbered from 1. Chunk number k is in slots[k % 2].
struct alignas(64) Pair {
  std::atomic<uint64_t> sent;  // written by the writer
  std::atomic<uint64_t> read;  // written by the reader
  Slot slots[2];
};

/// One mapping of the shared memory. A page takes memory only after it has been touched. The memory
/// is anonymous: it has no name in a file system, and the system frees it with the last process
/// that maps it.
class Region {
 public:
  /// Allocates a region for `n_ranks` ranks. `inherited`: true: the region has windows and a file
  /// descriptor that child processes may inherit; false: all ranks are threads of this process. A
  /// region that is not inherited has windows only if `has_windows`; without windows, ranks read
  /// each other's memory.
  /// Errors: out of memory; n_ranks is not in [1, kMostRanks].
  static Result<std::shared_ptr<Region>> create(int32_t n_ranks, int32_t devices_per_process,
                                                bool inherited, bool has_windows = false);
  /// Maps the region of the parent process. Errors: `fd` is not that of a region of this version.
  static Result<std::shared_ptr<Region>> attach(int fd);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int fd() const { return fd_; }  ///< File descriptor; -1 if the region is not inherited.
  int64_t bytes() const { return bytes_; }  ///< The size, bytes_for() of its arguments.
  /// Returns the bytes of a region for `n_ranks` ranks, with or without a window for each.
  static int64_t bytes_for(int64_t n_ranks, bool has_windows);
  int32_t n_ranks() const { return n_ranks_; }
  int32_t devices_per_process() const { return devices_per_process_; }

  RankState& state(int32_t rank) const;
  Pair& pair(int32_t writer, int32_t reader) const;
  /// `read`: false: true if `writer` has sent chunk `number` to `reader`. `read`: true: true if
  /// `reader` has read it.
  bool is_chunk_done(int32_t writer, int32_t reader, uint64_t number, bool read) const;
  /// Returns a rank's window: two halves of kHalfWindowBytes. The region must have windows.
  std::byte* window(int32_t rank) const;
  std::byte* at(int64_t offset) const { return base_ + offset; }
  int64_t offset_of(const std::byte* inside) const { return inside - base_; }

  /// Wakes a rank that sleeps on its bell.
  void ring(int32_t rank) const;
  /// Sleeps until the rank's bell differs from `seen`, but for at most about `at_most_ns`.
  void sleep(int32_t rank, uint32_t seen, int64_t at_most_ns) const;

  /// Records `message` as the reason why collectives end, unless there is one, and wakes all ranks.
  /// Returns true if this call recorded it.
  bool abort(std::string_view message) const;
  bool is_aborted() const;
  std::string abort_message() const;

 private:
  struct Header;
  Region(std::byte* base, int64_t bytes, int fd, int32_t n_ranks, int32_t devices_per_process);

  std::byte* base_;
  int64_t bytes_;
  int fd_;
  int32_t n_ranks_, devices_per_process_;
};

/// Returns the name of the collective that was a rank's call number `call`; "another collective" if
/// its record has been overwritten.
std::string record_name(const RankState& state, uint64_t call);
/// Returns the detail of that collective; "" if its record has been overwritten.
std::string record_detail(const RankState& state, uint64_t call);

}  // namespace stow::comm
