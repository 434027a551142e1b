#include "stowage/optim/adamw.h"

#include <numbers>

#include "stowage/api/math.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"

namespace stow::optim {

Array global_norm(const std::vector<Array>& leaves) {
  Scope scope("global_norm");
  Array total;
  for (const Array& x : leaves) {
    const Array part = sum(square(x.astype(DType::kF32)));
    total = total.empty() ? part : total + part;
  }
  return total.empty() ? Array(0.0f) : sqrt(total);
}

std::vector<Array> clip_by_global_norm(const std::vector<Array>& leaves, const Array& norm,
                                       double max_norm) {
  Scope scope("clip");
  const Array scale = max_norm / maximum(norm, max_norm);
  std::vector<Array> clipped;
  for (const Array& x : leaves) clipped.push_back(x * scale.astype(x.dtype()));
  return clipped;
}

Array warmup_cosine(const Array& count, double peak, int64_t warmup, int64_t total, double end) {
  Scope scope("schedule");
  const Array step = count.astype(DType::kF32);
  const double w = static_cast<double>(warmup), span = std::max(1.0, static_cast<double>(total) - w);
  const Array fraction = clip((step - w) / span, 0.0, 1.0);
  const Array decayed = (cos(fraction * std::numbers::pi) + 1.0) * (0.5 * (peak - end)) + end;
  if (warmup <= 0) return decayed;
  return where(step < w, step * (peak / w), decayed);
}

AdamState adamw_init(const std::vector<std::string>& paths, const std::vector<Array>& params) {
  AdamState state;
  state.count = zeros({}, DType::kI32);
  for (size_t i = 0; i < params.size(); ++i) {
    state.mu[paths[i]] = zeros(params[i].shape(), params[i].dtype());
    state.nu[paths[i]] = zeros(params[i].shape(), params[i].dtype());
  }
  return state;
}

void adamw_update(const AdamWOptions& o, const Array& rate, const std::vector<std::string>& paths,
                  const std::vector<Array>& grads, std::vector<Array>& params, AdamState& state) {
  Scope scope("adamw");
  const Array count = state.count + 1;
  const Array t = count.astype(DType::kF32);
  const Array correct1 = 1.0 - pow(Array(o.beta1), t), correct2 = 1.0 - pow(Array(o.beta2), t);
  for (size_t i = 0; i < params.size(); ++i) {
    Scope leaf(paths[i]);
    Array &m = state.mu.at(paths[i]), &v = state.nu.at(paths[i]), &p = params[i];
    m = m * o.beta1 + grads[i] * (1.0 - o.beta1);
    v = v * o.beta2 + square(grads[i]) * (1.0 - o.beta2);
    const Array step = (m / correct1) / (sqrt(v / correct2) + o.eps);
    p = p - rate * (step + p * o.weight_decay);
  }
  state.count = count;
}

}  // namespace stow::optim
