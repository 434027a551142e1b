#include "stowage/optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include <fmt/ranges.h>

#include "stowage/api/math.h"
#include "stowage/api/trace.h"

namespace stow::optim {
namespace {

Array as_f32(const Array& count) {
  return count.astype(DType::kF32);
}

// The number of the `steps` after `begin` that are over, as f32.
Array progress(const Array& count, int64_t begin, int64_t steps) {
  return clip(as_f32(count - std::max<int64_t>(begin, 0)), 0.0, static_cast<double>(steps));
}

// Points (count, value): the first at 0, and each further one a multiple of the one before. Of two
// at one count the later replaces the earlier, as in optax.
std::vector<std::pair<int64_t, double>> scaled(
    double first, const std::vector<std::pair<int64_t, double>>& scales) {
  std::map<int64_t, double> by_count;
  for (const auto& [count, scale] : scales) by_count[count] = scale;
  std::vector<std::pair<int64_t, double>> points = {{0, first}};
  for (const auto& [count, scale] : by_count)
    points.emplace_back(count, points.back().second * scale);
  return points;
}

// Between points (count, value), by `between(from, to, part)`; the last value behind the last.
Schedule interpolate(std::vector<std::pair<int64_t, double>> points,
                     std::function<Array(double, double, const Array&)> between) {
  return [points = std::move(points), between = std::move(between)](const Array& count) {
    Array value = Array(static_cast<float>(points.back().second));
    for (size_t i = points.size() - 1; i-- > 0;) {
      const auto [start, from] = points[i];
      const auto [stop, to] = points[i + 1];
      const double width = static_cast<double>(std::max<int64_t>(stop - start, 1));
      value = where(count < stop, between(from, to, as_f32(count - start) / width), value);
    }
    return value;
  };
}

void check_onecycle(const char* name, int64_t transition_steps) {
  if (transition_steps <= 0)
    trace_error("[{}] expected a positive transition_steps, got {}", name, transition_steps);
}

int64_t part_of(double part, int64_t steps) {
  return static_cast<int64_t>(part * static_cast<double>(steps));
}

}  // namespace

Schedule constant_schedule(double value) {
  return [value](const Array&) { return Array(static_cast<float>(value)); };
}

Schedule linear_schedule(double init_value, double end_value, int64_t transition_steps,
                         int64_t transition_begin) {
  return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin);
}

Schedule polynomial_schedule(double init_value, double end_value, double power,
                             int64_t transition_steps, int64_t transition_begin) {
  if (transition_steps <= 0) return constant_schedule(init_value);
  return [=](const Array& count) {
    const Array over = progress(count, transition_begin, transition_steps);
    const Array left = 1.0 - over / static_cast<double>(transition_steps);
    return (power == 1 ? left : pow(left, power)) * (init_value - end_value) + end_value;
  };
}

Schedule piecewise_constant_schedule(double init_value,
                                     const std::map<int64_t, double>& boundaries_and_scales) {
  for (const auto& [boundary, scale] : boundaries_and_scales)
    if (!(scale >= 0))
      trace_error("[piecewise_constant_schedule] expected a scale of 0 or more at {}, got {}",
                  boundary, scale);
  return [=](const Array& count) {
    Array value = Array(static_cast<float>(init_value));
    for (const auto& [boundary, scale] : boundaries_and_scales)
      value = where(count < boundary, value, value * scale);
    return value;
  };
}

Schedule exponential_decay(double init_value, int64_t transition_steps, double decay_rate,
                           const ExponentialDecayOptions& options) {
  if (transition_steps <= 0 || decay_rate == 0) return constant_schedule(init_value);
  return [=](const Array& count) {
    const Array since = as_f32(count - std::max<int64_t>(options.transition_begin, 0));
    Array exponent = since / static_cast<double>(transition_steps);
    if (options.staircase) exponent = floor(exponent);
    const Array decayed = pow(Array(static_cast<float>(decay_rate)), exponent) * init_value;
    Array value = where(since <= 0, init_value, decayed);
    if (options.end_value)
      value = decay_rate < 1 ? maximum(value, *options.end_value)
                             : minimum(value, *options.end_value);
    return value;
  };
}

Schedule cosine_decay_schedule(double init_value, int64_t decay_steps, double alpha,
                               double exponent) {
  if (decay_steps <= 0)
    trace_error("[cosine_decay_schedule] expected a positive decay_steps, got {}", decay_steps);
  return [=](const Array& count) {
    const double steps = static_cast<double>(decay_steps);
    const Array part = minimum(as_f32(count), steps) * (std::numbers::pi / steps);
    const Array wave = (cos(part) + 1.0) * 0.5;
    return ((exponent == 1 ? wave : pow(wave, exponent)) * (1 - alpha) + alpha) * init_value;
  };
}

Schedule warmup_cosine_decay_schedule(double init_value, double peak_value, int64_t warmup_steps,
                                      int64_t decay_steps, double end_value, double exponent) {
  if (decay_steps <= warmup_steps)
    trace_error("[warmup_cosine_decay_schedule] expected decay_steps above warmup_steps {}, got {}",
                warmup_steps, decay_steps);
  const double alpha = peak_value == 0 ? 0 : end_value / peak_value;
  return join_schedules(
      {linear_schedule(init_value, peak_value, warmup_steps),
       cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)},
      {warmup_steps});
}

Schedule linear_onecycle_schedule(int64_t transition_steps, double peak_value,
                                  const OnecycleOptions& options) {
  check_onecycle("linear_onecycle_schedule", transition_steps);
  return interpolate(scaled(peak_value / options.div_factor,
                            {{part_of(options.pct_start, transition_steps), options.div_factor},
                             {part_of(options.pct_final, transition_steps), 1 / options.div_factor},
                             {transition_steps, 1 / options.final_div_factor}}),
                     [](double from, double to, const Array& part) {
                       return part * (to - from) + from;
                     });
}

Schedule cosine_onecycle_schedule(int64_t transition_steps, double peak_value,
                                  const OnecycleOptions& options) {
  check_onecycle("cosine_onecycle_schedule", transition_steps);
  return interpolate(
      scaled(peak_value / options.div_factor,
             {{part_of(options.pct_start, transition_steps), options.div_factor},
              {transition_steps, 1 / (options.div_factor * options.final_div_factor)}}),
      [](double from, double to, const Array& part) {
        return (cos(part * std::numbers::pi) + 1.0) * ((from - to) / 2) + to;
      });
}

Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries) {
  if (schedules.empty() || boundaries.size() + 1 != schedules.size())
    trace_error("[join_schedules] {} schedules need {} boundaries, got {}", schedules.size(),
                schedules.empty() ? 0 : schedules.size() - 1, boundaries.size());
  if (!std::is_sorted(boundaries.begin(), boundaries.end()))
    trace_error("[join_schedules] expected boundaries that rise, got {}",
                fmt::join(boundaries, ", "));
  return
      [schedules = std::move(schedules), boundaries = std::move(boundaries)](const Array& count) {
        Array value = schedules[0](count);
        for (size_t i = 0; i < boundaries.size(); ++i)
          value = where(count < boundaries[i], value, schedules[i + 1](count - boundaries[i]));
        return value;
      };
}

}  // namespace stow::optim
