#include "stowage/train/step_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"
#include "stowage/io/safetensors.h"
#include "stowage/session/buffer_file.h"
#include "stowage/train/optimizer.h"
#include "stowage/train/step.h"

namespace stow {
namespace {

// Reads a tensor into a new buffer. It must have this type, and its floats must be finite.
Result<DeviceBufferPtr> read_tensor(const SafetensorsFile& file, const std::string& name,
                                    const ArrayType& type, Device& device) {
  const TensorInfo* tensor = file.find(name);
  if (!tensor)
    return fail("{}: no tensor '{}', which the model has as {}", file.path(), name,
                to_string(type));
  if (tensor->dtype != type.dtype || tensor->shape != type.shape.dims())
    return fail("{}: '{}' is {}, the model has {}", file.path(), name,
                tensor_type(tensor->dtype, tensor->shape), to_string(type));
  DeviceBufferPtr buffer = device.allocate(type.bytes(), type.kind);
  const auto read = [&](int64_t offset, std::span<std::byte> out) -> Result<void> {
    Result<void> done = file.read_part(*tensor, offset, out);
    if (!done || type.dtype != DType::kF32) return done;
    const std::span values(reinterpret_cast<const float*>(out.data()), out.size() / sizeof(float));
    const auto bad =
        std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    if (bad == values.end()) return {};
    return fail("{}: '{}' has {} at {}; weights must be finite", file.path(), name, *bad,
                offset / static_cast<int64_t>(sizeof(float)) + (bad - values.begin()));
  };
  if (Result<void> filled = fill(*buffer, read); !filled) return filled.failure();
  return buffer;
}

std::vector<ArrayType> types_of(const NamedArrays& arrays) {
  std::vector<ArrayType> types;
  for (const Array& a : arrays.arrays) types.push_back(a.type());
  return types;
}

}  // namespace

Result<StepRun> StepRun::make(const StepRunOptions& options) {
  if (options.config.is_virtual() || options.config.memory.disk)
    return fail("{} has no effect: everything lies in this machine's memory; leave it out",
                options.config.is_virtual() ? "runtime.platform = virtual" : "memory.disk");
  if (options.config.mesh.size() > 1)
    return fail("mesh.* has no effect: steps are run on one device; leave it out");
  StepRun run;
  run.model_ = options.factory(options.config);
  run.compile_step(options);
  run.device_ = Device::cpu_with_capacity(options.budget_bytes, options.threads);
  Result<std::unique_ptr<ModelWeights>> weights = run.model_->open_weights();
  if (!weights) return weights.failure();
  run.weights_ = std::move(*weights);
  if (Result<void> made = run.make_frozen(*run.model_); !made) return made.failure();
  if (Result<void> made = run.make_batch(options); !made) return made.failure();
  if (Result<void> made = run.make_state(options); !made) return made.failure();
  run.weights_ = nullptr;
  run.device_->drop_arenas();
  run.device_->reset_high_water();
  return run;
}

void StepRun::compile_step(const StepRunOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const TrainConfig& config = options.config;
  const TrainModelPtr& model = model_;
  const TrainState state = abstract_state(config, *model);
  std::map<StepForm, Graph> graphs;
  int64_t least = 0;
  for (const Placement& placement : open_placements(config, model->sizes())) {
    if (!is_all_on_device(placement)) continue;
    const StepForm form = step_form(placement);
    if (!graphs.contains(form))
      graphs.emplace(form, trace_step(config, *model, state, model->frozen(), form));
    CompileOptions compile_options;
    compile_options.donated.assign(tree_leaves(state).size(), true);
    compile_options.override_policy = named_policy(placement.policy);
    compile_options.dump_name = fmt::format("step-{}", policy_name(placement.policy));
    const auto peak_of = [&] { return program_->memory_analysis().device().total_bytes; };
    program_ = compile(graphs.at(form), compile_options, options.threads);
    if (peak_of() > options.budget_bytes) {  // the budget counts only where it is not met otherwise
      compile_options.capacities[0] = options.budget_bytes;
      program_ = compile(graphs.at(form), compile_options, options.threads);
    }
    placement_ = placement;
    const int64_t peak = peak_of();
    if (peak <= options.budget_bytes) {
      compile_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      return;
    }
    least = least == 0 ? peak : std::min(least, peak);
  }
  throw CapacityError(
      fmt::format("the least plan of the step needs {} ({} bytes), {} more than the budget of {}",
                  format_bytes(least), least, format_bytes(least - options.budget_bytes),
                  format_bytes(options.budget_bytes)));
}

Result<void> StepRun::make_state(const StepRunOptions& options) {
  const TrainModelPtr& model = model_;
  const NamedArrays types = model->parameters();
  if (options.weights_path.empty() && model->reads_parameters()) {
    const auto read = [&](size_t i, DeviceBuffer& b) {
      return weights_->read_parameter(i, whole_slice(types.arrays[i].shape().dims()), b);
    };
    Result<std::vector<DeviceBufferPtr>> parameters = read_arrays(*device_, types_of(types), read);
    if (!parameters) return parameters.failure();
    state_ = std::move(*parameters);
  } else if (options.weights_path.empty()) {
    const Graph graph = jit([&](const Array& key) {
                          return in_dtypes_of(model->init(key), types);
                        })
                            .lower(Array::abstract(Shape{2}, DType::kU32))
                            .graph();
    DeviceBufferPtr key = device_->allocate(8);
    const uint32_t words[2] = {0, static_cast<uint32_t>(options.config.train.seed)};
    key->write(0, std::as_bytes(std::span(words)));
    state_ = compile(graph, {}, options.threads)->run(*device_, std::array{key});
  } else {
    const Result<SafetensorsFile> file = SafetensorsFile::open(options.weights_path);
    if (!file) return file.failure();
    const std::vector<Array>& leaves = types.arrays;
    const std::vector<std::string>& names = types.names;
    for (size_t i = 0; i < leaves.size(); ++i) {
      Result<DeviceBufferPtr> buffer = read_tensor(*file, names[i], leaves[i].type(), *device_);
      if (!buffer) return buffer.failure();
      state_.push_back(std::move(*buffer));
    }
    if (file->tensors().size() != leaves.size())
      for (const TensorInfo& tensor : file->tensors())
        if (std::find(names.begin(), names.end(), tensor.name) == names.end())
          return fail("{}: the model has no '{}'", file->path(), tensor.name);
  }
  const Graph graph = jit([&](const NamedArrays& p) {
                        const TrainState first = first_state(options.config, *model, p);
                        return RestOfState{first.optimizer, first.ema};
                      })
                          .lower(types)
                          .graph();
  for (DeviceBufferPtr& buffer : compile(graph, {}, options.threads)->run(*device_, state_))
    state_.push_back(std::move(buffer));
  return {};
}

Result<void> StepRun::make_frozen(const TrainModel& model) {
  const std::vector<ArrayType> types = types_of(model.frozen());
  const auto read = [&](size_t i, DeviceBuffer& b) {
    return weights_->read_frozen(i, whole_slice(types[i].shape.dims()), b);
  };
  Result<std::vector<DeviceBufferPtr>> frozen = read_arrays(*device_, types, read);
  if (!frozen) return frozen.failure();
  rest_ = std::move(*frozen);
  return {};
}

Result<void> StepRun::make_batch(const StepRunOptions& options) {
  if (!options.tokens_path.empty()) return read_tokens(options);
  const auto seed = static_cast<uint64_t>(options.config.train.seed);
  if (const std::optional<HostBatch> batch = model_->random_batch(seed)) {
    upload(*batch);
    return {};
  }
  const Result<std::unique_ptr<TrainData>> data = model_->open_data();
  if (!data) return data.failure();
  // The largest shape is the compiled one.
  constexpr int64_t kMostTries = 1000;
  for (int64_t step = 0; step < kMostTries; ++step) {
    const HostBatch batch = (*data)->train_batch(seed, step);
    if (batch.shape != 0) continue;
    upload(batch);
    return {};
  }
  return fail("{}: no batch of {} tokens among the first {}", options.config.data.path,
              options.config.data.seq, kMostTries);
}

void StepRun::upload(const HostBatch& batch) {
  for (const std::vector<std::byte>& bytes : batch.arrays) {
    rest_.push_back(device_->allocate(static_cast<int64_t>(bytes.size())));
    rest_.back()->write(0, bytes);
  }
}

Result<void> StepRun::read_tokens(const StepRunOptions& options) {
  const NamedArrays batch = step_batch(options.config, *model_);
  if (batch.names != std::vector<std::string>{"tokens"} ||
      batch.arrays[0].dtype() != DType::kI32) {
    std::string arrays;
    for (size_t i = 0; i < batch.names.size(); ++i)
      arrays += fmt::format("{}'{}' {}", i == 0 ? "" : ", ", batch.names[i],
                            to_string(batch.arrays[i].type()));
    return fail("{}: expected a model whose batch is 'tokens' i32 alone, got {}",
                options.tokens_path, arrays);
  }
  const ArrayType type = batch.arrays[0].type();
  const Result<SafetensorsFile> file = SafetensorsFile::open(options.tokens_path);
  if (!file) return file.failure();
  Result<DeviceBufferPtr> buffer = read_tensor(*file, "tokens", type, *device_);
  if (!buffer) return buffer.failure();
  std::vector<int32_t> tokens(static_cast<size_t>(type.elems()));
  (*buffer)->read(0, std::as_writable_bytes(std::span(tokens)));
  const int64_t vocab = model_->sizes().vocab;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || (vocab > 0 && tokens[i] >= vocab))
      return fail("{}: 'tokens' has {} at {}, outside the vocabulary of {}", options.tokens_path,
                  tokens[i], i, vocab);
  rest_.push_back(std::move(*buffer));
  return {};
}

float StepRun::step(RunObserver* observer) {
  std::vector<DeviceBufferPtr> arguments = std::move(state_);
  const size_t n = arguments.size();
  arguments.insert(arguments.end(), rest_.begin(), rest_.end());
  std::vector<DeviceBufferPtr> results = program_->run(*device_, arguments, observer);
  float loss;
  results[n]->read(0, std::as_writable_bytes(std::span(&loss, 1)));
  results.resize(n);
  state_ = std::move(results);
  return loss;
}

int64_t StepRun::measured_peak_bytes() const {
  return device_->high_water_bytes(MemoryKind::kDevice);
}

}  // namespace stow
