#include "stowage/api/run_graph.h"

#include "stowage/ir/utilities.h"
#include "stowage/runtime/target.h"

namespace stow {

std::vector<DeviceBufferPtr> GraphRunner::run(Graph graph, const DevicePtr& device,
                                              std::span<const DeviceBufferPtr> arguments) {
  const size_t hash = structural_hash(graph);
  const std::string key = device->target()->key();
  const auto [first, last] = programs_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (it->second.target == key && equal(it->second.graph, graph))
      return it->second.executable->run(*device, arguments);
  if (programs_.size() >= kMaxPrograms) programs_.clear();
  ++n_compiled_;
  ExecutablePtr executable = compile(graph, CompileOptions{}, device->target());
  programs_.emplace(hash, Entry{std::move(graph), key, executable});
  return executable->run(*device, arguments);
}

}  // namespace stow
