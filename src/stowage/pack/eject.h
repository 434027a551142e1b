// Local repair of a packing of plain buffers: what was left out is forced in, and what it meets is
// taken out and placed anew.
// Not a construction (rise.h): it needs a packing that leaves little out.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

struct EjectStrategy {
  double growth = 1;  // Growth of a buffer's weight each time that it has to be forced in.
  uint64_t seed = 1;
};

/// Each step takes a buffer that is left out and puts it where the buffers in its way weigh least:
/// at first the root of their area. Where nothing is in the way, into the tightest hole. A step
/// costs O(k) to O(k log k) for the k buffers that live at some time of its life.
/// Source: the ejections of Nagata and Braysy 2009, "A powerful route minimization heuristic for
/// the vehicle routing problem with time windows", there of customers from routes.
class Ejector {
 public:
  static constexpr int64_t kLeftOut = -1;

  Ejector(const std::vector<Item>& items, int32_t n_sections);

  /// Goes on from `offsets` ([items]; kLeftOut, or above the capacity, is left out) until
  /// everything lies within the capacity, `work` (buffers looked at) is spent or stop() is true.
  /// Returns true if everything lies within the capacity.
  bool run(const std::vector<int64_t>& offsets, int64_t capacity, const EjectStrategy& strategy,
           int64_t work, const std::function<bool()>& stop);

  /// [items] of the last run.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  size_t n_left_out() const { return left_out_.size(); }
  size_t n_first_left_out() const { return n_first_left_out_; }  // Count when the last run began.
  int64_t work() const { return work_; }  // Buffers that the last run looked at.

 private:
  struct Span {
    int64_t low, high;  // Bytes.
    double weight;
    int32_t item;
  };

  // The place where something in the way begins or ends.
  struct Edge {
    int64_t at;
    double weight;
  };

  void sort_edges(std::vector<Edge>& edges);
  void gather(int32_t first, int32_t last);
  void gather_through(int32_t section, int32_t node, int32_t begin, int32_t end, int32_t before);
  void meet(int32_t item);
  int64_t choose_offset(int32_t item);

  const std::vector<Item>& items_;
  std::vector<int32_t> by_first_;   // Items by their first section.
  std::vector<int32_t> starts_at_;  // [sections + 1] the position in by_first_.
  std::vector<int32_t> latest_;     // A tree over by_first_: the last section of any below a node.
  std::vector<double> first_weight_, weight_;  // [items]
  std::vector<int64_t> offsets_;
  std::vector<int32_t> left_out_;
  size_t n_first_left_out_ = 0;
  std::vector<Span> spans_;  // Placed buffers that live with the one to be placed.
  std::vector<Edge> lows_, highs_, sorted_;
  std::vector<size_t> bucket_ends_;
  int64_t capacity_ = 0, work_ = 0;
  std::mt19937_64 random_;
};

}  // namespace stow::pack
