// Dtype policies of a training run: the dtypes of weights, activations and the loss.
// Not the conversions; models do those.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"

namespace stow {

/// Parses a dtype or a dtype policy and returns its normal form, the value of `train.compute`:
/// "f32"; "bf16" (activations and products in bf16); or "p=bf16,c=f32,o=f32" if weights are not
/// f32. A policy is written as by jmp and Levanter, "p=f32,c=bf16,o=f32": `p` or params is the
/// dtype of weights, `c` or compute that of activations and products, `o` or output that of the
/// loss. A missing part is f32. Dtypes: f32, float32 or full; bf16, bfloat16 or half.
/// Errors: an unknown part or dtype, a part given twice, and a loss that is not f32, which the
/// trainer does not support.
Result<std::string> parse_compute_dtype(const std::string& text);

/// The dtypes of a run.
struct DTypePolicy {
  DType params = DType::kF32;   ///< Dtype of trained weights between steps, and of their gradients.
  DType compute = DType::kF32;  ///< Dtype of activations and products.
};
/// Returns the dtypes that a text of parse_compute_dtype() stands for.
DTypePolicy dtype_policy(const std::string& compute);

}  // namespace stow
