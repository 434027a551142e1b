// TrainModel: the interface through which trainer, planner, refusals and checkpoints use a model.
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
#include "stowage/optim/mask.h"
#include "stowage/runtime/device.h"
#include "stowage/train/config.h"

namespace stow {

/// Arrays with names, in a fixed order. A tree whose paths are the names ("layers/wq").
struct NamedArrays {
  std::vector<std::string> names;
  std::vector<Array> arrays;  ///< One for each name.

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

/// An axis of a weight, by which a mesh may cut it.
struct WeightAxis {
  std::string name;  ///< "layers", "embed", "heads", "kv_heads", "mlp", "vocab"; "": another axis.
  int64_t most_parts = 1;  ///< Most parts; for an axis of flattened heads, the number of heads.
};

/// The form in which a model computes its loss. All forms have the same bits; a model ignores forms
/// that it does not have.
struct LossForm {
  bool nested = false;        ///< Layers in nested blocks, each recomputed as a whole.
  bool chunked = false;       ///< Feed-forward blocks kProductBlock tokens at a time.
  bool chunked_loss = false;  ///< The loss kProductBlock tokens at a time.
  friend auto operator<=>(const LossForm&, const LossForm&) = default;
};

/// Sizes by which the search for a placement decides what to try. Plans do not depend on them.
struct ModelSizes {
  int64_t layers = 0;  ///< Layers of a scan with checkpoint names; 0: policies have no effect.
  int64_t width = 0;   ///< Elements for each token between layers.
  int64_t ffn = 0;     ///< Elements for each token in a layer's widest block; 0: no chunked form.
  int64_t vocab = 0;   ///< Logits for each token; 0: the loss has no chunked form.
  int64_t frozen_bytes = 0;  ///< Bytes of weights that are not trained.
  /// True if chunked forms keep the bits of a bf16 computation too, because no weight that all
  /// tokens share has a rounded gradient.
  bool chunks_keep_bf16 = false;
  bool has_vocab_blocks = false;  ///< True if the loss honours train.vocab_block.
};

/// The bytes of one batch.
struct HostBatch {
  /// One array for each entry of TrainModel::batch(shape), in that order, row-major. A training
  /// batch of several microbatches has them one after another in each array.
  std::vector<std::vector<std::byte>> arrays;
  size_t shape = 0;    ///< Number of its shape, below TrainModel::n_batch_shapes().
  int64_t tokens = 0;  ///< Tokens without padding; 0: the configuration's batch * seq.
  double weight = 1;   ///< Weight of its loss in a mean over batches.
};

/// Returns the bytes of some values, as an array of a HostBatch.
template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// The source of batches. A batch is a pure function of seed and step, so that a resumed run
/// continues with the same data.
class TrainData {
 public:
  virtual ~TrainData() = default;
  virtual HostBatch train_batch(uint64_t seed, int64_t step) const = 0;
  /// Batches of one evaluation; 0 if there is no validation data.
  virtual int64_t n_validation_batches() const = 0;
  virtual HostBatch validation_batch(int64_t i) const = 0;
  /// Batches that are evaluated once, after the last step.
  virtual int64_t n_test_batches() const { return 0; }
  virtual HostBatch test_batch(int64_t /*i*/) const { return {}; }
  /// Digest of the content, in hexadecimal digits (io/digest.h). A run resumes only if it is the
  /// same.
  virtual std::string digest() const = 0;
  /// Runs TrainModel::sample on the bytes of its inputs and returns the logits; none if the run is
  /// interrupted.
  using RunSample = std::function<std::optional<std::vector<float>>(const HostBatch& inputs)>;
  /// Lines about the data that are printed before a run; "" for none.
  virtual std::string describe() const { return {}; }
  /// Returns a sample from the model of `n` bytes, for people; "" for none.
  virtual std::string sample(const RunSample& /*run*/, uint64_t /*seed*/, int64_t /*n*/) const {
    return {};
  }
};

/// A setting that a refusal may propose.
struct ModelChange {
  std::string setting;  ///< "--set model.tied=true"
  std::function<void(TrainConfig&)> apply;  ///< Makes the change in a configuration.
};

/// Values of a model that come from files.
class ModelWeights {
 public:
  virtual ~ModelWeights() = default;
  /// Fills a buffer with a slice of array i of TrainModel::parameters() or frozen(), row-major, in
  /// the array's dtype. Needs memory for the slice and small pieces only. Errors: "PATH: …".
  virtual Result<void> read_parameter(size_t i, const TensorSlice& slice, DeviceBuffer& buffer) = 0;
  virtual Result<void> read_frozen(size_t i, const TensorSlice& slice, DeviceBuffer& buffer) = 0;
  /// Digest of the frozen arrays, in hexadecimal digits (io/digest.h). A run resumes only if it is
  /// the same. Reads the arrays again unless they were read whole, in order. Errors: "PATH: …".
  virtual Result<std::string> digest() const = 0;
};

/// Allocates one buffer for each type on a device; `read(i, buffer)` fills buffer i. Returns the
/// buffers.
/// Errors: those of `read`; CapacityError.
Result<std::vector<DeviceBufferPtr>> read_arrays(
    Device& device, std::span<const ArrayType> types,
    const std::function<Result<void>(size_t, DeviceBuffer&)>& read);

/// A model as the trainer sees it. Its functions are traced; the arrays that it returns hold no
/// data.
class TrainModel {
 public:
  virtual ~TrainModel() = default;
  /// The trained parameters, abstract, on the device, f32 or the dtype that train.compute gives
  /// them (train/dtypes.h).
  virtual NamedArrays parameters() const = 0;
  /// Weights that are read and never trained, abstract, on the device, in the dtypes in which they
  /// are held. They have no gradients and no moments, and checkpoints do not contain them.
  virtual NamedArrays frozen() const { return {}; }
  /// The axes of the parameter or frozen weight at that path, by which a mesh cuts it
  /// (train/mesh.h). Empty: no axis has a name. The first axis of a stack that a scan reads layer
  /// by layer needs the name "layers": otherwise `data` may cut it.
  virtual std::vector<WeightAxis> axes_of(std::string_view /*path*/) const { return {}; }
  /// True if the gradient of the parameter at that path needs the backward pass of the layers. If
  /// that holds for no trained parameter, policies that move values of the layers to another memory
  /// are refused.
  virtual bool reaches_layers(std::string_view /*path*/) const { return true; }
  /// The parameters that Muon updates: matrices, or stacks of matrices on their last two axes.
  /// AdamW updates all others. Default: parameters with two axes beside "layers" (axes_of()).
  virtual optim::Mask muon_matrices() const;
  /// True if the parameters' initial values come from files (open_weights), not from init().
  virtual bool reads_parameters() const { return false; }
  /// Opens the files of parameters and frozen weights; null if no values come from files.
  virtual Result<std::unique_ptr<ModelWeights>> open_weights() const {
    return std::unique_ptr<ModelWeights>();
  }
  /// Initial values of the parameters. key u32[2]; called within a trace.
  virtual NamedArrays init(const Array& key) const = 0;
  /// The number of shapes of batches. Each has a program of its own, planned before the run.
  virtual size_t n_batch_shapes() const { return 1; }
  /// The inputs of the loss other than the weights, abstract: a microbatch. Shape 0 is the largest.
  virtual NamedArrays batch(size_t shape) const = 0;
  /// A training batch of shape 0 that needs no data, for measurements of a step (train/step_run.h).
  /// None: they take a batch of open_data().
  virtual std::optional<HostBatch> random_batch(uint64_t /*seed*/) const { return std::nullopt; }
  /// True if there is data to evaluate on.
  virtual bool evaluates() const { return true; }
  /// The inputs of evaluate().
  virtual NamedArrays eval_batch() const { return batch(0); }
  /// The loss of a microbatch, an f32 scalar, with the names that policies act on
  /// (checkpoint_name).
  virtual Array loss(const ModelArrays& weights, const NamedArrays& batch,
                     const LossForm& form) const = 0;
  /// The weight of each of K microbatches in the loss of an update: f32 [K], with the sum 1.
  /// `microbatches`: arrays like those of batch(), stacked. An empty Array stands for equal
  /// weights.
  virtual Array shares(const NamedArrays& /*microbatches*/) const { return {}; }
  /// The loss of an evaluation batch, f32 scalar, forward only; by default in the form that needs
  /// the least memory.
  virtual Array evaluate(const ModelArrays& weights, const NamedArrays& batch) const {
    return loss(weights, batch, {.chunked = true, .chunked_loss = true});
  }
  /// Inputs of sample(), abstract; empty if the model does not sample.
  virtual NamedArrays sample_inputs() const { return {}; }
  /// Logits of the next token, f32 [V].
  virtual Array sample(const ModelArrays& /*weights*/, const NamedArrays& /*inputs*/) const {
    return {};
  }
  /// Facts that, besides the configuration, must be the same for a run to resume from a checkpoint.
  virtual ConfigText identity() const { return {}; }
  /// The record of the model in a checkpoint, for others (export); null for none.
  virtual Json record() const { return {}; }
  /// The size of the model, for people: "6 layers of 128".
  virtual std::string describe() const = 0;
  /// The size of a microbatch, for people: "16 sequences of 128 tokens". Default: the extent of the
  /// first axis of its first array, "256 rows".
  virtual std::string describe_batch() const;
  virtual ModelSizes sizes() const = 0;
  /// Settings that make the model need less memory; refusals plan them as remedies.
  virtual std::vector<ModelChange> changes() const { return {}; }
  /// The unit of the loss: "nats a byte" (nats per byte).
  virtual std::string loss_unit() const = 0;
  /// Opens the data of the configuration for which the model was made. Errors: "PATH: KEY: reason".
  virtual Result<std::unique_ptr<TrainData>> open_data() const = 0;
};
using TrainModelPtr = std::shared_ptr<const TrainModel>;

/// Makes the model of a configuration. Remedies call it with changed configurations.
/// Errors: TraceError if it cannot be built.
using ModelFactory = std::function<TrainModelPtr(const TrainConfig&)>;

}  // namespace stow
