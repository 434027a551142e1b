// A rising skyline over plain buffers that fills what is tightest first: one fast pass.
// Not a search: each decision stands. What has no room below the capacity is left out.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/pack/exact_search.h"
#include "stowage/pack/walls.h"

namespace stow::pack {

/// How a pass ranks buffers that would lie equally well: size^a * length, largest first. A section
/// where the live sum is below its largest by a share x counts for exp(-x / focus) in a length.
struct RiseStrategy {
  double size_power = 0;
  double focus = 0.05;
  double noise = 0;  // Relative.
  /// A gap is given up at once, and what is short kept for where it is needed more, when it is at
  /// most this share of the slack above it; more where the stretch is narrower than buffers are
  /// long on average, less where it is wider.
  double tolerance = 0;
  /// So is one of at most this share of what its slack is more than that of the neighbour to which
  /// it rises: a level skyline is worth most where it is tight.
  double levelling = 0;
  uint64_t seed = 1;
};

/// The skyline is the top of what is placed in each section. Its lowest stretch takes, of the
/// buffers that live wholly within it, one that lives through its tightest section: where what is
/// placed, the gaps below and what is yet to be placed come highest. Where none lives within the
/// stretch, it rises to its lower neighbour and the gap is lost. Each step costs O(log n) and a
/// search in a tree of lifetimes, whatever the number of overlaps.
class Rise {
 public:
  static constexpr int64_t kNoCapacity = INT64_MAX;

  Rise(const std::vector<Item>& items, int32_t n_sections);

  /// One pass. A stretch that cannot rise below `capacity` gives up a buffer. False if stop() was
  /// true or the area left out is more than `most_left_out`; the pass is then of no use.
  bool run(const RiseStrategy& strategy, int64_t capacity, const std::function<bool()>& stop,
           double most_left_out = HUGE_VAL);

  /// The same around buffers at the offsets `fixed` [items]; Walls::kFree: not fixed. The fixed
  /// buffers alone must be a packing below `capacity`, which must not be kNoCapacity. Below a fixed
  /// buffer only buffers that fit under it are placed, and no gap is left for later. False as of
  /// run().
  bool run_around(const std::vector<int64_t>& fixed, const RiseStrategy& strategy, int64_t capacity,
                  const std::function<bool()>& stop, double most_left_out = HUGE_VAL);

  // The same in parts, each with a strategy of its own.
  void begin(int64_t capacity);
  /// Until all of the skyline is at `until` or above. False as of run().
  bool advance(const RiseStrategy& strategy, int64_t until, const std::function<bool()>& stop,
               double most_left_out = HUGE_VAL);
  bool all_placed() const { return now_.heap.empty(); }  // True if each is placed or left out.
  /// How near the pass is to leaving out more, in bytes, higher when nearer: the least slack of all
  /// sections with its sign turned, and more where others have hardly more (`softness` bytes). What
  /// is left out counts twice its bytes, were it of a mean length.
  double strain(double softness) const;

  /// [items] of the last pass; kLeftOut where there was no room.
  static constexpr int64_t kLeftOut = -1;
  std::vector<int64_t> offsets() const;
  int64_t height() const { return now_.height; }
  int32_t n_left_out() const { return now_.n_left_out; }
  double area_left_out() const { return now_.area_left_out; }  // In sections times bytes.

 private:
  // Node over a run of sections, without what is added to whole ancestors.
  struct CountNode {
    int32_t least, add;  // Least number of buffers still to be placed in a section; addend to all.
  };
  struct SlackNode {
    int64_t least, add;  // Least bytes that the capacity leaves in a section; addend to all.
    int32_t section;     // The first that has the least.
  };
  // The span of a part of the lifetimes, and the largest rank of its buffers that are not placed.
  struct Box {
    int32_t first_from, first_to, last_from, last_to;
    double rank;
    int64_t size;  // The least of any.
  };
  struct Entry {
    int32_t first, last;
    double rank;  // -1 when placed or left out.
  };
  struct Tightest {
    int64_t slack;
    int32_t section;
  };
  struct Stretch {
    int64_t height;
    int32_t first, last;
    bool operator<(const Stretch& o) const {  // For a heap with the lowest on top.
      return height != o.height ? height > o.height : first > o.first;
    }
  };

 public:
  /// A pass under way, without the ranks, which every advance() makes anew.
  struct State {
    bool bounded = false;
    std::vector<CountNode> counts;
    std::vector<SlackNode> slacks;
    std::vector<uint8_t> finished;  // [sections] nothing more lives there.
    std::vector<Stretch> heap;
    std::vector<int32_t> end_of, start_of;  // The stretch that starts, or ends, at a section.
    std::vector<int64_t> height_of;         // Height of the stretch that starts at a section.
    std::vector<int64_t> offset_at;  // In the order of the tree's leaves.
    int64_t height = 0;
    int32_t n_left_out = 0;
    double area_left_out = 0;
  };
  const State& state() const { return now_; }
  void set_state(const State& state) { now_ = state; }
  void swap_state(State& state) { std::swap(now_, state); }

 private:
  static constexpr int64_t kUnplaced = -2;  // An offset.

  void rank(const RiseStrategy& strategy);
  void build_boxes(int32_t box, int32_t begin, int32_t end, bool by_first);
  void rank_boxes(int32_t box, int32_t begin, int32_t end);
  void take_out(int32_t item);
  template <typename Fn>
  void each_through(int32_t section, int32_t box, int32_t begin, int32_t end, Fn& fn) const;
  void best_within(const Box& region, int32_t box, int32_t begin, int32_t end, double* rank,
                   int32_t* item) const;
  int32_t best_item(int32_t first_from, int32_t first_to, int32_t last_from, int32_t last_to,
                    int64_t most_bytes = INT64_MAX) const;

  void build_sections(int64_t capacity);
  template <typename Node, typename Value>
  void add(std::vector<Node>& nodes, int32_t first, int32_t last, Value value);
  void finish(int32_t first, int32_t last, int32_t above, int32_t v, int32_t l, int32_t r);
  Tightest tightest(int32_t first, int32_t last) const;

  void push(int32_t first, int32_t last, int64_t height);
  void forget(int32_t first, int32_t last);
  void settle(int32_t first, int32_t last, int64_t height);
  void place(int32_t item, int32_t first, int32_t last, int64_t height);
  void leave_out(int32_t item, int32_t first, int32_t last, int64_t height);
  // True if a gap below a stretch of the skyline may be left unused.
  bool give_up(const RiseStrategy& strategy, int32_t first, int32_t last, int64_t slack,
               int64_t left, int64_t right, int64_t gap) const;
  int32_t best_around(int32_t first, int32_t last, int32_t section, int64_t height) const;
  int32_t choose_victim(int32_t section, int64_t need) const;

  const std::vector<Item>& items_;
  const int32_t n_sections_;
  std::vector<int64_t> live_;   // [sections] bytes.
  std::vector<int32_t> count_;  // [sections] buffers.
  double mean_length_ = 0;      // Mean lifetime of the items, in sections.

  std::vector<int32_t> by_box_, position_;  // Items in the order of the tree's leaves, and back.
  std::vector<Box> boxes_;
  std::vector<Entry> entries_;  // In the order of the tree's leaves.
  // By focus: the weights of all sections before one, summed.
  std::map<double, std::vector<double>> weights_until_;

  int32_t leaves_ = 1;
  std::vector<int32_t> newly_finished_;
  Walls walls_;
  const std::vector<int64_t>* fixed_ = nullptr;  // During run_around().
  State now_;
};

}  // namespace stow::pack
