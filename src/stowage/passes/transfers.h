// The pass that lets moves between memories, and collectives, run beside the computation.
// Not a choice of what is moved, nor of how far ahead the budget allows; session/ tries that.
#pragma once

#include <memory>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// Moves between two memories and collectives in a schedule, those in loops counted once.
size_t count_moves(const Schedule& schedule);

/// Up to so many moves ahead a staging buffer becomes a ring of two slots at most.
inline constexpr int kFewAhead = 8;

/// Splits moves between two memories into a start and a done, and puts computation between them:
/// what comes in is started as soon as at most `ahead` others of its stream are under way or wait
/// for their reader; what goes out is awaited as late. In a loop a move may be started in the
/// iteration before, or awaited in the one after; its staging buffer then becomes a ring of slots
/// where one would be written over. A move for a loop may be started in the last iterations of a loop
/// before it, and one of a loop awaited in the first iterations of the next. No move passes what
/// writes its source or touches its destination, so values are the same.
///
/// Collectives are moves here. One of what the list does not compute comes in: gathers of weights; the
/// others go out: sums of gradients. All are of one stream, whose order is that of their starts. Dones of
/// copies and elementwise kernels that make the operand of one that comes in move with its start; kernels
/// that read the result of one that goes out, and starts of copies of that, may move with its done into
/// the next iteration.
///
/// `ahead` is one number a move, in the order in which count_moves() meets them; a move of 0 stays
/// as it is. Moves of so many bytes a list may be started before others of their stream whose source
/// is not there yet. Errors: none; the lengths must agree.
struct OvertakingBytes {
  int64_t early = 0;  ///< Bytes of moves that start a loop, or one of its iterations, earlier.
  int64_t late = 0;   ///< Bytes of moves that start less early than that.
  bool operator==(const OvertakingBytes&) const = default;
};
struct Overlapped {
  Schedule schedule;
  OvertakingBytes overtook;  ///< The most in any list.
  int64_t work = 0;          ///< Pairs of a move and what it might pass that were looked at.
};
Overlapped overlap_transfers(const Schedule& schedule, const std::vector<int>& ahead,
                             const OvertakingBytes& may_overtake = {});

/// overlap_transfers() of one schedule, many times: what every trial needs is worked out once.
class TransferTrials {
 public:
  explicit TransferTrials(const Schedule& schedule);
  TransferTrials(TransferTrials&&) noexcept;
  ~TransferTrials();
  /// The result takes the memory of a schedule that is not needed any more, as of another trial.
  Overlapped run(const std::vector<int>& ahead, const OvertakingBytes& may_overtake = {},
                 Schedule memory = {}) const;

 private:
  std::unique_ptr<const struct NumberedMoves> numbered_;
};

}  // namespace stow
