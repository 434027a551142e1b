#include "stowage/cli/model_arguments.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "stowage/api/tree.h"
#include "stowage/base/bytes.h"
#include "stowage/cli/arguments.h"
#include "stowage/train/export.h"
#include "stowage/train/trainer.h"

namespace stow {

void ModelArguments::add_to(CLI::App& app) {
  app.add_option("--model", model, "A Hugging Face folder, or a GGUF file")->type_name("PATH");
  app.add_option("--adapter", adapter, "A PEFT folder with a LoRA adapter of the model")
      ->type_name("DIR");
  app.add_option(
         "--checkpoint", checkpoint,
         "In place of both: the train.out folder of a run, whose newest checkpoint is used, or the "
         "JSON file of a checkpoint; gives its model and the adapter that it has trained")
      ->type_name("DIR");
  app.add_flag(
      "--best", best,
      "Uses the checkpoint of that run with the lowest loss in evaluation (eval.keep_best)");
  app.add_option("--memory", memory_text, "The most device memory, as 900MiB; by default what the "
                                          "machine has")
      ->type_name("SIZE");
  app.add_option("--weights", weights_text,
                 "Memory of weights: device, pinned_host or disk; by default on the device, or the "
                 "disk where they do not fit")
      ->type_name("KIND");
  app.add_option("--dtype", dtype_text,
                 "f32, bf16 or f16: what weights are converted to; by default as stored")
      ->type_name("TYPE");
  app.add_option(
         "--compute", compute_text,
         "f32 or bf16: what activations are computed in; by default bf16 for weights of bf16, "
         "else f32")
      ->type_name("TYPE");
  app.add_flag("--plan", plan, "Shows the plan and runs nothing; needs no weights");
  app.add_option("--json", json_path, "JSON lines to a file; - is standard output")
      ->type_name("FILE");
}

Result<std::optional<DType>> written_dtype(const std::string& text) {
  if (text.empty()) return std::optional<DType>();
  if (text == "f32") return std::optional(DType::kF32);
  if (text == "bf16") return std::optional(DType::kBF16);
  return fail("--dtype: expected f32 or bf16, got '{}'", text);
}

Result<void> ModelArguments::read_checkpoint() {
  if (!model.empty() || !adapter.empty())
    return fail("--checkpoint names the model and the adapter; expected no {}",
                model.empty() ? "--adapter" : "--model");
  std::string folder =
      (std::filesystem::temp_directory_path() / "stowage-adapter-XXXXXX").string();
  if (!::mkdtemp(folder.data())) return fail("{}: {}", folder, std::strerror(errno));
  folder_ = std::shared_ptr<void>(nullptr, [folder](void*) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  });
  const Result<Exported> made = export_adapter(
      checkpoint, folder, best ? WhichCheckpoint::kBest : WhichCheckpoint::kNamed);
  if (!made) return fail("--checkpoint: {}", made.error());
  model = made->model_path;
  adapter = folder;
  return {};
}

Result<void> ModelArguments::read() {
  if (best && checkpoint.empty()) return fail("--best has no effect without --checkpoint");
  if (!checkpoint.empty())
    if (Result<void> read = read_checkpoint(); !read) return read;
  if (model.empty()) return fail("expected --model PATH or --checkpoint DIR, got neither");
  if (!memory_text.empty()) {
    const Result<int64_t> bytes = parse_bytes(memory_text);
    if (!bytes) return fail("--memory: {}", bytes.error());
    memory_bytes = *bytes;
  }
  if (!weights_text.empty()) {
    weights = parse_memory_kind(weights_text);
    if (!weights)
      return fail("--weights: expected device, pinned_host or disk, got '{}'", weights_text);
  }
  if (!dtype_text.empty()) {
    if (dtype_text == "f32") dtype = DType::kF32;
    if (dtype_text == "bf16") dtype = DType::kBF16;
    if (dtype_text == "f16") dtype = DType::kF16;
    if (!dtype) return fail("--dtype: expected f32, bf16 or f16, got '{}'", dtype_text);
  }
  if (!compute_text.empty()) {
    if (compute_text == "f32") compute = DType::kF32;
    if (compute_text == "bf16") compute = DType::kBF16;
    if (!compute) return fail("--compute: expected f32 or bf16, got '{}'", compute_text);
  }
  return {};
}

Result<std::shared_ptr<const lm::AdapterFiles>> ModelArguments::open_adapter(
    const lm::ModelFiles& files) const {
  if (adapter.empty()) return std::shared_ptr<const lm::AdapterFiles>();
  Result<lm::AdapterFiles> opened =
      lm::AdapterFiles::open(adapter, files.config, files.weights.get());
  if (!opened) return opened.failure();
  return std::make_shared<const lm::AdapterFiles>(std::move(*opened));
}

std::string describe_model(const lm::ModelFiles& files, const lm::WeightOptions& weights) {
  const nn::Decoder types = lm::abstract_weights(files.config, weights);
  int64_t n = 0, bytes = 0;
  for (const Array& leaf : tree_leaves(types)) {
    n += leaf.size();
    bytes += leaf.type().bytes();
  }
  std::string text =
      fmt::format("model: {}, {} layers, {} parameters, {}, {} in {} memory\n",
                  family_name(files.config.family), files.config.num_hidden_layers, n,
                  dtype_name(lm::weight_dtype(files.config, weights)), format_bytes(bytes),
                  memory_kind_name(weights.memory));
  if (!weights.adapter) return text;
  n = bytes = 0;
  for (const Array& leaf : tree_leaves(lm::abstract_adapter(files.config, weights))) {
    n += leaf.size();
    bytes += leaf.type().bytes();
  }
  text += fmt::format("adapter: {} modules, {} parameters, f32, {} in device memory\n",
                      weights.adapter->plan.targets.size(), n, format_bytes(bytes));
  return text;
}

void set_peaks(Json& object, const BytesByKind& predicted, const Device* device) {
  object.set("predicted_peak_bytes", bytes_json(predicted));
  if (!device) return;
  BytesByKind measured{};
  for (size_t kind = 0; kind < measured.size(); ++kind)
    measured[kind] = device->high_water_bytes(static_cast<MemoryKind>(kind));
  object.set("measured_peak_bytes", bytes_json(measured));
}

std::string describe_peaks(const BytesByKind& predicted, const Device& device) {
  std::string text;
  for (size_t kind = 0; kind < predicted.size(); ++kind) {
    const auto memory = static_cast<MemoryKind>(kind);
    const int64_t measured = device.high_water_bytes(memory);
    if (kind == 0 || predicted[kind] > 0 || measured > 0)
      text += fmt::format("peak of {} memory: predicted {} bytes, measured {} bytes ({})\n",
                          memory_kind_name(memory), predicted[kind], measured,
                          format_bytes(measured));
  }
  return text;
}

}  // namespace stow
