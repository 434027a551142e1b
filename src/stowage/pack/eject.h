// Local repair of a packing: forces left-out buffers in, and ejects the buffers they overlap.
// Not a construction (skyline_pass.h): it needs a packing that leaves few buffers out.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

struct EjectStrategy {
  double growth = 1;  // Factor of a buffer's weight each time that its insertion ejects others.
  uint64_t seed = 1;
};

/// Repairs packings of plain buffers. Each step takes a left-out buffer, places it at the offset
/// where the overlapped buffers have the least total weight, and ejects these. If some offset
/// overlaps no buffer, the step uses the smallest free gap. Weights start as the square root of a
/// buffer's area. A step costs O(k) to O(k log k) for k buffers whose lifetimes overlap the
/// buffer's.
/// Source: the ejections of Nagata and Braysy 2009, "A powerful route minimization heuristic for
/// the vehicle routing problem with time windows", which ejects customers from routes.
class Ejector {
 public:
  static constexpr int64_t kLeftOut = -1;

  Ejector(const std::vector<Item>& items, int32_t n_sections);

  /// Starts from `offsets` [items]. Buffers at kLeftOut or that end above the capacity are left
  /// out. Ends when all buffers are placed below the capacity, `work` (buffers visited) is spent or
  /// stop() is true. Returns true if all buffers are placed.
  bool run(const std::vector<int64_t>& offsets, int64_t capacity, const EjectStrategy& strategy,
           int64_t work, const std::function<bool()>& stop);

  /// Offsets [items] after the last run.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  size_t n_left_out() const { return left_out_.size(); }         // Count when the last run ended.
  size_t n_first_left_out() const { return n_first_left_out_; }  // Count when the last run began.
  int64_t work() const { return work_; }                         // Buffers visited by the last run.

 private:
  // A placed buffer whose lifetime overlaps that of the buffer to be placed.
  struct Span {
    int64_t low, high;  // Half-open range of bytes.
    double weight;
    int32_t item;
  };

  // An offset of the buffer to be placed at which it begins or ceases to overlap a Span.
  struct Edge {
    int64_t at;
    double weight;  // Weight of the Span.
  };

  void sort_edges(std::vector<Edge>& edges);
  void gather(int32_t first, int32_t last);
  void gather_through(int32_t section, int32_t node, int32_t begin, int32_t end, int32_t before);
  void meet(int32_t item);
  int64_t choose_offset(int32_t item);

  const std::vector<Item>& items_;
  std::vector<int32_t> by_first_;   // Items by their first section.
  std::vector<int32_t> starts_at_;  // [sections + 1] first position in by_first_ of each section.
  std::vector<int32_t> latest_;     // Tree over by_first_: the latest last section below each node.
  std::vector<double> first_weight_, weight_;  // [items] initial and current weights.
  std::vector<int64_t> offsets_;
  std::vector<int32_t> left_out_;
  size_t n_first_left_out_ = 0;
  std::vector<Span> spans_;  // For the buffer to be placed now.
  std::vector<Edge> lows_, highs_, sorted_;
  std::vector<size_t> bucket_ends_;
  int64_t capacity_ = 0, work_ = 0;
  std::mt19937_64 random_;
};

}  // namespace stow::pack
