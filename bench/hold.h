// What every benchmark of kernels begins with.
#pragma once

#include <fmt/core.h>

#include <cstdlib>

#include "stowage/runtime/cpu/kernels/instruction_set.h"

namespace stow {

/// Holds kernels to STOW_ISA; a name that is none ends the program.
inline void hold_instruction_set() {
  const Result<void> held = cpu::limit_instruction_set();
  if (held) return;
  fmt::print(stderr, "{}\n", held.error());
  std::exit(1);
}

}  // namespace stow
