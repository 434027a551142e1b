// The arguments that `score` and `generate` share, and what both print of plans and peaks.
// Not the commands.
#pragma once

#include <omp.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/json.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/model.h"
#include "stowage/session/compile.h"

namespace CLI {
class App;
}

namespace stow {

/// `--model PATH [--adapter DIR]` or `--checkpoint DIR [--best]`, and `[--memory SIZE]
/// [--weights KIND] [--dtype TYPE] [--compute TYPE] [--plan] [--json FILE]`.
struct ModelArguments {
  std::string model, adapter, checkpoint, memory_text, weights_text, dtype_text, compute_text, json_path;
  bool best = false, plan = false;

  void add_to(CLI::App& app);  ///< Declares the options.
  /// Reads the texts into the members below. Of a checkpoint, `model` becomes that of its run and
  /// `adapter` a folder that is there as long as this. Errors: begin with the option's name.
  Result<void> read();
  std::optional<int64_t> memory_bytes;
  std::optional<MemoryKind> weights;
  std::optional<DType> dtype, compute;
  /// Opens the adapter of the model; null where none is asked for. Errors: "PATH: …".
  Result<std::shared_ptr<const lm::AdapterFiles>> open_adapter(const lm::ModelFiles& files) const;
  /// Sets what lm::ScoreOptions and lm::GenerateOptions share: memory, dtypes, place, threads and the
  /// adapter, which it opens. Errors: those of open_adapter().
  template <typename Options>
  Result<void> set(Options& options, const lm::ModelFiles& files) const {
    options.memory_bytes = memory_bytes;
    options.dtype = dtype;
    options.compute = compute;
    options.weights = weights;
    options.threads = omp_get_max_threads();
    auto opened = open_adapter(files);
    if (!opened) return opened.failure();
    options.adapter = std::move(*opened);
    return {};
  }
  /// People read standard output unless the JSON goes there.
  std::FILE* text_stream() const { return json_path == "-" ? stderr : stdout; }

 private:
  Result<void> read_checkpoint();
  std::shared_ptr<void> folder_;  // Folder of the adapter of a checkpoint, removed at the end.
};

/// The --dtype of a model that is written: f32 or bf16, none for nothing. Errors: begin with the
/// option's name.
Result<std::optional<DType>> written_dtype(const std::string& text);

/// "model: llama, 134515008 parameters, f32, on the device: 513.13 MiB", and a line on the adapter.
std::string describe_model(const lm::ModelFiles& files, const lm::WeightOptions& weights);
/// Sets `predicted_peak_bytes` and, where it is known, `measured_peak_bytes` by memory kind.
void set_peaks(Json& object, const BytesByKind& predicted, const Device* device);
/// "peak: predicted 123 bytes, measured 123 bytes (1.2 MiB) of device memory", a line a kind in use.
std::string describe_peaks(const BytesByKind& predicted, const Device& device);

}  // namespace stow
