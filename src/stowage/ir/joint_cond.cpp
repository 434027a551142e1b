#include "stowage/ir/joint_cond.h"

#include <algorithm>

namespace stow {
namespace {

// The origin of a value that the backward part reads.
struct Crossing {
  enum class From : uint8_t { kOperand, kResult, kResidual };
  ValueId value;
  From from = From::kResidual;
  size_t number = 0;  // of the operand, result or residual
};

class Splitter {
 public:
  Splitter(const JointCond& joint, const std::vector<bool>& readable)
      : joint_(joint), readable_(readable) {}

  SplitCond run() {
    operand_read_.resize(joint_.n_forward_inputs);
    result_read_.resize(joint_.n_forward_outputs);
    for (const Graph& branch : joint_.branches) crossings_.push_back(crossings_of(branch));
    SplitCond split;
    split.n_residuals = static_cast<int>(slots_.size());
    for (size_t i = 0; i < operand_read_.size(); ++i)
      if (operand_read_[i]) split.forward_operands.push_back(static_cast<int>(i));
    for (size_t i = 0; i < result_read_.size(); ++i)
      if (result_read_[i]) split.forward_results.push_back(static_cast<int>(i));
    for (size_t b = 0; b < joint_.branches.size(); ++b) {
      split.forward.push_back(forward_branch(b));
      split.backward.push_back(backward_branch(b, split));
    }
    return split;
  }

 private:
  bool is_forward(const Graph& branch, ValueId v) const {
    if (branch.is_input(v))
      return static_cast<size_t>(branch.value(v).index) < joint_.n_forward_inputs;
    return !branch.def(v).backward;
  }

  std::vector<Crossing> crossings_of(const Graph& branch) {
    std::vector<bool> read(branch.n_values());
    for (const Node& node : branch.nodes())
      if (node.backward)
        for (ValueId v : node.operands) read[v.index()] = true;
    for (size_t i = joint_.n_forward_outputs; i < branch.outputs().size(); ++i)
      read[branch.outputs()[i].index()] = true;
    std::vector<Crossing> crossings;
    std::vector<bool> used(slots_.size());
    for (size_t n = 0; n < read.size(); ++n) {
      const ValueId v(n);
      if (!read[n] || !is_forward(branch, v)) continue;
      if (branch.is_input(v)) {
        const auto i = static_cast<size_t>(branch.value(v).index);
        operand_read_[i] = true;
        crossings.push_back({v, Crossing::From::kOperand, i});
      } else if (op_class(branch.def(v).op) != OpClass::kLeaf) {
        crossings.push_back(kept(branch, v, used));
      }
    }
    return crossings;
  }

  Crossing kept(const Graph& branch, ValueId v, std::vector<bool>& used) {
    for (size_t i = 0; i < readable_.size(); ++i)
      if (readable_[i] && branch.outputs()[i] == v) {
        result_read_[i] = true;
        return {v, Crossing::From::kResult, i};
      }
    const ArrayType& type = branch.type(v);
    size_t slot = 0;
    while (slot < slots_.size() && (used[slot] || !(slots_[slot] == type))) ++slot;
    if (slot == slots_.size()) slots_.push_back(type);
    used.resize(slots_.size());
    used[slot] = true;
    return {v, Crossing::From::kResidual, slot};
  }

  GraphPtr forward_branch(size_t b) const {
    const Graph& branch = joint_.branches[b];
    Graph graph;
    ValueMap map(branch);
    for (size_t i = 0; i < joint_.n_forward_inputs; ++i) take_input(branch, i, graph, map);
    const std::vector<RegionId> regions = import_regions(branch, graph, RegionId());
    for (const Node& node : branch.nodes())
      if (!node.backward) copy_node(branch, node, graph, map, regions);
    std::vector<ValueId> outputs;
    for (size_t i = 0; i < joint_.n_forward_outputs; ++i)
      outputs.push_back(map[branch.outputs()[i]]);
    std::vector<ValueId> residuals(slots_.size());
    for (const Crossing& c : crossings_[b])
      if (c.from == Crossing::From::kResidual) residuals[c.number] = map[c.value];
    for (size_t slot = 0; slot < slots_.size(); ++slot)
      outputs.push_back(residuals[slot].valid() ? residuals[slot] : zeros(graph, slots_[slot]));
    graph.set_outputs(std::move(outputs));
    return std::make_shared<const Graph>(std::move(graph));
  }

