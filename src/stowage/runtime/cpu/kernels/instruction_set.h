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

/// Whether kernels may use tiles (AMX) where the machine has them: where STOW_ISA is not set, also
/// in programs that never call the above.
bool allows_tiles();

/// The instruction set that kernels use, in Highway's word: "AVX2", "AVX3_DL". Processes that have
/// different ones may compute different bits.
std::string instruction_set_in_use();

/// What STOW_ISA names, or empty.
std::string instruction_set_limit();

}  // namespace stow::cpu
