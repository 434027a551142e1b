// Adapters: LoRA adapters in slots over one model, each trained with an optimizer state of its own.
// Not a trainer with data and schedules; train/ has that.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/lm/adapters_programs.h"
#include "stowage/lm/model.h"
#include "stowage/nn/lora_slots.h"
#include "stowage/nn/rl_losses.h"

namespace stow::lm {

struct AdaptersOptions {
  int64_t slots = 8;      ///< Slot 0 is the base model; the other slots - 1 hold adapters.
  int64_t max_rank = 16;  ///< Largest rank of an adapter.
  /// Matrices that adapters may change. `unembed`: embedding and head, only for models whose head
  /// is not the embedding. Matrices that are off cost no memory and no time.
  bool attention = true, mlp = true, unembed = false;
  int64_t chunk = 256;         ///< Tokens whose logits exist at a time.
  int64_t microbatch = 0;      ///< Rows computed at a time; 0: the whole batch.
  PolicyPtr policy = nullptr;  ///< Checkpoint policy of each layer. Results do not depend on it.
  /// Memory kind of the optimizer's moments between steps. Results do not depend on it. If it is
  /// not the device, a step copies the moments of its slot to the device.
  MemoryKind moments = MemoryKind::kDevice;
};

/// A new adapter.
struct AdapterOptions {
  int64_t rank = 8;
  double alpha = 32;  ///< The scale is alpha / rank.
  uint64_t seed = 0;
  bool train_attention = true, train_mlp = true;
  bool train_unembed = false;  ///< Embedding and head.
};

/// The loss of a row.
struct RowLoss {
  nn::TokenLoss kind = nn::TokenLoss::kCrossEntropy;
  float clip_low = 0.8f, clip_high = 1.2f;  ///< Bounds of the ratio in kPpo and kCispo.
  float beta = 0.1f;                        ///< Scale of the log-ratios in kDpo.
  /// In a chosen row of kDpo, the index of its rejected row, which has the same kind, slot and
  /// microbatch. -1 for all other rows.
  int32_t rejected = -1;
};

/// Rows of tokens with their targets and losses; arrays [B, T] are row-major.
struct AdapterBatch {
  int64_t rows = 0, length = 0;          ///< B and T.
  std::vector<int32_t> tokens, targets;  ///< [B, T]
  std::vector<float> weights;            ///< [B, T]; 0: the target does not count. Empty: all 1.
  /// [B, T]; see nn::ForwardOptions. All three, or none: then each token sees the tokens of its row
  /// up to itself.
  std::vector<int32_t> positions, lo, hi;
  std::vector<int32_t> slot;  ///< [B]: the slot of each row; 0: the base.
  std::vector<RowLoss> loss;  ///< [B]. Empty: cross-entropy.
  /// [B, T], for kImportanceSampling, kPpo and kCispo: log-probabilities when the tokens were
  /// sampled.
  std::vector<float> reference;
  std::vector<float> advantages;  ///< [B, T], for the same losses as `reference`.
};

/// The results of a pass.
struct PassOutput {
  std::vector<float> logprobs;  ///< [B, T]: of the targets, under each row's adapter.
  std::vector<float> tokens;    ///< [B, T]: weighted losses of tokens; see nn::RowLosses.
  std::vector<float> rows;      ///< [B]: losses of rows; see nn::RowLosses.
};

struct AdamWOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-12, weight_decay = 0;
};
struct AdapterStep {
  double grad_norm = 0;  ///< Norm of the mean gradient; 0 if `examples` is 0.
  double lr = 0;
  int64_t examples = 0;  ///< Number of examples in the mean; 0: the step did nothing.
};

/// A copy of an adapter and its optimizer state, on the CPU.
struct SlotState {
  nn::LoraConfig config;
  nn::Lora weights;
  /// The state of AdamW.
  struct Optimizer {
    nn::Lora mu, nu;    ///< First and second moments, with the shapes of the weights.
    int64_t steps = 0;  ///< Steps done.
  };
  std::optional<Optimizer> optimizer;

  /// Writes one safetensors file. Errors: system errors.
  Result<void> save(const std::string& path) const;
  /// Reads a file of save().
  /// Errors: "PATH: …" for damaged files and tensors that are missing, unexpected or do not fit the
  /// model.
  static Result<SlotState> load(const std::string& path, const HfConfig& config);
};

/// The adapters of a model. One thread at a time uses it. Memory: weights, gradient sums and two
/// moments of all slots, allocated at once, in f32, on the model's device or, for moments, in
/// AdaptersOptions::moments.
class Adapters {
 public:
  /// Errors: a model with an adapter; sizes that are not positive; unembed of a tied model.
  /// CapacityError if the memory does not suffice.
  static Result<Adapters> make(const Model& model, const AdaptersOptions& options);