  GraphPtr backward_branch(size_t b, const SplitCond& split) const {
    const Graph& branch = joint_.branches[b];
    Graph graph;
    ValueMap map(branch);
    for (int i : split.forward_operands) take_input(branch, static_cast<size_t>(i), graph, map);
    const auto crossing = [&](Crossing::From from, size_t number) {
      for (const Crossing& c : crossings_[b])
        if (c.from == from && c.number == number) return c.value;
      return ValueId();
    };
    const auto add = [&](const ArrayType& type, std::string name, ValueId v) {
      const ValueId input = graph.add_input(type, std::move(name));
      if (v.valid()) map.set(v, input);
    };
    for (int i : split.forward_results) {
      const auto at = static_cast<size_t>(i);
      add(branch.type(branch.outputs()[at]), fmt::format("result/{}", i),
          crossing(Crossing::From::kResult, at));
    }
    for (size_t i = joint_.n_forward_inputs; i < branch.inputs().size(); ++i)
      take_input(branch, i, graph, map);
    for (size_t slot = 0; slot < slots_.size(); ++slot)
      add(slots_[slot], fmt::format("residual/{}", slot),
          crossing(Crossing::From::kResidual, slot));
    for (const Node& node : branch.nodes())
      if (!node.backward && op_class(node.op) == OpClass::kLeaf)
        copy_node(branch, node, graph, map, {});
    const std::vector<RegionId> regions = import_regions(branch, graph, RegionId());
    for (const Node& node : branch.nodes())
      if (node.backward) copy_node(branch, node, graph, map, regions);
    std::vector<ValueId> outputs;
    for (size_t i = joint_.n_forward_outputs; i < branch.outputs().size(); ++i)
      outputs.push_back(map[branch.outputs()[i]]);
    graph.set_outputs(std::move(outputs));
    return std::make_shared<const Graph>(std::move(graph));
  }

  static void take_input(const Graph& from, size_t i, Graph& to, ValueMap& map) {
    copy_input(from, i, to, map);
  }
  static ValueId zeros(Graph& graph, const ArrayType& type) {
    ArrayType here = type;
    here.kind = MemoryKind::kDevice;
    Node node;
    node.op = OpKind::kConstant;
    node.params = ConstantParams{
        here, std::vector<std::byte>(static_cast<size_t>(dtype_bytes(type.dtype)))};
    node.provenance = made_by(Pass::kResiduals, nullptr);
    const ValueId zero = graph.node(graph.add_node(std::move(node), {&here, 1})).result();
    if (type.kind == MemoryKind::kDevice) return zero;
    Node put;
    put.op = OpKind::kDevicePut;
    put.provenance = made_by(Pass::kResiduals, nullptr);
    put.params = DevicePutParams{type.kind};
    put.operands = {zero};
    return graph.node(graph.add_node(std::move(put), {&type, 1})).result();
  }

  const JointCond& joint_;
  const std::vector<bool>& readable_;
  std::vector<ArrayType> slots_;
  std::vector<bool> operand_read_, result_read_;
  std::vector<std::vector<Crossing>> crossings_;
};

}  // namespace

SplitCond split_joint_cond(const JointCond& joint, const std::vector<bool>& readable_results) {
  return Splitter(joint, readable_results).run();
}

JointCond join_conds(const Graph& graph, const Node& forward, const Node& backward,
                     std::vector<ValueId>& backward_only) {
  JointCond joint;
  joint.n_forward_inputs = forward.operands.size() - 1;
  joint.n_forward_outputs =
      static_cast<size_t>(forward.n_results - forward.as<CondParams>().n_residuals);
  // For each backward operand, the forward operand or result that it is, or none.
  struct Source {
    int operand = -1, result = -1;
  };
  std::vector<Source> sources;
  for (size_t i = 1; i < backward.operands.size(); ++i) {
    const ValueId v = backward.operands[i];
    Source source;
    if (!graph.is_input(v) && &graph.def(v) == &forward) {
      source.result = graph.value(v).index;
    } else {
      const auto found = std::find(forward.operands.begin() + 1, forward.operands.end(), v);
      if (found != forward.operands.end())
        source.operand = static_cast<int>(found - forward.operands.begin()) - 1;
      else
        backward_only.push_back(v);
    }
    sources.push_back(source);
  }
  for (size_t b = 0; b < forward.graphs.size(); ++b) {
    const Graph &f = *forward.graphs[b], &k = *backward.graphs[b];
    Graph& branch = joint.branches.emplace_back();
    ValueMap fmap(f), kmap(k);
    copy_inputs(f, branch, fmap);
    for (size_t i = 0; i < sources.size(); ++i)
      if (sources[i].operand < 0 && sources[i].result < 0)
        copy_input(k, i, branch, kmap);
    const std::vector<RegionId> fregions = import_regions(f, branch, RegionId());
    for (const Node& node : f.nodes())
      branch.mutable_node(copy_node(f, node, branch, fmap, fregions)).backward = false;
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].operand >= 0)
        kmap.set(k.inputs()[i], fmap[f.inputs()[static_cast<size_t>(sources[i].operand)]]);
      if (sources[i].result >= 0)
        kmap.set(k.inputs()[i], fmap[f.outputs()[static_cast<size_t>(sources[i].result)]]);
    }
    const std::vector<RegionId> kregions = import_regions(k, branch, RegionId());
    for (const Node& node : k.nodes())
      branch.mutable_node(copy_node(k, node, branch, kmap, kregions)).backward = true;
    std::vector<ValueId> outputs;
    for (size_t i = 0; i < joint.n_forward_outputs; ++i) outputs.push_back(fmap[f.outputs()[i]]);
    for (ValueId v : k.outputs()) outputs.push_back(kmap[v]);
    branch.set_outputs(std::move(outputs));
  }
  return joint;
}

}  // namespace stow
