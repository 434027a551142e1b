// SkylinePass: one fast pass over plain buffers that fills the tightest sections first.
// Not a search: no decision is revised. Buffers without room below the capacity are left out.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/pack/exact_search.h"
#include "stowage/pack/fixed_buffers.h"

namespace stow::pack {

/// Parameters of a pass. Among the candidates for a place, it takes the buffer with the largest
/// size^size_power * length. Length is the lifetime with sections weighted: a section whose live
/// sum is smaller than the largest by a share x has weight exp(-x / focus), plus a small constant.
struct SkylineStrategy {
  double size_power = 0;
  double focus = 0.05;
  double noise = 0;  // Relative random change of a rank.
  /// Largest gap that is left unused although a buffer fits, as a share of the slack of the
  /// tightest section of its stretch. Scaled by mean lifetime / width of the stretch; at most 5 %.
  double tolerance = 0;
  /// Largest gap that is left unused to level the skyline, as a share of the difference in slack
  /// between the stretch and the tighter neighbour to which it rises.
  double levelling = 0;
  uint64_t seed = 1;
};

/// The skyline is the top of the placed buffers in each section; a stretch is a maximal run of
/// sections at one height. Each step takes the lowest stretch and places on it a buffer whose
/// lifetime is within the stretch, if possible one that is live in its tightest section: the
/// section in which placed buffers, gaps and unplaced buffers together are highest. If no buffer
/// fits, the stretch rises to its lower neighbour, and the gap is lost. Each step costs O(log n)
/// and a search in a tree of lifetimes, independently of the number of overlaps.
class SkylinePass {
 public:
  static constexpr int64_t kNoCapacity = INT64_MAX;

  SkylinePass(const std::vector<Item>& items, int32_t n_sections);

  /// Runs one pass. If a stretch cannot rise because its unplaced buffers would then exceed
  /// `capacity`, one of them is left out. Returns false if stop() was true or the area of the
  /// left-out buffers exceeds `most_left_out`; the pass is then invalid.
  bool run(const SkylineStrategy& strategy, int64_t capacity, const std::function<bool()>& stop,
           double most_left_out = HUGE_VAL);

  /// run() around buffers that are fixed at the offsets `fixed` [items]; FixedBuffers::kFree marks
  /// buffers that are not fixed. The fixed buffers must be a valid packing below `capacity`, which
  /// must not be kNoCapacity. Below a fixed buffer only buffers that fit under it are placed;
  /// tolerance and levelling have no effect there. Returns false as run() does.
  bool run_around(const std::vector<int64_t>& fixed, const SkylineStrategy& strategy,
                  int64_t capacity, const std::function<bool()>& stop,
                  double most_left_out = HUGE_VAL);

  // run() in steps, each with its own strategy: begin(), then advance() until all_placed().
  void begin(int64_t capacity);
  /// Continues the pass until the whole skyline is at height `until` or above. Returns false as
  /// run() does.
  bool advance(const SkylineStrategy& strategy, int64_t until, const std::function<bool()>& stop,
               double most_left_out = HUGE_VAL);
  bool all_placed() const { return now_.heap.empty(); }  // True if each is placed or left out.
  /// A measure in bytes of how close the pass is to leaving out more buffers; smaller is better. It
  /// is the negated least slack of all sections, as a soft minimum of width `softness` bytes, plus
  /// twice the left-out area divided by the mean lifetime.
  double strain(double softness) const;

  /// Offsets [items] of the last pass; kLeftOut for buffers without room.
  static constexpr int64_t kLeftOut = -1;
  std::vector<int64_t> offsets() const;
  int64_t height() const { return now_.height; }
  int32_t n_left_out() const { return now_.n_left_out; }
  double area_left_out() const { return now_.area_left_out; }  // In sections times bytes.

 private:
  // Nodes of segment trees over sections. `least` includes the node's `add`, but not its
  // ancestors'.
  struct CountNode {
    int32_t least, add;  // Least number of unplaced buffers in a section; addend of all sections.
  };
  struct SlackNode {
    int64_t least, add;  // Least slack of a section, in bytes; addend of all sections.
    int32_t section;     // The first section with the least slack.
  };
  // A node of the tree of lifetimes: bounds of its buffers' first and last sections.
  struct Box {
    int32_t first_from, first_to, last_from, last_to;
    double rank;   // Largest rank of an unplaced buffer; -1 if there is none.
    int64_t size;  // Least size of a buffer.
  };
  // A buffer in the tree of lifetimes.
  struct Entry {
    int32_t first, last;
    double rank;  // -1 when placed or left out.
  };
  struct Tightest {
    int64_t slack;
    int32_t section;
  };
  // A maximal run of sections whose skyline has one height.
  struct Stretch {
    int64_t height;
    int32_t first, last;
    bool operator<(const Stretch& o) const {  // For a heap with the lowest stretch on top.
      return height != o.height ? height > o.height : first > o.first;
    }
  };

 public:
  /// The state of an unfinished pass, without the ranks, which every advance() computes again.
  struct State {
    bool bounded = false;  // True if there is a capacity.
    std::vector<CountNode> counts;
    std::vector<SlackNode> slacks;
    std::vector<uint8_t> finished;  // [sections] true if no unplaced buffer is live there.
    std::vector<Stretch> heap;      // May hold stretches that no longer exist.
    // [sections] the other end of the stretch that starts, or ends, at a section; -1 if none does.
    std::vector<int32_t> end_of, start_of;
    std::vector<int64_t> height_of;  // [sections] height of the stretch that starts here.
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

  void rank(const SkylineStrategy& strategy);
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
  // True if the gap between a stretch and its lower neighbour is left unused.
  bool give_up(const SkylineStrategy& strategy, int32_t first, int32_t last, int64_t slack,
               int64_t left, int64_t right, int64_t gap) const;
  int32_t best_around(int32_t first, int32_t last, int32_t section, int64_t height) const;
  int32_t choose_victim(int32_t section, int64_t need) const;

  const std::vector<Item>& items_;
  const int32_t n_sections_;
  std::vector<int64_t> live_;   // [sections] bytes.
  std::vector<int32_t> count_;  // [sections] buffers.
  double mean_length_ = 0;      // Mean lifetime of the items, in sections.

  std::vector<int32_t> by_box_, position_;  // Items in the order of the leaves, and the inverse.
  std::vector<Box> boxes_;
  std::vector<Entry> entries_;  // In the order of the tree's leaves.
  // By focus: prefix sums of the sections' weights.
  std::map<double, std::vector<double>> weights_until_;

  int32_t leaves_ = 1;
  std::vector<int32_t> newly_finished_;
  FixedBuffers fixed_buffers_;
  const std::vector<int64_t>* fixed_ = nullptr;  // During run_around().
  State now_;
};

}  // namespace stow::pack
