#include "stowage/passes/policy_requests.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "stowage/base/nearest.h"
#include "stowage/ir/joint_cond.h"
#include "stowage/ir/joint_scan.h"
#include "stowage/ir/policy_wants.h"
#include "stowage/ir/utilities.h"

namespace stow {

std::vector<RegionId> region_chain(const Graph& graph, RegionId region) {
  std::vector<RegionId> chain;
  for (; region.valid(); region = graph.regions()[region.index()].parent) chain.push_back(region);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::optional<std::string> wanted_name(const Node& node) {
  if (node.op == OpKind::kName) return node.as<NameParams>().name;
  if (is_plain_product(node)) return std::string(kWantsPlainProduct);
  return std::nullopt;
}

int n_own_results(const Node& node) {
  int n_residuals = 0;
  if (node.op == OpKind::kScan) n_residuals = node.as<ScanParams>().n_residuals;
  if (node.op == OpKind::kCond) n_residuals = node.as<CondParams>().n_residuals;
  return node.n_results - n_residuals;
}

namespace {

// A carry of a loop: the value that enters an iteration, and the value that the iteration before
// makes of it.
using Carries = std::vector<std::pair<ValueId, ValueId>>;

// Marks nodes that the backward part would repeat if nothing were kept.
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

// Refuses a policy that offloads products and finds none that is a residual.
[[noreturn]] void refuse_products(const Policy& policy, const RegionNames& have) {
  const std::string product(kWantsPlainProduct);
  refuse(have, "[checkpoint] policy {} has no effect: {}", policy.name,
         have.actionable.count(product)
             ? "the backward pass reads nothing that depends on a product without batch axes "
               "in its region"
         : have.unreachable.count(product)
             ? "the products in its region are inside a while loop, a custom_vjp or a checkpoint "
               "with a policy of its own"
             : "no product without batch axes is used in its region");
}

// Describes the values that a policy offloads under that name.
std::string offloaded_thing(const std::string& wanted) {
  return wanted == kWantsPlainProduct ? std::string("a product without batch axes")
                                      : fmt::format("what is named '{}'", wanted);
}

// Refuses a name whose values recomputation would repeat, but that nothing reads in the end.
[[noreturn]] void refuse_unread(const Policy& policy, const std::string& wanted,
                                const RegionNames& have) {
  refuse(have,
         "[checkpoint] policy {} offloads {}, which has no effect: the backward pass reads no such "
         "value, as what is computed from it is there anyway (a region's result is; so is what a "
         "policy around this one keeps)",
         policy.name, offloaded_thing(wanted));
}

// Returns the same fact as a note, for a program with second derivatives.
std::string unread_note(const Policy& policy, const std::string& wanted, const RegionNames& have) {
  const std::string place = source_path(have.made);
  return fmt::format(
      "policy {} of checkpoint{}{} offloads {}, which has no effect: no backward pass of the first or a "
      "further derivative reads it",
      policy.name, place.empty() ? "" : " at ", place, offloaded_thing(wanted));
}

[[noreturn]] void refuse_name(const Policy& policy, const std::string& wanted,
                              const RegionNames& have) {
  if (wanted == kWantsPlainProduct) refuse_products(policy, have);
  if (have.off_device.count(wanted))
    refuse(have,
           "[checkpoint] policy {} offloads what is named '{}', which has no effect: it lies on {} "
           "already, and only what is on the device is offloaded",
           policy.name, wanted, memory_kind_name(have.off_device.at(wanted)));
  const std::vector<std::string> there(have.actionable.begin(), have.actionable.end());
  if (have.actionable.count(wanted))
    refuse(have,
           "[checkpoint] policy {} asks for the name '{}', which has no effect: nothing that "
           "the backward pass reads depends on that value; names it can act on: {}{}",
           policy.name, wanted, joined(have.repeatable),
           have.returned.count(wanted)
               ? fmt::format(
                     "; '{}' is what the body of a loop returns, and the next iteration reads it "
                     "where it enters: name it there, at the beginning of the body",
                     wanted)
               : "");
  const std::string near = nearest_name(wanted, there);
  std::string hint;
  if (have.unreachable.count(wanted))
    hint =
        "; it is given inside a while loop, a custom_vjp or a checkpoint with a policy of its own";
  else if (!near.empty() && edit_distance(wanted, near) <= 2)
    hint = fmt::format("; did you mean '{}'?", near);
  refuse(have,
         "[checkpoint] policy {} asks for the name '{}', which no value that is used in its "
         "region has; names there: {}{}",
         policy.name, wanted, joined(have.actionable), hint);
}

void insert_names(const Graph& graph, std::set<std::string>& names) {
  for (const Node& node : graph.nodes()) {
    if (const auto name = wanted_name(node)) names.insert(*name);
    for (const GraphPtr& nested : node.graphs) insert_names(*nested, names);
  }
}

// Returns the only backward node that reads residuals of a forward scan or cond; null if there is
// none.
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

// Adds the names of one node of a joint graph, and of nested nodes on which a policy around it
// acts: nodes in bodies of scans and branches of conds, but not in regions of their own.
void collect_names(const Graph& joint, const Node& node, bool repeatable, const Policy& policy,
                   RegionNames& have, bool is_nested) {
  have.differentiated = have.differentiated || repeatable;
  if (const auto name = wanted_name(node)) {
    const MemoryKind kind = joint.type(node.result()).kind;
    const bool offloads = policy.decide({node.op, &node, *name}).mark == Mark::kOffload;
    if (kind != MemoryKind::kDevice && offloads) {
      have.off_device[*name] = kind;
    } else {
      have.actionable.insert(*name);
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
        if (const auto name = wanted_name(inner)) have.unreachable.insert(*name);
        for (const GraphPtr& g : inner.graphs) insert_names(*g, have.unreachable);
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
    for (const GraphPtr& nested : node.graphs) insert_names(*nested, have.unreachable);
  }
}

// Collects all names in the regions of each policy.
void gather_names(const Graph& graph, std::map<const Policy*, RegionNames>& names) {
  for (const Node& node : graph.nodes()) {
    for (RegionId r : region_chain(graph, node.region)) {
      const Region& region = graph.regions()[r.index()];
      if (!region.policy || region.policy->wanted_names.empty()) continue;
      RegionNames& have = names[region.policy.get()];
      if (!have.made) have.made = region.made;
      if (const auto name = wanted_name(node)) have.actionable.insert(*name);
      for (const GraphPtr& nested : node.graphs) insert_names(*nested, have.actionable);
    }
    for (const GraphPtr& nested : node.graphs) gather_names(*nested, names);
  }
}

}  // namespace

void check_wanted_names(const Graph& graph, PolicyRequests& requests, bool is_body) {
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
      // The policy of an outer region may leave nothing to move.
      const bool is_nested = graph.regions()[r.index()].parent.valid();
      collect_names(graph, node, repeatable[n], *policy, have, is_nested);
      if (name && returned[node.first_result.index()]) have.returned.insert(*name);
    }
  }
  for (const auto& [policy, have] : names)
    for (const std::string& wanted : policy->wanted_names) {
      const bool needs_derivative =
          wanted == kWantsPlainProduct || have.off_device.count(wanted) > 0;
      if (needs_derivative && !have.differentiated) continue;
      if (!have.actionable.count(wanted) || (have.differentiated && !have.repeatable.count(wanted)))
        refuse_name(*policy, wanted, have);
    }
  for (auto& [policy, have] : names) {
    if (!have.differentiated) continue;
    // One of several levels may have nothing to offload, such as a loop's body or a copy in another
    // derivative.
    const auto [known, is_new] = requests.names.try_emplace(policy, have);
    if (!is_new) known->second.offloaded.insert(have.offloaded.begin(), have.offloaded.end());
  }
}

// True if the graph has second derivatives: the backward part of a differentiated derivative is
// forward work.
bool is_differentiated_twice(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return (!node.backward && pass_of(node.provenance) == Pass::kVjp) ||
           std::any_of(node.graphs.begin(), node.graphs.end(),
                       [](const GraphPtr& nested) { return is_differentiated_twice(*nested); });
  });
}

void check_effects(PolicyRequests& requests, bool twice) {
  std::vector<std::string>& notes = requests.report.notes;
  for (const auto& [policy, have] : requests.names)
    for (const std::string& name : policy->wanted_names) {
      if (!have.offloaded.count(name) || requests.moved.count({policy->name, name})) continue;
      if (!twice) refuse_unread(*policy, name, have);
      std::string note = unread_note(*policy, name, have);
      if (std::find(notes.begin(), notes.end(), note) == notes.end())
        notes.push_back(std::move(note));
    }
  // The map is ordered by address, which is not deterministic.
  std::sort(notes.begin(), notes.end());
}

void check_names_occur(const Graph& traced) {
  std::map<const Policy*, RegionNames> names;
  gather_names(traced, names);
  for (const auto& [policy, have] : names)
    for (const std::string& wanted : policy->wanted_names)
      if (wanted != kWantsPlainProduct && !have.actionable.count(wanted))
        refuse_name(*policy, wanted, have);
}

}  // namespace stow
