// ResidualLevel: chooses the values that one graph keeps for its backward part, as a minimum cut by
// bytes. Not the rewriting of the graph; residuals.cpp does that.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/utilities.h"
#include "stowage/passes/expose.h"
#include "stowage/passes/min_cut.h"
#include "stowage/passes/policy_requests.h"
#include "stowage/passes/policy_subjects.h"
#include "stowage/passes/rematerialize.h"

namespace stow {

// One round of the residuals pass over one graph, in which a scan is a single node. Round 0 treats
// outermost regions, and each further round the next inner level of regions.
class ResidualLevel {
 public:
  /// `depth`: number of the round. `clones`: by node, true if earlier rounds recompute it.
  ResidualLevel(const Graph& graph, const PolicyPtr& override_policy, int depth,
        const std::vector<bool>& clones, const std::map<size_t, ExposedScan>& exposed,
        PolicyRequests& requests)
      : graph_(graph),
        override_(override_policy),
        requests_(requests),
        depth_(depth),
        clones_(clones),
        exposed_(exposed) {}

  // By value, true if this round keeps it; clones compute all other forward values that the
  // backward part reads.
  std::vector<bool> choose_kept() {
    collect_crossing();
    kept_.assign(graph_.n_values(), false);
    vertex_.assign(graph_.n_values(), -1);
    destination_.assign(graph_.n_values(), MemoryKind::kDevice);
    mark_boundaries();
    find_twins();
    find_expensive_recompute();
    for (ValueId v : crossing_) add_vertex(v);
    for (size_t i = 0; i < queue_.size(); ++i) expand(queue_[i]);
    MinCut cut(2 * queue_.size() + 2);
    const int source = static_cast<int>(2 * queue_.size()), sink = source + 1;
    for (const Edge& e : edges_) cut.add_edge(e.from < 0 ? source : e.from, e.to, e.capacity);
    for (ValueId v : crossing_) cut.add_edge(out(v), sink, MinCut::kInfinite);
    const int64_t flow = cut.solve(source, sink);
    STOW_CHECK(flow < MinCut::kInfinite, "a residual can be neither kept nor recomputed");
    for (ValueId v : queue_)
      if (!free(v) && !cut.on_sink_side(in(v)) && cut.on_sink_side(out(v))) kept_[v.index()] = true;
    keep_exposed();
    for (ValueId v : queue_)
      if (kept_[v.index()] && destination_[v.index()] != MemoryKind::kDevice) note_effect(v);
    return kept_;
  }

  // True for forward work of this round: in later rounds, recomputed work that is still in a
  // region.
  bool is_forward(const Node& node) const {
    return depth_ == 0 ? !node.backward
                       : node.backward && static_cast<int>(chain(node).size()) >= 1;
  }
  // True for backward work that reads values of this round. A clone of an earlier round is no
  // reader: it runs before the backward work that needs this round's values, and must not keep them
  // live.
  bool is_reader(const Node& node) const {
    return node.backward && !is_forward(node) && !is_clone(node);
  }
  bool is_clone(const Node& node) const {
    return clones_[static_cast<size_t>(&node - graph_.nodes().data())];
  }

  /// Values of forward work, and costly inputs, that readers read.
  const std::vector<ValueId>& crossing() const { return crossing_; }
  /// True if the policy allows to keep a value on the device.
  bool may_keep(ValueId v) const {
    return graph_.type(v).kind == MemoryKind::kDevice && !keepable_input(v) &&
           ask(graph_.def(v), v).mark == Mark::kKeep;
  }
  /// The memory in which a kept value waits for its readers.
  MemoryKind destination(ValueId v) const { return destination_[v.index()]; }
  bool is_forward_value(ValueId v) const {
    return !graph_.is_input(v) && is_forward(graph_.def(v));
  }

 private:
  struct Edge {
    int from, to;  // from -1: the source
    int64_t capacity;
  };
  std::vector<RegionId> chain(const Node& node) const { return region_chain(graph_, node.region); }
  RegionId outermost(const Node& node) const {
    return outermost_region(graph_, node.region);
  }
  int in(ValueId v) const { return 2 * vertex_[v.index()]; }
  int out(ValueId v) const { return 2 * vertex_[v.index()] + 1; }
  // True if the backward part may read the value at no cost.
  bool free(ValueId v) const { return !is_forward_value(v) && !keepable_input(v); }
  // True for an input that is kept only if it is stacked: a carry in the joint body of two scans.
  bool keepable_input(ValueId v) const { return costly_inputs_.count(v) > 0; }

