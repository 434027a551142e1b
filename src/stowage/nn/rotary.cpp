#include "stowage/nn/rotary.h"

#include <cmath>
#include <cstring>

#include "stowage/api/math.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"

namespace stow::nn {
namespace {

Array frequencies(const RotaryConfig& config, int64_t half) {  // [D/2]
  if (config.inv_freq.empty()) {
    const Array i = iota(Shape{half}, 0, DType::kF32);
    return exp(i * (-2.0 * std::log(config.base) / static_cast<double>(2 * half)));
  }
  if (static_cast<int64_t>(config.inv_freq.size()) != half)
    trace_error_here("[rotary] expected {} frequencies for heads of {}, got {}", half, 2 * half,
                     config.inv_freq.size());
  std::vector<std::byte> bytes(config.inv_freq.size() * sizeof(float));
  std::memcpy(bytes.data(), config.inv_freq.data(), bytes.size());
  return make_literal(ArrayType{DType::kF32, Shape{half}}, std::move(bytes));
}

// positions: f32, [T, 1] or [B, T, 1]; lead: the extents before the pairs.
RotaryTables tables_of(const RotaryConfig& config, int64_t half, const Array& positions, Dims lead,
                       DType dtype) {
  Dims rate(static_cast<size_t>(positions.rank()), 1);
  rate.back() = half;
  const Array angle = positions * frequencies(config, half).reshape(rate);
  const Array sign = iota(Shape{2}, 0, DType::kF32).reshape({1, 1, 2, 1}) * 2.0 - 1.0;
  lead.insert(lead.end(), {1, 1, half});
  const Array a = angle.reshape(lead);
  Array c = cos(a), s = sin(a) * sign;
  if (config.scale != 1) {
    c = c * config.scale;
    s = s * config.scale;
  }
  return {c.astype(dtype), s.astype(dtype)};
}

}  // namespace

RotaryTables rotary_tables(const RotaryConfig& config, int64_t head_dim, int64_t length,
                           DType dtype) {
  const Array positions = iota(Shape{length}, 0, DType::kF32).reshape({length, 1});
  return tables_of(config, head_dim / 2, positions, {length}, dtype);
}

RotaryTables rotary_tables(const RotaryConfig& config, int64_t head_dim, const Array& positions,
                           DType dtype) {
  const int64_t b = positions.dim(0), t = positions.dim(1);
  return tables_of(config, head_dim / 2, positions.astype(DType::kF32).reshape({b, t, 1}), {b, t},
                   dtype);
}

Array rotate(const Array& x, const RotaryTables& tables) {
  const int64_t d = x.dim(3);
  const Array halves = x.reshape({x.dim(0), x.dim(1), x.dim(2), 2, d / 2});
  const Array turned = halves * tables.cos + flip(halves, 3) * tables.sin;
  return turned.reshape({x.dim(0), x.dim(1), x.dim(2), d});
}

}  // namespace stow::nn
