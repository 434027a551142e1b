// Gradient transformations that optimizers are made of, by the names and defaults of optax.
// Not whole optimizers; see optimizers.h.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "stowage/optim/schedules.h"
#include "stowage/optim/transformation.h"

namespace stow::optim {

// All compute leaf by leaf in the leaf's dtype, and moments are of it too unless another is given.
// Errors, other than those of init() and update(): none unless said.

/// Elements clipped to [-max_delta, max_delta].
GradientTransformation clip(double max_delta);
/// Updates scaled by max_norm / max(norm, max_norm), norm being the global_norm of all of them.
/// Source: Pascanu et al. 2013.
GradientTransformation clip_by_global_norm(double max_norm);
/// Each leaf over max(1, its root mean square / threshold).
/// Source: Shazeer and Stern 2018, section 6.
GradientTransformation clip_by_block_rms(double threshold);

/// Adds `weight_decay` times the parameter, where the mask says.
GradientTransformation add_decayed_weights(ScalarOrSchedule weight_decay = 0.0, Mask mask = {});

/// Multiplies by a number.
GradientTransformation scale(double step_size);
/// Multiplies by a schedule's value. State: "schedule/count".
GradientTransformation scale_by_schedule(Schedule step_size);
/// Multiplies by minus the learning rate, or by the rate itself where the sign is not flipped.
GradientTransformation scale_by_learning_rate(ScalarOrSchedule learning_rate,
                                              bool flip_sign = true);

/// How a transformation keeps its moments from one step to the next. It computes with all of their
/// digits and then rounds; kBF16 and k8Bit round up or down at random, so that the mean of what is
/// kept is exact and small changes add up: rounded to the nearest, a second moment with a decay of
/// 0.999 stays where it is. The random bits are a hash of step, leaf and value: a step repeated has
/// the same bits.
enum class Moments : uint8_t {
  kFull,  ///< In the leaf's dtype, or in the one that an option of the transformation names.
  kBF16,  ///< Within 2^-7 of the moment. Computed with in f32.
  /// u8 codes, and one f32 scale for each row of the last axis, the row's largest magnitude s. The
  /// first moment is ± s (k / 127)^2, the second s (k / 256)^4 with k >= 1: an element is off by less
  /// than one step of k, at most 1.6 % of s, and the root of a second moment by at most 0.8 % of that
  /// of s. No second moment becomes 0 beside others that are not. Computed with in f32. Vectors, leaves
  /// of fewer than 4096 elements and rows of fewer than 16 keep f32.
  /// Source: after Dettmers et al. 2022, with powers in place of the dynamic code and rows for blocks.
  k8Bit,
};

struct TraceOptions {
  bool nesterov = false;
  std::optional<DType> accumulator_dtype = {};
  Moments moments = Moments::kFull;
};
/// The decayed sum of updates: t = u + decay * t. State: "trace/trace/<path>"; "trace/count" unless
/// moments are kFull.
GradientTransformation trace(double decay, const TraceOptions& options = {});

struct EmaOptions {
  bool debias = true;
  std::optional<DType> accumulator_dtype = {};
};
/// The exponential moving average of updates. State: "ema/count", "ema/ema/<path>".
GradientTransformation ema(double decay, const EmaOptions& options = {});

struct ScaleByAdamOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  std::optional<DType> mu_dtype = {};  ///< Dtype of the first moment.
  bool nesterov = false;
  Moments moments = Moments::kFull;
};
/// m / (sqrt(v + eps_root) + eps), both moments with bias correction.
/// State: "adam/count", "adam/mu/<path>", "adam/nu/<path>"; in 8 bits "adam/mu_scale/<path>" and
///        "adam/nu_scale/<path>" too.
/// Errors: TraceError for a mu_dtype beside moments other than kFull.
/// Source: Kingma and Ba 2015, algorithm 1; Dozat 2016 for nesterov.
GradientTransformation scale_by_adam(const ScaleByAdamOptions& options = {});

struct ScaleByLionOptions {
  double b1 = 0.9, b2 = 0.99;
  std::optional<DType> mu_dtype = {};
  Moments moments = Moments::kFull;
};
/// The sign of an interpolation between update and momentum. State: "lion/mu/<path>"; "lion/count"
/// unless moments are kFull.
/// Source: Chen et al. 2023, algorithm 2.
GradientTransformation scale_by_lion(const ScaleByLionOptions& options = {});

struct ScaleByRmsOptions {
  double decay = 0.9, eps = 1e-8, initial_scale = 0;
  bool eps_in_sqrt = true;
  bool bias_correction = false;
};
/// Updates over the root of the moving average of their squares. State: "rms/nu/<path>".
/// Source: Hinton 2012, lecture 6e.
GradientTransformation scale_by_rms(const ScaleByRmsOptions& options = {});
/// The same with the squared moving average taken off: over the standard deviation.
/// State: "stddev/mu/<path>", "stddev/nu/<path>".
GradientTransformation scale_by_stddev(const ScaleByRmsOptions& options = {});

struct ScaleByFactoredRmsOptions {
  bool factored = true;
  double decay_rate = 0.8;
  int64_t step_offset = 0;
  int64_t min_dim_size_to_factor = 128;
  double epsilon = 1e-30;
};
/// Updates over the root of their second moment, which for leaves with two axes of at least
/// min_dim_size_to_factor is kept as its means over one and over the other.
/// State: "factored_rms/count", "…/v_row/<path>" and "…/v_col/<path>", or "…/v/<path>".
/// Source: Shazeer and Stern 2018, algorithm 4.
GradientTransformation scale_by_factored_rms(const ScaleByFactoredRmsOptions& options = {});
/// Updates times the root mean square of their parameter, which counts as at least min_scale.
GradientTransformation scale_by_param_block_rms(double min_scale = 1e-3);

/// A Newton-Schulz polynomial c0 x + c1 (x x') x + c2 (x x')^2 x.
using NsCoeffs = std::array<double, 3>;
struct ScaleByMuonOptions {
  std::vector<NsCoeffs> ns_coeffs = {{3.4445, -4.7750, 2.0315}};  ///< One for all steps, or each.
  int ns_steps = 5;
  double beta = 0.95, eps = 1e-8;
  std::optional<DType> mu_dtype = {};
  bool nesterov = true;
  bool adaptive = false;
  Moments moments = Moments::kFull;
};
/// Momentum brought near an orthogonal matrix by a Newton-Schulz iteration.
/// Shapes: leaves are matrices, or stacks of matrices on their last two axes.
/// State:  "muon/count", "muon/mu/<path>".
/// Errors: TraceError for a leaf of lower rank, or coefficients for fewer steps than asked for.
/// Source: Jordan et al. 2024; optax.contrib.scale_by_muon with Frobenius preconditioning.
GradientTransformation scale_by_muon(const ScaleByMuonOptions& options = {});
/// Matrices [..., m, n] times sqrt(max(1, n / m)), or sqrt(max(m, n)) * consistent_rms if given.
/// Source: optax.contrib.scale_by_shape.
GradientTransformation scale_by_shape(std::optional<double> consistent_rms = {});

/// No update at all: the parameters stay as they are (see GradientTransformation).
GradientTransformation set_to_zero();

}  // namespace stow::optim
