#include "stowage/io/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "stowage/base/error.h"

namespace stow {
namespace {

// theta^(2i/D). The power is exact to half a unit, as torch's is but for a unit in rare places.
float frequency_base(const RopeConfig& rope, int64_t i, int64_t head_dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
  return static_cast<float>(
      std::pow(static_cast<double>(static_cast<float>(rope.theta)), static_cast<double>(exponent)));
}

void scale_llama3(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const auto factor = static_cast<float>(rope.factor);
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto low_wavelength = static_cast<float>(original / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(original / rope.high_freq_factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto width = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  for (float& f : inv_freq) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / f;
    if (wavelength < high_wavelength) continue;
    if (wavelength > low_wavelength) {
      f = f / factor;
      continue;
    }
    const float smooth = (static_cast<float>(original) / wavelength - low) / width;
    f = (1.0f - smooth) * f / factor + smooth * f;
  }
}

double mscale_of(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

RopeFrequencies yarn(const RopeConfig& rope, int64_t head_dim) {
  RopeFrequencies result;
  if (rope.attention_factor)
    result.attention_scaling = *rope.attention_factor;
  else if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0)
    result.attention_scaling =
        mscale_of(rope.factor, *rope.mscale) / mscale_of(rope.factor, *rope.mscale_all_dim);
  else
    result.attention_scaling = mscale_of(rope.factor, 1.0);

  const auto dim = static_cast<double>(head_dim);
  const auto correction = [&](double rotations) {
    return dim *
           std::log(static_cast<double>(rope.original_max_position_embeddings) /
                    (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast), high = correction(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // as transformers avoids the division by zero
  const auto begin = static_cast<float>(low), width = static_cast<float>(high - low);
  const auto factor = static_cast<float>(rope.factor);
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const float base = frequency_base(rope, i, head_dim);
    const float extrapolated = 1.0f / base, interpolated = 1.0f / (factor * base);
    const float ramp = std::clamp((static_cast<float>(i) - begin) / width, 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    result.inv_freq.push_back(interpolated * (1.0f - keep) + extrapolated * keep);
  }
  return result;
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t head_dim) {
  STOW_CHECK(head_dim > 0 && head_dim % 2 == 0, "head_dim {}", head_dim);
  STOW_CHECK(rope.divisors.empty() || static_cast<int64_t>(rope.divisors.size()) == head_dim / 2,
             "{} divisors for head_dim {}", rope.divisors.size(), head_dim);
  RopeFrequencies result;
  if (rope.kind == RopeKind::kYarn) {
    result = yarn(rope, head_dim);
  } else {
    for (int64_t i = 0; i < head_dim / 2; ++i)
      result.inv_freq.push_back(1.0f / frequency_base(rope, i, head_dim));
    if (rope.kind == RopeKind::kLinear)
      for (float& f : result.inv_freq) f /= static_cast<float>(rope.factor);
    if (rope.kind == RopeKind::kLlama3) scale_llama3(rope, result.inv_freq);
  }
  for (size_t i = 0; i < rope.divisors.size(); ++i) result.inv_freq[i] /= rope.divisors[i];
  return result;
}

}  // namespace stow
