#include "stowage/api/constraint.h"

#include "stowage/api/manual_mesh.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/memory.h"
#include "stowage/api/trace.h"

namespace stow {
namespace {

Array constrain(const char* what, const Array& x, const std::string& path, const Sharding& to) {
  if (!to.named())
    trace_error_here(
        "[{}] expected a NamedSharding, got {}; device_put moves to a device or a memory", what,
        to_string(to));
  if (const MeshShape* mesh = manual_mesh())
    trace_error_here(
        "[{}] expected a call outside of the body of shard_map, got {} in the body of one over {}, "
        "where arrays are parts; constrain the argument or the result",
        what, to_string(to), to_string(*mesh));
  check_sharding(path.empty() ? what : fmt::format("{}] [{}", what, path), to, x.type());
  const SourceLocation at = context().site;
  return device_put(Operand(x, at.file, at.line), to);
}

}  // namespace

std::vector<Array> constrain_leaves(const char* what, const TreeRef& tree, const Sharding& to,
                                    SourceLocation at) {
  const CallSiteScope site(at);
  std::vector<Array> leaves = leaves_of(tree);
  const std::vector<std::string> paths = paths_of(tree);
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i] = constrain(what, leaves[i], paths[i], to);
  return leaves;
}

Array with_sharding_constraint(const Operand& x, const Sharding& to) {
  const CallSiteScope site(x.at);
  return constrain("with_sharding_constraint", to_array(x), "", to);
}

Array sharding::reshard(const Operand& x, const Sharding& to) {
  const CallSiteScope site(x.at);
  return constrain("reshard", to_array(x), "", to);
}

}  // namespace stow
