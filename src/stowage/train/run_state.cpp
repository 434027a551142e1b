#include "stowage/train/run_state.h"

#include <cstring>

#include "stowage/base/error.h"
#include "stowage/io/tensor_slice.h"
#include "stowage/train/mesh_checkpoint.h"

namespace stow {

RunState::RunState(const Job& job, const JobPlan& plan, Positions& positions,
                   std::string data_digest)
    : job_(job), plan_(plan), positions_(positions), data_digest_(std::move(data_digest)) {}

Result<void> RunState::make() {
  const TrainConfig& config = job_.config();
  if (!job_.model().reads_parameters()) {
    const uint64_t seed = static_cast<uint64_t>(config.train.seed);
    const uint32_t words[2] = {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
    PositionBuffers keys(positions_.size());
    for (size_t p = 0; p < positions_.size(); ++p) {
      keys[p].push_back(positions_.device(p).allocate(8));
      keys[p][0]->write(0, std::as_bytes(std::span(words)));
    }
    state_ = positions_.run(plan_.programs.init, keys);
    return {};
  }
  if (Result<void> opened = open_weights(); !opened) return opened;
  const auto read = [&](size_t i, const TensorSlice& slice, DeviceBuffer& buffer) {
    return weights_->read_parameter(i, slice, buffer);
  };
  Result<PositionBuffers> parameters =
      read_parts(std::span(job_.state()).first(job_.n_model_leaves()),
                 step_inputs().first(job_.n_model_leaves()), positions_, read);
  if (!parameters) return parameters.failure();
  state_ = std::move(*parameters);
  PositionBuffers rest = positions_.run(plan_.programs.init, state_);
  for (size_t p = 0; p < state_.size(); ++p)
    for (DeviceBufferPtr& buffer : rest[p]) state_[p].push_back(std::move(buffer));
  return {};
}

// Returns a position's part of an array, on its device.
DeviceBufferPtr RunState::upload_part(std::span<const std::byte> whole, const ArrayType& type,
                                      const AxisSharding& sharding, size_t p) {
  const auto upload = [&](std::span<const std::byte> bytes) {
    DeviceBufferPtr buffer = positions_.device(p).allocate(static_cast<int64_t>(bytes.size()));
    buffer->write(0, bytes);
    return buffer;
  };
  if (sharding.is_whole()) return upload(whole);
  const Dims& dims = type.shape.dims();
  const TensorSlice slice = slice_at(dims, sharding, job_.mesh(), positions_.position(p));
  const int64_t elem_bytes = dtype_bytes(type.dtype);
  std::vector<std::byte> part(static_cast<size_t>(slice.elems() * elem_bytes));
  const auto read = [&](int64_t offset, std::span<std::byte> out) -> Result<void> {
    std::memcpy(out.data(), whole.data() + offset, out.size());
    return {};
  };
  const Result<void> done = read_common(read, whole_slice(dims), 0, slice, elem_bytes, part);
  STOW_CHECK(done, "{}", done.error());
  return upload(part);
}

Result<void> RunState::open_weights() {
  if (weights_) return {};
  Result<std::unique_ptr<ModelWeights>> weights = job_.model().open_weights();
  if (!weights) return weights.failure();
  weights_ = std::move(*weights);
  return {};
}

Result<void> RunState::load_frozen() {
  const size_t n = job_.frozen().size();
  if (n > 0) {
    if (Result<void> opened = open_weights(); !opened) return opened;
    const auto read = [&](size_t i, const TensorSlice& slice, DeviceBuffer& buffer) {
      return weights_->read_frozen(i, slice, buffer);
    };
    Result<PositionBuffers> frozen = read_parts(
        job_.frozen(), step_inputs().subspan(job_.state().size(), n), positions_, read);
    if (!frozen) return frozen.failure();
    frozen_ = std::move(*frozen);
    Result<std::string> digest = text_of_process_0(positions_, "digest of the model",
                                                   [&] { return weights_->digest(); });
    if (!digest) return digest.failure();
    frozen_digest_ = std::move(*digest);
  }
  weights_ = nullptr;
  return {};
}

// Returns the facts in which a checkpoint and the run that continues it must agree. The data file
// may have moved, but not changed.
ConfigText RunState::text_to_agree() const {
  ConfigText text = config_to_resume(job_.config());
  text.emplace_back("data.digest", data_digest_);
  for (auto& pair : job_.model().identity()) text.push_back(std::move(pair));
  if (!job_.frozen().empty()) text.emplace_back("model.digest", frozen_digest_);
  return text;
}

CheckpointRequirements RunState::needs() const {
  const TrainConfig& config = job_.config();
  CheckpointRequirements needs;
  for (const StateLeaf& leaf : job_.state())
    needs.tensors.push_back({leaf.name, leaf.type.dtype, leaf.type.shape.dims()});
  needs.config = text_to_agree();
  needs.defaults = config_to_resume(TrainConfig());
  if (config.optimizer.total_steps == config.train.steps)  // common if more steps are wanted
    needs.remedies = {{"optimizer.total_steps",
                       ", its train.steps; --set optimizer.total_steps={} keeps the schedule"}};
  return needs;
}

Result<Checkpoint> RunState::open(const std::string& path) const {
  return open_checkpoint(path, needs(), positions_);
}

Result<void> RunState::read(const Checkpoint& checkpoint) {
  Result<PositionBuffers> state = read_state(checkpoint, job_.state(), step_inputs(), positions_);
  if (!state) return state.failure();
  state_ = std::move(*state);
  return {};
}

Result<std::string> RunState::save(CheckpointMeta meta, const Retention& keep) {
  meta.config = text_to_agree();
  return save_state(job_.config().train.out, meta, job_.state(), state_, positions_, keep);
}

PositionBuffers RunState::take_step_arguments() {
  PositionBuffers arguments = std::move(state_);
  state_.clear();
  append_frozen(arguments);
  return arguments;
}

void RunState::upload(const HostBatch& batch, const NamedArrays& types,
                      std::span<const AxisSharding> shardings, PositionBuffers& arguments) {
  for (size_t i = 0; i < batch.arrays.size(); ++i)
    for (size_t p = 0; p < positions_.size(); ++p)
      arguments[p].push_back(
          upload_part(batch.arrays[i], types.arrays[i].type(), shardings[i], p));
}

PositionBuffers RunState::model_arguments() const {
  const auto [first, count] = job_.evaluated_leaves();
  PositionBuffers arguments;
  for (const std::vector<DeviceBufferPtr>& state : state_) {
    const auto begin = state.begin() + static_cast<std::ptrdiff_t>(first);
    arguments.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  append_frozen(arguments);
  return arguments;
}

void RunState::append_frozen(PositionBuffers& arguments) const {
  for (size_t p = 0; p < frozen_.size(); ++p)
    arguments[p].insert(arguments[p].end(), frozen_[p].begin(), frozen_[p].end());
}

}  // namespace stow
