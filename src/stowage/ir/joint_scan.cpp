#include "stowage/ir/joint_scan.h"

#include <algorithm>

namespace stow {
namespace {

// Forward values that the backward part reads, in the order of their definition.
std::vector<ValueId> crossing_values(const Graph& joint, size_t n_forward_inputs,
                                     size_t n_forward_outputs) {
  std::vector<bool> read(joint.n_values());
  for (const Node& node : joint.nodes())
    if (node.backward)
      for (ValueId v : node.operands) read[v.index()] = true;
  for (size_t i = n_forward_outputs; i < joint.outputs().size(); ++i)
    read[joint.outputs()[i].index()] = true;
  std::vector<ValueId> values;
  for (size_t v = 0; v < read.size(); ++v) {
    const ValueId id(v);
    if (!read[v]) continue;
    const bool forward = joint.is_input(id)
                             ? joint.value(id).index < static_cast<int>(n_forward_inputs)
                             : !joint.def(id).backward;
    if (forward) values.push_back(id);
  }
  return values;
}

}  // namespace

SplitScan split_joint_scan(const JointScan& js) {
  const Graph& joint = js.body;
  const ScanParams& p = js.forward;
  const int first_x = p.n_consts + p.n_carries;
  const size_t n_in = static_cast<size_t>(first_x) + p.in_axes.size();
  const size_t n_out = static_cast<size_t>(p.n_carries) + p.out_axes.size();
  const std::vector<ValueId> crossing = crossing_values(joint, n_in, n_out);
  SplitScan split;

  Graph forward;
  ValueMap fmap(joint);
  for (size_t i = 0; i < n_in; ++i)
    copy_input(joint, i, forward, fmap);
  const std::vector<RegionId> regions = import_regions(joint, forward, RegionId());
  for (const Node& node : joint.nodes())
    if (!node.backward) copy_node(joint, node, forward, fmap, regions);
  std::vector<ValueId> forward_outputs;
  for (size_t i = 0; i < n_out; ++i) forward_outputs.push_back(fmap[joint.outputs()[i]]);

  Graph backward;
  ValueMap bmap(joint);
  const auto input_number = [&](ValueId v) {
    return joint.is_input(v) ? joint.value(v).index : -1;
  };
  const auto take_input = [&](size_t i) {
    copy_input(joint, i, backward, bmap);
  };
  for (ValueId v : crossing)
    if (const int i = input_number(v); i >= 0 && i < p.n_consts) {
      split.forward_consts.push_back(i);
      take_input(static_cast<size_t>(i));
    }
  size_t next = n_in;
  for (int i = 0; i < js.n_backward_consts + js.n_backward_carries; ++i) take_input(next++);
  for (ValueId v : crossing)
    if (const int i = input_number(v); i >= first_x) {
      split.forward_xs.push_back(i - first_x);
      take_input(static_cast<size_t>(i));
    }
  int n_residuals = 0;
  for (ValueId v : crossing) {
    const int i = input_number(v);
    if (i >= first_x || (i >= 0 && i < p.n_consts)) continue;
    if (i < 0 && op_class(joint.def(v).op) == OpClass::kLeaf) {
      copy_node(joint, joint.def(v), backward, bmap, {});
      continue;
    }
    forward_outputs.push_back(fmap[v]);
    bmap.set(v, backward.add_input(joint.type(v), fmt::format("residual/{}", n_residuals++)));
  }
  for (size_t i = 0; i < js.backward_in_axes.size(); ++i) take_input(next++);
  const std::vector<RegionId> backward_regions = import_regions(joint, backward, RegionId());
  for (const Node& node : joint.nodes())
    if (node.backward) copy_node(joint, node, backward, bmap, backward_regions);
  std::vector<ValueId> backward_outputs;
  for (size_t i = n_out; i < joint.outputs().size(); ++i)
    backward_outputs.push_back(bmap[joint.outputs()[i]]);

  split.forward_params = p;
  split.forward_params.n_residuals = n_residuals;
  split.forward_params.out_axes.resize(p.out_axes.size() + static_cast<size_t>(n_residuals));
  ScanParams& b = split.backward_params;
  b.length = p.length;
  b.reverse = js.backward_reverse;
  b.n_consts = static_cast<int>(split.forward_consts.size()) + js.n_backward_consts;
  b.n_carries = js.n_backward_carries;
  for (int i : split.forward_xs) b.in_axes.push_back(p.in_axes[static_cast<size_t>(i)]);
  b.in_axes.resize(b.in_axes.size() + static_cast<size_t>(n_residuals));
  b.in_axes.insert(b.in_axes.end(), js.backward_in_axes.begin(), js.backward_in_axes.end());
  b.out_axes = js.backward_out_axes;
  forward.set_outputs(std::move(forward_outputs));
  backward.set_outputs(std::move(backward_outputs));
  split.forward_body = std::make_shared<const Graph>(std::move(forward));
  split.backward_body = std::make_shared<const Graph>(std::move(backward));
  return split;
}

JointScan join_scans(const Graph& graph, const Node& forward, const Node& backward,
                     std::vector<ValueId>& backward_only) {
  const auto& fp = forward.as<ScanParams>();
  const auto& bp = backward.as<ScanParams>();
  const Graph &fbody = *forward.graphs[0], &bbody = *backward.graphs[0];
  const int n_out = forward.n_results - fp.n_residuals;  // results that are no residuals
  const int first_x = fp.n_consts + fp.n_carries;

  JointScan js;
  js.forward = fp;
  js.forward.out_axes.resize(fp.out_axes.size() - static_cast<size_t>(fp.n_residuals));
  js.forward.n_residuals = 0;
  js.backward_reverse = bp.reverse;
  js.n_backward_carries = bp.n_carries;
  js.backward_out_axes = bp.out_axes;

  Graph& joint = js.body;
  ValueMap fmap(fbody), bmap(bbody);
  copy_inputs(fbody, joint, fmap);
  // Backward-only inputs, in the order consts, carries, slices; the others are bound below.
  std::vector<std::pair<ValueId, ValueId>> bound;  // a backward body input, a forward body value
  const auto take = [&](size_t i) {
    copy_input(bbody, i, joint, bmap);
    backward_only.push_back(backward.operands[i]);
  };
  const auto forward_operand = [&](ValueId v, int begin, int end) {
    for (int i = begin; i < end; ++i)
      if (forward.operands[static_cast<size_t>(i)] == v) return i;
    return -1;
  };
  const int first_bx = bp.n_consts + bp.n_carries;
  for (int i = 0; i < static_cast<int>(backward.operands.size()); ++i) {
    const ValueId v = backward.operands[static_cast<size_t>(i)];
    const ValueId in = bbody.inputs()[static_cast<size_t>(i)];
    if (i < bp.n_consts) {
      if (const int f = forward_operand(v, 0, fp.n_consts); f >= 0) {
        bound.emplace_back(in, fbody.inputs()[static_cast<size_t>(f)]);
      } else {
        take(static_cast<size_t>(i));
        ++js.n_backward_consts;
      }
    } else if (i < first_bx) {
      take(static_cast<size_t>(i));
    } else {
      const int64_t axis = bp.in_axes[static_cast<size_t>(i - first_bx)];
      const bool residual = !graph.is_input(v) && &graph.def(v) == &forward &&
                            graph.value(v).index >= n_out;
      const int f = forward_operand(v, first_x, static_cast<int>(forward.operands.size()));
      if (residual) {
        bound.emplace_back(in, fbody.outputs()[static_cast<size_t>(graph.value(v).index)]);
      } else if (f >= 0 && fp.in_axes[static_cast<size_t>(f - first_x)] == axis) {
        bound.emplace_back(in, fbody.inputs()[static_cast<size_t>(f)]);
      } else {
        take(static_cast<size_t>(i));
        js.backward_in_axes.push_back(axis);
      }
    }
  }
  const std::vector<RegionId> fregions = import_regions(fbody, joint, RegionId());
  for (const Node& node : fbody.nodes()) {
    const NodeId id = copy_node(fbody, node, joint, fmap, fregions);
    joint.mutable_node(id).backward = false;
  }
  for (const auto& [in, value] : bound) bmap.set(in, fmap[value]);
  const std::vector<RegionId> bregions = import_regions(bbody, joint, RegionId());
  for (const Node& node : bbody.nodes()) {
    const NodeId id = copy_node(bbody, node, joint, bmap, bregions);
    joint.mutable_node(id).backward = true;
  }
  std::vector<ValueId> outputs;
  for (int i = 0; i < n_out; ++i) outputs.push_back(fmap[fbody.outputs()[static_cast<size_t>(i)]]);
  for (ValueId v : bbody.outputs()) outputs.push_back(bmap[v]);
  joint.set_outputs(std::move(outputs));
  return js;
}

}  // namespace stow
