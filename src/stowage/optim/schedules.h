// Schedules: a number, such as a learning rate, as a function of the count of updates, by the names
// of optax. Not the transformations that use them; see transforms.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "stowage/api/array.h"

namespace stow::optim {

/// From the number of updates so far (i32, a scalar; 0 at first) to a scalar. Computed in f32.
using Schedule = std::function<Array(const Array& count)>;

/// A number, or a schedule of it.
class ScalarOrSchedule {
 public:
  template <concepts::Scalar T>
  ScalarOrSchedule(T value) : value_(static_cast<double>(value)) {}  // NOLINT: converts by design
  template <std::invocable<const Array&> F>
  ScalarOrSchedule(F schedule) : schedule_(std::move(schedule)) {}  // NOLINT

  bool is_schedule() const { return schedule_ != nullptr; }  ///< Else a number.
  double value() const { return value_; }  ///< If it is a number.
  const Schedule& schedule() const { return schedule_; }  ///< If it is one.

 private:
  double value_ = 0;
  Schedule schedule_;
};

// Errors of all: TraceError, where said. Sources: optax.schedules, function by function.

/// Always `value`.
Schedule constant_schedule(double value);
/// From `init_value` to `end_value` in a straight line over `transition_steps` updates, after
/// `transition_begin` of them. Not positive transition_steps: always init_value.
Schedule linear_schedule(double init_value, double end_value, int64_t transition_steps,
                         int64_t transition_begin = 0);
/// (init - end) * (1 - t)^power + end, t being the part of transition_steps that is over.
Schedule polynomial_schedule(double init_value, double end_value, double power,
                             int64_t transition_steps, int64_t transition_begin = 0);
/// `init_value` times the product of the scales of the boundaries that the count has reached.
/// Errors:  for a negative scale.
Schedule piecewise_constant_schedule(double init_value,
                                     const std::map<int64_t, double>& boundaries_and_scales = {});
struct ExponentialDecayOptions {
  int64_t transition_begin = 0;
  bool staircase = false;                ///< Only at whole multiples of transition_steps.
  std::optional<double> end_value = {};  ///< Not past it.
};
/// init_value * decay_rate^(count / transition_steps).
Schedule exponential_decay(double init_value, int64_t transition_steps, double decay_rate,
                           const ExponentialDecayOptions& options = {});
/// init * ((1 - alpha) * (0.5 * (1 + cos(pi * count / decay_steps)))^exponent + alpha), and
/// init * alpha after decay_steps.
/// Errors:  where decay_steps is not positive.
/// Source:  Loshchilov and Hutter 2017, equation 5.
Schedule cosine_decay_schedule(double init_value, int64_t decay_steps, double alpha = 0,
                               double exponent = 1);
/// Linear to `peak_value` over `warmup_steps`, then a cosine to `end_value` at `decay_steps`, which
/// counts the warm-up.
/// Errors:  where decay_steps is not above warmup_steps.
Schedule warmup_cosine_decay_schedule(double init_value, double peak_value, int64_t warmup_steps,
                                      int64_t decay_steps, double end_value = 0,
                                      double exponent = 1);
struct OnecycleOptions {
  double pct_start = 0.3;   ///< The part of the steps that rises.
  double pct_final = 0.85;  ///< The begin of the second fall; of the linear one only.
  double div_factor = 25;   ///< peak_value over the first value.
  double final_div_factor = 1e4;
};
/// Up to the peak, down again, and on down, in straight lines.
/// Errors:  where transition_steps is not positive.
/// Source:  Smith and Topin 2019.
Schedule linear_onecycle_schedule(int64_t transition_steps, double peak_value,
                                  const OnecycleOptions& options = {});
/// Up to the peak and down to peak / (div_factor * final_div_factor), along cosines.
/// Errors:  where transition_steps is not positive.
Schedule cosine_onecycle_schedule(int64_t transition_steps, double peak_value,
                                  const OnecycleOptions& options = {});
/// The schedules one after another; each counts from the boundary where it begins.
/// Errors:  where there is not one boundary fewer than schedules, or boundaries do not rise.
Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);

}  // namespace stow::optim
