#include "stowage/pack/eject.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stow::pack {
namespace {
constexpr int32_t kBlock = 64;
}

EjectionSearch::EjectionSearch(const std::vector<Item>& items, int32_t n_sections)
    : n_(static_cast<int32_t>(items.size())) {
  origin_.resize(n_);
  std::iota(origin_.begin(), origin_.end(), 0);
  std::sort(origin_.begin(), origin_.end(), [&](int32_t a, int32_t b) {
    return items[a].first != items[b].first ? items[a].first < items[b].first : a < b;
  });
  starts_.assign(n_sections + 1, 0);
  for (const int32_t i : origin_) {
    size_.push_back(items[i].size);
    first_.push_back(items[i].first);
    last_.push_back(items[i].last);
    ++starts_[items[i].first + 1];
  }
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  block_last_.assign(n_ / kBlock + 1, -1);
  super_last_.assign(n_ / kBlock / kBlock + 1, -1);
  for (int32_t p = 0; p < n_; ++p) {
    block_last_[p / kBlock] = std::max(block_last_[p / kBlock], last_[p]);
    super_last_[p / kBlock / kBlock] = std::max(super_last_[p / kBlock / kBlock], last_[p]);
  }
  offset_.assign(n_, 0);
  placed_.assign(n_, 0);
  fails_.assign(n_, 1);
}

void EjectionSearch::load(const std::vector<int64_t>& offsets) {
  weight_.resize(n_);
  pool_.clear();
  fails_.assign(n_, 1);
  for (int32_t p = 0; p < n_; ++p) {
    offset_[p] = std::max<int64_t>(0, offsets[origin_[p]]);
    placed_[p] = offsets[origin_[p]] >= 0;
    if (!placed_[p]) pool_.push_back(p);
    weight_[p] = static_cast<float>(
        std::pow(static_cast<double>(size_[p]) * (last_[p] - first_[p] + 1), alpha));
  }
}

std::vector<int64_t> EjectionSearch::offsets() const {
  std::vector<int64_t> out(n_);
  for (int32_t p = 0; p < n_; ++p) out[origin_[p]] = offset_[p];
  return out;
}

int64_t EjectionSearch::height() const {
  int64_t h = 0;
  for (int32_t p = 0; p < n_; ++p) h = std::max(h, offset_[p] + size_[p]);
  return h;
}

void EjectionSearch::gather(int32_t item) {
  bottoms_.clear();
  tops_.clear();
  const auto take = [&](int32_t p) {
    bottoms_.push_back({offset_[p], p});
    tops_.push_back({offset_[p] + size_[p], p});
  };
  const int32_t f = first_[item], l = last_[item];
  const int32_t from = starts_[f], to = starts_[l + 1];
  for (int32_t p = from; p < to; ++p)
    if (placed_[p]) take(p);
  // Those that began before and are still live.
  for (int32_t s = 0; s * kBlock * kBlock < from; ++s) {
    if (super_last_[s] < f) continue;
    for (int32_t b = s * kBlock; b < (s + 1) * kBlock && b * kBlock < from; ++b) {
      if (block_last_[b] < f) continue;
      const int32_t end = std::min(from, (b + 1) * kBlock);
      for (int32_t p = b * kBlock; p < end; ++p)
        if (placed_[p] && last_[p] >= f) take(p);
    }
  }
}

// Places the item where the least weight must go, and ejects that.
bool EjectionSearch::insert(int32_t item) {
  ++steps;
  gather(item);
  const auto less = [](const Edge& a, const Edge& b) { return a.at < b.at; };
  std::sort(bottoms_.begin(), bottoms_.end(), less);
  std::sort(tops_.begin(), tops_.end(), less);
  const int64_t size = size_[item];
  work += 50 + static_cast<int64_t>(bottoms_.size()) * 16;
  size_t nb = 0, nt = 0;
  int32_t count = 0;
  double cost = 0;
  int64_t best_base = -1, best_slack = INT64_MAX;
  double best_cost = HUGE_VAL;
  for (int64_t base = 0; base + size <= capacity_;) {
    for (; nt < tops_.size() && tops_[nt].at <= base; ++nt) {
      // Its bottom lies below, so it has been added, or is about to be and is not there.
      cost -= weight_[tops_[nt].item] * fails_[tops_[nt].item];
      --count;
    }
    for (; nb < bottoms_.size() && bottoms_[nb].at < base + size; ++nb) {
      cost += weight_[bottoms_[nb].item] * fails_[bottoms_[nb].item];
      ++count;
    }
    if (count == 0) {
      const int64_t ceiling = nb < bottoms_.size() ? std::min(bottoms_[nb].at, capacity_) : capacity_;
      const int64_t slack = ceiling - base - size;
      if (best_cost > 0 || slack < best_slack) {
        best_cost = 0;
        best_slack = slack;
        best_base = base;
      }
      cost = 0;
    } else if (cost < best_cost) {
      best_cost = cost;
      best_base = base;
    }
    if (nt == tops_.size()) break;
    base = tops_[nt].at;
  }
  if (best_base < 0) return false;
  const bool free = best_cost == 0;
  inserted_free += free;
  if (!free) {
    fails_[item] += 1;
    for (const Edge& e : bottoms_) {
      if (e.at >= best_base + size) break;
      if (e.at + size_[e.item] <= best_base) continue;
      placed_[e.item] = 0;
      pool_.push_back(e.item);
    }
  }
  offset_[item] = best_base;
  placed_[item] = 1;
  return true;
}

bool EjectionSearch::reduce(int64_t capacity, int64_t work_limit, const std::function<bool()>& stop) {
  capacity_ = capacity;
  for (int32_t p = 0; p < n_; ++p)
    if (placed_[p] && offset_[p] + size_[p] > capacity) {
      placed_[p] = 0;
      pool_.push_back(p);
    }
  std::sort(pool_.begin(), pool_.end(), [&](int32_t a, int32_t b) { return weight_[a] < weight_[b]; });
  const int64_t end = work + work_limit;
  for (int64_t k = 0; !pool_.empty(); ++k) {
    if (work >= end || (k % 64 == 63 && stop())) return false;
    size_t at = pool_.size() - 1;
    if (mode == 1) {
      at = random_() % pool_.size();
    } else if (mode == 2) {
      for (int t = 0; t < 8; ++t) {
        const size_t o = random_() % pool_.size();
        if (weight_[pool_[o]] > weight_[pool_[at]]) at = o;
      }
    }
    const int32_t item = pool_[at];
    pool_[at] = pool_.back();
    pool_.pop_back();
    if (!insert(item)) return false;
  }
  return true;
}

}  // namespace stow::pack
