#include "stowage/train/optimizer.h"

#include <algorithm>
#include <sstream>

namespace stow {
namespace {

using optim::GradientTransformation;

std::optional<double> positive(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

optim::Moments moments(const TrainConfig::Optimizer& o) {
  if (o.moments == "bf16") return optim::Moments::kBF16;
  return o.moments == "8bit" ? optim::Moments::k8Bit : optim::Moments::kFull;
}

GradientTransformation sgd(const TrainConfig::Optimizer& o, const optim::Schedule& rate,
                           const TrainModel& /*model*/) {
  return optim::sgd(rate, {.momentum = positive(o.momentum),
                           .nesterov = o.nesterov,
                           .moments = moments(o)});
}
GradientTransformation adam(const TrainConfig::Optimizer& o, const optim::Schedule& rate,
                            const TrainModel& /*model*/) {
  return optim::adam(rate, {.b1 = o.beta1,
                            .b2 = o.beta2,
                            .eps = o.eps,
                            .nesterov = o.nesterov,
                            .moments = moments(o)});
}
GradientTransformation adamw(const TrainConfig::Optimizer& o, const optim::Schedule& rate,
                             const TrainModel& /*model*/) {
  return optim::adamw(rate, {.b1 = o.beta1,
                             .b2 = o.beta2,
                             .eps = o.eps,
                             .weight_decay = o.weight_decay,
                             .nesterov = o.nesterov,
                             .moments = moments(o)});
}
GradientTransformation lion(const TrainConfig::Optimizer& o, const optim::Schedule& rate,
                            const TrainModel& /*model*/) {
  return optim::lion(rate, {.b1 = o.beta1,
                            .b2 = o.beta2,
                            .weight_decay = o.weight_decay,
                            .moments = moments(o)});
}
GradientTransformation rmsprop(const TrainConfig::Optimizer& o, const optim::Schedule& rate,
                               const TrainModel& /*model*/) {
  return optim::rmsprop(rate, {.decay = o.beta2,
                               .eps = o.eps,
                               .momentum = positive(o.momentum),
                               .nesterov = o.nesterov});
}
GradientTransformation adafactor(const TrainConfig::Optimizer& o, const optim::Schedule& rate,
                                 const TrainModel& /*model*/) {
  return optim::adafactor(rate, {.momentum = positive(o.momentum)});
}
GradientTransformation muon(const TrainConfig::Optimizer& o, const optim::Schedule& rate,
                            const TrainModel& model) {
  return optim::muon(rate, {.eps = o.eps,
                            .weight_decay = o.weight_decay,
                            .adam_b1 = o.beta1,
                            .adam_b2 = o.beta2,
                            .adam_weight_decay = o.weight_decay,
                            .matrices = model.muon_matrices(),
                            .consistent_rms = 0.2,
                            .moments = moments(o)});
}

struct Row {
  const char* name;
  GradientTransformation (*make)(const TrainConfig::Optimizer&, const optim::Schedule&,
                                 const TrainModel&);
};
constexpr Row kRows[] = {{"adamw", adamw},     {"adam", adam},           {"sgd", sgd},
                         {"lion", lion},       {"adafactor", adafactor}, {"rmsprop", rmsprop},
                         {"muon", muon}};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Row& row : kRows) all.push_back(row.name);
    return all;
  }();
  return names;
}

Optimizer optimizer_of(const TrainConfig::Optimizer& config, const TrainModel& model) {
  Optimizer result;
  const optim::Schedule rate =
      config.schedule == "constant"
          ? optim::linear_schedule(config.warmup > 0 ? 0 : config.lr, config.lr, config.warmup)
          : optim::warmup_cosine_decay_schedule(0, config.lr, config.warmup,
                                                std::max(config.total_steps, config.warmup + 1),
                                                0.1 * config.lr);
  result.schedule = [rate](const Array& count) { return rate(count + 1); };
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& r) { return config.name == r.name; });
  STOW_CHECK(row != std::end(kRows), "optimizer {}", config.name);
  GradientTransformation rule = row->make(config, result.schedule, model);
  if (config.clip > 0) rule = chain(optim::clip_by_global_norm(config.clip), rule);
  if (!config.freeze.empty()) {
    result.frozen = optim::Mask(split(config.freeze));
    rule = optim::selective_transform(rule, result.frozen);
  }
  result.transformation = rule;
  return result;
}

Array Optimizer::learning_rate(const optim::OptState& state) const {
  return schedule(state.at("schedule/count"));
}

}  // namespace stow
