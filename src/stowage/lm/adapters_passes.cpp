#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "stowage/lm/adapters.h"
#include "stowage/lm/fit.h"

namespace stow::lm {
namespace {

template <typename T>
DeviceBufferPtr put(Device& device, std::span<const T> values) {
  DeviceBufferPtr buffer = device.allocate(static_cast<int64_t>(values.size_bytes()));
  if (!values.empty()) buffer->write(0, std::as_bytes(values));
  return buffer;
}

// Rows [begin, begin + n) of [B, width] values, and `fill` for those behind the last.
template <typename T>
std::vector<T> cut(const std::vector<T>& all, int64_t begin, int64_t n, int64_t width, T fill) {
  std::vector<T> rows(static_cast<size_t>(n * width), fill);
  const auto first = static_cast<size_t>(begin * width);
  const size_t count = std::min(rows.size(), all.size() - std::min(all.size(), first));
  std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), first)), count,
              rows.begin());
  return rows;
}

bool needs_reference(nn::TokenLoss kind) {
  return kind == nn::TokenLoss::kImportanceSampling || kind == nn::TokenLoss::kPpo ||
         kind == nn::TokenLoss::kCispo;
}

bool is_finite_positive(float x) {
  return std::isfinite(x) && x > 0;
}

}  // namespace

Result<void> Adapters::check(const AdapterBatch& batch) const {
  const int64_t b = batch.rows, t = batch.length;
  if (b < 1 || t < 1)
    return fail("rows, length: expected at least one row of one token, got {} and {}", b, t);
  if (b > std::numeric_limits<int32_t>::max() / t)
    return fail("rows, length: {} rows of {} are too many", b, t);
  const auto sized = [&](const char* name, size_t size, int64_t expected) -> Result<void> {
    if (static_cast<int64_t>(size) == expected) return {};
    return fail("{}: expected {} numbers for [{}, {}], got {}", name, expected, b, t, size);
  };
  const std::tuple<const char*, size_t, int64_t> sizes[] = {
      {"tokens", batch.tokens.size(), b * t},
      {"targets", batch.targets.size(), b * t},
      {"slot", batch.slot.size(), b}};
  for (const auto& [name, size, expected] : sizes)
    if (Result<void> good = sized(name, size, expected); !good) return good;
  const std::tuple<const char*, size_t, int64_t> optional[] = {
      {"weights", batch.weights.size(), b * t},
      {"loss", batch.loss.size(), b},
      {"reference", batch.reference.size(), b * t},
      {"advantages", batch.advantages.size(), b * t},
      {"positions", batch.positions.size(), b * t},
      {"lo", batch.lo.size(), b * t},
      {"hi", batch.hi.size(), b * t}};
  for (const auto& [name, size, expected] : optional)
    if (size > 0)
      if (Result<void> good = sized(name, size, expected); !good) return good;
  if (batch.positions.size() != batch.lo.size() || batch.lo.size() != batch.hi.size())
    return fail("positions, lo, hi: expected all of them or none");
  for (const std::vector<int32_t>* ids : {&batch.tokens, &batch.targets})
    for (size_t i = 0; i < ids->size(); ++i)
      if ((*ids)[i] < 0 || (*ids)[i] >= model_.decoder().vocab)
        return fail("{}: {} at row {}, place {} is outside of the vocabulary of {}",
                    ids == &batch.tokens ? "tokens" : "targets", (*ids)[i],
                    static_cast<int64_t>(i) / t, static_cast<int64_t>(i) % t,
                    model_.decoder().vocab);
  for (size_t i = 0; i < batch.lo.size(); ++i)
    if (batch.lo[i] < 0 || batch.hi[i] < 0 || batch.hi[i] > t || batch.positions[i] < 0)
      return fail("positions, lo, hi: row {}, place {} is outside of its row of {}",
                  static_cast<int64_t>(i) / t, static_cast<int64_t>(i) % t, t);
  for (const float w : batch.weights)
    if (!std::isfinite(w) || w < 0)
      return fail("weights: expected finite numbers of at least 0, got {}", w);
  // One that counts and is not finite would spoil the gradients of other rows' adapters.
  for (const std::vector<float>* values : {&batch.reference, &batch.advantages})
    for (size_t i = 0; i < values->size(); ++i)
      if (!std::isfinite((*values)[i]) && (batch.weights.empty() || batch.weights[i] != 0))
        return fail(
            "{}: expected finite numbers where the weight is not 0, got {} at row {}, place {}",
            values == &batch.reference ? "reference" : "advantages", (*values)[i],
            static_cast<int64_t>(i) / t, static_cast<int64_t>(i) % t);
  for (size_t i = 0; i < batch.slot.size(); ++i)
    if (batch.slot[i] != nn::kBaseSlot && !contains(batch.slot[i]))
      return fail("slot: row {}: there is no adapter in slot {}", i, batch.slot[i]);
  const int64_t at_a_time = options_.microbatch > 0 ? options_.microbatch : b;
  std::vector<int> named(batch.loss.size(), 0);
  for (size_t i = 0; i < batch.loss.size(); ++i) {
    const RowLoss& loss = batch.loss[i];
    if (loss.kind < nn::TokenLoss::kCrossEntropy || loss.kind > nn::TokenLoss::kDpo)
      return fail("loss: row {}: unknown kind {}", i, static_cast<int>(loss.kind));
    if (needs_reference(loss.kind) && (batch.reference.empty() || batch.advantages.empty()))
      return fail("reference, advantages: row {} has a loss that needs them", i);
    if (!is_finite_positive(loss.clip_low) || !is_finite_positive(loss.clip_high) ||
        loss.clip_low > loss.clip_high || !is_finite_positive(loss.beta))
      return fail(
          "loss: row {}: expected 0 < clip_low <= clip_high and beta > 0, got {}, {} and {}", i,
          loss.clip_low, loss.clip_high, loss.beta);
    if (loss.rejected < 0) continue;
    const auto j = static_cast<size_t>(loss.rejected);
    if (j >= batch.loss.size() || j == i || loss.kind != nn::TokenLoss::kDpo ||
        batch.loss[j].kind != nn::TokenLoss::kDpo || batch.loss[j].rejected >= 0 ||
        batch.slot[j] != batch.slot[i])
      return fail("loss: row {}: expected a rejected row of the same slot and kind, got {}", i,
                  loss.rejected);
    if (static_cast<int64_t>(i) / at_a_time != static_cast<int64_t>(j) / at_a_time)
      return fail("loss: rows {} and {} are a pair and not in one microbatch of {}", i, j,
                  at_a_time);
    ++named[j];
  }
  for (size_t i = 0; i < batch.loss.size(); ++i)
    if (batch.loss[i].kind == nn::TokenLoss::kDpo && batch.loss[i].rejected < 0 && named[i] != 1)
      return fail("loss: row {}: expected one chosen row that names it, got {}", i, named[i]);
  return {};
}

