#include "stowage/train/step.h"

#include <algorithm>

#include "stowage/api/grad.h"
#include "stowage/api/jit.h"
#include "stowage/api/memory.h"
#include "stowage/core/sums.h"
#include "stowage/train/optimizer.h"

namespace stow {

nn::DecoderConfig decoder_config(const TrainConfig& config) {
  nn::DecoderConfig c;
  const auto& m = config.model;
  c.vocab = m.vocab;
  c.dim = m.dim;
  c.layers = m.layers;
  c.heads = m.heads;
  c.kv_heads = m.kv_heads;
  c.ffn = m.ffn;
  c.tied = m.tied;
  c.compute = config.train.compute == "bf16" ? DType::kBF16 : DType::kF32;
  c.loss_chunk = config.train.loss_chunk;
  c.vocab_block = config.train.vocab_block;
  return c;
}

StepResult train_step(const TrainConfig& config, const nn::DecoderConfig& model_config,
                      const TrainState& state, const Array& tokens, MemoryKind gradients_lie) {
  const auto [loss, made] = value_and_grad(
      [&](const nn::Decoder& model) { return nn::decoder_loss(model_config, model, tokens); },
      {.on_device = true})(state.model);
  const nn::Decoder grads = device_put(made, gradients_lie);
  const Optimizer optimizer = optimizer_of(config.optimizer);
  // What lies elsewhere is moved for the update, and back; a pass makes tiles of that.
  const nn::Decoder model = device_put(state.model, MemoryKind::kDevice);
  const nn::Decoder gradients = device_put(grads, MemoryKind::kDevice);
  const optim::OptState before = device_put(state.optimizer, MemoryKind::kDevice);
  const auto [updates, next] = optimizer.transformation.update(gradients, before, model);
  return {put_like({optim::apply_updates(model, updates), next}, state),
          loss,
          optim::global_norm(optimizer.trained(gradients)),
          optimizer.learning_rate(before)};
}

Graph trace_step(const TrainConfig& config, const TrainState& state, StepForm form) {
  nn::DecoderConfig model_config = decoder_config(config);
  if (form.nested) model_config.nested_blocks = {0};
  if (form.chunked) model_config.ffn_chunk = kProductBlock;
  if (form.chunked_loss) model_config.loss_chunk = kProductBlock;
  return jit([&](const TrainState& s, const Array& x) {
           return train_step(config, model_config, s, x, form.gradients);
         })
      .lower(state, Array::abstract(Shape{config.data.batch, config.data.seq + 1}, DType::kI32))
      .graph();
}

TrainState put_like(const TrainState& state, const TrainState& like) {
  std::vector<Array> leaves = tree_leaves(state);
  const std::vector<Array> places = tree_leaves(like);
  for (size_t i = 0; i < leaves.size(); ++i)
    leaves[i] = device_put(leaves[i], places[i].type().kind);
  return tree_unflatten(state, leaves);
}

PolicyPtr named_policy(const std::string& name, MemoryKind elsewhere) {
  if (name == "save_all") return everything_saveable();
  if (name == "recompute" || name == "nested") return nothing_saveable();
  // What attention needs again, and the stream between attention and the wide layer behind it.
  const auto is_named = [](const PolicyQuery& q) {
    return q.op == OpKind::kAttention || q.name == "attn_q" || q.name == "attn_k" ||
           q.name == "attn_v" || q.name == "attn_residual";
  };
  Policy policy;
  policy.name = name;
  if (name == "save_dots" || name == "save_gate") {
    // save_gate lets go of one of the two wide products of a layer.
    policy.decide = [all = name == "save_dots"](const PolicyQuery& q) {
      const bool is_up =
          std::find(q.twins.begin(), q.twins.end(), "mlp_up") != q.twins.end() || q.name == "mlp_up";
      const bool is_product = q.op == OpKind::kDotGeneral || q.op == OpKind::kAttention;
      return PolicyAnswer{is_product && (all || !is_up) ? Mark::kKeep : Mark::kRecompute};
    };
  } else if (name == "save_named") {
    policy.decide = [=](const PolicyQuery& q) {
      return PolicyAnswer{is_named(q) ? Mark::kKeep : Mark::kRecompute};
    };
  } else {
    policy.name = fmt::format("{}({})", name, memory_kind_name(elsewhere));
    const bool nested = name == "offload_nested";
    STOW_CHECK(nested || name == "offload_all" || name == "offload_named" ||
                   name == "offload_carries",
               "policy {}", name);
    policy.decide = [=](const PolicyQuery& q) {
      const bool of_layer = q.name == "layer_in" || (name == "offload_named" && is_named(q)) ||
                            (name == "offload_all" && !q.name.empty());
      const bool moves = nested ? q.name == "block_in" : of_layer;
      return PolicyAnswer{moves ? Mark::kOffload : Mark::kRecompute, elsewhere};
    };
  }
  return std::make_shared<const Policy>(std::move(policy));
}

PolicyPtr step_policy_by_name(std::string_view name) {
  for (const std::string& word : memory_policies())
    for (const MemoryKind kind : {MemoryKind::kPinnedHost, MemoryKind::kDisk})
      if (word != "auto")
        if (PolicyPtr policy = named_policy(word, kind); policy->name == name) return policy;
  return nullptr;
}

}  // namespace stow
