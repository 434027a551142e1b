// The arguments that `score` and `generate` share, and their text about models and peaks.
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

/// The arguments `--model PATH [--adapter DIR]` or `--checkpoint DIR [--best]`, and `[--memory
/// SIZE] [--weights KIND] [--dtype TYPE] [--compute TYPE] [--plan] [--json FILE]`.
struct ModelArguments {
  std::string model, adapter, checkpoint, memory_text, weights_text, dtype_text, compute_text,
      json_path;
  bool best = false, plan = false;

  void add_to(CLI::App& app);  ///< Declares the options.
  /// Parses the texts into the members below. For a checkpoint, `model` becomes the model of its
  /// run, and `adapter` a folder that exists during this object's lifetime. Errors: begin with the
  /// option's name.
  Result<void> read();
  std::optional<int64_t> memory_bytes;
  std::optional<MemoryKind> weights;
  std::optional<DType> dtype, compute;
  /// Opens the adapter of the model; null if none is given. Errors: "PATH: reason".
  Result<std::shared_ptr<const lm::AdapterFiles>> open_adapter(const lm::ModelFiles& files) const;
  /// Sets the fields that lm::ScoreOptions and lm::GenerateOptions share: memory, dtypes, the
  /// memory kind of the weights, threads and the adapter, which it opens. Errors: those of
  /// open_adapter().
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
  /// Returns the stream for text: standard output, or standard error if --json is "-".
  std::FILE* text_stream() const { return json_path == "-" ? stderr : stdout; }

 private:
  Result<void> read_checkpoint();
  std::shared_ptr<void> folder_;  // Owns the temporary folder of a checkpoint's adapter.
};

/// Parses the --dtype of a model that is written: f32 or bf16; none for an empty text. Errors:
/// begin with the option's name.
Result<std::optional<DType>> written_dtype(const std::string& text);

/// Returns "model: llama, 134515008 parameters, f32, on the device: 513.13 MiB", and a line about
/// the adapter if there is one.
std::string describe_model(const lm::ModelFiles& files, const lm::WeightOptions& weights);
/// Sets the keys `predicted_peak_bytes` and, if `device` is not null, `measured_peak_bytes`, both
/// by memory kind.
void set_peaks(Json& object, const BytesByKind& predicted, const Device* device);
/// Returns a line for each memory kind in use: "peak: predicted 123 bytes, measured 123 bytes
/// (1.2 MiB) of device memory".
std::string describe_peaks(const BytesByKind& predicted, const Device& device);

}  // namespace stow
