// ScratchTable: a cache of the scratch sizes of row programs.
// Not their computation; that is kernel_scratch_bytes() in bound_kernel.h.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow::cpu {

/// Computing a row program's scratch means compiling it, and a plan search asks about the same
/// programs many times. Thread-safe.
class ScratchTable {
 public:
  /// Returns kernel_scratch_bytes(kernel, threads). `threads` must be the same at every call.
  int64_t scratch_bytes(const Kernel& kernel, int threads);

 private:
  struct ByContent {
    using Program = std::shared_ptr<const RowProgram>;
    // Hash of the content.
    size_t operator()(const Program& program) const;
    // Equality: the same object, or equal content.
    bool operator()(const Program& a, const Program& b) const { return a == b || *a == *b; }
  };

  std::mutex mutex_;
  std::unordered_map<std::shared_ptr<const RowProgram>, int64_t, ByContent, ByContent> bytes_;
};

}  // namespace stow::cpu
