#include "stowage/passes/cond_residuals.h"

#include <algorithm>
#include <map>

#include "stowage/ir/joint_cond.h"

namespace stow {
namespace {

// Returns the policy of a region around a cond for use inside the branches. A name that it asks for
// need not be in each of them.
PolicyPtr without_wishes(const PolicyPtr& policy) {
  if (!policy || policy->wanted_names.empty()) return policy;
  auto copy = std::make_shared<Policy>(*policy);
  copy->wanted_names.clear();
  return copy;
}

class Rewriter {
 public:
  Rewriter(const Graph& from, const std::set<ValueId>& costly, const RealizeBranch& realize)
      : from_(from), costly_(costly), realize_(realize), map_(from) {}

  Graph run() {
    find_pairs();
    if (pairs_.empty()) return from_;
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (const Node& node : from_.nodes()) {
      Pair* forward = find(node, &Pair::forward);
      Pair* backward = find(node, &Pair::backward);
      if (forward)
        emit_forward(*forward);
      else if (backward)
        emit_backward(*backward);
      else
        copy_node(from_, node, to_, map_, regions_);
    }
    to_.set_outputs(map_.images(from_.outputs()));
    return std::move(to_);
  }

 private:
  struct Pair {
    const Node* forward = nullptr;
    const Node* backward = nullptr;
    SplitCond split;
    std::vector<ValueId> backward_only;
    ValueId first_residual;  // of to_
  };
  Pair* find(const Node& node, const Node* Pair::*which) {
    for (Pair& pair : pairs_)
      if (pair.*which == &node) return &pair;
    return nullptr;
  }

  // Finds the forward conds whose residuals only one backward cond reads.
  void find_pairs() {
    std::map<const Node*, std::set<const Node*>> readers;
    for (const Node& node : from_.nodes())
      for (ValueId v : node.operands)
        if (is_cond_residual(from_, v)) readers[&from_.def(v)].insert(&node);
    for (ValueId v : from_.outputs())
      if (is_cond_residual(from_, v)) readers[&from_.def(v)].insert(nullptr);
    for (const Node& node : from_.nodes()) {
      const auto found = readers.find(&node);
      if (found == readers.end() || found->second.size() != 1) continue;
      const Node* backward = *found->second.begin();
      if (!backward || backward->op != OpKind::kCond || !backward->backward || node.backward ||
          backward->operands[0] != node.operands[0] ||
          backward->graphs.size() != node.graphs.size() || find(*backward, &Pair::backward))
        continue;
      pairs_.push_back(make_pair(node, *backward));
    }
  }

  Pair make_pair(const Node& forward, const Node& backward) {
    Pair pair{&forward, &backward, {}, {}, {}};
    JointCond joint = join_conds(from_, forward, backward, pair.backward_only);
    const std::vector<bool> boundary = boundary_results(forward, joint.n_forward_outputs);
    std::vector<bool> boundary_outputs = boundary;
    boundary_outputs.resize(joint.branches[0].outputs().size(), true);
    for (Graph& branch : joint.branches) {
      branch = in_regions_of(forward, branch);
      std::set<ValueId> costly;
      for (size_t i = 0; i < joint.n_forward_inputs; ++i)
        if (must_be_kept(forward.operands[i + 1])) costly.insert(branch.inputs()[i]);
      branch = realize_(branch, costly, boundary_outputs);
    }
    pair.split = split_joint_cond(joint, boundary);
    return pair;
  }

  // True if the backward part cannot read the value for free.
  bool must_be_kept(ValueId v) const {
    if (from_.is_input(v)) return costly_.count(v) > 0;
    const Node& node = from_.def(v);
    return !node.backward && op_class(node.op) != OpClass::kLeaf;
  }

  RegionId outermost(RegionId region) const {
    while (region.valid() && from_.regions()[region.index()].parent.valid())
      region = from_.regions()[region.index()].parent;
    return region;
  }

