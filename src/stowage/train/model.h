// TrainModel: what the trainer, the planner, refusals and checkpoints know of a model.
// Not a model; decoder_model.h has the one of the default job.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/api/tree.h"
#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/tensor_slice.h"
#include "stowage/runtime/device.h"
#include "stowage/train/config.h"

namespace stow {

/// Arrays with names, in an order that stays. A tree whose paths are the names ("layers/wq").
struct NamedArrays {
  std::vector<std::string> names;
  std::vector<Array> arrays;  ///< One a name.

  void add(std::string name, Array array) {
    names.push_back(std::move(name));
    arrays.push_back(std::move(array));
  }
};
template <typename Self, typename Visit>
requires std::same_as<std::remove_const_t<Self>, NamedArrays>
void stow_visit_fields(Self& self, Visit&& visit) {
  for (size_t i = 0; i < self.arrays.size(); ++i) visit(self.names[i].c_str(), self.arrays[i]);
}
/// The leaves of any tree by path.
template <concepts::Tree T>
NamedArrays named_arrays(const T& tree) {
  return {tree_paths(tree), tree_leaves(tree)};
}

/// The arrays that a model computes with.
struct ModelArrays {
  NamedArrays parameters;  ///< Trained; TrainModel::parameters().
  NamedArrays frozen;      ///< Read and never changed; TrainModel::frozen().
};

/// An axis of a weight: its name ("layers", "embed", "heads", "kv_heads", "mlp", "vocab"; "" for another),
/// and into how many parts at most it may be cut: of flattened heads, their number.
struct WeightAxis {
  std::string name;
  int64_t most_parts = 1;
};

/// Forms of one loss. All have the same bits; a model ignores what it has not.
struct LossForm {
  bool nested = false;        ///< Layers in nested blocks, each computed again as a whole.
  bool chunked = false;       ///< The feed-forward blocks kProductBlock tokens at a time.
  bool chunked_loss = false;  ///< So the loss.
  friend auto operator<=>(const LossForm&, const LossForm&) = default;
};

/// Sizes by which the search weighs what is worth a try. Nothing that a plan counts.
struct ModelSizes {
  int64_t layers = 0;  ///< Layers that a scan repeats, with names for policies; 0: policies do nothing.
  int64_t width = 0;   ///< Elements of a token between layers.
  int64_t ffn = 0;     ///< Elements of a token in the widest block of a layer; 0: none to be chunked.
  int64_t vocab = 0;   ///< Logits of a token; 0: the loss has none to be chunked.
  int64_t frozen_bytes = 0;  ///< Bytes of weights that are not trained.
  /// True if chunks change no number of a bf16 computation either: where the weights that all tokens
  /// share have no gradient that is rounded.
  bool chunks_keep_bf16 = false;
};

/// The bytes of one batch.
struct HostBatch {
  /// One array an entry of TrainModel::batch(shape), row-major, in that order. A training batch of
  /// several microbatches has them one after another in each array.
  std::vector<std::vector<std::byte>> arrays;
  size_t shape = 0;    ///< Number of the shape that the batch has.
  int64_t tokens = 0;  ///< That the model reads of it, without padding; 0: batch * seq of the configuration.
  double weight = 1;   ///< Weight of its loss in a mean over batches.
};

/// Values as an array of a HostBatch.
template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// The source of batches. A pure function of seed and step, so that a run that resumes at a step goes
/// on with its data.
class TrainData {
 public:
  virtual ~TrainData() = default;
  virtual HostBatch train_batch(uint64_t seed, int64_t step) const = 0;
  /// Batches of one evaluation; 0 where nothing is held out.
  virtual int64_t n_validation_batches() const = 0;
  virtual HostBatch validation_batch(int64_t i) const = 0;
  /// Batches that are evaluated once, after the last step.
  virtual int64_t n_test_batches() const { return 0; }
  virtual HostBatch test_batch(int64_t /*i*/) const { return {}; }
  /// Digest of the content, in hexadecimal digits (io/digest.h). A run resumes with the same alone.
  virtual std::string digest() const = 0;
  /// Runs TrainModel::sample on the bytes of its inputs; none where the run is interrupted.
  using RunSample = std::function<std::optional<std::vector<float>>(const HostBatch& inputs)>;
  /// Facts of the data that people should know before a run, a line each; "" for nothing.
  virtual std::string describe() const { return {}; }
  /// A sample of what the model makes, for people; empty for none.
  virtual std::string sample(const RunSample& /*run*/, uint64_t /*seed*/, int64_t /*n*/) const {
    return {};
  }
};

/// A setting and what it does to a configuration.
struct ModelChange {
  std::string setting;  ///< "--set model.tied=true"
  std::function<void(TrainConfig&)> apply;
};

/// Values of a model that come from files.
class ModelWeights {
 public:
  virtual ~ModelWeights() = default;
  /// Fills a buffer with a slice of the array of that number in TrainModel::parameters() or frozen(),
  /// row-major, in the types that these say. Holds no more than the slice and pieces. Errors: "PATH: …".
  virtual Result<void> read_parameter(size_t i, const TensorSlice& slice, DeviceBuffer& buffer) = 0;
  virtual Result<void> read_frozen(size_t i, const TensorSlice& slice, DeviceBuffer& buffer) = 0;
  /// Digest of the frozen arrays, in hexadecimal digits (io/digest.h). A run resumes with the same
  /// alone. Reads the arrays again unless they were read whole, in order. Errors: "PATH: …".
  virtual Result<std::string> digest() const = 0;
};

/// Fills buffers of a device, one a type, with what `read(i, buffer)` gives. Errors: those of `read`;
/// CapacityError.
Result<std::vector<DeviceBufferPtr>> read_arrays(
    Device& device, std::span<const ArrayType> types,
    const std::function<Result<void>(size_t, DeviceBuffer&)>& read);

/// A model as the trainer sees it. Everything is traced through it; nothing holds data.
class TrainModel {
 public:
  virtual ~TrainModel() = default;
  /// The trained parameters, abstract, on the device, f32 or the dtype that train.compute gives them
  /// (train/dtypes.h).
  virtual NamedArrays parameters() const = 0;
  /// Weights that are read and never trained, abstract, on the device, in the dtypes in which they are
  /// held. They have neither gradients nor moments and stand in no checkpoint.
  virtual NamedArrays frozen() const { return {}; }
  /// The axes of the parameter or frozen weight at that path, by which a mesh cuts it (train/mesh.h).
  /// Empty: the model has no names for them.
  virtual std::vector<WeightAxis> axes_of(std::string_view /*path*/) const { return {}; }
  /// True if the parameters' initial values come from files (open_weights), not from init().
  virtual bool reads_parameters() const { return false; }
  /// The files of parameters and frozen weights; null where nothing comes from files.
  virtual Result<std::unique_ptr<ModelWeights>> open_weights() const {
    return std::unique_ptr<ModelWeights>();
  }
  /// Initial values of the parameters. key u32[2]; called within a trace.
  virtual NamedArrays init(const Array& key) const = 0;
  /// How many shapes of batches there are. Each has a program of its own, planned before the run.
  virtual size_t n_batch_shapes() const { return 1; }
  /// The inputs of the loss beside the weights, abstract: a microbatch. Shape 0 is the largest.
  virtual NamedArrays batch(size_t shape) const = 0;
  /// True if anything is held out to be evaluated on.
  virtual bool evaluates() const { return true; }
  /// The inputs of evaluate().
  virtual NamedArrays eval_batch() const { return batch(0); }
  /// The loss of a microbatch, an f32 scalar, with the names that policies act on (checkpoint_name).
  virtual Array loss(const ModelArrays& weights, const NamedArrays& batch,
                     const LossForm& form) const = 0;
  /// The weight of each microbatch's loss in that of its update: f32 [K], which sum to 1.
  /// `microbatches` are those of batch(), stacked; null stands for equal shares.
  virtual Array shares(const NamedArrays& /*microbatches*/) const { return {}; }
  /// The loss of a batch held out, forward alone; by default in its leanest form.
  virtual Array evaluate(const ModelArrays& weights, const NamedArrays& batch) const {
    return loss(weights, batch, {.chunked = true, .chunked_loss = true});
  }
  /// Inputs of sample(), abstract; empty where nothing is drawn.
  virtual NamedArrays sample_inputs() const { return {}; }
  /// Logits f32 [V] of what comes next.
  virtual Array sample(const ModelArrays& /*weights*/, const NamedArrays& /*inputs*/) const {
    return {};
  }
  /// Facts that a checkpoint must agree in, beside the configuration, for a run to go on from it.
  virtual ConfigText identity() const { return {}; }
  /// The record of the model in a checkpoint, for others (export); null for none.
  virtual Json record() const { return {}; }
  /// "6 layers of 128": the size of the model, for people.
  virtual std::string describe() const = 0;
  virtual ModelSizes sizes() const = 0;
  /// Settings that would make the model itself need less, for refusals to plan.
  virtual std::vector<ModelChange> changes() const { return {}; }
  /// "nats a byte": what the loss counts.
  virtual std::string loss_unit() const = 0;
  /// The data of the configuration that the model was made for. Errors: by file and key.
  virtual Result<std::unique_ptr<TrainData>> open_data() const = 0;
};
using TrainModelPtr = std::shared_ptr<const TrainModel>;

/// The model of a configuration. Remedies call it for configurations near the one that was given.
/// Errors: TraceError where it cannot be built.
using ModelFactory = std::function<TrainModelPtr(const TrainConfig&)>;

}  // namespace stow
