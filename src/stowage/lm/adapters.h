// Adapters: LoRA fine-tunings in slots over one model, trained and stepped each by itself.
// Not a trainer with data and schedules; train/ has that. A batch's rows name their slots.
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
  int64_t slots = 8;      ///< With the base, which is slot 0: one adapter fewer.
  int64_t max_rank = 16;
  /// Matrices that have slots at all. `unembed`: embedding and head, of models whose head is not the
  /// embedding. What no adapter needs costs neither memory nor time if it is off.
  bool attention = true, mlp = true, unembed = false;
  int64_t chunk = 256;      ///< Tokens whose logits exist at a time.
  int64_t microbatch = 0;   ///< Rows computed at a time; 0: all of a batch.
  PolicyPtr policy = nullptr;  ///< Each layer is checkpointed with it; no choice changes a bit.
  /// The memory of the moments between steps, no choice of which changes a bit. Elsewhere than on the device a step
  /// brings in those of its slot.
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
  /// The number of the rejected row that a chosen row of kDpo is compared with, of the same kind and
  /// slot; -1 for none.
  int32_t rejected = -1;
};

/// Rows of tokens with what is to be learnt of them; arrays [B, T] are row-major.
struct AdapterBatch {
  int64_t rows = 0, length = 0;  ///< B and T.
  std::vector<int32_t> tokens, targets;
  std::vector<float> weights;  ///< 0: the target does not count. Empty: all count 1.
  /// As in nn::ForwardOptions; all or none. None: whole rows, each token sees those up to itself.
  std::vector<int32_t> positions, lo, hi;
  std::vector<int32_t> slot;  ///< [B]
  std::vector<RowLoss> loss;  ///< [B]. Empty: cross-entropy.
  /// [B, T], for kImportanceSampling, kPpo and kCispo: log-probabilities when the tokens were sampled.
  std::vector<float> reference;
  std::vector<float> advantages;  ///< [B, T], for the same.
};

/// The results of a pass.
struct PassOutput {
  std::vector<float> logprobs;  ///< [B, T] of the targets, under each row's adapter.
  std::vector<float> tokens;    ///< [B, T]: losses, weighted.
  std::vector<float> rows;      ///< [B]: losses; see nn::RowLosses.
};

struct AdamWOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-12, weight_decay = 0;
};
struct AdapterStep {
  double grad_norm = 0;  ///< Norm of the mean gradient; 0 where there was none.
  double lr = 0;
  int64_t examples = 0;  ///< Number of examples in the mean; 0: nothing was done.
};

/// An adapter apart from its slot.
struct SlotState {
  nn::LoraConfig config;
  nn::Lora weights;
  /// The optimizer's: moments of the shapes of the weights, and steps done.
  struct Optimizer {
    nn::Lora mu, nu;
    int64_t steps = 0;
  };
  std::optional<Optimizer> optimizer;

  /// Writes one safetensors file. Errors: the system's.
  Result<void> save(const std::string& path) const;
  /// Errors: "PATH: …" for damaged files and tensors that are missing, surplus or do not fit the model.
  static Result<SlotState> load(const std::string& path, const HfConfig& config);
};

/// Adapters of a model. Used by one thread at a time. Memory: of each array with slots four of its size
/// (weights, sums of gradients, two moments), f32 on the model's device but for moments elsewhere, for all
/// slots from the start.
class Adapters {
 public:
  /// Errors: a model with an adapter; sizes that are not positive; unembed of a tied model.
  /// CapacityError where there is no room.
  static Result<Adapters> make(const Model& model, const AdaptersOptions& options);

  /// A new adapter in the lowest free slot: A uniform in ±1/sqrt(in), B zero (nn::lora_init).
  /// Errors: no free slot; a rank outside of 1 to max_rank; nothing to train, or what has no slots.
  Result<int> create(const AdapterOptions& options);
  /// The same from a PEFT folder, without its dropout. Errors: also those of AdapterFiles::open, ranks
  /// above max_rank, whole weights (modules_to_save), weights that are not finite.
  Result<int> load(const std::string& folder);
  /// Frees a slot and zeroes all of it. Errors: no such adapter.
  Result<void> remove(int slot);
  /// Writes a PEFT folder. Errors: no such adapter; those of save_adapter.
  Result<void> save(int slot, const std::string& folder) const;

  /// Log-probabilities, losses, and each row's gradient added to the sums of its slot, with the number of
  /// examples: rows, but of a pair of kDpo one. Rows of slot 0 have losses and no gradients.
  /// Errors: "KEY: …" for what does not fit; CapacityError before anything is changed; DiskError, after
  ///         which the sums are of no use.
  Result<PassOutput> forward_backward(const AdapterBatch& batch);
  /// The same without gradients.
  Result<PassOutput> forward(const AdapterBatch& batch);
  /// AdamW with the mean of the slot's gradients, which are then zero. No other slot changes a bit.
  /// Errors: no such adapter; numbers that are out of range; a loss of a row, or the norm, that is not
  ///         finite, after which the gradients are zero and all else of the adapter is as it was.
  Result<AdapterStep> step(int slot, const AdamWOptions& options = {});

  /// Errors: no such adapter.
  Result<SlotState> extract(int slot) const;
  /// Puts weights, and where there is one the optimizer's state, else none, into an adapter; gradients
  /// become zero. Errors: no such adapter; other ranks or matrices than the slot's; arrays of other
  /// shapes than the state's configuration says, or that are not finite.
  Result<void> insert(int slot, const SlotState& state);

  /// True if the slot holds an adapter; false for slot 0, the base.
  bool contains(int slot) const;
  /// Rows whose gradients are summed, and steps done, of an adapter that is there.
  int64_t examples(int slot) const { return slots_.at(static_cast<size_t>(slot)).examples; }
  int64_t steps(int slot) const { return slots_.at(static_cast<size_t>(slot)).steps; }
  const nn::LoraConfig& config(int slot) const { return slots_.at(static_cast<size_t>(slot)).config; }

  /// The plan of a pass, compiled if it was not yet.
  const MemoryAnalysis& plan(const PassShape& shape);
  const MemoryAnalysis& step_plan();
  /// The peak of memory with passes of this shape and steps, the model included.
  BytesByKind peak_bytes(const PassShape& shape);
  /// All bytes of a slot: weights, sums and moments one after another, array by array.
  std::vector<std::byte> bytes(int slot) const;

 private:
  struct Slot {
    bool used = false;
    nn::LoraConfig config;
    int64_t examples = 0, steps = 0;
    bool is_spoiled = false;  // by a row whose loss was not finite
  };
  // Arrays of all adapters: one of the leaves of LoraSlots.
  struct Leaf {
    std::string path;
    ArrayType type;
    int64_t outer = 1, inner = 0;  // pieces of one adapter, and the elements of each
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
  bool has_moments_apart() const { return options_.moments != MemoryKind::kDevice; }
  const ExecutablePtr& step_program();
  // Before the arguments of a run are made.
  void prepare(const ExecutablePtr& program);
  Result<PassOutput> run_passes(const AdapterBatch& batch, bool gradients);

  Model model_;
  AdaptersOptions options_;
  nn::LoraSlotsConfig config_;
  std::vector<Leaf> leaves_;
  std::vector<DeviceBufferPtr> groups_[kNumGroups];  // one buffer a leaf
  std::vector<DeviceBufferPtr> scales_;
  std::vector<Slot> slots_;  // the first is the base
  std::map<PassShape, ExecutablePtr> passes_;
  ExecutablePtr step_;
  const Executable* last_ = nullptr;  // the program that ran last
};

}  // namespace stow::lm
