// ScratchTable: the scratch of row programs, kept for when the same program is asked about again.
// Not the computation of it; bound_kernel.h has that.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow::cpu {

/// To know a program's scratch it has to be compiled. A search for a plan lowers most kernels in each order
/// and under each tiling, so it asks about the same programs many times. Threads may share a table.
class ScratchTable {
 public:
  /// As kernel_scratch_bytes() (bound_kernel.h) for so many threads, which must be the same at every call.
  int64_t scratch_bytes(const Kernel& kernel, int threads);

 private:
  struct ByContent {
    using Program = std::shared_ptr<const RowProgram>;
    size_t operator()(const Program& program) const;                                          // hash
    bool operator()(const Program& a, const Program& b) const { return a == b || *a == *b; }  // equality
  };

  std::mutex mutex_;
  std::unordered_map<std::shared_ptr<const RowProgram>, int64_t, ByContent, ByContent> bytes_;
};

}  // namespace stow::cpu