const ExecutablePtr& Adapters::pass(const PassShape& shape) {
  ExecutablePtr& program = passes_[shape];
  if (!program) program = compile_pass(model_, config_, shape, options_.chunk, options_.policy);
  return program;
}

const ExecutablePtr& Adapters::step_program() {
  if (!step_)
    step_ = compile_step(model_.decoder(), config_, model_.device()->threads(),
                         has_moments_off_device());
  return step_;
}

const MemoryAnalysis& Adapters::plan(const PassShape& shape) {
  return pass(shape)->memory_analysis();
}

const MemoryAnalysis& Adapters::step_plan() {
  return step_program()->memory_analysis();
}

BytesByKind Adapters::peak_bytes(const PassShape& shape) {
  const auto device = static_cast<size_t>(MemoryKind::kDevice);
  int64_t array_bytes = 0, scale_bytes = 0;
  for (const Leaf& leaf : leaves_) array_bytes += leaf.type.bytes();
  for (const DeviceBufferPtr& scale : scales_) scale_bytes += scale->bytes();
  const BytesByKind weights = weight_bytes(model_.config(), model_.options());
  BytesByKind peak{};
  for (size_t kind = 0; kind < peak.size(); ++kind) {
    // Beside a pass lie the moments, and where it makes no gradients their sums.
    const int64_t sums = kind == device && !shape.gradients ? array_bytes : 0;
    const int64_t moments = kind == static_cast<size_t>(options_.moments) ? 2 * array_bytes : 0;
    const int64_t beside = sums + moments;
    const int64_t beside_step = weights[kind] + (kind == device ? scale_bytes : 0) +
                                (has_moments_off_device() ? moments : 0);
    peak[kind] = std::max(plan(shape).kinds[kind].total_bytes + beside,
                          step_plan().kinds[kind].total_bytes + beside_step);
  }
  return peak;
}

