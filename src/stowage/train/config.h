// TrainConfig: the configuration of a training run, from a TOML file and the command line.
// Not the run. Checks here do not open the data or the model's files, and make no plan.
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

/// Keys are the names of the fields: `model.kv_heads`. Defaults are those of the default job.
struct TrainConfig {
  struct Model {
    std::string path;  ///< A Hugging Face folder or GGUF file; empty: a decoder of the sizes below.
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
    std::string init;  ///< A PEFT folder with the adapter to start from; empty: a new adapter.

    bool is_used() const { return rank > 0 || !init.empty(); }
  } lora;
  struct Data {
    std::string path;    ///< After load_train_config(), empty only with model.path.
    int64_t batch = 16;  ///< Sequences of a microbatch.
    int64_t seq = 128;   ///< Tokens of a sequence.
    int64_t accumulate = 1;  ///< Microbatches of an update.
    // Settings of JSONL files (train/dataset.h):
    bool pack = false;
    bool mask_prompt = true;
    bool shuffle = true;
    bool length_buckets = false;
    std::string too_long = "cut";
    double valid_fraction = 0;  ///< Share of a file's lines held out if it has no validation file.
  } data;
  /// Evaluation on held-out data.
  struct Eval {
    int64_t every = 100;   ///< Steps between evaluations; 0: only at the end.
    int64_t batch = 0;     ///< Sequences of a batch; 0: as data.batch.
    int64_t seq = 0;       ///< Tokens of a sequence; 0: as data.seq.
    std::string data;      ///< A JSONL file; empty: the held-out part of data.path.
    int64_t patience = 0;  ///< Evaluations without a better loss after which a run stops; 0: never.
    /// True: the checkpoint of the best evaluation is kept. load_train_config() sets it if
    /// `patience` is set and this key is not.
    bool keep_best = false;
  } eval;
  struct Optimizer {
    std::string name = "adamw";
    double lr = 3e-3;
    std::string schedule = "cosine";
    int64_t warmup = 20;
    double weight_decay = 0.1;
    double clip = 1.0;  ///< Bound of the gradients' global norm; 0: none.
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double momentum = 0;
    bool nesterov = false;
    std::string moments = "f32";  ///< The format of the moments between steps.
    std::string freeze;       ///< Patterns of paths, separated by commas.
    int64_t total_steps = 0;  ///< Length of the schedule; if unset, loading sets train.steps.
  } optimizer;
  struct Train {
    int64_t steps = 300;
    std::string compute = "f32";  ///< The dtype of activations and products; see dtypes.h.
    int64_t loss_chunk = 0;       ///< Tokens whose logits exist at a time; 0: all.
    int64_t vocab_block = 0;      ///< Vocabulary entries whose logits exist at a time; 0: all.
    int64_t seed = 0;
    std::string out = "out";         ///< Folder for checkpoints.
    int64_t checkpoint_every = 100;  ///< Steps between checkpoints; 0: only at the end.
    double ema = 0;           ///< Decay of the average of the weights over steps; 0: no average.
    int64_t sample = 240;     ///< Bytes to sample from the model at the end; 0: none.
    std::string tensorboard;  ///< Folder for event files; empty: none.
  } train;
  /// The mesh of replica x data x model devices that train together.
  struct Mesh {
    int64_t replica = 1;  ///< Copies of the weights, each with a share of the batch.
    int64_t data = 1;     ///< Devices that shard the batch, the weights and their state.
    int64_t model = 1;    ///< Devices that shard heads, feed-forward blocks and the vocabulary.
    bool sequence = false;  ///< True if layer inputs are sharded over `model` by tokens.
    std::string parameters = "auto";  ///< Sharding of weights over `data`; see mesh_forms().
    std::string optimizer = "auto";   ///< Sharding of the optimizer's state and the average.

