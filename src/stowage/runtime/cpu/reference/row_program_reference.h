// The meaning of a row program, step by step over whole arrays of values: the tests' oracle.
// Not for use at run time; slow and obvious on purpose. Of the kernels it shares only the vector
// functions of simd_math.h, which have a test of their own.
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
