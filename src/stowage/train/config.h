// TrainConfig: all that a training run can be told, from a TOML file and the command line.
// Not the run itself; data, model and plan judge what only they can know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/sums.h"
#include "stowage/io/checkpoint_file.h"

namespace stow {

/// The keys are the fields: `model.kv_heads`. Defaults are those of the default job.
struct TrainConfig {
  struct Model {
    std::string path;  ///< A Hugging Face folder or a GGUF file; empty: a decoder of the sizes below.
    /// Dtype of frozen weights from `path`; "auto": the dtype in which they are stored.
    std::string dtype = "auto";
    int64_t dim = 128;
    int64_t layers = 6;
    int64_t heads = 4;
    int64_t kv_heads = 2;
    int64_t ffn = 344;
    int64_t vocab = 256;
    bool tied = false;

    bool is_from_files() const { return !path.empty(); }
  } model;
  /// A low-rank adapter over the model of model.path, whose own weights are then frozen.
  struct Lora {
    int64_t rank = 0;  ///< 0: no adapter, all weights train.
    double alpha = 0;  ///< 0: twice the rank.
    std::string targets = "all-linear";
    bool rslora = false;
    double dropout = 0;
    std::string init;  ///< A PEFT folder that the adapter starts as; empty: a fresh one.

    bool is_used() const { return rank > 0 || !init.empty(); }
  } lora;
  struct Data {
    std::string path;  ///< Once loaded never empty but with model.path.
    int64_t batch = 16;  ///< Sequences of a microbatch.
    int64_t seq = 128;
    int64_t accumulate = 1;  ///< Microbatches of an update.
    // Settings of JSONL files (train/dataset.h):
    bool pack = false;
    bool mask_prompt = true;
    bool shuffle = true;
    bool length_buckets = false;
    std::string too_long = "cut";
    double valid_fraction = 0;  ///< Held out of a file without another for validation.
  } data;
  /// Evaluation on what is held out.
  struct Eval {
    int64_t every = 100;   ///< Steps; 0: at the end alone.
    int64_t batch = 0;     ///< Sequences of a batch; 0: as data.batch.
    int64_t seq = 0;       ///< 0: as data.seq.
    std::string data;      ///< A JSONL file; empty: what data.path holds out.
    int64_t patience = 0;  ///< Evaluations without a better loss after which a run stops; 0: none.
    /// True if the checkpoint of the best evaluation stays. Once loaded true with patience, unless set.
    bool keep_best = false;
  } eval;
  struct Optimizer {
    std::string name = "adamw";
    double lr = 3e-3;
    std::string schedule = "cosine";
    int64_t warmup = 20;
    double weight_decay = 0.1;
    double clip = 1.0;  ///< Bound of the global norm; 0 for none.
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double momentum = 0;
    bool nesterov = false;
    std::string moments = "f32";  ///< The format of the moments between steps.
    std::string freeze;       ///< Patterns of paths, by commas.
    int64_t total_steps = 0;  ///< The schedule's length; train.steps once loaded, unless set.
  } optimizer;
  struct Train {
    int64_t steps = 300;
    std::string compute = "f32";  ///< The dtype of activations and products; see dtypes.h.
    int64_t loss_chunk = 0;       ///< Tokens whose logits exist at a time; 0: all.
    int64_t vocab_block = 0;      ///< Words whose logits exist at a time; 0: all.
    int64_t seed = 0;
    std::string out = "out";
    int64_t checkpoint_every = 100;  ///< 0: at the end alone.
    double ema = 0;  ///< Decay of the average of the weights over steps; 0: none is kept.
    int64_t sample = 240;            ///< Bytes drawn from the model at the end.
    std::string tensorboard;         ///< Folder for event files; none if empty.
  } train;
  /// The mesh of devices that train together: replica x data x model of them.
  struct Mesh {
    int64_t replica = 1;  ///< Copies of the weights, each with a share of the batch.
    int64_t data = 1;     ///< Devices that share the batch, and the weights and their state.
    int64_t model = 1;    ///< Devices that share heads, feed-forward blocks and the vocabulary.
    bool sequence = false;  ///< True if the input of a layer is cut over `model` by tokens.
    std::string parameters = "auto";  ///< The form of weights over `data`.
    std::string optimizer = "auto";   ///< The same of the optimizer's state and the average.

