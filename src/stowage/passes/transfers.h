// The pass that overlaps moves between memories, and collectives, with the computation.
// Not the choice of moves, nor of how far ahead the budget allows; session/ tries that.
#pragma once

#include <memory>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// Number of moves between two memories and collectives in a schedule; one in a loop counts once.
size_t count_moves(const Schedule& schedule);

/// Up to this many moves ahead, a staging buffer becomes a ring of at most two slots.
inline constexpr int kFewAhead = 8;

/// For each list of instructions, bytes of moves that may start before moves of their stream that
/// precede them, whose source is not ready yet.
struct OvertakingBytes {
  int64_t early = 0;  ///< Bytes of moves that this starts at least one loop or iteration earlier.
  int64_t late = 0;   ///< Bytes of moves that this starts less than an iteration earlier.
  bool operator==(const OvertakingBytes&) const = default;
};
/// The result of overlap_transfers().
struct Overlapped {
  Schedule schedule;
  OvertakingBytes overtook;  ///< The most bytes in any list.
  int64_t work = 0;          ///< Pairs of a move and another instruction that were examined.
};
/// Splits moves between two memories into a start and a done, and puts computation between them. A
/// move to the device starts early: as soon as at most `ahead` others of its stream are in flight
/// or wait for their reader. A move off the device is awaited late, by the same rule. In a loop, a
/// move may start in the iteration before or be awaited in the one after; its staging buffer
/// becomes a ring if two iterations would overlap in it. A move for a loop may start in the last
/// iterations of the loop before it, and a move of a loop may be awaited in the first iterations of
/// the next. No move passes an instruction that writes its source or touches its destination, so
/// values are the same.
///
/// Collectives are moves here. Collectives of values that the list does not compute (gathers of
/// weights) start early; the others (sums of gradients) are awaited late. All run on one stream, in
/// the order of their starts. Elementwise kernels and dones of copies that make the operand of an
/// early collective move with its start. Kernels that read the result of a late collective, and
/// starts of copies of their results, may move with its done into the next iteration.
///
/// `ahead` has one number for each move, in the order of count_moves(); 0 leaves the move as it is.
/// Errors: none; the lengths must agree.
Overlapped overlap_transfers(const Schedule& schedule, const std::vector<int>& ahead,
                             const OvertakingBytes& may_overtake = {});

/// Runs overlap_transfers() on one schedule many times and computes shared facts once.
class TransferTrials {
 public:
  explicit TransferTrials(const Schedule& schedule);
  TransferTrials(TransferTrials&&) noexcept;
  ~TransferTrials();
  /// As overlap_transfers(). The result reuses the memory of `memory`, for example an earlier
  /// trial.
  Overlapped run(const std::vector<int>& ahead, const OvertakingBytes& may_overtake = {},
                 Schedule memory = {}) const;

 private:
  std::unique_ptr<const struct NumberedMoves> numbered_;
};

}  // namespace stow
