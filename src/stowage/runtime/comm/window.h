// WindowCommunicator: collectives between threads of a process and processes of a host.
// Not for several hosts; that is mpi.h.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "stowage/runtime/comm/exchange.h"
#include "stowage/runtime/comm/region.h"

namespace stow::comm {

/// A rank of a region. Ranks of one process read each other's memory; between processes a piece
/// goes through the writer's window chunk by chunk, one half written while the other is read. Both
/// ways give the same bits. A waiting rank polls for a short time and then sleeps.
class WindowCommunicator : public Communicator {
 public:
  /// `timeout_s`: longest wait for a member; then the collectives of all ranks end. `use_windows`:
  /// true: ranks of one process use windows too.
  WindowCommunicator(std::shared_ptr<Region> region, int32_t rank, double timeout_s,
                     bool use_windows = false);

  void abort(const std::string& message) override;
  std::string_view transport() const override { return "shared"; }
  int64_t window_bytes() const override { return region_->bytes(); }

 protected:
  void exchange(const Exchange& exchange) override;

 private:
  // A chunk that this rank has sent.
  struct Chunk {
    int32_t reader;   // a rank
    uint64_t number;  // number of the chunk in its Pair
  };

  class Reading;
  bool is_local(int32_t rank) const;  // true if this rank reads that rank's memory directly
  void move_pieces(const Exchange& exchange);
  // Waits until no rank of this process reads memory of other ranks.
  void await_readers() const;
  // Records the call that this rank enters. Errors: CommunicationError after an abort.
  void enter(const Exchange& exchange);
  // Announces a chunk to its reader.
  void post(int32_t reader, const Slot& slot, uint64_t number) const;
  void write_chunk(const Exchange& exchange, int64_t chunk, const std::vector<int32_t>& readers);
  Slot await_chunk(const Exchange& exchange, int32_t writer, uint64_t number) const;
  // Tells the writer that its chunk has been read.
  void acknowledge(int32_t writer, uint64_t number) const;
  // Waits until `for_rank` has sent chunk `number` to this rank, or, if `read`, has read this
  // rank's.
  void wait(int32_t for_rank, uint64_t number, bool read) const;
  // Returns the message for a timeout: the late rank, found by following who waits for whom.
  std::string why_late(int32_t for_rank) const;
  // Returns the message for a deadlock if the ranks that `for_rank` waits for wait for this rank;
  // "" else.
  std::string circle_through(int32_t for_rank) const;
  // Aborts the collectives of all ranks and throws CommunicationError.
  [[noreturn]] void end(const std::string& message) const;

  std::shared_ptr<Region> region_;
  RankState& own_;
  int64_t timeout_ns_;
  bool use_windows_;
  int half_ = 0;
  // By half of the window: the chunks in it. Their readers must have read them before it is
  // rewritten.
  std::array<std::vector<Chunk>, 2> in_flight_;
};

}  // namespace stow::comm