    int64_t size() const { return replica * data * model; }  ///< Devices.
    int64_t batch_parts() const { return replica * data; }   ///< Shares of a batch.
  } mesh;
  struct Runtime {
    std::string platform = "cpu";
    std::string
        disk_folder;  ///< Folder of the disk's file; the system's temporary folder if empty.
    double timeout = 60;  ///< Seconds that a device may be late where several train together.
    std::string reduce = "tree";  ///< The maker of sums over devices: the tree, or the transport.
    /// No key: the host's memory of each device through which the devices of a mesh exchange, as the
    /// command that starts them knows it (comm::window_of). It counts against memory.host.
    int64_t window_bytes = 0;
  } runtime;
  struct Memory {
    std::optional<int64_t> device;  ///< Bytes; none: what the machine can give.
    std::optional<int64_t> host;    ///< Host memory of a virtual device; none: no limit.
    std::optional<int64_t> disk;    ///< None: no disk.
    std::string policy = "auto";
    std::string activations = "auto";   ///< The memory of those that leave the device.
    std::string optimizer = "auto";     ///< The memory of the optimizer's state.
    std::string parameters = "auto";    ///< The memory of weights.
    std::string gradients = "auto";     ///< The memory of their gradients.
    std::string frozen = "auto";        ///< The memory of weights that are not trained.
    std::string feed_forward = "auto";  ///< "chunked" or "whole" for those blocks.
    std::string loss = "auto";          ///< The same for the loss.
    bool operator==(const Memory&) const = default;
  } memory;

  /// Sequences of a batch of evaluation, and tokens of one.
  int64_t eval_batch() const { return eval.batch > 0 ? eval.batch : data.batch; }
  int64_t eval_seq() const { return eval.seq > 0 ? eval.seq : data.seq; }
  bool is_virtual() const { return runtime.platform == "virtual"; }
  /// Tokens whose activations a device has at a time: its share of a microbatch.
  int64_t tokens_a_step() const { return data.batch / mesh.batch_parts() * data.seq; }
  /// True if that share has more tokens than a chunk of a feed-forward block or of the loss.
  bool has_chunks() const { return tokens_a_step() > kProductBlock; }
  /// True if train.loss_chunk or train.vocab_block cuts the loss into parts.
  bool has_loss_in_parts() const { return train.loss_chunk > 0 || train.vocab_block > 0; }
};

/// The values that `optimizer.schedule`, `optimizer.moments` and `train.compute` may have.
const std::vector<std::string>& schedule_names();
const std::vector<std::string>& moment_formats();
const std::vector<std::string>& compute_dtypes();

/// The values of `memory.policy`: "auto" and the policies by name.
const std::vector<std::string>& memory_policies();
/// The values of `runtime.platform`, `runtime.reduce`, `memory.activations`, and of the other keys
/// of `memory` that name a memory kind.
const std::vector<std::string>& platforms();
const std::vector<std::string>& reduce_orders();
const std::vector<std::string>& activation_places();
const std::vector<std::string>& state_places();
/// The values of `model.dtype` and `data.too_long`.
const std::vector<std::string>& weight_dtypes();
const std::vector<std::string>& too_long_choices();
/// The values of `memory.feed_forward` and `memory.loss`.
const std::vector<std::string>& chunk_forms();
/// The words of `mesh.parameters` and `mesh.optimizer`.
const std::vector<std::string>& mesh_forms();

/// The sources of values, the later over the earlier: defaults, file, settings in order, memory.
struct ConfigSources {
  std::string toml_path;              ///< Empty for none.
  std::vector<std::string> settings;  ///< "key=value", as given to --set.
  std::string memory;                 ///< As given to --memory; empty for none.
};

/// Loads and checks a configuration.
/// Errors: one line that names the place ("run.toml:3", "--set model.dim=x") and what is wrong:
/// syntax, an unknown key (with the nearest known one), a value of the wrong kind or out of range,
/// values that do not fit one another (with the place of each), a key that has no effect with the
/// optimizer.
Result<TrainConfig> load_train_config(const ConfigSources& sources);

/// Refuses sizes that multiply to more than any memory, so that whoever multiplies them later need not
/// fear for 64 bits. load_train_config has called it. Errors: the keys and their values.
Result<void> check_model_sizes(const TrainConfig& config);

/// Every key that has an effect and its value, in the order of the help; what has no value is left
/// out.
ConfigText config_text(const TrainConfig& config);

/// The part of config_text that a resumed run must share with the one it continues. Not in it: what
/// changes no number (budget, policy, folders), how far to go, and the path of the data, which the
/// trainer knows by content.
ConfigText config_to_resume(const TrainConfig& config);

/// The configuration as TOML that loads to the same.
std::string config_toml(const TrainConfig& config);

/// A table of all keys for people: key, what it takes, default, meaning.
std::string config_help();

/// A file of the repository: below $STOW_ROOT, which the launcher sets, or else below the folder
/// the program was built from.
std::string repository_file(const std::string& path);
/// The text that the default job trains on, in the repository.
std::string default_data_path();

}  // namespace stow
