// How much of what the machine has the kernels use, where less than all is wanted: to have the speed
// or the bits of a lesser machine.
#pragma once

#include <string>

#include "stowage/base/result.h"

namespace stow::cpu {

/// Holds kernels to the instruction set that the environment variable STOW_ISA names, "avx2" or
/// "baseline" (SSE2), if it is set.
/// Errors: another name.
Result<void> limit_instruction_set();

/// What STOW_ISA names, or empty.
std::string instruction_set_limit();

}  // namespace stow::cpu
