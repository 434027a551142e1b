// Initial values of weights, by the names and with the numbers of jax.nn.initializers.
// Not layers; a function here makes one array of random numbers.
#pragma once

#include <functional>
#include <string_view>

#include "stowage/api/shaping.h"

namespace stow::initializers {

/// A function that makes an array from a key (random.h), a shape and a dtype.
/// Errors: TraceError if the key is not a key, or the shape does not fit.
class Initializer {
 public:
  /// The function that makes the array.
  using Function = std::function<Array(const Array& key, const Shape& shape, DType dtype)>;
  Initializer(Function make, DType dtype) : make_(std::move(make)), dtype_(dtype) {}
  /// Makes the array. `dtype`: the initializer's own dtype if none.
  Array operator()(const Operand& key, const Shape& shape, std::optional<DType> dtype = {}) const;

 private:
  Function make_;
  DType dtype_;
};

/// All `value`.
Initializer constant(double value, DType dtype = DType::kF32);
Initializer zeros(DType dtype = DType::kF32);  ///< All 0.
Initializer ones(DType dtype = DType::kF32);   ///< All 1.
/// Uniform numbers in [0, scale).
Initializer uniform(double scale = 1e-2, DType dtype = DType::kF32);
/// Normal numbers with this standard deviation.
Initializer normal(double stddev = 1e-2, DType dtype = DType::kF32);
/// stddev times normal numbers that lie in (lower, upper).
Initializer truncated_normal(double stddev = 1e-2, DType dtype = DType::kF32, double lower = -2,
                             double upper = 2);

/// Roles of the axes of a weight. All axes that are none of these are its receptive field.
struct FanOptions {
  Axes in_axis = -2, out_axis = -1, batch_axis = Dims{};
  DType dtype = DType::kF32;
};
/// Numbers of variance scale / n: n is the number of inputs of each output ("fan_in"), of outputs
/// of each input ("fan_out"), their mean ("fan_avg") or geometric mean ("fan_geo_avg"). They are
/// "truncated_normal" (within two deviations), "normal" or "uniform".
/// Errors:  TraceError for another mode or distribution; where it is called, for a shape without
///          these axes.
/// Source:  He et al. 2015; Glorot and Bengio 2010.
Initializer variance_scaling(double scale, std::string_view mode, std::string_view distribution,
                             const FanOptions& options = {}, STOW_AT);

// variance_scaling(1, "fan_avg", …): variance 1 / mean of inputs and outputs. xavier_* is glorot_*.
Initializer glorot_uniform(const FanOptions& options = {});
Initializer glorot_normal(const FanOptions& options = {});
Initializer xavier_uniform(const FanOptions& options = {});
Initializer xavier_normal(const FanOptions& options = {});
// Variance 1 / number of inputs. Source: LeCun et al. 1998.
Initializer lecun_uniform(const FanOptions& options = {});
Initializer lecun_normal(const FanOptions& options = {});
// Variance 2 / number of inputs. kaiming_* is he_*.
Initializer he_uniform(const FanOptions& options = {});
Initializer he_normal(const FanOptions& options = {});
Initializer kaiming_uniform(const FanOptions& options = {});
Initializer kaiming_normal(const FanOptions& options = {});

}  // namespace stow::initializers
