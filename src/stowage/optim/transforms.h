// Gradient transformations from which optimizers are built, with optax's names and defaults.
// Not whole optimizers; see optimizers.h.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "stowage/optim/schedules.h"
#include "stowage/optim/transformation.h"

namespace stow::optim {

// All transformations compute leaf by leaf in the leaf's dtype. Moments have that dtype unless an
// option gives another. Errors, besides those of init() and update(): none unless documented.

/// Clips elements to [-max_delta, max_delta].
GradientTransformation clip(double max_delta);
/// Scales the updates by max_norm / max(norm, max_norm), where norm is their global_norm.
/// Source: Pascanu et al. 2013.
GradientTransformation clip_by_global_norm(double max_norm);
/// Divides each leaf by max(1, its root mean square / threshold).
/// Source: Shazeer and Stern 2018, section 6.
GradientTransformation clip_by_block_rms(double threshold);

/// Adds `weight_decay` times the parameter to the leaves that the mask selects.
GradientTransformation add_decayed_weights(ScalarOrSchedule weight_decay = 0.0, Mask mask = {});

/// Multiplies by a number.
GradientTransformation scale(double step_size);
/// Multiplies by a schedule's value. State: "schedule/count".
GradientTransformation scale_by_schedule(Schedule step_size);
/// Multiplies by minus the learning rate; without `flip_sign`, by the learning rate.
GradientTransformation scale_by_learning_rate(ScalarOrSchedule learning_rate,
                                              bool flip_sign = true);

/// Storage of a transformation's moments between steps. A step computes with full precision and
/// then rounds. kBF16 and k8Bit round stochastically, so the mean of the stored values is exact and
/// small changes accumulate; with rounding to nearest, a second moment with decay 0.999 would not
/// change. The random bits are a hash of step, leaf and value, so a repeated step has the same
/// bits.
enum class Moments : uint8_t {
  kFull,  ///< The leaf's dtype, or the dtype that an option of the transformation names.
  kBF16,  ///< Stored with a relative error below 2^-7; computed in f32.
  /// u8 codes k, and one f32 scale s for each row of the last axis: the row's largest magnitude.
  /// The first moment is ± s (k / 127)^2, the second s (k / 256)^4 with k >= 1. The error of an
  /// element is less than one step of k: at most 1.6 % of s; for the root of a second moment at
  /// most 0.8 % of the root of s. A second moment in a row with nonzero elements never becomes 0.
  /// Computed in f32. Vectors, leaves of fewer than 4096 elements and rows of fewer than 16 are
  /// stored as f32.
  /// Source: after Dettmers et al. 2022, with powers instead of the dynamic code and rows as
  /// blocks.
  k8Bit,
};

struct TraceOptions {
  bool nesterov = false;
  std::optional<DType> accumulator_dtype = {};
  Moments moments = Moments::kFull;
};
/// Replaces updates u by their decayed sum t = u + decay * t. State: "trace/trace/<path>";
/// "trace/count" unless moments are kFull.
GradientTransformation trace(double decay, const TraceOptions& options = {});

struct EmaOptions {
  bool debias = true;
  std::optional<DType> accumulator_dtype = {};
};
/// Replaces updates by their exponential moving average. State: "ema/count", "ema/ema/<path>".
GradientTransformation ema(double decay, const EmaOptions& options = {});

struct ScaleByAdamOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  std::optional<DType> mu_dtype = {};  ///< Dtype of the first moment.
  bool nesterov = false;
  Moments moments = Moments::kFull;
};
/// Returns m / (sqrt(v + eps_root) + eps) for the bias-corrected moments m and v.
/// State: "adam/count", "adam/mu/<path>", "adam/nu/<path>"; with k8Bit also "adam/mu_scale/<path>"
///        and "adam/nu_scale/<path>".
/// Errors: TraceError for a mu_dtype with moments other than kFull.
/// Source: Kingma and Ba 2015, algorithm 1; Dozat 2016 for nesterov.
GradientTransformation scale_by_adam(const ScaleByAdamOptions& options = {});

struct ScaleByLionOptions {
  double b1 = 0.9, b2 = 0.99;
  std::optional<DType> mu_dtype = {};
  Moments moments = Moments::kFull;
};
/// Returns the sign of an interpolation between update and momentum. State: "lion/mu/<path>";
/// "lion/count" unless moments are kFull.
/// Source: Chen et al. 2023, algorithm 2.
GradientTransformation scale_by_lion(const ScaleByLionOptions& options = {});

struct ScaleByRmsOptions {
  double decay = 0.9, eps = 1e-8, initial_scale = 0;
  bool eps_in_sqrt = true;
  bool bias_correction = false;
};
/// Divides updates by the root of the moving average of their squares. State: "rms/nu/<path>".
/// Source: Hinton 2012, lecture 6e.
GradientTransformation scale_by_rms(const ScaleByRmsOptions& options = {});
/// Divides updates by their moving standard deviation: the root of the moving average of squares
/// minus the squared moving average.
/// State: "stddev/mu/<path>", "stddev/nu/<path>".
GradientTransformation scale_by_stddev(const ScaleByRmsOptions& options = {});

struct ScaleByFactoredRmsOptions {
  bool factored = true;
  double decay_rate = 0.8;
  int64_t step_offset = 0;
  int64_t min_dim_size_to_factor = 128;
  double epsilon = 1e-30;
};
/// Divides updates by the root of their second moment. For leaves with two axes of at least
/// min_dim_size_to_factor, the second moment is stored factored, as its means over each of two
/// axes.
/// State: "factored_rms/count", "…/v_row/<path>" and "…/v_col/<path>", or "…/v/<path>".
/// Source: Shazeer and Stern 2018, algorithm 4.
GradientTransformation scale_by_factored_rms(const ScaleByFactoredRmsOptions& options = {});
/// Multiplies updates by max(min_scale, the root mean square of the parameter).
GradientTransformation scale_by_param_block_rms(double min_scale = 1e-3);

/// A Newton-Schulz polynomial c0 x + c1 (x x') x + c2 (x x')^2 x.
using NsCoeffs = std::array<double, 3>;
struct ScaleByMuonOptions {
  /// One polynomial for all steps, or one for each.
  std::vector<NsCoeffs> ns_coeffs = {{3.4445, -4.7750, 2.0315}};
  int ns_steps = 5;
  double beta = 0.95, eps = 1e-8;
  std::optional<DType> mu_dtype = {};
  bool nesterov = true;
  bool adaptive = false;
  Moments moments = Moments::kFull;
};
/// Returns the momentum, approximately orthogonalized by a Newton-Schulz iteration.
/// Shapes: leaves are matrices, or stacks of matrices on their last two axes.
/// State:  "muon/count", "muon/mu/<path>".
/// Errors: TraceError for a leaf of lower rank, or for fewer coefficients than ns_steps.
/// Source: Jordan et al. 2024; optax.contrib.scale_by_muon with Frobenius preconditioning.
GradientTransformation scale_by_muon(const ScaleByMuonOptions& options = {});
/// Multiplies matrices [..., m, n] by sqrt(max(1, n / m)), or, if consistent_rms is given, by
/// sqrt(max(m, n)) * consistent_rms.
/// Source: optax.contrib.scale_by_shape.
GradientTransformation scale_by_shape(std::optional<double> consistent_rms = {});

/// Returns empty updates: the parameters do not change (see GradientTransformation).
GradientTransformation set_to_zero();

}  // namespace stow::optim
