#include "stowage/train/step.h"

#include "stowage/api/grad.h"
#include "stowage/train/optimizer.h"

namespace stow {

nn::LlamaConfig llama_config(const TrainConfig& config) {
  nn::LlamaConfig c;
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
  return c;
}

StepResult train_step(const TrainConfig& config, const nn::LlamaConfig& llama,
                      const TrainState& state, const Array& tokens) {
  const auto [loss, grads] = value_and_grad(
      [&](const nn::Llama& model) { return nn::llama_loss(llama, model, tokens); })(state.model);
  const Optimizer optimizer = optimizer_of(config.optimizer);
  const auto [updates, next] = optimizer.transformation.update(grads, state.optimizer, state.model);
  return {{optim::apply_updates(state.model, updates), next},
          loss,
          optim::global_norm(optimizer.trained(grads)),
          optimizer.learning_rate(state.optimizer)};
}

PolicyPtr named_policy(const std::string& name) {
  if (name == "save_all") return everything_saveable();
  if (name == "recompute" || name == "nested") return nothing_saveable();
  const auto is_product = [](OpKind op) {
    return op == OpKind::kDotGeneral || op == OpKind::kAttention;
  };
  Policy policy;
  policy.name = name;
  if (name == "save_dots") {
    policy.decide = [=](const PolicyQuery& q) {
      return PolicyAnswer{is_product(q.op) ? Mark::kKeep : Mark::kRecompute};
    };
  } else {
    STOW_CHECK(name == "save_named", "policy {}", name);
    // What attention needs again, and the stream between attention and the wide layer behind it.
    policy.decide = [](const PolicyQuery& q) {
      const bool keep = q.op == OpKind::kAttention || q.name == "attn_q" || q.name == "attn_k" ||
                        q.name == "attn_v" || q.name == "attn_residual";
      return PolicyAnswer{keep ? Mark::kKeep : Mark::kRecompute};
    };
  }
  return std::make_shared<const Policy>(std::move(policy));
}

}  // namespace stow