  void collect_crossing() {
    std::vector<bool> seen(graph_.n_values());
    const auto add = [&](ValueId v) {
      if (seen[v.index()] || free(v)) return;
      seen[v.index()] = true;
      crossing_.push_back(v);
    };
    for (const Node& node : graph_.nodes())
      if (is_reader(node))
        for (ValueId v : node.operands) add(v);
  }

  // Marks values that escape their outermost region, to other forward work or to the gradient of
  // nodes outside: they exist whether or not the region is recomputed.
  void mark_boundaries() {
    boundary_.assign(graph_.n_values(), false);
    for (const Node& node : graph_.nodes()) {
      if (!is_forward(node) && !is_clone(node)) continue;
      for (int i = 0; node.escapes_region && i < n_own_results(node); ++i)
        boundary_[node.result(i).index()] = true;
      const RegionId here = outermost(node);
      for (ValueId v : node.operands)
        if (is_forward_value(v) && outermost(graph_.def(v)) != here) boundary_[v.index()] = true;
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      if (!boundary_outputs_ || (*boundary_outputs_)[i])
        boundary_[graph_.outputs()[i].index()] = true;
  }

  // Unites values of one region that hold the same data.
  void find_twins() {
    twin_.resize(graph_.n_values());
    for (size_t v = 0; v < twin_.size(); ++v) twin_[v] = ValueId(v);
    const auto root = [&](ValueId v) {
      while (twin_[v.index()] != v) v = twin_[v.index()] = twin_[twin_[v.index()].index()];
      return v;
    };
    for (const Node& node : graph_.nodes()) {
      const bool same_data = node.op == OpKind::kReshape || node.op == OpKind::kTranspose ||
                             node.op == OpKind::kReverse || op_class(node.op) == OpClass::kIdentity;
      if (!same_data || !is_forward(node)) continue;
      for (int i = 0; i < node.n_results; ++i) {
        const ValueId from = node.operands[static_cast<size_t>(i)];
        if (is_forward_value(from) && outermost(graph_.def(from)) == outermost(node))
          twin_[root(node.result(i)).index()] = root(from);
      }
    }
    for (size_t v = 0; v < twin_.size(); ++v) twin_[v] = root(ValueId(v));
    for (const Node& node : graph_.nodes())
      if (node.op == OpKind::kName && is_forward(node))
        twin_names_[twin_[node.result().index()]].push_back(node.as<NameParams>().name);
  }

  // Marks values whose recomputation repeats expensive work that the policy says to recompute. A
  // value computed from them that the policy keeps must be kept, even if it is cheap itself.
  void find_expensive_recompute() {
    expensive_.assign(graph_.n_values(), false);
    for (const Node& node : graph_.nodes()) {
      if (!is_forward(node)) continue;
      bool from_expensive = false;
      for (ValueId v : node.operands) from_expensive = from_expensive || expensive_[v.index()];
      for (int i = 0; i < node.n_results; ++i) {
        const ValueId v = node.result(i);
        const bool given = boundary_[v.index()] || is_cond_residual(graph_, v) ||
                           ask(node, v).mark != Mark::kRecompute;
        expensive_[v.index()] = !given && (from_expensive || !is_cheap(node));
        if (given && from_expensive) must_keep_.insert(v);
      }
    }
  }

  PolicyAnswer ask(const Node& node, ValueId v) const {
    const RegionId r = outermost(node);
    if (!r.valid()) return {Mark::kKeep};
    const Region& region = graph_.regions()[r.index()];
    const PolicyPtr& policy = override_ ? override_ : region.policy;
    if (!policy || subjects_.is_part(v)) return {Mark::kRecompute};
    const Node& subject = subjects_.of(node);
    const std::string_view name =
        node.op == OpKind::kName ? std::string_view(node.as<NameParams>().name) : "";
    const auto twins = twin_names_.find(twin_[v.index()]);
    PolicyAnswer answer = policy->decide(
        {subject.op, &subject, name,
         twins == twin_names_.end() ? std::span<const std::string_view>() : twins->second});
    if (answer.mark == Mark::kUndecided) answer.mark = Mark::kRecompute;
    return answer;
  }

  // True for a node that is recomputed rather than kept. A value that is moved from another memory
  // is moved again.
  bool is_cheap(const Node& node) const {
    if (node.op == OpKind::kDevicePut)
      return graph_.type(node.operands[0]).kind != MemoryKind::kDevice;
    return is_cheap_to_recompute(node.op);
  }

  // Keeps the values that the policy keeps in the bodies of scans that will be cloned.
  void keep_exposed() {
    if (exposed_.empty()) return;
    std::vector<bool> seen(graph_.n_values());
    std::vector<ValueId> stack = crossing_;
    while (!stack.empty()) {
      const ValueId v = stack.back();
      stack.pop_back();
      if (seen[v.index()] || kept_[v.index()] || !is_forward_value(v)) continue;
      seen[v.index()] = true;
      const Node& node = graph_.def(v);
      stack.insert(stack.end(), node.operands.begin(), node.operands.end());
      const auto found = exposed_.find(static_cast<size_t>(&node - graph_.nodes().data()));
      if (found == exposed_.end()) continue;
      for (const ExposedValue& value : found->second.values) {
        const ValueId stack_value = node.result(value.result);
        kept_[stack_value.index()] = true;
        if (value.answer.mark == Mark::kOffload)
          destination_[stack_value.index()] = value.answer.destination;
      }
    }
  }

  void note_effect(ValueId v) {
    const Node& node = graph_.def(v);
    const RegionId r = outermost(node);
    const auto name = wanted_name(node);
    if (!override_ && name && r.valid() && graph_.regions()[r.index()].policy)
      requests_.moved.emplace(graph_.regions()[r.index()].policy->name, *name);
  }

  void add_vertex(ValueId v) {
    if (vertex_[v.index()] >= 0) return;
    vertex_[v.index()] = static_cast<int>(queue_.size());
    queue_.push_back(v);
  }

  void expand(ValueId v) {
    if (free(v)) {
      edges_.push_back({in(v), out(v), 0});
      return;
    }
    const bool on_device = graph_.type(v).kind == MemoryKind::kDevice;
    const int64_t bytes = on_device ? std::max<int64_t>(1, graph_.type(v).bytes()) : 1;
    if (graph_.is_input(v)) {
      edges_.push_back({in(v), out(v), bytes});
      edges_.push_back({-1, in(v), MinCut::kInfinite});
      return;
    }
    const Node& node = graph_.def(v);
    const PolicyAnswer answer = ask(node, v);
    const bool settled = is_cond_residual(graph_, v);  // chosen inside the cond's branches
    if (answer.mark == Mark::kOffload && on_device && !settled) {
      if (answer.destination == MemoryKind::kDevice)
        trace_error("[checkpoint] a policy offloads a value of {} at {} to the device, where it is",
                    op_name(node.op), to_string(node.provenance));
      // It waits elsewhere, at next to no cost here.
      destination_[v.index()] = answer.destination;
      edges_.push_back({in(v), out(v), 1});
      edges_.push_back({-1, in(v), MinCut::kInfinite});
      return;
    }
    // A value that enters another region is kept; else every region would be recomputed from the
    // input of the first one.
    const bool boundary = boundary_[v.index()];
    const bool recomputable =
        !settled &&
        ((answer.mark == Mark::kRecompute && !boundary) ||
         (is_cheap(node) && !(boundary && node.region.valid()) && !must_keep_.count(v)));
    // A value to offload that is off the device already stays there.
    const bool keepable = settled || boundary || answer.mark != Mark::kRecompute;
    edges_.push_back({in(v), out(v), keepable ? bytes : MinCut::kInfinite});
    if (!recomputable) {
      edges_.push_back({-1, in(v), MinCut::kInfinite});
      return;
    }
    for (ValueId operand : node.operands) {
      add_vertex(operand);
      edges_.push_back({out(operand), in(v), MinCut::kInfinite});
    }
  }

 public:
  std::set<ValueId> costly_inputs_;
  const std::vector<bool>* boundary_outputs_ = nullptr;  // by output; null: all are boundaries

 private:
  const Graph& graph_;
  const PolicySubjects subjects_{graph_};
  const PolicyPtr& override_;
  PolicyRequests& requests_;
  int depth_;
  const std::vector<bool>& clones_;
  const std::map<size_t, ExposedScan>& exposed_;
  std::vector<ValueId> crossing_, queue_;
  std::vector<bool> kept_, boundary_, expensive_;
  std::set<ValueId> must_keep_;
  std::vector<ValueId> twin_;  // by value: one representative for all values with the same data
  std::map<ValueId, std::vector<std::string_view>> twin_names_;
  std::vector<int> vertex_;
  std::vector<MemoryKind> destination_;
  std::vector<Edge> edges_;
};

}  // namespace stow
