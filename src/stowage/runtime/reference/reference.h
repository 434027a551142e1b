// The naive reference implementation of every op: plain loops over strided views.
// Not fast, not threaded and never part of a plan; tests compare kernels with it.
#pragma once

#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/params.h"
#include "stowage/runtime/tensor_view.h"

namespace stow {

/// Evaluates one op. Views may have any strides, negative and zero (inputs) included; outputs may
/// not overlap inputs or have two elements at one address. Floats are computed in double and
/// rounded once to the result's dtype; integers wrap. Integer x / 0 is -1 and x % 0 is x; shifts by
/// the width or more give 0 (right shifts of signed values the sign); conversions of floats to
/// integers saturate and NaN gives 0; max, min and their reductions propagate NaN; sorts are stable
/// with NaN as the largest and -0 equal to 0; a window of a scatter that is not wholly in range is
/// dropped, other windows are applied in row-major order. Operands of dynamic_slice: x and one
/// integer scalar for each axis; of dynamic_update_slice: x, the update and one integer scalar for
/// each axis. Aborts for structure ops (scan, cond, while, checkpoint).
void reference_eval(OpKind op, const Params& params, std::span<const TensorView> inputs,
                    std::span<const TensorView> outputs);

}  // namespace stow
