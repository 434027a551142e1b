// Who made the processor, where machines with the same instructions differ in how fast they are.
// Not which instructions there are: Highway and each kernel's own tests say that.
#pragma once

namespace stow::cpu {

/// True if AMD made this processor. By its documents and our measurements (docs/benchmarks*.md) its
/// products of pairs of bf16 are fast and its first cache takes many lines at once; Intel's are not
/// and does not.
inline bool made_by_amd() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool is = __builtin_cpu_is("amd");
  return is;
#else
  return false;
#endif
}

}  // namespace stow::cpu
