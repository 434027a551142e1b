#include "stowage/passes/residuals.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "stowage/ir/joint_scan.h"
#include "stowage/ir/utilities.h"
#include "stowage/passes/cond_residuals.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/expose.h"
#include "stowage/passes/policy_requests.h"
#include "stowage/passes/rematerialize.h"
#include "stowage/passes/residual_level.h"

namespace stow {
namespace {

// Rewrites the graph of one level: readers read kept values or clones.
class Rewriter {
 public:
  Rewriter(const Graph& from, const ResidualLevel& level, const std::vector<bool>& kept, int depth,
           const std::map<size_t, ExposedScan>& exposed, const Recomputation& before)
      : from_(from),
        before_(before),
        level_(level),
        kept_(kept),
        depth_(depth),
        exposed_(exposed),
        map_(from),
        clones_(from) {}

  Graph run() {
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    moved_.resize(from_.n_values());
    fetched_.resize(from_.n_values());
    for (const Node& node : from_.nodes()) {
      if (!level_.is_reader(node)) {
        made_.clone.push_back(level_.is_clone(node));
        const NodeId id = copy_node(from_, node, to_, map_, regions_);
        if (depth_ > 0) to_.mutable_node(id).region = RegionId();  // settled now
        made_.original.resize(to_.n_values());
        for (int i = 0; i < node.n_results; ++i)
          if (const ValueId original = before_.original[node.result(i).index()]; original.valid())
            made_.original[map_[node.result(i)].index()] = map_[original];
        for (int i = 0; i < node.n_results; ++i)
          if (const ValueId v = node.result(i); is_offloaded(v))
            moved_[v.index()] = put(map_[v], level_.destination(v), node, node.backward);
        continue;
      }
      Node copy = node;
      for (ValueId& v : copy.operands) v = read(v);
      copy.region = node.region.valid() ? regions_[node.region.index()] : RegionId();
      add(node, std::move(copy), map_);
    }
    to_.set_outputs(map_.images(from_.outputs()));
    return std::move(to_);
  }
  /// Returns the nodes of the result that recompute others.
  Recomputation take_recomputation() {
    made_.original.resize(to_.n_values());
    return std::move(made_);
  }

 private:
  void add(const Node& node, Node copy, ValueMap& map) {
    const bool is_clone = &map == &clones_;
    made_.clone.push_back(is_clone);
    std::vector<ArrayType> types;
    for (int i = 0; i < node.n_results; ++i) types.push_back(from_.type(node.result(i)));
    const NodeId id = to_.add_node(std::move(copy), types);
    made_.original.resize(to_.n_values());
    for (int i = 0; i < node.n_results; ++i) {
      const ValueId v = node.result(i);
      map.set(v, to_.node(id).result(i));
      if (is_clone && depth_ == 0 && level_.may_keep(v)) made_.original[map[v].index()] = map_[v];
    }
  }

  bool is_offloaded(ValueId v) const {
    return kept_[v.index()] && level_.destination(v) != MemoryKind::kDevice;
  }
  ValueId put(ValueId v, MemoryKind kind, const Node& like, bool backward) {
    Node node;
    node.op = OpKind::kDevicePut;
    node.params = DevicePutParams{kind};
    node.operands = {v};
    node.provenance = made_by(Pass::kResiduals, like.provenance);
    node.backward = backward;
    ArrayType type = to_.type(v);
    type.kind = kind;
    made_.clone.push_back(false);
    return to_.node(to_.add_node(std::move(node), {&type, 1})).result();
  }
  // Returns a kept value as a reader reads it. An offloaded value is brought back once.
  ValueId kept_value(ValueId v) {
    if (!is_offloaded(v)) return map_[v];
    ValueId& fetched = fetched_[v.index()];
    if (!fetched.valid())
      fetched = put(moved_[v.index()], MemoryKind::kDevice, from_.def(v), true);
    return fetched;
  }

  // Returns the value that a reader of `v` reads: `v` itself if it is kept or no forward work, else
  // a clone.
  ValueId read(ValueId v) {
    if (!level_.is_forward_value(v) || kept_[v.index()]) return kept_value(v);
    // Clones the missing nodes in the order in which they were computed first.
    std::set<size_t> missing;
    std::vector<ValueId> stack = {v};
    while (!stack.empty()) {
      const ValueId top = stack.back();
      stack.pop_back();
      if (clones_.has(top) || !missing.insert(from_.value(top).node.index()).second) continue;
      for (ValueId operand : from_.def(top).operands)
        if (level_.is_forward_value(operand) && !kept_[operand.index()]) stack.push_back(operand);
    }
    for (size_t n : missing) clone(from_.nodes()[n]);
    return clones_[v];
  }

