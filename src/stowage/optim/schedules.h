// Schedules: a number, such as a learning rate, as a function of the update count; names of optax.
// Not the transformations that use them; see transforms.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "stowage/api/array.h"

namespace stow::optim {

/// A function from the number of updates so far (an i32 scalar, from 0) to a scalar. Computed in
/// f32.
using Schedule = std::function<Array(const Array& count)>;

/// A number or a schedule.
class ScalarOrSchedule {
 public:
  template <concepts::Scalar T>
  ScalarOrSchedule(T value) : value_(static_cast<double>(value)) {}  // NOLINT: converts by design
  template <std::invocable<const Array&> F>
  ScalarOrSchedule(F schedule) : schedule_(std::move(schedule)) {}  // NOLINT

  bool is_schedule() const { return schedule_ != nullptr; }  ///< False for a number.
  double value() const { return value_; }  ///< The number, if !is_schedule().
  const Schedule& schedule() const { return schedule_; }  ///< The schedule, if is_schedule().

 private:
  double value_ = 0;
  Schedule schedule_;
};

// Errors of all functions are TraceErrors. Source: optax.schedules.

/// Always `value`.
Schedule constant_schedule(double value);
/// Changes linearly from `init_value` to `end_value` during the `transition_steps` updates after
/// update `transition_begin`. If transition_steps is not positive: always init_value.
Schedule linear_schedule(double init_value, double end_value, int64_t transition_steps,
                         int64_t transition_begin = 0);
/// (init - end) * (1 - t)^power + end, where t is the fraction of transition_steps that has passed.
Schedule polynomial_schedule(double init_value, double end_value, double power,
                             int64_t transition_steps, int64_t transition_begin = 0);
/// `init_value` times the product of the scales of the boundaries that the count has reached.
/// Errors:  a negative scale.
Schedule piecewise_constant_schedule(double init_value,
                                     const std::map<int64_t, double>& boundaries_and_scales = {});
struct ExponentialDecayOptions {
  int64_t transition_begin = 0;
  bool staircase = false;                ///< True: the exponent is rounded down to an integer.
  std::optional<double> end_value = {};  ///< Bound of the value; none: no bound.
};
/// init_value * decay_rate^(count / transition_steps).
Schedule exponential_decay(double init_value, int64_t transition_steps, double decay_rate,
                           const ExponentialDecayOptions& options = {});
/// init * ((1 - alpha) * (0.5 * (1 + cos(pi * count / decay_steps)))^exponent + alpha), and
/// init * alpha after decay_steps.
/// Errors:  decay_steps is not positive.
/// Source:  Loshchilov and Hutter 2017, equation 5.
Schedule cosine_decay_schedule(double init_value, int64_t decay_steps, double alpha = 0,
                               double exponent = 1);
/// Rises linearly to `peak_value` during `warmup_steps`, then falls as a cosine to `end_value` at
/// update `decay_steps`, which includes the warm-up.
/// Errors:  decay_steps is not greater than warmup_steps.
Schedule warmup_cosine_decay_schedule(double init_value, double peak_value, int64_t warmup_steps,
                                      int64_t decay_steps, double end_value = 0,
                                      double exponent = 1);
struct OnecycleOptions {
  double pct_start = 0.3;   ///< Fraction of the steps at which the peak is reached.
  double pct_final = 0.85;  ///< Fraction at which the first value is reached again; linear only.
  double div_factor = 25;   ///< peak_value / first value.
  double final_div_factor = 1e4;  ///< First value / last value.
};
/// Rises linearly from peak_value / div_factor to the peak, falls back to that value, and falls on
/// to peak_value / (div_factor * final_div_factor).
/// Errors:  transition_steps is not positive.
/// Source:  Smith and Topin 2019.
Schedule linear_onecycle_schedule(int64_t transition_steps, double peak_value,
                                  const OnecycleOptions& options = {});
/// Rises as a cosine from peak_value / div_factor to the peak, and falls as a cosine to
/// peak_value / (div_factor * final_div_factor).
/// Errors:  transition_steps is not positive.
Schedule cosine_onecycle_schedule(int64_t transition_steps, double peak_value,
                                  const OnecycleOptions& options = {});
/// The schedules one after another, from one boundary to the next; each counts updates from its own
/// first boundary.
/// Errors:  the number of boundaries is not that of schedules minus 1, or boundaries decrease.
Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);

}  // namespace stow::optim
