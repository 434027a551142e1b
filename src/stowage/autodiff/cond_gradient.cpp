#include "stowage/autodiff/cond_gradient.h"

namespace stow {

CondGradient differentiate_cond(const Node& cond, const Activity& outer, bool on_device) {
  std::vector<Graph> branches;
  for (const GraphPtr& graph : cond.graphs) branches.push_back(flatten_checkpoints(*graph));
  const Graph& first = branches[0];

  // Inputs and outputs that are active in at least one branch.
  ReverseSpec all;
  for (size_t i = 0; i < first.inputs().size(); ++i)
    if (outer.varied(cond.operands[i + 1]) && is_float(first.type(first.inputs()[i]).dtype))
      all.wrt.push_back(static_cast<int>(i));
  for (size_t i = 0; i < first.outputs().size(); ++i)
    if (outer.active(cond.result(static_cast<int>(i)))) all.outputs.push_back(static_cast<int>(i));
  std::vector<bool> operand_active(first.inputs().size()), result_active(first.outputs().size());
  for (const Graph& branch : branches) {
    const Activity a = activity(branch, all);
    for (int i : all.wrt)
      if (a.active(branch.inputs()[static_cast<size_t>(i)]))
        operand_active[static_cast<size_t>(i)] = true;
    for (int i : all.outputs)
      if (a.varied(branch.outputs()[static_cast<size_t>(i)]))
        result_active[static_cast<size_t>(i)] = true;
  }
  CondGradient g;
  ReverseSpec spec;
  spec.on_device = on_device;
  for (int i : all.wrt)
    if (operand_active[static_cast<size_t>(i)]) {
      spec.wrt.push_back(i);
      g.active_operands.push_back(i + 1);
    }
  for (int i : all.outputs)
    if (result_active[static_cast<size_t>(i)]) spec.outputs.push_back(i);
  g.active_results = spec.outputs;

  JointCond joint;
  joint.n_forward_inputs = first.inputs().size();
  joint.n_forward_outputs = first.outputs().size();
  for (const Graph& branch : branches) joint.branches.push_back(reverse(branch, spec));
  g.split = split_joint_cond(joint, {});
  return g;
}

}  // namespace stow