  void clone(const Node& node) {
    std::vector<ValueId> more;
    Node copy = as_cloned(node, more);
    for (ValueId& operand : copy.operands)
      operand = level_.is_forward_value(operand) && !kept_[operand.index()] ? clones_[operand]
                                                                            : kept_value(operand);
    copy.operands.insert(copy.operands.end(), more.begin(), more.end());
    copy.backward = true;
    copy.provenance = made_by(Pass::kResiduals, node.provenance);
    copy.region = inner_region(node);
    add(node, std::move(copy), clones_);
  }

  // Returns the node, given the kept values of a scan's body, which are `more` operands.
  Node as_cloned(const Node& node, std::vector<ValueId>& more) const {
    const auto found = exposed_.find(static_cast<size_t>(&node - from_.nodes().data()));
    if (found == exposed_.end()) return node;
    std::vector<std::optional<ArrayType>> given;
    for (const ExposedValue& value : found->second.values) {
      const ValueId v = node.result(value.result);
      given.emplace_back();
      if (!kept_[v.index()]) continue;
      more.push_back(is_offloaded(v) ? moved_[v.index()] : map_[v]);
      given.back() = to_.type(more.back());
    }
    return given_exposed(node, found->second, given);
  }

  // Returns the region of a clone: as before without the outermost one, which is realised now.
  RegionId inner_region(const Node& node) {
    const std::vector<RegionId> chain = region_chain(from_, node.region);
    RegionId parent;
    for (size_t i = 1; i < chain.size(); ++i) {
      auto [it, fresh] = inner_.try_emplace({chain[i], depth_}, RegionId());
      if (fresh) {
        Region region = from_.regions()[chain[i].index()];
        region.parent = parent;
        it->second = to_.add_region(region);
      }
      parent = it->second;
    }
    return parent;
  }

  const Graph& from_;
  const Recomputation& before_;
  const ResidualLevel& level_;
  const std::vector<bool>& kept_;
  int depth_;
  const std::map<size_t, ExposedScan>& exposed_;
  Graph to_;
  ValueMap map_, clones_;
  std::vector<ValueId> moved_, fetched_;  // of offloaded values: elsewhere, and back
  std::vector<RegionId> regions_;
  Recomputation made_;
  std::map<std::pair<RegionId, int>, RegionId> inner_;
};

Graph realize_flat(const Graph& graph, const PolicyPtr& override_policy, PolicyRequests& requests,
                   const std::set<ValueId>& costly_inputs,
                   const std::vector<bool>* boundary_outputs, bool shorten) {
  Graph current = graph;
  std::set<ValueId> costly = costly_inputs;
  Recomputation recomputation{std::vector<bool>(graph.n_nodes()),
                              std::vector<ValueId>(graph.n_values())};
  bool widened = false;
  for (int depth = 0;; ++depth) {
    // A policy around a scan acts on values of its body.
    ExposedGraph exposed = expose_scans(current, [&](const Node& node) -> const Policy* {
      const auto n = static_cast<size_t>(&node - current.nodes().data());
      if (!node.region.valid() || recomputation.clone[n] || node.backward != (depth > 0))
        return nullptr;
      if (override_policy) return override_policy.get();
      return current.regions()[region_chain(current, node.region)[0].index()].policy.get();
    });
    if (!exposed.scans.empty()) {
      widened = true;
      std::set<ValueId> images;
      for (ValueId v : costly) images.insert(exposed.images[v.index()]);
      costly = std::move(images);
      std::vector<ValueId> originals(exposed.graph.n_values());
      for (size_t v = 0; v < recomputation.original.size(); ++v)
        if (const ValueId original = recomputation.original[v]; original.valid())
          originals[exposed.images[v].index()] = exposed.images[original.index()];
      recomputation.original = std::move(originals);
      current = std::move(exposed.graph);
    }
    ResidualLevel level(current, override_policy, depth, recomputation.clone, exposed.scans,
                        requests);
    if (depth == 0) level.costly_inputs_ = costly;
    if (depth == 0) level.boundary_outputs_ = boundary_outputs;
    const std::vector<bool> kept = level.choose_kept();
    // Stacks that nothing reads are not results of their scans.
    if (level.crossing().empty()) {
      if (shorten)
        current = shorten_lives(current, recomputation, requests.report.limits,
                                requests.most_kept_in_turn);
      return widened ? remove_dead_code(std::move(current)) : current;
    }
    Rewriter rewriter(current, level, kept, depth, exposed.scans, recomputation);
    Graph next = rewriter.run();
    recomputation = rewriter.take_recomputation();
    current = std::move(next);
  }
}

// Returns the forward scan whose residuals `node` reads, if it is a backward scan of this graph.
const Node* forward_of(const Graph& graph, const Node& node) {
  if (node.op != OpKind::kScan || !node.backward) return nullptr;
  for (ValueId v : node.operands) {
    if (graph.is_input(v) || graph.def(v).op != OpKind::kScan) continue;
    const Node& def = graph.def(v);
    const auto& p = def.as<ScanParams>();
    if (p.n_residuals > 0 && graph.value(v).index >= def.n_results - p.n_residuals) return &def;
  }
  return nullptr;
}

Graph realize(const Graph& joint, const PolicyPtr& override_policy, PolicyRequests& requests,
              const std::set<ValueId>& costly_inputs,
              const std::vector<bool>* boundary_outputs = nullptr, bool shorten = true);

// Rewrites every pair of forward and backward scans.
class PairRewriter {
 public:
  PairRewriter(const Graph& from, const PolicyPtr& override_policy, PolicyRequests& requests)
      : from_(from), override_(override_policy), requests_(requests), map_(from) {}

