// GraphRunner: compiles and runs graphs, and caches one program for all graphs of equal structure.
// Not a jit cache, which also avoids tracing.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/runtime/device.h"
#include "stowage/session/compile.h"

namespace stow {

/// Used by one thread.
class GraphRunner {
 public:
  /// Runs `graph` on `device`. Errors: as compile() and Executable::run().
  std::vector<DeviceBufferPtr> run(Graph graph, const DevicePtr& device,
                                   std::span<const DeviceBufferPtr> arguments);
  /// Number of programs compiled so far, for tests.
  int64_t n_compiled() const { return n_compiled_; }

 private:
  static constexpr size_t kMaxPrograms = 4096;
  struct Entry {
    Graph graph;
    std::string target;  // its key
    ExecutablePtr executable;
  };
  std::unordered_multimap<size_t, Entry> programs_;
  int64_t n_compiled_ = 0;
};

}  // namespace stow