  // Marks results that exist whatever the policy around the cond says.
  std::vector<bool> boundary_results(const Node& forward, size_t n) const {
    std::vector<bool> boundary(n, !forward.region.valid());
    const auto mark = [&](ValueId v) {
      if (from_.is_input(v) || &from_.def(v) != &forward) return;
      if (const auto i = static_cast<size_t>(from_.value(v).index); i < n) boundary[i] = true;
    };
    for (const Node& node : from_.nodes())
      if (!node.backward && outermost(node.region) != outermost(forward.region))
        for (ValueId v : node.operands) mark(v);
    for (ValueId v : from_.outputs()) mark(v);
    return boundary;
  }

  // Returns the joint branch with its forward nodes in the regions of the cond.
  Graph in_regions_of(const Node& cond, const Graph& branch) const {
    if (!cond.region.valid()) return branch;
    std::vector<RegionId> chain;
    for (RegionId r = cond.region; r.valid(); r = from_.regions()[r.index()].parent)
      chain.push_back(r);
    Graph graph;
    ValueMap map(branch);
    copy_inputs(branch, graph, map);
    RegionId around;
    for (size_t i = chain.size(); i-- > 0;) {
      const Region& region = from_.regions()[chain[i].index()];
      around = graph.add_region(
          {around, without_wishes(region.policy), region.prevent_cse, region.made});
    }
    const std::vector<RegionId> regions = import_regions(branch, graph, around);
    for (const Node& node : branch.nodes()) {
      const NodeId id = copy_node(branch, node, graph, map, regions);
      if (!node.backward && !node.region.valid()) graph.mutable_node(id).region = around;
    }
    graph.set_outputs(map.images(branch.outputs()));
    return graph;
  }

  NodeId emit(const Node& like, int n_residuals, const std::vector<GraphPtr>& graphs,
              std::vector<ValueId> operands) {
    Node node = like;
    node.params = CondParams{n_residuals};
    node.graphs = graphs;
    node.operands = std::move(operands);
    node.region = like.region.valid() ? regions_[like.region.index()] : RegionId();
    std::vector<ArrayType> types;
    for (ValueId v : graphs[0]->outputs()) types.push_back(graphs[0]->type(v));
    return to_.add_node(std::move(node), types);
  }

  void emit_forward(Pair& pair) {
    const Node& node = *pair.forward;
    std::vector<ValueId> operands = map_.images(node.operands);
    const NodeId id = emit(node, pair.split.n_residuals, pair.split.forward, std::move(operands));
    const int n = node.n_results - node.as<CondParams>().n_residuals;
    for (int i = 0; i < n; ++i) map_.set(node.result(i), to_.node(id).result(i));
    pair.first_residual = to_.node(id).result(n);
  }

  void emit_backward(const Pair& pair) {
    const Node& forward = *pair.forward;
    std::vector<ValueId> operands = {map_[forward.operands[0]]};
    for (int i : pair.split.forward_operands)
      operands.push_back(map_[forward.operands[static_cast<size_t>(i) + 1]]);
    for (int i : pair.split.forward_results) operands.push_back(map_[forward.result(i)]);
    for (ValueId v : pair.backward_only) operands.push_back(map_[v]);
    for (int i = 0; i < pair.split.n_residuals; ++i)
      operands.push_back(ValueId(pair.first_residual.index() + static_cast<size_t>(i)));
    const NodeId id = emit(*pair.backward, pair.backward->as<CondParams>().n_residuals,
                           pair.split.backward, std::move(operands));
    for (int i = 0; i < pair.backward->n_results; ++i)
      map_.set(pair.backward->result(i), to_.node(id).result(i));
  }

  const Graph& from_;
  const std::set<ValueId>& costly_;
  const RealizeBranch& realize_;
  Graph to_;
  ValueMap map_;
  std::vector<RegionId> regions_;
  std::vector<Pair> pairs_;
};

}  // namespace

bool is_cond_residual(const Graph& graph, ValueId v) {
  if (graph.is_input(v) || graph.def(v).op != OpKind::kCond) return false;
  const Node& node = graph.def(v);
  return graph.value(v).index >= node.n_results - node.as<CondParams>().n_residuals;
}

Graph realize_conds(const Graph& graph, const std::set<ValueId>& costly_inputs,
                    const RealizeBranch& realize) {
  return Rewriter(graph, costly_inputs, realize).run();
}

}  // namespace stow
