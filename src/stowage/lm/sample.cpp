#include "stowage/lm/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace stow::lm {
namespace {

// A bijection of 64 bits that leaves no pattern. Source: Steele et al. 2014, "SplittableRandom".
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  if (options.temperature <= 0) return largest(logits);
  const auto n = static_cast<int64_t>(logits.size());
  const double top = logits[static_cast<size_t>(largest(logits))];
  const auto weight = [&](int32_t id) {
    return std::exp((logits[static_cast<size_t>(id)] - top) / options.temperature);
  };
  std::vector<int32_t> kept(logits.size());
  std::iota(kept.begin(), kept.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (options.top_k > 0 && options.top_k < n) {
    std::nth_element(kept.begin(), kept.begin() + options.top_k, kept.end(), before);
    kept.resize(static_cast<size_t>(options.top_k));
  }
  if (options.top_p < 1) {
    double sum = 0;
    for (const int32_t id : kept) sum += weight(id);
    // Sorted as far as it takes: most of the probability is in few tokens.
    size_t n_kept = kept.size();
    double sum_before = 0;
    for (size_t sorted = 0, i = 0; i < kept.size(); ++i) {
      if (i == sorted) {
        sorted = std::min(kept.size(), std::max<size_t>(64, 4 * sorted));
        std::partial_sort(kept.begin() + static_cast<std::ptrdiff_t>(i),
                          kept.begin() + static_cast<std::ptrdiff_t>(sorted), kept.end(), before);
      }
      if (i > 0 && sum_before >= options.top_p * sum) {
        n_kept = i;
        break;
      }
      sum_before += weight(kept[i]);
    }
    kept.resize(n_kept);
  }
  std::sort(kept.begin(), kept.end());
  double sum = 0;
  for (const int32_t id : kept) sum += weight(id);
  const double bound = uniform * sum;
  double so_far = 0;
  int32_t last = kept[0];
  for (const int32_t id : kept) {
    const double w = weight(id);
    if (w <= 0) continue;
    last = id;
    so_far += w;
    if (so_far > bound) return id;
  }
  return last;
}

double log_probability(std::span<const float> logits, int32_t id) {
  const double top = logits[static_cast<size_t>(largest(logits))];
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return logits[static_cast<size_t>(id)] - top - std::log(sum);
}

double uniform_of(uint64_t seed, uint64_t row, uint64_t step) {
  return static_cast<double>(mix(mix(mix(seed) ^ row) ^ step) >> 11) * 0x1p-53;
}

}  // namespace stow::lm
