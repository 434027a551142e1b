// Dtype policies of a training run: what weights, activations and the loss are kept or computed in.
// Not the conversions; models do those.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// What activations and products are computed in, "f32" or "bf16", of a dtype or of a policy.
/// A policy lists `p` (or params: the weights), `c` (compute: activations and products) and `o`
/// (output: the loss) as jmp and Levanter write it, "p=f32,c=bf16,o=f32"; a part that is not listed
/// is f32. Dtypes: f32, float32 or full; bf16, bfloat16 or half.
/// Errors: a part or a dtype that does not exist, a part given twice, and weights or a loss of
/// another dtype than f32, which the trainer does not have.
Result<std::string> parse_compute_dtype(const std::string& text);

}  // namespace stow
