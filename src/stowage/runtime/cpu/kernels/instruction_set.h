// The limit that STOW_ISA sets on the instruction set of the kernels, to get the speed or the bits
// of a lesser machine.
// Not the choice of the best set up to the limit; Highway makes it.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::cpu {

/// Limits kernels to the instruction set that the environment variable STOW_ISA names: "avx512"
/// (without AMX tiles), "avx2" or "baseline" (SSE2). No limit if the variable is not set.
/// Errors: any other name.
Result<void> limit_instruction_set();

/// Calls limit_instruction_set() the first time in a process; later changes of the variable have no
/// effect. Every device and every compilation calls it first, so the variable takes effect in every
/// program that links the library. Errors: every call throws a TraceError if the name was invalid.
void limit_instruction_set_once();

/// True if kernels may use tiles (AMX) on a machine that has them. Without STOW_ISA this is true,
/// also in programs that never call limit_instruction_set_once().
bool allows_tiles();

/// Returns Highway's name of the instruction set that kernels use, such as "AVX2" or "AVX3_DL".
/// Processes with different instruction sets may compute different bits.
std::string instruction_set_in_use();

/// Returns the instruction set that STOW_ISA names, or an empty string.
std::string instruction_set_limit();

}  // namespace stow::cpu
