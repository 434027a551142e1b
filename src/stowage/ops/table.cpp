#include "stowage/base/inside.h"
#include "stowage/ops/table.h"

namespace stow {

const OpDef& op_def(OpKind op) {
  static constexpr const OpDef* kTable[] = {
#define STOW_X(kind, name, cls) &ops::k##kind,
      STOW_FOR_EACH_OP(STOW_X)
#undef STOW_X
  };
  return *kTable[static_cast<size_t>(op)];
}

std::vector<ArrayType> infer_types(const InferContext& context) {
  return op_def(context.op).infer.function(context);
}

Cost graph_cost(const Graph& graph) {
  Cost sum;
  std::vector<ArrayType> operands, results;
  for (const Node& node : graph.nodes()) {
    operands.clear();
    results.clear();
    for (ValueId id : node.operands) operands.push_back(graph.type(id));
    for (int i = 0; i < node.n_results; ++i) results.push_back(graph.type(node.result(i)));
    const InferContext context{node.op, operands, node.params, node.graphs};
    const Cost cost = op_def(node.op).cost.function(context, results);
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return sum;
}

}  // namespace stow
