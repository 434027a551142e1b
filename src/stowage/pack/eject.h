// prototype
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

class EjectionSearch {
 public:
  EjectionSearch(const std::vector<Item>& items, int32_t n_sections);

  /// Negative: not placed.
  void load(const std::vector<int64_t>& offsets);
  bool reduce(int64_t capacity, int64_t work_limit, const std::function<bool()>& stop);
  std::vector<int64_t> offsets() const;
  int64_t height() const;
  int64_t steps = 0, inserted_free = 0, work = 0;
  size_t left() const { return pool_.size(); }
  double alpha = 0.5;
  int mode = 0;

 private:
  struct Edge {
    int64_t at;
    int32_t item;
  };
  void gather(int32_t item);
  bool insert(int32_t item);

  int32_t n_ = 0;
  std::vector<int32_t> origin_;  // Items by first section.
  std::vector<int64_t> size_, offset_;
  std::vector<int32_t> first_, last_;
  std::vector<uint8_t> placed_;
  std::vector<float> weight_, fails_;
  std::vector<int32_t> starts_;     // [sections + 1]
  std::vector<int32_t> block_last_, super_last_;  // The largest last section among kBlock items.
  std::vector<Edge> bottoms_, tops_;
  std::vector<int32_t> pool_;
  int64_t capacity_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace stow::pack
