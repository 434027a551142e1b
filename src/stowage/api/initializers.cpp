#include "stowage/api/initializers.h"

#include <algorithm>
#include <cmath>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/random.h"

namespace stow::initializers {
namespace {

/// Standard deviation of a normal distribution cut off at two deviations.
constexpr double kTruncatedDeviation = .87962566103423978;

enum class Mode { kIn, kOut, kMean, kGeometricMean };
enum class Distribution { kTruncatedNormal, kNormal, kUniform };

Mode mode_of(std::string_view name) {
  if (name == "fan_in") return Mode::kIn;
  if (name == "fan_out") return Mode::kOut;
  if (name == "fan_avg") return Mode::kMean;
  if (name == "fan_geo_avg") return Mode::kGeometricMean;
  trace_error_here(
      "[variance_scaling] expected the mode fan_in, fan_out, fan_avg or fan_geo_avg, got '{}'",
      name);
}

Distribution distribution_of(std::string_view name) {
  if (name == "truncated_normal") return Distribution::kTruncatedNormal;
  if (name == "normal") return Distribution::kNormal;
  if (name == "uniform") return Distribution::kUniform;
  trace_error_here(
      "[variance_scaling] expected the distribution truncated_normal, normal or uniform, got '{}'",
      name);
}

double extent_of(const Axes& axes, const ArrayType& type) {
  double n = 1;
  for (const int64_t axis : normalize_axes("variance_scaling", axes, type, false))
    n *= static_cast<double>(type.shape[static_cast<int>(axis)]);
  return n;
}

double fan(Mode mode, const FanOptions& options, const Shape& shape, DType dtype) {
  const ArrayType type{dtype, shape};
  if (shape.rank() < 2)
    trace_error_here("[variance_scaling] expected a weight of at least two axes, got {}",
                     to_string(type));
  const double in = extent_of(options.in_axis, type), out = extent_of(options.out_axis, type);
  const double all = static_cast<double>(shape.elems()) / extent_of(options.batch_axis, type);
  const double fan_in = all / out, fan_out = all / in;
  switch (mode) {
    case Mode::kIn:
      return fan_in;
    case Mode::kOut:
      return fan_out;
    case Mode::kMean:
      return (fan_in + fan_out) / 2;
    case Mode::kGeometricMean:
      return std::sqrt(fan_in * fan_out);
  }
  return fan_in;
}

}  // namespace

Array Initializer::operator()(const Operand& key, const Shape& shape,
                              std::optional<DType> dtype) const {
  const CallSiteScope site(key.at);
  const Array k = to_array(key);
  return run_as_one("initializer", [&] { return make_(k, shape, dtype.value_or(dtype_)); });
}

Initializer constant(double value, DType dtype) {
  return {[=](const Array&, const Shape& shape, DType d) { return full(shape, value, d); }, dtype};
}
Initializer zeros(DType dtype) {
  return constant(0, dtype);
}
Initializer ones(DType dtype) {
  return constant(1, dtype);
}

Initializer uniform(double scale, DType dtype) {
  return {[=](const Array& key, const Shape& shape, DType d) {
            return random::uniform(key, shape, d) * scale;
          },
          dtype};
}
Initializer normal(double stddev, DType dtype) {
  return {[=](const Array& key, const Shape& shape, DType d) {
            return random::normal(key, shape, d) * stddev;
          },
          dtype};
}
Initializer truncated_normal(double stddev, DType dtype, double lower, double upper) {
  return {[=](const Array& key, const Shape& shape, DType d) {
            return random::truncated_normal(key, lower, upper, shape, d) * stddev;
          },
          dtype};
}

Initializer variance_scaling(double scale, std::string_view mode, std::string_view distribution,
                             const FanOptions& options, SourceLocation at) {
  const CallSiteScope site(at);
  const Mode by = mode_of(mode);
  const Distribution of = distribution_of(distribution);
  return {[=](const Array& key, const Shape& shape, DType d) {
            // Rounded step by step as there.
            const Array variance = scalar_constant(scale / fan(by, options, shape, d), d);
            switch (of) {
              case Distribution::kTruncatedNormal:
                return random::truncated_normal(key, -2, 2, shape, d) *
                       (sqrt(variance) / scalar_constant(kTruncatedDeviation, d));
              case Distribution::kNormal:
                return random::normal(key, shape, d) * sqrt(variance);
              case Distribution::kUniform:
                return random::uniform(key, shape, d, -1, 1) * sqrt(3 * variance);
            }
            return variance;
          },
          options.dtype};
}

Initializer glorot_uniform(const FanOptions& options) {
  return variance_scaling(1, "fan_avg", "uniform", options);
}
Initializer glorot_normal(const FanOptions& options) {
  return variance_scaling(1, "fan_avg", "truncated_normal", options);
}
Initializer xavier_uniform(const FanOptions& options) {
  return glorot_uniform(options);
}
Initializer xavier_normal(const FanOptions& options) {
  return glorot_normal(options);
}
Initializer lecun_uniform(const FanOptions& options) {
  return variance_scaling(1, "fan_in", "uniform", options);
}
Initializer lecun_normal(const FanOptions& options) {
  return variance_scaling(1, "fan_in", "truncated_normal", options);
}
Initializer he_uniform(const FanOptions& options) {
  return variance_scaling(2, "fan_in", "uniform", options);
}
Initializer he_normal(const FanOptions& options) {
  return variance_scaling(2, "fan_in", "truncated_normal", options);
}
Initializer kaiming_uniform(const FanOptions& options) {
  return he_uniform(options);
}
Initializer kaiming_normal(const FanOptions& options) {
  return he_normal(options);
}

}  // namespace stow::initializers
