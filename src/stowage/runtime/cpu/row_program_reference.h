// The meaning of a row program, step by step over whole arrays of values: the tests' oracle.
// Not for run time. Of the kernels it shares only simd_math.h, which has a test of its own.
#pragma once

#include <cstddef>
#include <span>

#include "stowage/ir/row_program.h"

namespace stow::cpu {

/// Runs the program like run_row_program(). The results have the same bits, except payloads of
/// NaNs.
void run_row_program_reference(const RowProgram& program, std::span<const std::byte* const> inputs,
                               std::span<std::byte* const> outputs);

}  // namespace stow::cpu
