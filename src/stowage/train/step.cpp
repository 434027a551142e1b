#include "stowage/train/step.h"

#include <algorithm>

#include "stowage/api/grad.h"
#include "stowage/api/jit.h"
#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/scan.h"
#include "stowage/api/shaping.h"
#include "stowage/optim/moments.h"
#include "stowage/train/optimizer.h"

namespace stow {

namespace {

Array as(const Array& a, DType dtype) {
  if (a.dtype() == dtype) return a;
  return a.is_abstract() ? Array::abstract(a.shape(), dtype) : a.astype(dtype);
}

DType wide_dtype(const Array& a) {
  return a.dtype() == DType::kBF16 ? DType::kF32 : a.dtype();
}

}  // namespace

NamedArrays in_dtype(const NamedArrays& arrays, DType dtype) {
  return tree_map([&](const Array& a) { return is_float(a.dtype()) ? as(a, dtype) : a; }, arrays);
}

NamedArrays widened(const NamedArrays& arrays) {
  return tree_map([](const Array& a) { return as(a, wide_dtype(a)); }, arrays);
}

NamedArrays in_dtypes_of(const NamedArrays& arrays, const NamedArrays& like) {
  return tree_map([](const Array& a, const Array& b) { return as(a, b.dtype()); }, arrays, like);
}

TrainState first_state(const TrainConfig& config, const TrainModel& model,
                       const NamedArrays& parameters) {
  TrainState state;
  state.model = parameters;
  const NamedArrays wide = widened(parameters);
  state.optimizer = optimizer_of(config.optimizer, model).transformation.init(wide);
  if (config.train.ema > 0) state.ema = wide;
  return state;
}

TrainState abstract_state(const TrainConfig& config, const TrainModel& model) {
  return first_state(config, model, model.parameters());
}

NamedArrays step_batch(const TrainConfig& config, const TrainModel& model, size_t shape) {
  const int64_t k = config.data.accumulate;
  if (k == 1) return model.batch(shape);
  return tree_map(
      [&](const Array& a) {
        Dims dims = a.shape().dims();
        dims.insert(dims.begin(), k);
        return Array::abstract(Shape(dims), a.dtype());
      },
      model.batch(shape));
}

namespace {

struct LossAndGradients {
  Array loss;
  NamedArrays gradients;
};
STOW_TREE(LossAndGradients, loss, gradients);

// A microbatch and its share of the loss.
struct Microbatch {
  NamedArrays arrays;
  Array share;
};
STOW_TREE(Microbatch, arrays, share);

// Returns the loss and the gradients of an update. The gradients lie in the memory of `form`.
LossAndGradients loss_and_gradients(const TrainConfig& config, const TrainModel& model,
                                    const TrainState& state, const NamedArrays& frozen,
                                    const NamedArrays& batch, const StepForm& form) {
  if (config.data.accumulate == 1) {
    const auto [loss, made] = value_and_grad(
        [&](const NamedArrays& p) { return model.loss({p, frozen}, batch, form.loss); },
        {.on_device = true})(state.model);
    return {loss, device_put(made, form.gradients)};
  }
  const int64_t k = config.data.accumulate;
  Array shares = model.shares(batch);
  if (shares.empty()) shares = full({k}, 1.0 / static_cast<double>(k));
  // Shares are applied last: within the loss, another form of it would round them differently.
  const auto add = [&](const LossAndGradients& sum, const Microbatch& one) {
    const auto [loss, made] = value_and_grad(
        [&](const NamedArrays& p) { return model.loss({p, frozen}, one.arrays, form.loss); },
        {.on_device = true})(state.model);
    const NamedArrays before = device_put(sum.gradients, MemoryKind::kDevice);
    NamedArrays after = widened(made);
    for (size_t i = 0; i < after.arrays.size(); ++i)
      after.arrays[i] = before.arrays[i] + after.arrays[i] * one.share;
    return std::pair(
        LossAndGradients{sum.loss + loss * one.share, device_put(after, form.gradients)}, None{});
  };
  const NamedArrays none = tree_map(
      [&](const Array& p) { return device_put(zeros(p.shape(), wide_dtype(p)), form.gradients); },
      state.model);
  return scan(add, LossAndGradients{zeros({}), none}, Microbatch{batch, shares}).first;
}

// Returns parameters in their stored dtypes. bf16 ones are rounded up or down at random such that
// the mean is exact, so updates far below a weight's last digit add up.
NamedArrays rounded(const NamedArrays& updated, const NamedArrays& held, const NamedArrays& updates,
                    const Array& count) {
  NamedArrays result = updated;
  for (size_t i = 0; i < held.arrays.size(); ++i) {
    if (held.arrays[i].dtype() != DType::kBF16) continue;
    if (updates.arrays[i].empty()) {  // the parameter is left alone
      result.arrays[i] = held.arrays[i];
      continue;
    }
    const Scope scope(held.names[i]);
    const Array salt = optim::rounding_salt(count, "params/" + held.names[i]);
    const Array& wide = updated.arrays[i];
    result.arrays[i] = optim::round_to_bf16(wide, optim::rounding_bits(salt, wide));
  }
  return result;
}

// Returns the average after an update: decay * before + (1 - decay) * the parameters. Empty if none
// is kept.
NamedArrays next_ema(const TrainConfig& config, const NamedArrays& before,
                     const NamedArrays& updated) {
  NamedArrays ema = device_put(before, MemoryKind::kDevice);
  for (size_t i = 0; i < ema.arrays.size(); ++i) {
    const Array& old = ema.arrays[i];
    ema.arrays[i] = old + (as(updated.arrays[i], old.dtype()) - old) * (1.0 - config.train.ema);
  }
  return ema;
}

}  // namespace

StepResult train_step(const TrainConfig& config, const TrainModel& model, const TrainState& state,
                      const NamedArrays& frozen, const NamedArrays& batch, const StepForm& form) {
  const auto [loss, grads] = loss_and_gradients(config, model, state, frozen, batch, form);
  const Optimizer optimizer = optimizer_of(config.optimizer, model);
  // State in other memories is moved for the update, and back; a pass turns that into tiles.
  const NamedArrays parameters = device_put(state.model, MemoryKind::kDevice);
  const NamedArrays gradients = widened(device_put(grads, MemoryKind::kDevice));
  const NamedArrays wide = widened(parameters);
  const optim::OptState before = device_put(state.optimizer, MemoryKind::kDevice);
  const auto [updates, next] = optimizer.transformation.update(gradients, before, wide);
  const NamedArrays updated = rounded(optim::apply_updates(wide, updates), parameters, updates,
                                      before.at("schedule/count"));
  return {put_like({updated, next, next_ema(config, state.ema, updated)}, state),
          loss,
          optim::global_norm(optimizer.trained(gradients)),
          optimizer.learning_rate(before)};
}

Graph trace_step(const TrainConfig& config, const TrainModel& model, const TrainState& state,
                 const NamedArrays& frozen, const StepForm& form, size_t shape) {
  return jit([&](const TrainState& s, const NamedArrays& weights, const NamedArrays& batch) {
           return train_step(config, model, s, weights, batch, form);
         })
      .lower(state, frozen, step_batch(config, model, shape))
      .graph();
}

TrainState put_like(const TrainState& state, const TrainState& like) {
  std::vector<Array> leaves = tree_leaves(state);
  const std::vector<Array> places = tree_leaves(like);
  for (size_t i = 0; i < leaves.size(); ++i)
    leaves[i] = device_put(leaves[i], places[i].type().kind);
  return tree_unflatten(state, leaves);
}

PolicyPtr named_policy(StepPolicy asked, MemoryKind elsewhere) {
  // True for values that attention needs again, and for the stream between attention and the wide
  // layer behind it.
  const auto is_named = [](const PolicyQuery& q) {
    return q.op == OpKind::kAttention || q.name == "attn_q" || q.name == "attn_k" ||
           q.name == "attn_v" || q.name == "attn_residual";
  };
  // save_gate recomputes one of the two wide products of a layer.
  const auto keeps_product = [](const PolicyQuery& q, bool all) {
    const auto is_named = [&](std::string_view name) {
      return q.name == name || std::find(q.twins.begin(), q.twins.end(), name) != q.twins.end();
    };
    const bool is_product = q.op == OpKind::kDotGeneral || q.op == OpKind::kAttention;
    // The result is as wide as its addend, and the product sums over few elements.
    const bool is_cheap = is_named("lora_delta");
    return is_product && !is_cheap && (all || !is_named("mlp_up"));
  };
  const auto keep = [&](auto keeps) {
    return Policy{std::string(policy_name(asked)), [=](const PolicyQuery& q) {
                    return PolicyAnswer{keeps(q) ? Mark::kKeep : Mark::kRecompute};
                  }};
  };
  const auto offload = [&](auto moves) {
    return Policy{fmt::format("{}({})", policy_name(asked), memory_kind_name(elsewhere)),
                  [=](const PolicyQuery& q) {
                    return PolicyAnswer{moves(q) ? Mark::kOffload : Mark::kRecompute, elsewhere};
                  }};
  };
  const auto made = [](Policy policy) { return std::make_shared<const Policy>(std::move(policy)); };
  switch (asked) {
    case StepPolicy::kSaveAll:
      return everything_saveable();
    case StepPolicy::kRecompute:
    case StepPolicy::kNested:
      return nothing_saveable();
    case StepPolicy::kSaveDots:
      return made(keep([=](const PolicyQuery& q) { return keeps_product(q, true); }));
    case StepPolicy::kSaveGate:
      return made(keep([=](const PolicyQuery& q) { return keeps_product(q, false); }));
    case StepPolicy::kSaveNamed:
      return made(keep(is_named));
    case StepPolicy::kOffloadNamed:
      return made(
          offload([=](const PolicyQuery& q) { return q.name == "layer_in" || is_named(q); }));
    case StepPolicy::kOffloadCarries:
      return made(offload([](const PolicyQuery& q) { return q.name == "layer_in"; }));
    case StepPolicy::kOffloadAll:
      return made(offload([](const PolicyQuery& q) { return !q.name.empty(); }));
    case StepPolicy::kOffloadNested:
      return made(offload([](const PolicyQuery& q) { return q.name == "block_in"; }));
  }
  return nullptr;
}

PolicyPtr step_policy_by_name(std::string_view name) {
  for (const StepPolicyTraits& t : step_policies())
    for (const MemoryKind kind : {MemoryKind::kPinnedHost, MemoryKind::kDisk})
      if (PolicyPtr policy = named_policy(t.policy, kind); policy->name == name) return policy;
  return nullptr;
}

}  // namespace stow
