// Dtype policies of a training run: what weights, activations and the loss are kept or computed in.
// Not the conversions; models do those.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"

namespace stow {

/// The dtypes that a dtype or a policy asks for, as `train.compute` holds it: "f32", "bf16" (activations and
/// products in bf16), or "p=bf16,c=f32,o=f32" where weights are not f32. A policy lists `p` (or
/// params: the weights), `c` (compute: activations and products) and `o` (output: the loss) as jmp
/// and Levanter write it, "p=f32,c=bf16,o=f32"; a part that is not listed is f32. Dtypes: f32,
/// float32 or full; bf16, bfloat16 or half.
/// Errors: a part or a dtype that does not exist, a part given twice, and a loss of another dtype
/// than f32, which the trainer does not have.
Result<std::string> parse_compute_dtype(const std::string& text);

/// The dtypes of a run.
struct DTypePolicy {
  DType params = DType::kF32;   ///< Dtype of trained weights between steps, and of their gradients.
  DType compute = DType::kF32;  ///< Dtype of activations and products.
};
/// Returns the dtypes that a text of parse_compute_dtype() stands for.
DTypePolicy dtype_policy(const std::string& compute);

}  // namespace stow
