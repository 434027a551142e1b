// Region: the memory in which the ranks of one host meet: states, counters and windows.
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

/// Ranks that may share a region of a host.
inline constexpr int32_t kMostRanks = 4096;

/// A text that one rank writes and others may read at the same time. What they then see may be cut or
/// mixed; it is for messages alone.
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
  std::atomic<uint64_t> call;
  SharedText<32> name;    // "all_gather at layers/mlp (llama.cpp:95)"
  SharedText<16> detail;  // "f32[8, 64]"
};

/// The state of a rank that others see.
struct alignas(64) RankState {
  std::atomic<uint32_t> bell;      // rung by whoever changed something that the rank may wait for
  std::atomic<uint32_t> sleeping;  // 1 while the rank sleeps on its bell
  std::atomic<uint64_t> call;      // exchanges entered so far
  std::atomic<uint32_t> inside;    // 1 while it is in one
  std::atomic<int32_t> waits_for;  // a rank, or -1
  // The event awaited: this chunk of that rank is sent, or its own chunk to it is read.
  std::atomic<uint32_t> awaits_read;
  std::atomic<uint64_t> awaited_number;
  std::atomic<int64_t> since_ns;   // steady time since when it waits
  std::atomic<uint32_t> reads_memory;  // 1 while it reads what others of its process own
  // A pair has at most two pieces under way, so a reader asks for one of the last few calls.
  static constexpr int kRecords = 4;
  CallRecord records[kRecords];
};

/// A chunk from one rank to another.
struct Slot {
  uint64_t signature;
  uint64_t call;    // call of the writer, for its record
  int64_t offset;   // into the region; -1 where the chunk is the writer's own memory
  Strided direct;   // the whole piece, for ranks of one process
};

/// Chunks from one rank to another, numbered from 1. Chunk number k is in slots[k % 2].
struct alignas(64) Pair {
  std::atomic<uint64_t> sent;  // written by the writer
  std::atomic<uint64_t> read;  // written by the reader
  Slot slots[2];
};

/// One mapping of the memory. Its pages exist once they are touched, so what no rank uses costs nothing.
/// The memory is anonymous: it has no name in a file system, no limit but that of all memory, and is
/// gone with the last process that maps it.
class Region {
 public:
  /// New memory for so many ranks; for threads of one process where `inherited` is false, else behind a
  /// file descriptor that a child process may inherit. Without windows, which `has_windows` asks for where
  /// nothing is inherited, all ranks are of one process and read each other's memory.
  /// Errors: no memory.
  static Result<std::shared_ptr<Region>> create(int32_t n_ranks, int32_t devices_per_process,
                                                bool inherited, bool has_windows = false);
  /// The region of the parent process. Errors: the descriptor is not that of a region of this
  /// version.
  static Result<std::shared_ptr<Region>> attach(int fd);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int fd() const { return fd_; }  ///< -1 where it is not inherited.
  int64_t bytes() const { return bytes_; }  ///< As bytes_for() has them.
  /// Bytes of a region for so many ranks; with a window each, or without.
  static int64_t bytes_for(int64_t n_ranks, bool has_windows);
  int32_t n_ranks() const { return n_ranks_; }
  int32_t devices_per_process() const { return devices_per_process_; }

  RankState& state(int32_t rank) const;
  Pair& pair(int32_t writer, int32_t reader) const;
  /// True if the chunk has been sent; of `read`, if it has been read.
  bool has_come(int32_t writer, int32_t reader, uint64_t number, bool read) const;
  /// Two halves of kHalfWindowBytes, if the region has windows.
  std::byte* window(int32_t rank) const;
  std::byte* at(int64_t offset) const { return base_ + offset; }
  int64_t offset_of(const std::byte* inside) const { return inside - base_; }

  /// Wakes a rank that sleeps on its bell.
  void ring(int32_t rank) const;
  /// Sleeps until the rank's bell differs from `seen`, or for about that long.
  void sleep(int32_t rank, uint32_t seen, int64_t at_most_ns) const;

  /// Sets why collectives end, where nobody has, and wakes all ranks. True if this call was the first.
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

/// The name of the collective a rank entered as its `call`th, and its detail; "another collective" if
/// it has entered too many since.
std::string record_name(const RankState& state, uint64_t call);
std::string record_detail(const RankState& state, uint64_t call);

}  // namespace stow::comm