void Adapters::prepare(const ExecutablePtr& program) {
  // The arena that the device keeps of another program would stand beside this one's.
  if (last_ != program.get()) model_.device()->drop_arenas();
  last_ = program.get();
}

Result<PassOutput> Adapters::forward_backward(const AdapterBatch& batch) {
  return run_passes(batch, true);
}

Result<PassOutput> Adapters::forward(const AdapterBatch& batch) {
  return run_passes(batch, false);
}

Result<PassOutput> Adapters::run_passes(const AdapterBatch& batch, bool gradients) {
  if (Result<void> good = check(batch); !good) return good.failure();
  const int64_t b = batch.rows, t = batch.length;
  const int64_t n = options_.microbatch > 0 ? std::min(options_.microbatch, b) : b;
  const auto row_loss = [&](int64_t row) {
    return row < static_cast<int64_t>(batch.loss.size()) ? batch.loss[static_cast<size_t>(row)]
                                                         : RowLoss{};
  };
  PassShape shape{n, t, !batch.lo.empty(), false, gradients};
  for (const RowLoss& loss : batch.loss) shape.has_pairs |= loss.kind == nn::TokenLoss::kDpo;
  const ExecutablePtr& program = pass(shape);
  prepare(program);
  Device& device = *model_.device();
  PassOutput output;
  for (int64_t begin = 0; begin < b; begin += n) {
    std::vector<DeviceBufferPtr> arguments = model_.arguments();
    const auto append = [&](const std::vector<DeviceBufferPtr>& more) {
      arguments.insert(arguments.end(), more.begin(), more.end());
    };
    append(groups_[kWeights]);
    append(scales_);
    if (gradients) append(groups_[kSums]);
    const auto push = [&](const auto& values) {
      arguments.push_back(put(device, std::span<const std::decay_t<decltype(values[0])>>(values)));
    };
    // Rows behind the last are the base's and count for nothing.
    push(cut(batch.tokens, begin, n, t, 0));
    push(cut(batch.targets, begin, n, t, 0));
    if (shape.has_intervals) {
      push(cut(batch.positions, begin, n, t, 0));
      push(cut(batch.lo, begin, n, t, 0));
      push(cut(batch.hi, begin, n, t, 0));
    }
    push(cut(batch.slot, begin, n, 1, nn::kBaseSlot));
    const std::vector<float> ones(batch.weights.empty() ? static_cast<size_t>(b * t) : 0, 1.0f);
    push(cut(batch.weights.empty() ? ones : batch.weights, begin, n, t, 0.0f));
    push(cut(batch.reference, begin, n, t, 0.0f));
    push(cut(batch.advantages, begin, n, t, 0.0f));
    std::vector<int32_t> kinds, rejected;
    std::vector<float> low, high, beta;
    for (int64_t row = begin; row < begin + n; ++row) {
      const RowLoss loss = row_loss(row);
      kinds.push_back(static_cast<int32_t>(loss.kind));
      low.push_back(loss.clip_low);
      high.push_back(loss.clip_high);
      beta.push_back(loss.beta);
      rejected.push_back(loss.rejected < 0 ? -1 : loss.rejected - static_cast<int32_t>(begin));
    }
    push(kinds);
    push(low);
    push(high);
    push(beta);
    push(rejected);
    std::vector<DeviceBufferPtr> results = program->run(device, arguments);
    size_t next = 0;
    if (gradients)
      for (DeviceBufferPtr& sum : groups_[kSums]) sum = results[next++];
    const int64_t here = std::min(n, b - begin);
    const auto take = [&](std::vector<float>& to, int64_t width) {
      const std::vector<float> values = read_floats(*results[next++]);
      to.insert(to.end(), values.begin(), values.begin() + here * width);
    };
    take(output.logprobs, t);
    take(output.tokens, t);
    take(output.rows, 1);
    for (int64_t row = begin; row < begin + here && gradients; ++row)
      if (!std::isfinite(output.rows[static_cast<size_t>(row)]))
        slots_[static_cast<size_t>(batch.slot[static_cast<size_t>(row)])].has_nonfinite_loss = true;
    for (int64_t row = begin; row < begin + here && gradients; ++row) {
      const RowLoss loss = row_loss(row);
      if (loss.kind == nn::TokenLoss::kDpo && loss.rejected < 0) continue;
      if (const int32_t slot = batch.slot[static_cast<size_t>(row)]; slot != nn::kBaseSlot)
        ++slots_[static_cast<size_t>(slot)].examples;
    }
  }
  return output;
}

