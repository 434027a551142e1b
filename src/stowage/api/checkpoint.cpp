#include "stowage/api/checkpoint.h"

#include "stowage/api/math_internal.h"
#include "stowage/api/trace.h"

namespace stow {

CheckpointResult run_checkpoint(const TreeRef& arguments, const LeafFunction& function,
                                const PolicyPtr& policy, const CheckpointOptions& options,
                                SourceLocation at) {
  const CallSiteScope site(at);
  CheckpointResult result;
  std::vector<Array> operands = leaves_of(arguments);
  const std::vector<std::string> paths = paths_of(arguments);
  std::vector<ArrayType> types;
  for (const Array& array : operands) types.push_back(array.type());
  NestedTrace nested =
      trace_nested("checkpoint", types, paths, operands.size(), [&](std::span<const Array> inputs) {
        result.result = function(inputs);
        return leaves_of(result.result.ref);
      });
  operands.insert(operands.end(), nested.captures.begin(), nested.captures.end());
  result.outputs = record(OpKind::kCheckpoint, CheckpointParams{policy, options.prevent_cse},
                          operands, {std::make_shared<const Graph>(std::move(nested.graph))});
  if (nested.has_effects)
    result.outputs = take_effects(std::move(result.outputs), result.outputs.size() - 1);
  return result;
}

Array checkpoint_name(const Operand& x, std::string name) {
  const CallSiteScope site(x.at);
  return record1(OpKind::kName, NameParams{std::move(name)}, {to_array(x)});
}

}  // namespace stow
