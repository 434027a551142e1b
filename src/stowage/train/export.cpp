#include "stowage/train/export.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "stowage/api/trace.h"
#include "stowage/io/checkpoint_file.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/hf_folder.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/fuse.h"
#include "stowage/lm/model.h"
#include "stowage/text/tokenizer_export.h"

namespace stow {
namespace {

// A checkpoint of a model from files, and its description.
struct Opened {
  Checkpoint checkpoint;
  Exported what;
  std::string model_path;
  HfConfig config;
  std::optional<PeftConfig> adapter;
  DType dtype = DType::kF32;  // in which the base was held
  std::string base_digest;    // "" where the base was trained

  // The prefix of the exported leaves: those of the average if there is one.
  std::string prefix() const { return what.is_ema ? "ema/" : "model/"; }
};

// Returns the best checkpoint that the one at `path` names.
Result<std::string> best_of(const std::string& path) {
  const Result<CheckpointMeta> meta = read_checkpoint_meta(path);
  if (!meta) return meta.failure();
  const Json* step = meta->extra.find("best_step");
  if (!step || !step->as_int() || *step->as_int() < 0)
    return fail(
        "{}: names no best checkpoint: expected that of a run with eval.keep_best = true that "
        "has been evaluated",
        path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return checkpoint_path(folder.empty() ? "." : folder.string(), *step->as_int());
}

Result<Opened> open(const std::string& where, WhichCheckpoint which) {
  std::string path = where;
  std::error_code error;
  if (!std::filesystem::exists(where, error)) return fail("{}: no such file or folder", where);
  if (std::filesystem::is_directory(where, error)) {
    const Result<std::optional<CheckpointName>> latest = latest_checkpoint(where);
    if (!latest) return latest.failure();
    if (!*latest) return fail("{}: expected a checkpoint in it, got none", where);
    path = (*latest)->path;
  }
  if (which == WhichCheckpoint::kBest) {
    Result<std::string> best = best_of(path);
    if (!best) return best.failure();
    path = std::move(*best);
  }
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return checkpoint.failure();
  const Json* record = checkpoint->meta().extra.find("model");
  const Json* model_path = record ? record->find("path") : nullptr;
  const Json* config = record ? record->find("config") : nullptr;
  if (!model_path || !model_path->as_string() || !config)
    return fail(
        "{}: expected a run with model.path, got one with a model of its own sizes, which cannot be "
        "exported",
        path);
  Result<HfConfig> parsed = HfConfig::from_json(*config, path);
  if (!parsed) return parsed.failure();
  Opened opened{std::move(*checkpoint),
                {path, 0, false, *model_path->as_string()},
                *model_path->as_string(),
                std::move(*parsed),
                {},
                DType::kF32,
                {}};
  if (const Json* dtype = record->find("dtype"); dtype && dtype->as_string())
    opened.dtype = parse_dtype(*dtype->as_string()).value_or(DType::kF32);
  opened.what.step = opened.checkpoint.meta().step;
  if (const Json* adapter = record->find("adapter"); adapter && adapter->is_object()) {
    Result<PeftConfig> peft = PeftConfig::parse(adapter->dump(), path);
    if (!peft) return peft.failure();
    opened.adapter = std::move(*peft);
  }
  for (const auto& [key, value] : opened.checkpoint.meta().config) {
    if (key == "model.digest") opened.base_digest = value;
    if (key == "train.ema" && std::strtod(value.c_str(), nullptr) > 0) opened.what.is_ema = true;
  }
  return opened;
}

// Returns the dtype of a leaf's tensor, f32 or bf16, which must have that type's shape.
Result<DType> dtype_of_leaf(const Opened& from, const std::string& name, const ArrayType& type) {
  const TensorInfo* tensor = from.checkpoint.find(name);
  if (!tensor) return fail("{}: no tensor '{}'", from.what.checkpoint, name);
  const bool is_held = tensor->dtype == DType::kF32 || tensor->dtype == DType::kBF16;
  if (!is_held || tensor->shape != type.shape.dims())
    return fail("{}: '{}' is {}, expected {} or bf16", from.what.checkpoint, name,
                tensor_type(tensor->dtype, tensor->shape), to_string(type));
  return tensor->dtype;
}

Result<void> write_adapter(const Opened& from, const std::string& folder) {
  const Result<lm::PeftPlan> plan = lm::plan_targets(*from.adapter, from.config);
  if (!plan) return fail("{}: {}", from.what.checkpoint, plan.error());
  const nn::Lora types =
      nn::lora_abstract(lm::decoder_config(from.config, DType::kF32), plan->lora);
  const std::vector<std::string> paths = tree_paths(types);
  std::vector<Array> leaves = tree_leaves(types);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const ArrayType type = leaves[i].type();
    const std::string name = from.prefix() + paths[i];
    const Result<DType> held = dtype_of_leaf(from, name, type);
    if (!held) return held.failure();
    DeviceBufferPtr buffer = Device::cpu()->allocate(type.bytes());
    const std::span<std::byte> wide(buffer->data(), static_cast<size_t>(type.bytes()));
    std::vector<std::byte> stored(static_cast<size_t>(type.elems() * dtype_bytes(*held)));
    if (Result<void> read = from.checkpoint.read(name, stored); !read) return read;
    convert_floats(*held, stored, DType::kF32, wide);
    leaves[i] = make_concrete(type, std::move(buffer));
  }
  return lm::save_adapter(tree_unflatten(types, leaves), plan->lora, from.config, folder,
                          {.base_model = from.model_path, .use_rslora = from.adapter->use_rslora});
}

// Refuses to write to a folder that is read.
Result<void> check_distinct_folders(const Opened& from, const std::string& folder) {
  std::error_code error;
  for (const std::string& read :
       {from.model_path, std::filesystem::path(from.what.checkpoint).parent_path().string()})
    if (std::filesystem::equivalent(folder, read, error))
      return fail("{}: is read from; expected another folder", folder);
  return {};
}

// Returns a tensor in the dtype of a file.
TensorBytes converted(TensorBytes tensor, DType dtype) {
  if (dtype == tensor.dtype) return tensor;
  TensorBytes made{tensor.name, dtype, tensor.shape, {}, {}};
  made.read = [read = tensor.read, from = tensor.dtype, dtype](int64_t offset,
                                                               std::span<std::byte> out) {
    const int64_t first = offset / dtype_bytes(dtype);
    const int64_t n = static_cast<int64_t>(out.size()) / dtype_bytes(dtype);
    std::vector<std::byte> stored(static_cast<size_t>(n * dtype_bytes(from)));
    read(first * dtype_bytes(from), stored);
    convert_floats(from, stored, dtype, out);
  };
  return made;
}

}  // namespace

Result<Exported> export_adapter(const std::string& checkpoint, const std::string& folder,
                                WhichCheckpoint which) {
  Result<Opened> from = open(checkpoint, which);
  if (!from) return from.failure();
  if (!from->adapter)
    return fail(
        "{}: has no adapter: all weights were trained; `./stowage export --model FOLDER` writes them",
        from->what.checkpoint);
  if (Result<void> apart = check_distinct_folders(*from, folder); !apart) return apart.failure();
  if (Result<void> written = write_adapter(*from, folder); !written) return written.failure();
  return from->what;
}

Result<Exported> export_model(const std::string& checkpoint, const std::string& folder,
                              std::optional<DType> dtype, WhichCheckpoint which) {
  Result<Opened> from = open(checkpoint, which);
  if (!from) return from.failure();
  if (Result<void> apart = check_distinct_folders(*from, folder); !apart) return apart.failure();
  std::error_code error;
  if (!std::filesystem::exists(from->model_path, error))
    return fail("{}: its model.path, {}, is not there any more; {} come from it",
                from->what.checkpoint, from->model_path,
                from->adapter ? "the weights" : "the tokenizer's files");
  if (from->adapter) {
    // A temporary folder beside the target, removed at the end.
    const std::filesystem::path whole = std::filesystem::absolute(folder, error).lexically_normal();
    const std::filesystem::path beside = whole.has_filename() ? whole : whole.parent_path();
    const std::string apart = fmt::format("{}.adapter-{}", beside.string(), ::getpid());
    const auto merge = [&]() -> Result<void> {
      if (Result<void> written = write_adapter(*from, apart); !written) return written;
      const Result<lm::ModelFiles> base = lm::ModelFiles::open(from->model_path);
      if (!base) return base.failure();
      if (base->config.to_json().dump() != from->config.to_json().dump())
        return fail("{}: is another model than that of {}", from->model_path,
                    from->what.checkpoint);
      if (base->weights) {
        const Result<std::string> digest = lm::weights_digest(
            *base->weights, nn::decoder_abstract(lm::decoder_config(base->config, DType::kF32),
                                                 from->dtype));
        if (!digest) return digest.failure();
        if (*digest != from->base_digest)
          return fail("{}: its weights are not those that the adapter of {} was trained over",
                      from->model_path, from->what.checkpoint);
      }
      const Result<lm::AdapterFiles> adapter =
          lm::AdapterFiles::open(apart, base->config, base->weights.get());
      if (!adapter) return adapter.failure();
      if (const Result<lm::Fused> fused = lm::fuse(*base, *adapter, folder, dtype); !fused)
        return fused.failure();
      return {};
    };
    const Result<void> merged = merge();
    std::filesystem::remove_all(apart, error);
    if (!merged) return merged.failure();
    return from->what;
  }
  const nn::Decoder types =
      nn::decoder_abstract(lm::decoder_config(from->config, DType::kF32), DType::kF32);
  const std::vector<std::string> paths = tree_paths(types);
  const std::vector<Array> leaves = tree_leaves(types);
  std::vector<TensorBytes> tensors;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::string name = from->prefix() + paths[i];
    ArrayType type = leaves[i].type();
    const Result<DType> held = dtype_of_leaf(*from, name, type);
    if (!held) return held.failure();
    type.dtype = *held;
    const auto read = [&from, name](int64_t offset, std::span<std::byte> out) {
      if (Result<void> got = from->checkpoint.read_part(name, offset, out); !got)
        throw std::runtime_error(got.error());
    };
    for (TensorBytes& tensor : lm::weight_tensors(paths[i], type, read))
      tensors.push_back(converted(std::move(tensor), dtype.value_or(*held)));
  }
  if (Result<void> written = write_hf_folder(folder, from->config, tensors); !written)
    return written.failure();
  if (Result<void> written = text::write_tokenizer_files(from->model_path, folder); !written)
    return written.failure();
  return from->what;
}

}  // namespace stow