  Graph run() {
    find_pairs();
    copy_inputs(from_, to_, map_);
    const std::vector<RegionId> regions = import_regions(from_, to_, RegionId());
    for (const Node& node : from_.nodes()) {
      if (Pair* pair = find(node, &Pair::forward)) {
        emit_forward(*pair, regions);
      } else if (Pair* owner = find(node, &Pair::backward)) {
        emit_backward(*owner, regions);
      } else {
        copy_node(from_, node, to_, map_, regions);
      }
    }
    to_.set_outputs(map_.images(from_.outputs()));
    return std::move(to_);
  }

 private:
  struct Pair {
    const Node* forward = nullptr;
    const Node* backward = nullptr;
    SplitScan split;
    std::vector<ValueId> backward_only;
    ValueId first_residual;  // of to_
    int n_backward_consts = 0;
  };
  Pair* find(const Node& node, const Node* Pair::*which) {
    for (Pair& pair : pairs_)
      if (pair.*which == &node) return &pair;
    return nullptr;
  }

  void find_pairs() {
    std::map<const Node*, int> readers;
    for (const Node& node : from_.nodes())
      if (const Node* forward = forward_of(from_, node)) ++readers[forward];
    // In a chain only the last two scans are a pair. A scan that is merged with another, has a
    // gradient, and is recomputed with it gives a chain.
    for (size_t n = from_.n_nodes(); n-- > 0;) {
      const Node& node = from_.nodes()[n];
      const Node* forward = forward_of(from_, node);
      if (!forward || readers[forward] != 1 || find(node, &Pair::forward) ||
          residuals_escape(*forward, node))
        continue;
      Pair pair{forward, &node, {}, {}, {}, 0};
      JointScan js = join_scans(from_, *forward, node, pair.backward_only);
      std::set<ValueId> carries;
      for (int k = 0; k < js.forward.n_carries; ++k)
        carries.insert(js.body.inputs()[static_cast<size_t>(js.forward.n_consts + k)]);
      // An iteration's residuals are kept for all iterations; its recomputed values are not.
      js.body = realize(js.body, override_, requests_, carries, nullptr, false);
      pair.n_backward_consts = js.n_backward_consts;
      pair.split = split_joint_scan(js);
      pairs_.push_back(std::move(pair));
    }
  }

  // True if any node but the backward scan reads a residual.
  bool residuals_escape(const Node& forward, const Node& backward) const {
    const int first = forward.n_results - forward.as<ScanParams>().n_residuals;
    const auto is_residual = [&](ValueId v) {
      return !from_.is_input(v) && &from_.def(v) == &forward && from_.value(v).index >= first;
    };
    for (const Node& node : from_.nodes())
      if (&node != &backward &&
          std::any_of(node.operands.begin(), node.operands.end(), is_residual))
        return true;
    return std::any_of(from_.outputs().begin(), from_.outputs().end(), is_residual);
  }

