#include "stowage/passes/residuals.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "stowage/base/nearest.h"
#include "stowage/ir/joint_cond.h"
#include "stowage/ir/joint_scan.h"
#include "stowage/ir/policy_wants.h"
#include "stowage/ir/utilities.h"
#include "stowage/passes/cond_residuals.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/expose.h"
#include "stowage/passes/min_cut.h"
#include "stowage/passes/policy_subjects.h"
#include "stowage/passes/rematerialize.h"

namespace stow {
namespace {

// The regions around a node, outermost first.
std::vector<RegionId> region_chain(const Graph& graph, RegionId region) {
  std::vector<RegionId> chain;
  for (; region.valid(); region = graph.regions()[region.index()].parent) chain.push_back(region);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

// A carry of a loop: what enters an iteration, and what the one before makes of it.
using Carries = std::vector<std::pair<ValueId, ValueId>>;

// Which nodes the backward part would have to repeat were nothing kept.
std::vector<bool> repeatable_nodes(const Graph& graph, const Carries& carries = {}) {
  std::vector<bool> needed(graph.n_values()), result(graph.n_nodes());
  for (bool grown = true; grown;) {
    for (size_t n = graph.n_nodes(); n-- > 0;) {
      const Node& node = graph.nodes()[n];
      if (!node.backward)
        for (int i = 0; i < node.n_results; ++i)
          result[n] = result[n] || needed[node.result(i).index()];
      if (node.backward || result[n])
        for (ValueId v : node.operands) needed[v.index()] = true;
    }
    grown = false;
    for (const auto& [in, out] : carries) {
      if (!needed[in.index()] || needed[out.index()]) continue;
      needed[out.index()] = grown = true;
    }
  }
  return result;
}

// The names in the regions of one policy; a product bears that of any product.
struct RegionNames {
  std::set<std::string> any, repeatable, elsewhere;
  std::set<std::string> returned;   // of what the body of a loop returns
  // To be moved: of the repeatable ones outside loops, branches and other regions.
  std::set<std::string> offloaded;
  std::map<std::string, MemoryKind> off_device;  // of values that cannot be offloaded from there
  bool differentiated = false;
  bool twice = false;  // a derivative in a region of it has been differentiated
  ProvenancePtr made;  // the first checkpoint of the policy
};

// What the policies of a graph ask for by name, and what became of it. Policies of one name count
// as one: a function that makes its policy anew for each layer asks for the same in each.
struct Requests {
  std::map<const Policy*, RegionNames> names;  // by policy, in its regions that have a derivative
  std::set<std::pair<std::string, std::string>> moved;  // the policy's name and the value's
  int most_kept_in_turn = 0;        // as shorten_lives'
  std::vector<std::string> limits;  // of work that took effect
};

// What a policy may want to find this node by.
std::optional<std::string> wanted_name(const Node& node) {
  if (node.op == OpKind::kName) return node.as<NameParams>().name;
  if (is_plain_product(node)) return std::string(kWantsPlainProduct);
  return std::nullopt;
}

std::string joined(const std::set<std::string>& names) {
  std::vector<std::string> list;
  for (const std::string& name : names)
    if (name != kWantsPlainProduct) list.push_back(name);
  return list.empty() ? "none" : fmt::format("{}", fmt::join(list, ", "));
}

template <typename... Args>
[[noreturn]] void refuse(const RegionNames& have, fmt::format_string<Args...> format,
                         Args&&... args) {
  const std::string place = source_path(have.made);
  trace_error("{}{}{}", fmt::format(format, std::forward<Args>(args)...),
              place.empty() ? "" : "\n  at ", place);
}

// A policy that offloads products, and finds none that is a residual.
[[noreturn]] void refuse_products(const Policy& policy, const RegionNames& have) {
  const std::string product(kWantsPlainProduct);
  refuse(have, "[checkpoint] policy {} has no effect: {}", policy.name,
         have.any.count(product)
             ? "the backward pass reads nothing that depends on a product without batch axes "
               "in its region"
         : have.elsewhere.count(product)
             ? "the products in its region are inside a while loop, a custom_vjp or a checkpoint "
               "with a policy of its own"
             : "no product without batch axes is used in its region");
}

// A value that recomputation would repeat were nothing kept, and that nothing reads in the end.
[[noreturn]] void refuse_unread(const Policy& policy, const std::string& wanted,
                                const RegionNames& have) {
  const std::string what = wanted == kWantsPlainProduct
                               ? std::string("a product without batch axes")
                               : fmt::format("what is named '{}'", wanted);
  refuse(have,
         "[checkpoint] policy {} offloads {}, which has no effect: the backward pass reads no such "
         "value, as what is computed from it is there anyway (a region's result is; so is what a "
         "policy around this one keeps)",
         policy.name, what);
}

[[noreturn]] void refuse_name(const Policy& policy, const std::string& wanted,
                              const RegionNames& have) {
  if (wanted == kWantsPlainProduct) refuse_products(policy, have);
  if (have.off_device.count(wanted))
    refuse(have,
           "[checkpoint] policy {} offloads what is named '{}', which has no effect: it lies on {} "
           "already, and only what is on the device is offloaded",
           policy.name, wanted, memory_kind_name(have.off_device.at(wanted)));
  const std::vector<std::string> there(have.any.begin(), have.any.end());
  if (have.any.count(wanted))
    refuse(have,
           "[checkpoint] policy {} asks for the name '{}', which has no effect: nothing that "
           "the backward pass reads depends on that value; names it can act on: {}{}",
           policy.name, wanted, joined(have.repeatable),
           have.returned.count(wanted)
               ? fmt::format("; '{}' is what the body of a loop returns, and the next iteration reads it "
                             "where it enters: name it there, at the beginning of the body",
                             wanted)
               : "");
  const std::string near = nearest_name(wanted, there);
  std::string hint;
  if (have.elsewhere.count(wanted))
    hint =
        "; it is given inside a while loop, a custom_vjp or a checkpoint with a policy of its own";
  else if (!near.empty() && edit_distance(wanted, near) <= 2)
    hint = fmt::format("; did you mean '{}'?", near);
  refuse(have,
         "[checkpoint] policy {} asks for the name '{}', which no value that is used in its "
         "region has; names there: {}{}",
         policy.name, wanted, joined(have.any), hint);
}

void insert_names(const Graph& graph, std::set<std::string>& names) {
  for (const Node& node : graph.nodes()) {
    if (const auto name = wanted_name(node)) names.insert(*name);
    for (const GraphPtr& nested : node.graphs) insert_names(*nested, names);
  }
}

// The results of a node that its function has: residuals of scans and conds come behind them.
int n_own_results(const Node& node) {
  int n_residuals = 0;
  if (node.op == OpKind::kScan) n_residuals = node.as<ScanParams>().n_residuals;
  if (node.op == OpKind::kCond) n_residuals = node.as<CondParams>().n_residuals;
  return node.n_results - n_residuals;
}

// The one backward node that reads residuals of a forward scan or cond; null where there is none.
const Node* backward_of(const Graph& graph, const Node& forward) {
  const Node* reader = nullptr;
  for (const Node& node : graph.nodes())
    for (ValueId v : node.operands) {
      if (graph.is_input(v) || &graph.def(v) != &forward ||
          graph.value(v).index < n_own_results(forward))
        continue;
      if ((reader && reader != &node) || node.op != forward.op || !node.backward) return nullptr;
      reader = &node;
    }
  return reader;
}

// Adds the names of one node of a joint graph, and of those nested in it that a policy around it
// acts on: in the bodies of scans and the branches of conds, but not in regions of their own.
void collect_names(const Graph& joint, const Node& node, bool repeatable, const Policy& policy,
                   RegionNames& have, bool is_nested) {
  have.differentiated = have.differentiated || repeatable;
  if (const auto name = wanted_name(node)) {
    const MemoryKind kind = joint.type(node.result()).kind;
    const bool offloads = policy.decide({node.op, &node, *name}).mark == Mark::kOffload;
    if (kind != MemoryKind::kDevice && offloads) {
      have.off_device[*name] = kind;
    } else {
      have.any.insert(*name);
      if (repeatable) have.repeatable.insert(*name);
      if (repeatable && offloads && !is_nested) have.offloaded.insert(*name);
    }
  }
  if (node.graphs.empty()) return;
  const auto inside = [&](const Graph& nested, bool paired, const Carries& carries = {}) {
    const std::vector<bool> repeated = repeatable_nodes(nested, carries);
    for (size_t n = 0; n < nested.n_nodes(); ++n) {
      const Node& inner = nested.nodes()[n];
      if (inner.backward) continue;
      if (inner.region.valid()) {
        if (const auto name = wanted_name(inner)) have.elsewhere.insert(*name);
        for (const GraphPtr& g : inner.graphs) insert_names(*g, have.elsewhere);
      } else {
        collect_names(nested, inner, paired && repeatable && repeated[n], policy, have, true);
      }
    }
  };
  const Node* backward = backward_of(joint, node);
  std::vector<ValueId> unused;
  if (node.op == OpKind::kScan && backward) {
    const JointScan pair = join_scans(joint, node, *backward, unused);
    Carries carries;
    for (int k = 0; k < pair.forward.n_carries; ++k)
      carries.emplace_back(
          pair.body.inputs()[static_cast<size_t>(pair.forward.n_consts + k)],
          pair.body.outputs()[static_cast<size_t>(k)]);
    inside(pair.body, true, carries);
  } else if (node.op == OpKind::kCond && backward && backward->operands[0] == node.operands[0]) {
    for (const Graph& branch : join_conds(joint, node, *backward, unused).branches)
      inside(branch, true);
  } else if (node.op == OpKind::kScan || node.op == OpKind::kCond) {
    for (const GraphPtr& nested : node.graphs) inside(*nested, false);
  } else {
    for (const GraphPtr& nested : node.graphs) insert_names(*nested, have.elsewhere);
  }
}

// True if a node is of a derivative that has been differentiated, or one nested in it is: its own
// backward part is forward work then.
bool is_differentiated_twice(const Node& node) {
  return (!node.backward && pass_of(node.provenance) == Pass::kVjp) ||
         std::any_of(node.graphs.begin(), node.graphs.end(), [](const GraphPtr& nested) {
           return std::any_of(nested->nodes().begin(), nested->nodes().end(), is_differentiated_twice);
         });
}

// A name that a policy asks for must be one it can act on: of a value in its region, and where
// there is a derivative, of one that this depends on. What lies elsewhere and products are asked for
// where there is a derivative alone: a function without one keeps nothing anyway.
// `is_body`: of a loop with carries.
void check_wanted_names(const Graph& graph, Requests& requests, bool is_body) {
  const std::vector<bool> repeatable = repeatable_nodes(graph);
  std::vector<bool> returned(graph.n_values());
  if (is_body)
    for (ValueId v : graph.outputs()) returned[v.index()] = true;
  std::map<const Policy*, RegionNames> names;
  for (size_t n = 0; n < graph.n_nodes(); ++n) {
    const Node& node = graph.nodes()[n];
    const auto name = wanted_name(node);
    for (RegionId r : region_chain(graph, node.region)) {
      const Policy* policy = graph.regions()[r.index()].policy.get();
      if (!policy || policy->wanted_names.empty()) continue;
      RegionNames& have = names[policy];
      if (!have.made) have.made = graph.regions()[r.index()].made;
      // What a policy around another one does may leave that one nothing to move.
      const bool is_nested = graph.regions()[r.index()].parent.valid();
      collect_names(graph, node, repeatable[n], *policy, have, is_nested);
      have.twice = have.twice || is_differentiated_twice(node);
      if (name && returned[node.first_result.index()]) have.returned.insert(*name);
    }
  }
  for (const auto& [policy, have] : names)
    for (const std::string& wanted : policy->wanted_names) {
      const bool needs_derivative = wanted == kWantsPlainProduct || have.off_device.count(wanted) > 0;
      if (needs_derivative && !have.differentiated) continue;
      if (!have.any.count(wanted) || (have.differentiated && !have.repeatable.count(wanted)))
        refuse_name(*policy, wanted, have);
    }
  for (auto& [policy, have] : names)
    if (have.differentiated) requests.names.emplace(policy, std::move(have));
}

// A name that a policy moves must have been moved somewhere. One that it keeps is a permission, too:
// a list of such names may hold more than a function needs. What the first derivative moves the second
// may have no need to.
void check_effects(const Requests& requests) {
  for (const auto& [policy, have] : requests.names)
    for (const std::string& name : policy->wanted_names)
      if (!have.twice && have.offloaded.count(name) && !requests.moved.count({policy->name, name}))
        refuse_unread(*policy, name, have);
}

// The names that are anywhere in the regions of each policy.
void gather_names(const Graph& graph, std::map<const Policy*, RegionNames>& names) {
  for (const Node& node : graph.nodes()) {
    for (RegionId r : region_chain(graph, node.region)) {
      const Region& region = graph.regions()[r.index()];
      if (!region.policy || region.policy->wanted_names.empty()) continue;
      RegionNames& have = names[region.policy.get()];
      if (!have.made) have.made = region.made;
      if (const auto name = wanted_name(node)) have.any.insert(*name);
      for (const GraphPtr& nested : node.graphs) insert_names(*nested, have.any);
    }
    for (const GraphPtr& nested : node.graphs) gather_names(*nested, names);
  }
}

// One level of the pass over one graph, scans being single nodes.
class Level {
 public:
  /// `clones` marks the nodes that earlier rounds recompute, those of no region being settled.
  Level(const Graph& graph, const PolicyPtr& override_policy, int depth,
        const std::vector<bool>& clones, const std::map<size_t, ExposedScan>& exposed,
        Requests& requests)
      : graph_(graph),
        override_(override_policy),
        requests_(requests),
        depth_(depth),
        clones_(clones),
        exposed_(exposed) {}

  // Values of this round's forward work that are kept; all others that the backward part reads
  // are cloned. Empty when there is nothing to recompute.
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

  // Forward work of this round: nodes whose chain is deeper than what earlier rounds settled.
  bool is_forward(const Node& node) const {
    return depth_ == 0 ? !node.backward
                       : node.backward && static_cast<int>(chain(node).size()) >= 1;
  }
  // What earlier rounds recompute is no reader: it is there before the backward work that needs
  // this round's values, and must not hold them until then.
  bool is_reader(const Node& node) const {
    return node.backward && !is_forward(node) && !is_clone(node);
  }
  bool is_clone(const Node& node) const {
    return clones_[static_cast<size_t>(&node - graph_.nodes().data())];
  }

  const std::vector<ValueId>& crossing() const { return crossing_; }
  /// True where the policy allows to keep a value on the device.
  bool may_keep(ValueId v) const {
    return graph_.type(v).kind == MemoryKind::kDevice && !keepable_input(v) &&
           ask(graph_.def(v), v).mark == Mark::kKeep;
  }
  /// Where a kept value waits for its readers.
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
  bool free(ValueId v) const { return !is_forward_value(v) && !keepable_input(v); }
  // In a joint body of two scans the carries are inputs that must be stacked to be kept.
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

  // A value that leaves its outermost region, for other forward work or for the gradient of what is
  // outside, is there anyway.
  void mark_boundaries() {
    boundary_.assign(graph_.n_values(), false);
    for (const Node& node : graph_.nodes()) {
      if (!is_forward(node) && !is_clone(node)) continue;
      for (int i = 0; node.leaves && i < n_own_results(node); ++i)
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

  // Values whose recomputation repeats work that a policy says to recompute and that is not cheap.
  // One that the policy keeps is kept then: it was asked for to spare that work.
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

  // What comes from another memory comes again rather than stay.
  bool is_cheap(const Node& node) const {
    if (node.op == OpKind::kDevicePut)
      return graph_.type(node.operands[0]).kind != MemoryKind::kDevice;
    return is_cheap_to_recompute(node.op);
  }

  // What the policy keeps of the bodies of scans that will be cloned.
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
    // What enters another region is kept, or every region would be recomputed from the first one's
    // input.
    const bool boundary = boundary_[v.index()];
    const bool recomputable =
        !settled && ((answer.mark == Mark::kRecompute && !boundary) ||
                     (is_cheap(node) && !(boundary && node.region.valid()) && !must_keep_.count(v)));
    // What is to be offloaded and lies elsewhere already stays there.
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
  const std::vector<bool>* boundary_outputs_ = nullptr;  // none: all are

 private:
  const Graph& graph_;
  const PolicySubjects subjects_{graph_};
  const PolicyPtr& override_;
  Requests& requests_;
  int depth_;
  const std::vector<bool>& clones_;
  const std::map<size_t, ExposedScan>& exposed_;
  std::vector<ValueId> crossing_, queue_;
  std::vector<bool> kept_, boundary_, expensive_;
  std::set<ValueId> must_keep_;
  std::vector<ValueId> twin_;  // one for all values of the same data
  std::map<ValueId, std::vector<std::string_view>> twin_names_;
  std::vector<int> vertex_;
  std::vector<MemoryKind> destination_;
  std::vector<Edge> edges_;
};

// Rewrites the graph of one level: readers see kept values or clones.
class Rewriter {
 public:
  Rewriter(const Graph& from, const Level& level, const std::vector<bool>& kept, int depth,
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
  /// Which nodes of the result recompute others.
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
  // A kept value as a reader sees it: brought back, once, where it waits elsewhere.
  ValueId kept_value(ValueId v) {
    if (!is_offloaded(v)) return map_[v];
    ValueId& fetched = fetched_[v.index()];
    if (!fetched.valid())
      fetched = put(moved_[v.index()], MemoryKind::kDevice, from_.def(v), true);
    return fetched;
  }

  // What a reader reads for `v`: the value itself when kept or no forward work, else a clone.
  ValueId read(ValueId v) {
    if (!level_.is_forward_value(v) || kept_[v.index()]) return kept_value(v);
    // Clones what is missing, in the order in which it was computed first.
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

  // The node, given what is kept of a scan's body; that is `more` operands.
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

  // The region of a clone: as before, less the outermost, which is realised now.
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
  const Level& level_;
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

Graph realize_flat(const Graph& graph, const PolicyPtr& override_policy, Requests& requests,
                   const std::set<ValueId>& costly_inputs,
                   const std::vector<bool>* boundary_outputs, bool shorten) {
  Graph current = graph;
  std::set<ValueId> costly = costly_inputs;
  Recomputation recomputation{std::vector<bool>(graph.n_nodes()),
                              std::vector<ValueId>(graph.n_values())};
  bool widened = false;
  for (int depth = 0;; ++depth) {
    // A policy around a scan acts on the values of its body.
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
    Level level(current, override_policy, depth, recomputation.clone, exposed.scans, requests);
    if (depth == 0) level.costly_inputs_ = costly;
    if (depth == 0) level.boundary_outputs_ = boundary_outputs;
    const std::vector<bool> kept = level.choose_kept();
    // Stacks that nothing reads after all are no results of their scans.
    if (level.crossing().empty()) {
      if (shorten) current = shorten_lives(current, recomputation, requests.limits, requests.most_kept_in_turn);
      return widened ? remove_dead_code(std::move(current)) : current;
    }
    Rewriter rewriter(current, level, kept, depth, exposed.scans, recomputation);
    Graph next = rewriter.run();
    recomputation = rewriter.take_recomputation();
    current = std::move(next);
  }
}

// The forward scan whose residuals `node` reads, if it is a backward scan of this graph.
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

Graph realize(const Graph& joint, const PolicyPtr& override_policy, Requests& requests,
              const std::set<ValueId>& costly_inputs,
              const std::vector<bool>* boundary_outputs = nullptr, bool shorten = true);

// Rewrites every pair of forward and backward scans.
class PairRewriter {
 public:
  PairRewriter(const Graph& from, const PolicyPtr& override_policy, Requests& requests)
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
    // Of a chain, as where a scan that goes along with another has a gradient and both are
    // recomputed, the last two are a pair.
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
      // An iteration's residuals are kept for all iterations, and what it recomputes is not.
      js.body = realize(js.body, override_, requests_, carries, nullptr, false);
      pair.n_backward_consts = js.n_backward_consts;
      pair.split = split_joint_scan(js);
      pairs_.push_back(std::move(pair));
    }
  }

  // True when a residual is read by anything but the backward scan.
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
  Requests& requests_;
  Graph to_;
  ValueMap map_;
  std::vector<Pair> pairs_;
};

// Loops and conds that are no part of a pair may hold joint graphs of their own (a gradient inside a loop).
Graph descend(const Graph& graph, const PolicyPtr& override_policy, Requests& requests) {
  Graph out = graph;
  for (size_t n = 0; n < out.n_nodes(); ++n) {
    Node& node = out.mutable_node(NodeId(n));
    for (GraphPtr& nested : node.graphs)
      nested = std::make_shared<const Graph>(realize(*nested, override_policy, requests, {}));
  }
  return out;
}

Graph realize(const Graph& joint, const PolicyPtr& override_policy, Requests& requests,
              const std::set<ValueId>& costly_inputs, const std::vector<bool>* boundary_outputs,
              bool shorten) {
  const RealizeBranch branch = [&](const Graph& graph, const std::set<ValueId>& costly,
                                   const std::vector<bool>& boundary) {
    return realize(graph, override_policy, requests, costly, &boundary, shorten);
  };
  // In a branch of a cond a name may be missing: another branch may have it.
  // What overrides them is a choice of ours, not a request.
  if (!boundary_outputs && !override_policy)
    check_wanted_names(joint, requests, !costly_inputs.empty());
  const Graph prepared =
      realize_conds(descend(joint, override_policy, requests), costly_inputs, branch);
  const Graph flat = realize_flat(prepared, override_policy, requests, costly_inputs,
                                  boundary_outputs, shorten);
  return PairRewriter(flat, override_policy, requests).run();
}

}  // namespace

void check_names_occur(const Graph& traced) {
  std::map<const Policy*, RegionNames> names;
  gather_names(traced, names);
  for (const auto& [policy, have] : names)
    for (const std::string& wanted : policy->wanted_names)
      if (wanted != kWantsPlainProduct && !have.any.count(wanted))
        refuse_name(*policy, wanted, have);
}

Graph realize_residuals(const Graph& joint, const PolicyPtr& override_policy,
                        std::vector<std::string>* limits, int most_kept_in_turn) {
  Requests requests;
  requests.most_kept_in_turn = most_kept_in_turn;
  Graph realized = realize(joint, override_policy, requests, {});
  check_effects(requests);
  if (limits) limits->insert(limits->end(), requests.limits.begin(), requests.limits.end());
  return realized;
}

}  // namespace stow
