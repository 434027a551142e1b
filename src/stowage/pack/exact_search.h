// The search under exact packing: one component, one capacity, one strategy, one fail limit.
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

enum class Outcome { kSolved, kInfeasible, kStopped };

struct Strategy {
  bool lowest_first = false;  // Branch at the lowest base of all, not in the tightest section.
  double size_power = 1;      // Ties at a base: size^a * length^b, largest first.
  double length_power = 0;
  double noise = 0;  // Relative, on ties.
};

/// Searches for a packing in which every buffer rests on the floor or on another (any packing can
/// be pushed down to one). Each buffer has a bound below which it cannot lie. A decision takes a
/// buffer that nothing unplaced fits under: it is placed at its bound, or postponed, which says
/// that it rests on something unplaced, so its bound rises to the lowest such top. A section fails
/// when, for some height r, r plus the sizes of its buffers bound at or above r exceed the
/// capacity. Parts that the unplaced buffers no longer link become components of their own.
class ExactSearch {
 public:
  ExactSearch(std::vector<Item> items, int32_t n_sections, int64_t capacity);

  /// kStopped when `fail_limit` failures were met, stop() was true or bounds would rise without
  /// end. Section weights learned from failures are kept for the next run.
  Outcome run(const Strategy& strategy, int64_t fail_limit, uint64_t seed,
              const std::function<bool()>& stop);

  /// Forgets the section weights.
  void forget() { weight_.assign(weight_.size(), 1); }

  /// Offsets of the last solved run.
  const std::vector<int64_t>& offsets() const { return bound_; }

 private:
  enum class Kind : uint8_t { kBound, kWitness, kSupported, kPlaced, kSlack };
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
  int32_t descend(int32_t item) const;
  double weighted_slack(int32_t section) const;
  // Those that return bool: false if the branch cannot hold a solution, or has run out of work.
  bool place(int32_t item);
  void cross(int32_t item, int32_t change);
  bool postpone(int32_t item);
  bool propagate();
  bool rest(int32_t item);
  bool raise(int32_t item, int64_t bound, bool supported);
  bool check_section(int32_t section);
  void blame(int32_t item);
  void set(Kind kind, int32_t index, int64_t value);
  void undo(size_t mark);

  const std::vector<Item> items_;
  const int64_t capacity_;
  std::vector<int32_t> neighbour_begin_, neighbours_;
  std::vector<int32_t> member_begin_, members_;  // Members of each section; by bound, roughly.
  std::vector<int32_t> twin_;                    // The next equal buffer, to lie above; or -1.

  std::vector<int64_t> bound_;
  std::vector<int64_t> key_;      // The bound, or -1 once placed.
  std::vector<int32_t> witness_;  // An unplaced buffer that an unsupported one may rest on.
  std::vector<uint8_t> supported_, placed_;
  std::vector<int64_t> slack_;  // [sections] bytes that the capacity leaves, or kNothing.
  std::vector<Change> trail_;
  std::vector<int32_t> unrested_, dirty_;
  std::vector<uint8_t> is_dirty_, is_unrested_;

  std::vector<int32_t> by_first_, position_;  // Buffers by their first section, and the inverse.
  std::vector<int64_t> block_lowest_;  // The lowest bound among kBlock of by_first_; -1 if unknown.
  std::vector<int32_t> crossing_;  // [sections] unplaced buffers that live in it and in the next.
  bool cut_ = false;               // The last placement brought one of these to 0.
  std::vector<Decision> decisions_;
  std::vector<double> weight_, rank_;
  Strategy strategy_;
  int64_t fails_left_ = 0;
  bool tired_ = false;  // A propagation was given up.
  int64_t steps_ = 0;  // Over sections and neighbours, since stop() was asked last.
  const std::function<bool()>* stop_ = nullptr;
};

}  // namespace stow::pack
