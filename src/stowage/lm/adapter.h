// Adapters of PEFT folders: read to a device beside a model, and written.
// Not their programs; score.h and generate.h run them, fuse.h merges them into weights.
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

/// An adapter of a model as a PEFT folder describes it; its tensors are checked and unread.
struct AdapterFiles {
  std::string path;
  PeftConfig peft;
  PeftPlan plan;
  std::shared_ptr<const SafetensorsFile> tensors;

  /// Opens a folder of adapter_config.json and adapter_model.safetensors.
  /// Weights of the embedding and the head that PEFT stores beside an adapter must be `base`'s;
  /// where `base` is null they are taken to be. Errors: "PATH: KEY: reason" for damaged files,
  /// whatever PeftConfig::load and plan_targets refuse,
  ///         tensors that are missing, surplus, misshaped or no floats, and pickles alone.
  static Result<AdapterFiles> open(const std::string& path, const HfConfig& config,
                                   const WeightSource* base);
  const nn::LoraConfig& lora() const { return plan.lora; }
  /// Types of the adapter's arrays, f32 on the device.
  nn::Lora types(const HfConfig& config) const;
};

/// An adapter on a device.
struct Adapter {
  nn::LoraConfig config;
  nn::Lora arrays;                       ///< f32.
  std::vector<DeviceBufferPtr> buffers;  ///< One a leaf of `arrays`.
};
/// Reads a slice of one leaf of types() by its path ("layers/wq/a") into a buffer of its bytes,
/// row-major. `type` is the whole leaf's, f32 or bf16. Holds pieces of 1 MiB beside the buffer.
/// Errors: the system's; DiskError.
Result<void> read_adapter_slice(const AdapterFiles& files, const HfConfig& config,
                                const std::string& leaf, const ArrayType& type,
                                const TensorSlice& slice, DeviceBuffer& buffer);
/// Reads the arrays, each layer at its place and padded with zeros to the greatest rank.
/// Errors: the system's; CapacityError.
Result<Adapter> load_adapter(const AdapterFiles& files, const HfConfig& config,
                             DevicePtr device = {});

/// How an adapter is written.
struct AdapterExport {
  std::string base_model;   ///< base_model_name_or_path; empty: none.
  bool use_rslora = false;  ///< lora_alpha is scale * sqrt(r), not scale * r.
};
/// The configuration that gives PEFT these ranks and scales.
PeftConfig peft_config(const nn::LoraConfig& lora, const HfConfig& config,
                       const AdapterExport& options = {});
/// Writes adapter_config.json and adapter_model.safetensors into a folder, which is made where it
/// is missing, so that PEFT finds every tensor and no other. `arrays` are concrete, f32, of
/// `lora`'s shapes. Errors: the system's; an adapter without a targeted matrix.
Result<void> save_adapter(const nn::Lora& arrays, const nn::LoraConfig& lora,
                          const HfConfig& config, const std::string& folder,
                          const AdapterExport& options = {});

}  // namespace stow::lm
