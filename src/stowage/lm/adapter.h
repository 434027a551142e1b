// Reading LoRA adapters from PEFT folders to a device, and writing them.
// Not the programs that use them: score.h and generate.h run them, fuse.h merges them into weights.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/hf_config.h"
#include "stowage/io/peft_files.h"
#include "stowage/io/safetensors.h"
#include "stowage/io/tensor_slice.h"
#include "stowage/io/weights.h"
#include "stowage/lm/peft_targets.h"
#include "stowage/nn/lora.h"
#include "stowage/runtime/device.h"

namespace stow::lm {

/// An opened PEFT folder. The names, shapes and dtypes of its tensors are checked; their data are
/// not read yet.
struct AdapterFiles {
  std::string path;
  PeftConfig peft;
  PeftPlan plan;
  std::shared_ptr<const SafetensorsFile> tensors;

  /// Opens a folder with adapter_config.json and adapter_model.safetensors. If PEFT stored weights
  /// of the embedding or the head with the adapter, they must equal those of `base`; a null `base`
  /// skips the comparison.
  /// Errors: "PATH: KEY: reason" for damaged files; errors of PeftConfig::load and plan_targets;
  ///         tensors that are missing, unexpected, misshaped or not floats; a folder with pickles
  ///         only.
  static Result<AdapterFiles> open(const std::string& path, const HfConfig& config,
                                   const WeightSource* base);
  const nn::LoraConfig& lora() const { return plan.lora; }
  /// Abstract arrays with the types of the adapter's arrays: f32, on the device.
  nn::Lora types(const HfConfig& config) const;
};

/// An adapter on a device.
struct Adapter {
  nn::LoraConfig config;
  nn::Lora arrays;                       ///< f32.
  std::vector<DeviceBufferPtr> buffers;  ///< One for each leaf of `arrays`.
};
/// Reads a slice of one leaf of types() into a buffer of the slice's size, row-major. `leaf`: the
/// leaf's path, "layers/wq/a". `type`: type of the whole leaf, f32 or bf16. Uses 1 MiB of memory in
/// addition to the buffer.
/// Errors: system errors; DiskError.
Result<void> read_adapter_slice(const AdapterFiles& files, const HfConfig& config,
                                const std::string& leaf, const ArrayType& type,
                                const TensorSlice& slice, DeviceBuffer& buffer);
/// Reads the arrays of an adapter to `device`; null: the default device. Layers are stacked, and
/// each is padded with zeros to the largest rank.
/// Errors: system errors; CapacityError.
Result<Adapter> load_adapter(const AdapterFiles& files, const HfConfig& config,
                             DevicePtr device = {});

/// Options for writing an adapter.
struct AdapterExport {
  std::string base_model;   ///< PEFT's base_model_name_or_path; empty: none.
  bool use_rslora = false;  ///< True: lora_alpha is scale * sqrt(r). False: scale * r.
};
/// Returns the PEFT configuration with the ranks and scales of `lora`.
PeftConfig peft_config(const nn::LoraConfig& lora, const HfConfig& config,
                       const AdapterExport& options = {});
/// Writes adapter_config.json and adapter_model.safetensors into a folder, which it creates if it
/// is missing. The tensors are exactly those that PEFT expects. `arrays`: concrete, f32, with the
/// shapes of `lora`. Errors: system errors; an adapter without a targeted matrix.
Result<void> save_adapter(const nn::Lora& arrays, const nn::LoraConfig& lora,
                          const HfConfig& config, const std::string& folder,
                          const AdapterExport& options = {});

}  // namespace stow::lm
