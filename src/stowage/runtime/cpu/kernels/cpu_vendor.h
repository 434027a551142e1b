// The vendor of the processor, for choices between kernels that differ only in speed.
// Not the instruction set; Highway and each kernel's own tests detect it.
#pragma once

namespace stow::cpu {

/// True if AMD made this processor. By AMD's documents and our measurements (docs/benchmarks.md),
/// AMD's products of pairs of bf16 (AVX-512-BF16) are fast and its L1 cache fetches many lines at a
/// time. Intel's products are slow, and its L1 cache fetches few lines at a time.
inline bool made_by_amd() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool is = __builtin_cpu_is("amd");
  return is;
#else
  return false;
#endif
}

}  // namespace stow::cpu
