#include "stowage/optim/moments.h"

#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"
#include "stowage/optim/internal.h"

namespace stow::optim {
namespace {

// A leaf smaller than that, or with shorter rows, keeps f32: its scales would cost what the codes
// save.
constexpr int64_t kLeastElems = 4096, kLeastRow = 16;
// Codes of a signed moment are kMiddle ± k, k up to kLargest.
constexpr double kMiddle = 128, kLargest = 127;
// Smaller scales are rounded as if they were that: their reciprocals would be infinite.
constexpr double kLeastScale = 0x1p-120;

Array u32(uint32_t value) {
  return Array::scalar(static_cast<int64_t>(value), DType::kU32);
}

bool has_8_bits(const Array& param) {
  return param.rank() >= 2 && param.size() >= kLeastElems && param.dim(-1) >= kLeastRow;
}

// 32 bits of which each depends on all of x. Source: Appleby, MurmurHash3's finalizer.
Array mixed(Array x) {
  x = (x ^ (x >> u32(16))) * u32(0x85ebca6b);
  x = (x ^ (x >> u32(13))) * u32(0xc2b2ae35);
  return x ^ (x >> u32(16));
}

// 16 bits as a number in [0, 1).
Array unit(const Array& bits) {
  return bits.astype(DType::kF32) * 0x1p-16;
}

Array of_rows(const Array& scale) {
  return expand_dims(scale, -1);
}
// The largest magnitude of each row, and the rows over it.
struct Scaled {
  Array scale, values;
};
Scaled scaled(const Array& magnitudes) {
  const Array scale = max(magnitudes, -1);
  // Not once a row: what is elementwise all through can be fused with what follows the update.
  const Array whole = broadcast_to(of_rows(scale), magnitudes.shape());
  return {scale, magnitudes * reciprocal(maximum(whole, kLeastScale))};
}

// k or k + 1 by the place of y between their images `low` and `high`.
Array stochastic(const Array& k, const Array& y, const Array& low, const Array& high,
                 const Array& u) {
  return k + (u < (y - low) / (high - low)).astype(DType::kF32);
}

// x = ± scale (k / 127)^2.
Moment::Parts encode_signed(const Array& x, const Array& u) {
  const auto [scale, magnitude] = scaled(abs(x));
  const Array y = magnitude * (kLargest * kLargest);
  const Array k = minimum(floor(sqrt(y)), kLargest - 1);
  const Array code = stochastic(k, y, square(k), square(k + 1.0), u);
  return {(sign(x) * code + kMiddle).astype(DType::kU8), scale};
}
Array decode_signed(const Moment::Parts& parts) {
  const Array k = parts[0].astype(DType::kF32) - kMiddle;
  return k * abs(k) * (1 / (kLargest * kLargest)) * of_rows(parts[1]);
}

// x = scale (k / 256)^4 for k of 1 to 256, so never 0 in a row that has more than zeros.
Moment::Parts encode_positive(const Array& x, const Array& u) {
  const auto [scale, value] = scaled(x);
  const Array y = value * 0x1p32;
  const Array k = stow::clip(floor(sqrt(sqrt(y))), 1, 255);
  const Array code = stochastic(k, y, square(square(k)), square(square(k + 1.0)), u);
  return {(code - 1.0).astype(DType::kU8), scale};
}
Array decode_positive(const Moment::Parts& parts) {
  const Array k = parts[0].astype(DType::kF32) + 1.0;
  return square(square(k)) * 0x1p-32 * of_rows(parts[1]);
}

}  // namespace

Array rounding_salt(const Array& count, const std::string& path) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : path) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return mixed(mixed(count.astype(DType::kU32)) ^ u32(hash));
}

Array rounding_bits(const Array& salt, const Array& moment) {
  return mixed(bitcast_convert_type(moment, DType::kU32) ^ salt);
}

Array round_to_bf16(const Array& x, const Array& bits) {
  const Array word = bitcast_convert_type(x, DType::kU32) + (bits & u32(0xffff));
  const Array rounded = bitcast_convert_type(word & u32(0xffff0000), DType::kF32);
  return where(isfinite(x), rounded, x).astype(DType::kBF16);
}

Moment::Moment(std::string name, Range range, Moments format, std::optional<DType> dtype)
    : name_(std::move(name)), range_(range), format_(format), dtype_(dtype) {
  if (format != Moments::kFull && dtype)
    trace_error(
        "[{}] a dtype of the moment ({}) and a format of the moments are both given; give one",
        name_, dtype_name(*dtype));
}

void Moment::init(OptState& state, const Leaf& param) const {
  const Array& p = param.value;
  if (format_ == Moments::kFull) {
    state[name_ + "/" + param.path] = moment_like(p, dtype_);
  } else if (format_ == Moments::kBF16) {
    state[name_ + "/" + param.path] = moment_like(p, DType::kBF16);
  } else if (!has_8_bits(p)) {
    state[name_ + "/" + param.path] = moment_like(p, DType::kF32);
  } else {
    Dims rows = p.shape().dims();
    rows.pop_back();
    const ArrayType scale{DType::kF32, Shape(rows)};
    state[name_ + "/" + param.path] =
        moment_like(p, DType::kU8, range_ == Range::kSigned ? kMiddle : 0);
    state[name_ + "_scale/" + param.path] =
        p.is_abstract() ? Array::abstract(scale) : zeros(scale.shape, DType::kF32);
  }
}

Moment::Parts Moment::parts(const OptState& state, const std::string& path) const {
  Parts parts = {state.at(name_ + "/" + path)};
  if (const auto scale = state.find(name_ + "_scale/" + path); scale != state.end())
    parts.push_back(scale->second);
  return parts;
}

void Moment::set_parts(OptState& state, const std::string& path, const Parts& parts) const {
  state[name_ + "/" + path] = parts[0];
  if (parts.size() > 1) state[name_ + "_scale/" + path] = parts[1];
}

Array Moment::read(const Parts& parts) const {
  if (parts.size() > 1)
    return range_ == Range::kSigned ? decode_signed(parts) : decode_positive(parts);
  return is_compact() ? parts[0].astype(DType::kF32) : parts[0];
}

Moment::Parts Moment::write(const Array& moment, const Parts& old, const Array& bits) const {
  const auto half = [&] {
    return range_ == Range::kSigned ? bits & u32(0xffff) : bits >> u32(16);
  };
  if (old.size() > 1)
    return range_ == Range::kSigned ? encode_signed(moment, unit(half()))
                                    : encode_positive(moment, unit(half()));
  if (format_ == Moments::kBF16) return {round_to_bf16(moment, half())};
  return {moment.astype(old[0].dtype())};
}

}  // namespace stow::optim
