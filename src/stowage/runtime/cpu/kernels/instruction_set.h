// How much of what the machine has the kernels use, where less than all is wanted: to have the speed
// or the bits of a lesser machine.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::cpu {

/// Holds kernels to the instruction set that the environment variable STOW_ISA names, if it is set:
/// "avx512" (all but tiles), "avx2" or "baseline" (SSE2).
/// Errors: another name.
Result<void> limit_instruction_set();

/// The same, once in a process: every device and every compilation calls it first, so that the
/// environment counts in every program that links the library. What the variable says later has no
/// effect. Errors: TraceError for another name, every time.
void obey_environment();

/// True if kernels may use tiles (AMX) on a machine that has them. Without STOW_ISA this is true,
/// also in programs that never call obey_environment().
bool allows_tiles();

/// The instruction set that kernels use, in Highway's word: "AVX2", "AVX3_DL". Processes that have
/// different ones may compute different bits.
std::string instruction_set_in_use();

/// Returns the instruction set that STOW_ISA names, or an empty string.
std::string instruction_set_limit();

}  // namespace stow::cpu