  NodeId emit(const Node& like, const ScanParams& params, const GraphPtr& body,
              std::vector<ValueId> operands, std::span<const RegionId> regions) {
    Node node = like;
    node.params = params;
    node.graphs = {body};
    node.operands = std::move(operands);
    node.region = like.region.valid() ? regions[like.region.index()] : RegionId();
    std::vector<ArrayType> types;
    for (size_t i = 0; i < body->outputs().size(); ++i) {
      ArrayType type = body->type(body->outputs()[i]);
      if (i >= static_cast<size_t>(params.n_carries)) {
        const int64_t axis = params.out_axes[i - static_cast<size_t>(params.n_carries)];
        Dims dims = type.shape.dims();
        dims.insert(dims.begin() + axis, params.length);
        type.shape = Shape(std::move(dims));
      }
      types.push_back(std::move(type));
    }
    return to_.add_node(std::move(node), types);
  }

  void emit_forward(Pair& pair, std::span<const RegionId> regions) {
    const Node& node = *pair.forward;
    std::vector<ValueId> operands = map_.images(node.operands);
    const NodeId id = emit(node, pair.split.forward_params, pair.split.forward_body,
                           std::move(operands), regions);
    const int n = node.n_results - node.as<ScanParams>().n_residuals;
    for (int i = 0; i < n; ++i) map_.set(node.result(i), to_.node(id).result(i));
    pair.first_residual = to_.node(id).result(n);
  }

  void emit_backward(Pair& pair, std::span<const RegionId> regions) {
    const auto& fp = pair.split.forward_params;
    const auto& bp = pair.split.backward_params;
    std::vector<ValueId> operands;
    const auto only = pair.backward_only.begin();
    for (int i : pair.split.forward_consts)
      operands.push_back(map_[pair.forward->operands[static_cast<size_t>(i)]]);
    const int n_direct = pair.n_backward_consts + bp.n_carries;
    for (int i = 0; i < n_direct; ++i) operands.push_back(map_[only[i]]);
    for (int i : pair.split.forward_xs)
      operands.push_back(
          map_[pair.forward->operands[static_cast<size_t>(fp.n_consts + fp.n_carries + i)]]);
    for (int i = 0; i < fp.n_residuals; ++i)
      operands.push_back(ValueId(pair.first_residual.index() + static_cast<size_t>(i)));
    for (size_t i = static_cast<size_t>(n_direct); i < pair.backward_only.size(); ++i)
      operands.push_back(map_[pair.backward_only[i]]);
    const NodeId id =
        emit(*pair.backward, bp, pair.split.backward_body, std::move(operands), regions);
    for (int i = 0; i < pair.backward->n_results; ++i)
      map_.set(pair.backward->result(i), to_.node(id).result(i));
  }

  const Graph& from_;
  const PolicyPtr& override_;
  PolicyRequests& requests_;
  Graph to_;
  ValueMap map_;
  std::vector<Pair> pairs_;
};

// Loops and conds outside of pairs may hold joint graphs of their own, such as a gradient inside a
// loop.
Graph descend(const Graph& graph, const PolicyPtr& override_policy, PolicyRequests& requests) {
  Graph out = graph;
  for (size_t n = 0; n < out.n_nodes(); ++n) {
    Node& node = out.mutable_node(NodeId(n));
    for (GraphPtr& nested : node.graphs)
      nested = std::make_shared<const Graph>(realize(*nested, override_policy, requests, {}));
  }
  return out;
}

Graph realize(const Graph& joint, const PolicyPtr& override_policy, PolicyRequests& requests,
              const std::set<ValueId>& costly_inputs, const std::vector<bool>* boundary_outputs,
              bool shorten) {
  const RealizeBranch branch = [&](const Graph& graph, const std::set<ValueId>& costly,
                                   const std::vector<bool>& boundary) {
    return realize(graph, override_policy, requests, costly, &boundary, shorten);
  };
  // A branch of a cond may lack a name that another branch has. An overriding policy is a choice of
  // this compiler, not a request.
  if (!boundary_outputs && !override_policy)
    check_wanted_names(joint, requests, !costly_inputs.empty());
  const Graph prepared =
      realize_conds(descend(joint, override_policy, requests), costly_inputs, branch);
  const Graph flat = realize_flat(prepared, override_policy, requests, costly_inputs,
                                  boundary_outputs, shorten);
  return PairRewriter(flat, override_policy, requests).run();
}

}  // namespace

Graph realize_residuals(const Graph& joint, const PolicyPtr& override_policy,
                        PassReport* report, int most_kept_in_turn) {
  PolicyRequests requests;
  requests.most_kept_in_turn = most_kept_in_turn;
  Graph realized = realize(joint, override_policy, requests, {});
  check_effects(requests, is_differentiated_twice(joint));
  if (report) {
    const auto append = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(report->limits, requests.report.limits);
    append(report->notes, requests.report.notes);
  }
  return realized;
}

}  // namespace stow
