// Backtracking search for a packing below one capacity, with one strategy and one fail limit.
// Not the choice of strategies, capacities or restarts (exact.h).
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace stow::pack {

/// A plain buffer: its bytes, and its lifetime as an inclusive range of sections.
struct Item {
  int64_t size;
  int32_t first, last;
};

/// The end of a search: a packing was found; there is none below the capacity; neither is known.
enum class Outcome { kSolved, kInfeasible, kStopped };

/// Branching rule: which buffer to decide on next.
struct Strategy {
  bool lowest_first = false;  // True: the lowest bound of all. False: in the tightest section.
  double size_power = 1;      // Ties go to the largest size^size_power * length^length_power.
  double length_power = 0;
  double noise = 0;  // Relative random change of that measure.
};

/// Searches for a packing in which every buffer rests on the floor or on another buffer; any
/// packing can be pushed down to such a packing. Each buffer has a lower bound of its offset. A
/// decision takes a buffer below whose bound no unplaced buffer fits. The buffer is either placed
/// at its bound or postponed. A postponed buffer rests on an unplaced one, so its bound rises to
/// the lowest possible top of an unplaced neighbour. A section fails if, for some height r, r plus
/// the sizes of its unplaced buffers with bounds of at least r exceeds the capacity. If the
/// unplaced buffers fall into parts that share no section, each part is searched separately.
class ExactSearch {
 public:
  ExactSearch(std::vector<Item> items, int32_t n_sections, int64_t capacity);

  /// Runs the search. Returns kStopped after `fail_limit` failures, if stop() was true, or if
  /// bounds keep rising for too many steps. Section weights learned from failures are kept for the
  /// next run.
  Outcome run(const Strategy& strategy, int64_t fail_limit, uint64_t seed,
              const std::function<bool()>& stop);

  /// Resets the section weights.
  void forget() { weight_.assign(weight_.size(), 1); }

  /// Offsets of the last solved run.
  const std::vector<int64_t>& offsets() const { return bound_; }

 private:
  enum class Kind : uint8_t { kBound, kWitness, kSupported, kPlaced, kSlack };
  // An entry of the trail: the former value of one element of an array.
  struct Change {
    Kind kind;
    int32_t index;
    int64_t old;
  };

  // A decision: `item` was placed, after the first `mark` changes of the trail.
  struct Decision {
    int32_t item;
    size_t mark;
  };
  // A range of by_first_: its unplaced buffers share no section with any other unplaced one.
  struct Part {
    int32_t begin, end;
    double slack;
  };

  Outcome solve(int32_t begin, int32_t end);
  Outcome solve_parts(int32_t begin, int32_t end);
  int32_t choose(int32_t begin, int32_t end);
  int32_t choose_lowest(int32_t begin, int32_t end);
  int32_t choose_in_tightest(int32_t begin, int32_t end);
  int32_t tightest_section(int32_t begin, int32_t end) const;
  int64_t lowest_in_block(int32_t block);
  // Follows unplaced buffers that fit below `item` down to one below which none fits.
  int32_t descend(int32_t item) const;
  double weighted_slack(int32_t section) const;
  // Functions that return bool return false if the branch has no solution or runs out of work.
  bool place(int32_t item);
  // Adds `change` to crossing_ within the item's lifetime.
  void cross(int32_t item, int32_t change);
  bool postpone(int32_t item);
  bool propagate();
  // Raises the bound of an unsupported buffer to the lowest top of an unplaced neighbour.
  bool raise_to_support(int32_t item);
  bool raise(int32_t item, int64_t bound, bool supported);
  bool check_section(int32_t section);
  // Increases the weight of the tightest section of a buffer that failed.
  void blame(int32_t item);
  void set(Kind kind, int32_t index, int64_t value);
  void undo(size_t mark);

  const std::vector<Item> items_;
  const int64_t capacity_;
  std::vector<int32_t> neighbour_begin_, neighbours_;
  std::vector<int32_t> member_begin_, members_;  // Members of each section, nearly in bound order.
  std::vector<int32_t> twin_;  // The next buffer of equal size and lifetime, placed above; or -1.

  std::vector<int64_t> bound_;
  std::vector<int64_t> key_;      // The bound, or -1 once placed.
  std::vector<int32_t> witness_;  // An unplaced buffer that an unsupported one may rest on.
  // Supported: the bound is the floor or the top of a placed buffer.
  std::vector<uint8_t> supported_, placed_;
  std::vector<int64_t> slack_;  // [sections] bytes that the capacity leaves, or kNothing.
  std::vector<Change> trail_;
  std::vector<int32_t> support_queue_, dirty_;  // Queues: buffers and sections to check again.
  std::vector<uint8_t> is_dirty_, is_in_support_queue_;

  std::vector<int32_t> by_first_, position_;  // Buffers by their first section, and the inverse.
  std::vector<int64_t> block_lowest_;  // Lowest bound in each block of by_first_; -1 if unknown.
  std::vector<int32_t> crossing_;  // [sections] number of unplaced buffers live here and next.
  bool cut_ = false;               // True if the last placement brought a crossing_ to 0.
  std::vector<Decision> decisions_;
  std::vector<double> weight_, rank_;
  Strategy strategy_;
  int64_t fails_left_ = 0;
  bool gave_up_ = false;  // True if a propagation exceeded its limit.
  int64_t steps_ = 0;     // Sections and neighbours visited since the last call of stop().
  const std::function<bool()>* stop_ = nullptr;
};

}  // namespace stow::pack