    int64_t size() const { return replica * data * model; }  ///< Devices.
    int64_t batch_parts() const { return replica * data; }   ///< Shares of a batch.
  } mesh;
  struct Runtime {
    std::string platform = "cpu";
    std::string
        disk_folder;  ///< Folder of the disk's file; empty: the system's temporary folder.
    double timeout = 60;          ///< Longest wait, in seconds, for another device in a collective.
    std::string reduce = "tree";  ///< Order of sums over devices: "tree" or "native".
    /// Not a key. Bytes of each device's share of the window through which the devices of a mesh
    /// exchange data (comm::window_of); set by the command. They count against memory.host.
    int64_t window_bytes = 0;
  } runtime;
  struct Memory {
    std::optional<int64_t> device;  ///< Bytes of device memory; none: the machine's.
    std::optional<int64_t> host;    ///< Bytes of a virtual device's host memory; none: no limit.
    std::optional<int64_t> disk;    ///< Bytes of disk; none: no disk.
    std::string policy = "auto";
    std::string activations = "auto";   ///< Memory kind of activations that leave the device.
    std::string optimizer = "auto";     ///< Memory kind of the optimizer's state.
    std::string parameters = "auto";    ///< Memory kind of weights.
    std::string gradients = "auto";     ///< Memory kind of gradients.
    std::string frozen = "auto";        ///< Memory kind of weights that are not trained.
    std::string feed_forward = "auto";  ///< "chunked" or "whole" feed-forward blocks.
    std::string loss = "auto";          ///< "chunked" or "whole" loss.
    bool operator==(const Memory&) const = default;
  } memory;

  /// Sequences of an evaluation batch.
  int64_t eval_batch() const { return eval.batch > 0 ? eval.batch : data.batch; }
  /// Tokens of an evaluation sequence.
  int64_t eval_seq() const { return eval.seq > 0 ? eval.seq : data.seq; }
  bool is_virtual() const { return runtime.platform == "virtual"; }
  /// Tokens of a device's share of a microbatch.
  int64_t microbatch_tokens_per_device() const {
    return data.batch / mesh.batch_parts() * data.seq;
  }
  /// True if a device's share of a microbatch has more than one chunk of kProductBlock tokens.
  bool has_chunks() const { return microbatch_tokens_per_device() > kProductBlock; }
  /// True if train.loss_chunk or train.vocab_block is set.
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

/// The sources of values. Later ones override earlier ones: defaults, file, settings in order,
/// memory.
struct ConfigSources {
  std::string toml_path;              ///< Path of a TOML file; empty: none.
  std::vector<std::string> settings;  ///< Arguments of --set: "key=value".
  std::string memory;                 ///< Argument of --memory; empty: none.
};

/// Loads and checks a configuration.
/// Errors: one line that names the place ("run.toml:3", "--set model.dim=x") and the reason:
/// syntax; an unknown key (with the nearest known one); a value of the wrong type or out of range;
/// values that contradict each other (with the place of each); a key without effect for the model,
/// the optimizer or the schedule.
Result<TrainConfig> load_train_config(const ConfigSources& sources);

/// Fails if products of the model's sizes would not fit into 64 bits. load_train_config() calls it.
/// Errors: the keys and their values.
Result<void> check_model_sizes(const TrainConfig& config);

/// Returns all keys that have an effect, with their values, in the order of the help. Keys without
/// a value are left out.
ConfigText config_text(const TrainConfig& config);

/// Returns the part of config_text() that a resumed run must share with the run it continues. It
/// leaves out keys that do not change results (budgets, policy, folders), the number of steps, and
/// the path of the data, which a digest identifies.
ConfigText config_to_resume(const TrainConfig& config);

/// Returns the configuration as TOML that loads to an equal configuration.
std::string config_toml(const TrainConfig& config);

/// Returns a table of all keys for people: key, accepted values, default, meaning.
std::string config_help();

/// Returns the path of a file of the repository: below $STOW_ROOT, which the launcher sets, or
/// below the source folder of the build.
std::string repository_file(const std::string& path);
/// Returns the path of the repository's text on which the default job trains.
std::string default_data_path();

}  // namespace stow
