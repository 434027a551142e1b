#include "stowage/train/placements.h"

#include <algorithm>
#include <tuple>

#include "stowage/base/error.h"
#include "stowage/core/sums.h"
#include "stowage/train/step.h"

namespace stow {

bool is_all_on_device(const Placement& p) {
  const auto is_there = [](MemoryKind kind) { return kind == MemoryKind::kDevice; };
  return !traits_of(p.policy).offloads && is_there(p.optimizer) && is_there(p.parameters) &&
         is_there(p.gradients) && is_there(p.frozen);
}

StepForm step_form(const Placement& p) {
  return {{traits_of(p.policy).nests, p.chunked, p.chunked_loss}, p.gradients};
}
std::string to_string(const Placement& p) {
  std::string text(policy_name(p.policy));
  if (traits_of(p.policy).offloads)
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

std::vector<StepPolicy> policies_on_device() {
  std::vector<StepPolicy> policies;
  for (const StepPolicyTraits& t : step_policies())
    if (!t.offloads) policies.push_back(t.policy);
  return policies;
}

namespace {

// True if chunks change results: bf16 gradients of weights, if there are any, are rounded once per
// chunk.
bool chunks_change_numbers(const TrainConfig& config, const ModelSizes& sizes) {
  return config.train.compute != "f32" && !sizes.chunks_keep_bf16;
}

}  // namespace

bool can_chunk_loss(const TrainConfig& config, const ModelSizes& sizes) {
  return !chunks_change_numbers(config, sizes) && config.has_chunks() &&
         !config.has_loss_in_parts();
}

std::vector<bool> chunked_forms(const TrainConfig& config, const ModelSizes& sizes,
                                StepPolicy policy) {
  const std::string& asked = config.memory.feed_forward;
  if (asked != "auto") return {asked == "chunked"};
  if (traits_of(policy).keeps_feed_forward || chunks_change_numbers(config, sizes) ||
      !config.has_chunks() || sizes.layers == 0 || sizes.ffn == 0)
    return {false};
  return {false, true};
}
namespace {

// True if the loss in chunks is worth trying. It is not if a token's logits are few compared with
// what the backward pass of a layer holds for it.
bool has_wide_loss(const TrainConfig& config, const ModelSizes& sizes, bool chunked) {
  return can_chunk_loss(config, sizes) && sizes.vocab > 0 &&
         (sizes.layers == 0 || sizes.vocab > (chunked ? sizes.width : sizes.ffn));
}
}  // namespace

// Chunks cost almost nothing. If anything is recomputed or offloaded, the loss of all tokens is
// therefore tried only if it may need less: if the tokens are little more than a chunk, or if they
// are few and the loop would hold a head from another memory beside the head's gradient.
std::vector<bool> chunked_loss_forms(const TrainConfig& config, const ModelSizes& sizes,
                                     const Placement& p) {
  const std::string& asked = config.memory.loss;
  if (asked != "auto") return {asked == "chunked"};
  if (!has_wide_loss(config, sizes, p.chunked)) return {false};
  const int64_t tokens = config.microbatch_tokens_per_device(), dim = sizes.width;
  const bool saves = (tokens - kProductBlock) * sizes.vocab > tokens * dim &&
                     (p.parameters == MemoryKind::kDevice || tokens - kProductBlock > dim);
  const bool keeps = p.policy == StepPolicy::kSaveAll && is_all_on_device(p);
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

std::vector<Placement> open_placements(const TrainConfig& config, const ModelSizes& sizes) {
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
  std::vector<StepPolicy> policies;
  if (const std::optional<StepPolicy> asked = parse_policy(m.policy)) {
    policies = {*asked};
  } else {
    for (const StepPolicyTraits& t : step_policies())
      if (sizes.layers > 0 || !t.offloads) policies.push_back(t.policy);
  }
  const std::vector<MemoryKind> frozen_places =
      sizes.frozen_bytes > 0 ? places(m.frozen, true) : std::vector{MemoryKind::kDevice};
  std::vector<Placement> placements;
  for (const StepPolicy policy : policies) {
    const bool moves = traits_of(policy).offloads;
    for (MemoryKind activations :
         moves ? places(m.activations, false) : std::vector{MemoryKind::kPinnedHost})
      for (MemoryKind parameters : places(m.parameters, true))
        for (MemoryKind optimizer : places(m.optimizer, true)) {
          // State that is read once per step leaves before state that every pass reads.
          if (m.parameters == "auto" && m.optimizer == "auto" && optimizer < parameters) continue;
          for (MemoryKind gradients : places(m.gradients, true)) {
            // Gradients without a requested place lie beside their parameters, or leave after the
            // state.
            if (m.gradients == "auto" && gradients != parameters &&
                (gradients < parameters || (m.optimizer == "auto" && optimizer < gradients)))
              continue;
            for (MemoryKind frozen : frozen_places) {
              // If frozen weights stay on the device, the much smaller trained state stays too.
              const bool small_state = m.parameters == "auto" && m.optimizer == "auto" &&
                                       sizes.frozen_bytes > 0 && frozen == MemoryKind::kDevice;
              if (small_state && optimizer != MemoryKind::kDevice) continue;
              for (const Placement& p : chunk_forms_of(
                       config, sizes,
                       {policy, activations, optimizer, parameters, gradients, frozen}))
                placements.push_back(p);
            }
          }
        }
  }
  const auto away = [](const Placement& p) {
    return std::tuple(p.parameters, p.frozen, p.gradients, p.optimizer);
  };
  std::stable_sort(placements.begin(), placements.end(),
                   [&](const Placement& a, const Placement& b) { return away(a) < away(b); });
  return placements;
}

}  // namespace stow
