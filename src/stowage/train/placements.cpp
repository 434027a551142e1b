#include "stowage/train/placements.h"

#include <algorithm>
#include <map>

#include "stowage/base/error.h"
#include "stowage/core/sums.h"
#include "stowage/train/step.h"

namespace stow {

bool offloads(const std::string& policy) { return policy.starts_with("offload_"); }
bool nests(const std::string& policy) { return policy == "nested" || policy == "offload_nested"; }

bool is_all_on_device(const Placement& p) {
  const auto is_there = [](MemoryKind kind) { return kind == MemoryKind::kDevice; };
  return !offloads(p.policy) && is_there(p.optimizer) && is_there(p.parameters) &&
         is_there(p.gradients) && is_there(p.frozen);
}

StepForm step_form(const Placement& p) {
  return {{nests(p.policy), p.chunked, p.chunked_loss}, p.gradients};
}
std::string to_string(const Placement& p) {
  std::string text = p.policy;
  if (offloads(p.policy))
    text += fmt::format(" to {}", memory_kind_name(p.activations));
  if (p.optimizer != MemoryKind::kDevice)
    text += fmt::format(", optimizer on {}", memory_kind_name(p.optimizer));
  if (p.parameters != MemoryKind::kDevice)
    text += fmt::format(", parameters on {}", memory_kind_name(p.parameters));
  if (p.gradients != p.parameters)
    text += fmt::format(", gradients on {}", memory_kind_name(p.gradients));
  if (p.frozen != MemoryKind::kDevice)
    text += fmt::format(", frozen weights on {}", memory_kind_name(p.frozen));
  if (p.chunked || p.chunked_loss)
    text += fmt::format(", {}{}{} chunked", p.chunked ? "feed-forward" : "",
                        p.chunked && p.chunked_loss ? " and " : "", p.chunked_loss ? "loss" : "");
  return text;
}

const std::vector<std::string>& policy_ladder() {
  static const std::vector<std::string> ladder = {"save_all", "save_dots", "save_gate",
                                                  "save_named", "recompute", "nested"};
  return ladder;
}

namespace {

// How much of a step's time a choice may cost, roughly: work done again, bytes moved. What is worth
// trying first; that it fits is planned.
double cost_of(const std::string& policy) {
  static const std::map<std::string, double> costs = {
      {"save_all", 0},      {"save_dots", 1}, {"save_gate", 1.2},     {"save_named", 2},
      {"offload_named", 3}, {"recompute", 4}, {"offload_carries", 5}, {"offload_all", 6},
      {"nested", 7},        {"offload_nested", 8}};
  return costs.at(policy);
}
double cost_of(MemoryKind kind, double moves) {
  return moves * (kind == MemoryKind::kDevice ? 0 : kind == MemoryKind::kPinnedHost ? 1.5 : 4);
}
double cost_of(const Placement& p) {
  const bool moves = offloads(p.policy);
  return cost_of(p.policy) + (moves && p.activations == MemoryKind::kDisk ? 3 : 0) +
         cost_of(p.optimizer, 1) + cost_of(p.parameters, 1.2) +
         (p.gradients == p.parameters ? 0 : cost_of(p.gradients, 0.6)) +
         cost_of(p.frozen, 1.1) + (p.chunked ? 0.3 : 0) +
         (p.chunked_loss ? 0.1 : 0);
}

}  // namespace

namespace {

// Chunks of bf16 round the gradients of the weights once a chunk, where these have gradients.
bool chunks_change_numbers(const TrainConfig& config, const ModelSizes& sizes) {
  return config.train.compute != "f32" && !sizes.chunks_keep_bf16;
}

}  // namespace

bool can_chunk_loss(const TrainConfig& config, const ModelSizes& sizes) {
  return !chunks_change_numbers(config, sizes) && config.has_chunks() && !config.has_loss_in_parts();
}

std::vector<bool> chunked_forms(const TrainConfig& config, const ModelSizes& sizes,
                                const std::string& policy) {
  const std::string& asked = config.memory.feed_forward;
  if (asked != "auto") return {asked == "chunked"};
  const bool keeps = policy == "save_all" || policy == "save_dots" || policy == "save_gate" ||
                     policy == "offload_all";
  if (keeps || chunks_change_numbers(config, sizes) || !config.has_chunks() || sizes.layers == 0 ||
      sizes.ffn == 0)
    return {false};
  return {false, true};
}
namespace {

// True if the loss in chunks is worth a try: not where a token's logits are few beside what the
// backward pass of a layer holds of it.
bool has_wide_loss(const TrainConfig& config, const ModelSizes& sizes, bool chunked) {
  return can_chunk_loss(config, sizes) && sizes.vocab > 0 &&
         (sizes.layers == 0 || sizes.vocab > (chunked ? sizes.width : sizes.ffn));
}
}  // namespace

// Chunks cost next to nothing, so where something
// is recomputed or sent away the loss of all tokens is not tried, unless it may need less: where
// they are little more than a chunk, or few and the head comes from elsewhere, which the loop holds
// to its end beside the head's gradient.
std::vector<bool> chunked_loss_forms(const TrainConfig& config, const ModelSizes& sizes,
                                     const Placement& p) {
  const std::string& asked = config.memory.loss;
  if (asked != "auto") return {asked == "chunked"};
  if (!has_wide_loss(config, sizes, p.chunked)) return {false};
  const int64_t tokens = config.tokens_a_step(), dim = sizes.width;
  const bool saves = (tokens - kProductBlock) * sizes.vocab > tokens * dim &&
                     (p.parameters == MemoryKind::kDevice || tokens - kProductBlock > dim);
  const bool keeps = p.policy == "save_all" && is_all_on_device(p);
  if (keeps || !saves || config.memory.policy != "auto") return {false, true};
  return {true};
}
std::vector<Placement> chunk_forms_of(const TrainConfig& config, const ModelSizes& sizes,
                                      Placement p) {
  std::vector<Placement> forms;
  for (const bool chunked : chunked_forms(config, sizes, p.policy)) {
    p.chunked = chunked;
    for (const bool chunked_loss : chunked_loss_forms(config, sizes, p)) {
      p.chunked_loss = chunked_loss;
      forms.push_back(p);
    }
  }
  return forms;
}

std::vector<Placement> placement_ladder(const TrainConfig& config, const ModelSizes& sizes) {
  const TrainConfig::Memory& m = config.memory;
  std::vector<MemoryKind> elsewhere;
  if (config.is_virtual()) elsewhere.push_back(MemoryKind::kPinnedHost);
  if (m.disk) elsewhere.push_back(MemoryKind::kDisk);
  const auto places = [&](const std::string& asked, bool device) {
    if (asked != "auto") return std::vector<MemoryKind>{*parse_memory_kind(asked)};
    std::vector<MemoryKind> kinds = elsewhere;
    if (device) kinds.insert(kinds.begin(), MemoryKind::kDevice);
    return kinds;
  };
  std::vector<std::string> policies = {m.policy};
  if (m.policy == "auto") {
    policies = policy_ladder();
    if (sizes.layers > 0)
      policies.insert(policies.end(),
                      {"offload_named", "offload_carries", "offload_all", "offload_nested"});
  }
  const std::vector<MemoryKind> frozen_places =
      sizes.frozen_bytes > 0 ? places(m.frozen, true) : std::vector{MemoryKind::kDevice};
  std::vector<Placement> ladder;
  for (const std::string& policy : policies) {
    const bool moves = offloads(policy);
    for (MemoryKind activations :
         moves ? places(m.activations, false) : std::vector{MemoryKind::kPinnedHost})
      for (MemoryKind parameters : places(m.parameters, true))
        for (MemoryKind optimizer : places(m.optimizer, true)) {
          // State that is read once a step leaves before what every pass reads.
          if (m.parameters == "auto" && m.optimizer == "auto" && optimizer < parameters) continue;
          for (MemoryKind gradients : places(m.gradients, true)) {
            // Gradients that nobody places lie beside their parameters, or leave after the state.
            if (m.gradients == "auto" && gradients != parameters &&
                (gradients < parameters || (m.optimizer == "auto" && optimizer < gradients)))
              continue;
            for (MemoryKind frozen : frozen_places) {
              // Frozen weights are most of what there is: the trained state follows them.
              const bool small_state = m.parameters == "auto" && m.optimizer == "auto" &&
                                       sizes.frozen_bytes > 0 && frozen == MemoryKind::kDevice;
              if (small_state && optimizer != MemoryKind::kDevice) continue;
              for (const Placement& p : chunk_forms_of(
                       config, sizes,
                       {policy, activations, optimizer, parameters, gradients, frozen}))
                ladder.push_back(p);
            }
          }
        }
  }
  std::stable_sort(ladder.begin(), ladder.end(), [](const Placement& a, const Placement& b) {
    return cost_of(a) < cost_of(b);
  });
  return ladder;
}

}  // namespace stow