Result<AdapterStep> Adapters::step(int slot, const AdamWOptions& o) {
  if (Result<void> good = check_slot(slot); !good) return good.failure();
  const auto in_range = [](double x, double low, double high) { return x >= low && x < high; };
  if (!std::isfinite(o.lr) || o.lr < 0)
    return fail("lr: expected a number of 0 or more, got {}", o.lr);
  if (!in_range(o.beta1, 0, 1) || !in_range(o.beta2, 0, 1))
    return fail("beta1, beta2: expected numbers from 0 to below 1, got {} and {}", o.beta1,
                o.beta2);
  if (!std::isfinite(o.eps) || static_cast<float>(o.eps) <= 0)
    return fail("eps: expected a positive number, got {}", o.eps);
  if (!std::isfinite(o.weight_decay) || o.weight_decay < 0)
    return fail("weight_decay: expected a number of 0 or more, got {}", o.weight_decay);
  Slot& own = slots_[static_cast<size_t>(slot)];
  AdapterStep made{0, o.lr, own.examples};
  if (own.examples == 0) return made;
  const auto drop = [&](std::string_view why) {
    own.examples = 0;
    own.has_nonfinite_loss = false;
    return fail("slot {}: {}: the adapter is as it was, and its gradients are zero again", slot,
                why);
  };
  if (own.has_nonfinite_loss) {
    clear(kSums, slot);
    return drop("a row of it had a loss that is not finite");
  }
  const auto t = static_cast<double>(own.steps + 1);
  float numbers[kNumStepNumbers];
  const auto set = [&](StepNumber i, double x) { numbers[i] = static_cast<float>(x); };
  set(kMeanFactor, 1.0 / static_cast<double>(own.examples));
  set(kLearningRate, o.lr);
  set(kBeta1, o.beta1);
  set(kOneMinusBeta1, 1 - o.beta1);
  set(kBeta2, o.beta2);
  set(kOneMinusBeta2, 1 - o.beta2);
  set(kCorrection1, 1 / (1 - std::pow(o.beta1, t)));
  set(kCorrection2, 1 / (1 - std::pow(o.beta2, t)));
  set(kEpsilon, o.eps);
  set(kWeightDecay, o.weight_decay);
  const int32_t place = slot - 1;
  const ExecutablePtr& program = step_program();
  prepare(program);
  Device& device = *model_.device();
  std::vector<DeviceBufferPtr> arguments;
  for (const Group group : {kWeights, kSums, kMu, kNu})
    for (size_t i = 0; i < leaves_.size(); ++i)
      arguments.push_back(group >= kMu && has_moments_off_device()
                              ? put(device, std::span<const float>(read_part(group, i, slot)))
                              : groups_[group][i]);
  arguments.push_back(put(device, std::span(&place, 1)));
  arguments.push_back(put(device, std::span<const float>(numbers)));
  const std::vector<DeviceBufferPtr> results = program->run(device, arguments);
  size_t next = 0;
  for (const Group group : {kWeights, kSums, kMu, kNu})
    for (size_t i = 0; i < leaves_.size(); ++i, ++next)
      if (group >= kMu && has_moments_off_device())
        write_part(group, i, slot, read_floats(*results[next]));
      else
        groups_[group][i] = results[next];
  made.grad_norm = read_floats(*results[next])[0];
  if (!std::isfinite(made.grad_norm)) return drop("the norm of its gradient is not finite");
  own.examples = 0;
  ++own.steps;
  return made;
}

}  // namespace stow::lm
