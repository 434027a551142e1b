#include "stowage/lm/adapters_programs.h"

#include "stowage/api/grad.h"
#include "stowage/api/jit.h"
#include "stowage/api/math.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"
#include "stowage/nn/lora_slots.h"

namespace stow::lm {
namespace {

// Marks the leaves of the arguments before and after as kept, those between as donated.
std::vector<bool> donated_between(size_t before, size_t donated, size_t after) {
  std::vector<bool> marks(before, false);
  marks.insert(marks.end(), donated, true);
  marks.insert(marks.end(), after, false);
  return marks;
}

struct PassValues {
  Array logprobs;
  nn::RowLosses losses;
};
STOW_TREE(PassValues, logprobs, losses);

PassResult run_pass(const nn::DecoderConfig& config, const PassShape& shape, int64_t chunk,
                    const PolicyPtr& policy, const nn::Decoder& weights, const nn::LoraSlots& slots,
                    const nn::SlotScales& scales, const std::optional<nn::LoraSlots>& sums,
                    const PassBatch& batch) {
  nn::ForwardOptions options;
  options.policy = policy;
  options.positions = batch.positions;
  options.lo = batch.lo;
  options.hi = batch.hi;
  const auto logprobs_of = [&](const nn::ForwardOptions& with) {
    const Array hidden = nn::forward_layers(config, weights, batch.tokens, with).hidden;
    return nn::decoder_log_probs(config, weights, hidden, batch.targets, chunk, with);
  };
  nn::LossBatch loss = batch.loss;
  if (shape.has_pairs) {
    const Scope scope("reference");
    const Array is_pair =
        (loss.kind == static_cast<int32_t>(nn::TokenLoss::kDpo)).reshape({shape.rows, 1});
    loss.reference = where(is_pair, logprobs_of(options), loss.reference);
  }
  const auto values_of = [&](const nn::LoraSlots& s) {
    nn::ForwardOptions with = options;
    with.slots = nn::SlotRows{s, scales, batch.slot_of_row};
    const Array logprobs = logprobs_of(with);
    const PassValues values{logprobs, nn::row_losses(logprobs, loss)};
    return std::pair(sum(values.losses.rows), values);
  };
  if (!sums) {
    const PassValues values = values_of(slots).second;
    return {{}, values.logprobs, values.losses};
  }
  const auto [result, gradients] = value_and_grad_aux(values_of)(slots);
  const nn::LoraSlots added =
      tree_map([](const Array& sum, const Array& g) { return sum + g; }, *sums, gradients);
  return {added, result.second.logprobs, result.second.losses};
}

struct StepResult {
  SlotsState state;
  Array norm;
};
STOW_TREE(StepResult, state, norm);

// One adapter's part of every array.
struct Part {
  std::vector<Array> starts;
  Dims sizes;
  Array of(const Array& x) const { return dynamic_slice(x, starts, sizes); }
  Array into(const Array& x, const Array& part) const {
    return dynamic_update_slice(x, part, starts);
  }
};

StepResult run_step(const SlotsState& state, const Array& place, const Array& numbers,
                    bool has_single_slot_moments) {
  const auto number = [&](StepNumber i) { return numbers.slice(0, i, i + 1).reshape({}); };
  const std::vector<std::string> paths = tree_paths(state.weights);
  std::vector<Array> weights = tree_leaves(state.weights), sums = tree_leaves(state.sums),
                     mu = tree_leaves(state.mu), nu = tree_leaves(state.nu);
  const auto part_of = [&](size_t i) {
    const auto axis = static_cast<size_t>(nn::slot_axis(paths[i]));
    Part part{std::vector<Array>(static_cast<size_t>(weights[i].rank()), full({}, 0, DType::kI32)),
              weights[i].shape().dims()};
    part.starts[axis] = place;
    part.sizes[axis] = 1;
    return part;
  };
  const auto gradient = [&](size_t i) { return part_of(i).of(sums[i]) * number(kMeanFactor); };
  Array squares = 0.0f;
  for (size_t i = 0; i < paths.size(); ++i) {
    const Scope scope(paths[i]);
    squares = squares + sum(square(gradient(i)));
  }
  // A gradient that is not finite never becomes a weight: products over all adapters would spread
  // it to the others.
  const Array is_finite = isfinite(squares);
  for (size_t i = 0; i < paths.size(); ++i) {
    const Scope scope(paths[i]);
    const Part part = part_of(i);
    const Array g = gradient(i);
    const Array p = part.of(weights[i]);
    const Array old_m = has_single_slot_moments ? mu[i] : part.of(mu[i]);
    const Array old_v = has_single_slot_moments ? nu[i] : part.of(nu[i]);
    const Array m = old_m * number(kBeta1) + g * number(kOneMinusBeta1);
    const Array v = old_v * number(kBeta2) + square(g) * number(kOneMinusBeta2);
    const Array direction =
        m * number(kCorrection1) / (sqrt(v * number(kCorrection2)) + number(kEpsilon));
    const Array next = p - number(kLearningRate) * (direction + number(kWeightDecay) * p);
    weights[i] = part.into(weights[i], where(logical_and(is_finite, isfinite(next)), next, p));
    const Array next_m = where(is_finite, m, old_m), next_v = where(is_finite, v, old_v);
    mu[i] = has_single_slot_moments ? next_m : part.into(mu[i], next_m);
    nu[i] = has_single_slot_moments ? next_v : part.into(nu[i], next_v);
    sums[i] = part.into(sums[i], zeros_like(g));
  }
  const auto tree = [&](const std::vector<Array>& leaves) {
    return tree_unflatten(state.weights, leaves);
  };
  return {{tree(weights), tree(sums), tree(mu), tree(nu)}, sqrt(squares)};
}

}  // namespace

PassBatch abstract_pass_batch(const PassShape& shape) {
  const auto of = [](Shape dims, DType dtype) { return Array::abstract(std::move(dims), dtype); };
  const int64_t b = shape.rows, t = shape.length;
  const Array ids = of({b, t}, DType::kI32), floats = of({b, t}, DType::kF32);
  const Array row_ids = of({b}, DType::kI32), row_floats = of({b}, DType::kF32);
  PassBatch batch{ids, ids, {}, {}, {}, row_ids,
                  {floats, floats, floats, row_ids, row_floats, row_floats, row_floats, row_ids}};
  if (shape.has_intervals) batch.positions = batch.lo = batch.hi = ids;
  return batch;
}

ExecutablePtr compile_pass(const Model& model, const nn::LoraSlotsConfig& slots,
                           const PassShape& shape, int64_t chunk, const PolicyPtr& policy) {
  const nn::DecoderConfig& config = model.decoder();
  const nn::Decoder weights = abstract_weights(model.config(), model.options());
  const nn::LoraSlots factors = nn::lora_slots_abstract(config, slots);
  const nn::SlotScales scales = nn::slot_scales_abstract(config, slots);
  const std::optional<nn::LoraSlots> sums = shape.gradients ? std::optional(factors) : std::nullopt;
  const PassBatch batch = abstract_pass_batch(shape);
  CompileOptions options;
  const size_t before =
      tree_leaves(weights).size() + tree_leaves(factors).size() + tree_leaves(scales).size();
  options.donated = donated_between(before, tree_leaves(sums).size(), tree_leaves(batch).size());
  options.dump_name = "adapters_pass";
  const ir::Graph graph =
      jit([&](const nn::Decoder& w, const nn::LoraSlots& f, const nn::SlotScales& s,
              const std::optional<nn::LoraSlots>& g, const PassBatch& b) {
        return run_pass(config, shape, chunk, policy, w, f, s, g, b);
      })
          .lower(weights, factors, scales, sums, batch)
          .graph();
  return compile(graph, options, model.device()->threads());
}

ExecutablePtr compile_step(const nn::DecoderConfig& config, const nn::LoraSlotsConfig& slots,
                           int threads, bool has_single_slot_moments) {
  const nn::LoraSlots factors = nn::lora_slots_abstract(config, slots);
  nn::LoraSlotsConfig one = slots;
  if (has_single_slot_moments) one.adapters = 1;
  const nn::LoraSlots moments = nn::lora_slots_abstract(config, one);
  const SlotsState state{factors, factors, moments, moments};
  CompileOptions options;
  options.donated = donated_between(0, tree_leaves(state).size(), 2);
  options.dump_name = "adapters_step";
  const ir::Graph graph =
      jit([has_single_slot_moments](const SlotsState& s, const Array& place, const Array& numbers) {
        return run_step(s, place, numbers, has_single_slot_moments);
      })
          .lower(state, Array::abstract(Shape{}, DType::kI32),
                 Array::abstract({static_cast<int64_t>(kNumStepNumbers)}, DType::kF32))
          .graph();
  return compile(graph, options, threads);
}

}  // namespace stow::lm
