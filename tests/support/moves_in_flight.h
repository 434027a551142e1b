// MovesInFlight: the bytes that moves in flight read and write, between their start and their done.
// Not a run; it assumes only that each stream runs its moves in order.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow::testing {

/// The number of a place and an offset in it.
using PlacedByte = std::pair<size_t, int64_t>;

class MovesInFlight {
 public:
  void start(StreamKind stream, int transfer, std::vector<PlacedByte> from,
             std::vector<PlacedByte> to) {
    Move move{transfer, std::move(from), std::move(to)};
    count(move, stream, 1);
    queues_[static_cast<size_t>(stream)].push_back(std::move(move));
  }

  /// Waits for the oldest move with this number, and thereby for all earlier moves of its stream.
  void done(StreamKind stream, int transfer) {
    // The move has left the queue if a later move was awaited before it.
    if (int& over = over_[transfer]; over > 0) {
      --over;
      return;
    }
    std::deque<Move>& queue = queues_[static_cast<size_t>(stream)];
    while (!queue.empty()) {
      const Move move = std::move(queue.front());
      queue.pop_front();
      count(move, stream, -1);
      if (move.transfer == transfer) return;
      ++over_[move.transfer];
    }
  }

  /// True if a move in flight on a stream other than `by` writes the byte, or, if `write`, reads
  /// it.
  bool clashes(const PlacedByte& byte, bool write, StreamKind by) const {
    const auto& [place, offset] = byte;
    if (place >= places_.size() || places_[place].n_in_flight == 0) return false;
    const std::vector<Traffic>& bytes = places_[place].bytes;
    if (static_cast<size_t>(offset) >= bytes.size()) return false;
    const Traffic& here = bytes[static_cast<size_t>(offset)];
    for (size_t stream = 0; stream < kNumStreams; ++stream)
      if (stream != static_cast<size_t>(by) &&
          (here.writes[stream] > 0 || (write && here.reads[stream] > 0)))
        return true;
    return false;
  }

 private:
  struct Move {
    int transfer;
    std::vector<PlacedByte> from, to;
  };
  // The numbers of moves in flight that read and that write a byte, by stream.
  struct Traffic {
    std::array<int16_t, kNumStreams> reads{}, writes{};
  };
  struct Place {
    int64_t n_in_flight = 0;
    std::vector<Traffic> bytes;
  };

  Traffic& at(const PlacedByte& byte, int by) {
    const auto& [place, offset] = byte;
    if (place >= places_.size()) places_.resize(place + 1);
    places_[place].n_in_flight += by;
    std::vector<Traffic>& bytes = places_[place].bytes;
    if (static_cast<size_t>(offset) >= bytes.size()) bytes.resize(static_cast<size_t>(offset) + 1);
    return bytes[static_cast<size_t>(offset)];
  }
  void count(const Move& move, StreamKind stream, int by) {
    const auto s = static_cast<size_t>(stream);
    for (const PlacedByte& byte : move.from) at(byte, by).reads[s] += static_cast<int16_t>(by);
    for (const PlacedByte& byte : move.to) at(byte, by).writes[s] += static_cast<int16_t>(by);
  }

  std::array<std::deque<Move>, kNumStreams> queues_;
  std::map<int, int> over_;  // by transfer: finished moves whose done is still to come
  std::vector<Place> places_;
};

}  // namespace stow::testing