  /// Makes an adapter in the lowest free slot, which it returns: A uniform in ±1/sqrt(in), B zero
  /// (nn::lora_init).
  /// Errors: no free slot; a rank outside of 1 to max_rank; nothing to train; matrices without
  /// slots.
  Result<int> create(const AdapterOptions& options);
  /// Loads an adapter from a PEFT folder into the lowest free slot, which it returns. Its dropout
  /// is not used.
  /// Errors: no free slot; those of AdapterFiles::open; ranks above max_rank; whole weights
  /// (modules_to_save); matrices without slots; weights that are not finite.
  Result<int> load(const std::string& folder);
  /// Frees a slot and zeroes its arrays. Errors: no adapter in the slot.
  Result<void> remove(int slot);
  /// Writes a PEFT folder. Errors: no adapter in the slot; those of save_adapter.
  Result<void> save(int slot, const std::string& folder) const;

  /// Returns log-probabilities and losses, and adds each row's gradient to the sums of its slot. A
  /// row is one example, as is a pair of kDpo. Rows of slot 0 have losses and no gradients.
  /// Errors: "KEY: …" for an invalid batch; CapacityError before anything is changed; DiskError,
  ///         after which the gradient sums are undefined.
  Result<PassOutput> forward_backward(const AdapterBatch& batch);
  /// Returns the same results and leaves the gradient sums unchanged.
  Result<PassOutput> forward(const AdapterBatch& batch);
  /// Applies AdamW with the mean of the slot's gradients, and zeroes their sums. No other slot
  /// changes.
  /// Errors: no adapter in the slot; options out of range; a row's loss, or the norm, is not
  ///         finite, after which the gradient sums are zero and the adapter is otherwise unchanged.
  Result<AdapterStep> step(int slot, const AdamWOptions& options = {});

  /// Returns a copy of an adapter and its optimizer state. Errors: no adapter in the slot.
  Result<SlotState> extract(int slot) const;
  /// Replaces the weights and the optimizer state of an adapter, and zeroes its gradient sums. A
  /// state without an optimizer zeroes the moments and the step count.
  /// Errors: no adapter in the slot; other ranks or matrices than the slot's; arrays that do not
  /// have the shapes of the state's configuration, or are not finite.
  Result<void> insert(int slot, const SlotState& state);

  /// True if the slot holds an adapter; false for slot 0, the base.
  bool contains(int slot) const;
  /// The number of examples in the gradient sums of an adapter.
  int64_t examples(int slot) const { return slots_.at(static_cast<size_t>(slot)).examples; }
  /// The number of steps that an adapter has done.
  int64_t steps(int slot) const { return slots_.at(static_cast<size_t>(slot)).steps; }
  const nn::LoraConfig& config(int slot) const {
    return slots_.at(static_cast<size_t>(slot)).config;
  }

  /// Returns the plan of a pass, which it compiles at the first call.
  const MemoryAnalysis& plan(const PassShape& shape);
  /// Returns the plan of a step, which it compiles at the first call.
  const MemoryAnalysis& step_plan();
  /// Returns the peak bytes of passes of this shape and of steps, the model included.
  BytesByKind peak_bytes(const PassShape& shape);
  /// Returns the contents of a slot: weights, gradient sums and moments, each array by array.
  std::vector<std::byte> bytes(int slot) const;

 private:
  struct Slot {
    bool used = false;
    nn::LoraConfig config;
    int64_t examples = 0, steps = 0;
    bool has_nonfinite_loss = false;  // true after a row whose loss was not finite: step() refuses
  };
  // A leaf of LoraSlots: one array for all adapters.
  struct Leaf {
    std::string path;
    ArrayType type;
    int64_t outer = 1, inner = 0;  // one adapter has `outer` contiguous pieces of `inner` elements
  };
  enum Group : uint8_t { kWeights, kSums, kMu, kNu, kNumGroups };

  explicit Adapters(Model model) : model_(std::move(model)) {}
  Result<void> check_slot(int slot) const;
  Result<void> check(const AdapterBatch& batch) const;
  Result<int> take_slot(const nn::LoraConfig& config, const nn::Lora& weights);
  void set_scales(int slot, const nn::LoraConfig& config);
  void write(Group group, int slot, const nn::LoraConfig& config, const nn::Lora& values);
  nn::Lora read(Group group, int slot, const nn::LoraConfig& config) const;
  void clear(Group group, int slot);
  std::vector<float> read_part(Group group, size_t leaf, int slot) const;
  void write_part(Group group, size_t leaf, int slot, const std::vector<float>& values);
  const ExecutablePtr& pass(const PassShape& shape);
  bool has_moments_off_device() const { return options_.moments != MemoryKind::kDevice; }
  const ExecutablePtr& step_program();
  // Frees the arena of the program that ran before, if it is another. Must precede the allocation
  // of arguments.
  void prepare(const ExecutablePtr& program);
  Result<PassOutput> run_passes(const AdapterBatch& batch, bool gradients);

  Model model_;
  AdaptersOptions options_;
  nn::LoraSlotsConfig config_;
  std::vector<Leaf> leaves_;
  std::vector<DeviceBufferPtr> groups_[kNumGroups];  // one buffer for each leaf
  std::vector<DeviceBufferPtr> scales_;
  std::vector<Slot> slots_;  // the first is the base
  std::map<PassShape, ExecutablePtr> passes_;
  ExecutablePtr step_;
  const Executable* last_ = nullptr;  // the program that ran last
};

}  // namespace stow::lm
