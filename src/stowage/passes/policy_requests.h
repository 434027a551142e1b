// Checks of the names that checkpoint policies ask for; a name without effect is an error.
// Not the choice of kept values (residuals.h).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/passes/pass_report.h"

namespace stow {

/// The names in the regions of one policy. A product without batch axes has the name
/// kWantsPlainProduct.
struct RegionNames {
  // `actionable`: names of values on which the policy could act. `repeatable`: those of them whose
  // values recomputation would repeat. `unreachable`: names in while loops, custom_vjps and other
  // regions.
  std::set<std::string> actionable, repeatable, unreachable;
  std::set<std::string> returned;   // names of values that the body of a loop returns
  // Names of `repeatable` that the policy offloads, outside loops, branches and other regions.
  std::set<std::string> offloaded;
  std::map<std::string, MemoryKind> off_device;  // names of values that are off the device already
  bool differentiated = false;
  ProvenancePtr made;  // the first checkpoint of the policy
};

/// The names that the policies of a graph ask for, and the effect of each request. Policies with
/// equal names count as one: a function may make an equal policy for each layer.
struct PolicyRequests {
  std::map<const Policy*, RegionNames> names;  // by policy, in its regions that have a derivative
  std::set<std::pair<std::string, std::string>> moved;  // names of policy and moved value
  int most_kept_in_turn = 0;        // argument of shorten_lives()
  PassReport report;
};

/// The regions around a node, outermost first.
std::vector<RegionId> region_chain(const Graph& graph, RegionId region);
/// Returns the name by which a policy may ask for this node; none for a node without one.
std::optional<std::string> wanted_name(const Node& node);
/// Number of results of a node without the residuals of a scan or cond, which come last.
int n_own_results(const Node& node);
/// Checks that policies can act on the names that they ask for: each must name a value in the
/// region and, if the region has a derivative, one on which values of the backward pass depend.
/// Names of values off the device and products are only checked if there is a derivative.
/// `is_body`: true for the body of a loop with carries. Errors: TraceError for a name without
/// effect.
void check_wanted_names(const Graph& graph, PolicyRequests& requests, bool is_body);
/// Checks that each name that a policy offloads was moved for a backward pass, in any of its
/// regions. A name that a policy keeps is only a permission, so a list may hold more names than a
/// function needs.
/// Errors: TraceError if no value of a name was moved. If `twice` (the program holds second
/// derivatives), a note in `requests.report` instead: second derivatives may read other values than
/// first ones, and a function does not know how often it is differentiated.
void check_effects(PolicyRequests& requests, bool twice);
/// True if a node of the graph, or of a nested one, belongs to a derivative that has been
/// differentiated.
bool is_differentiated_twice(const Graph& graph);

/// Checks the names that policies ask for in a graph as it was traced. Later passes may remove all
/// of a region whose gradient reads only the region's inputs, so only this check always finds a
/// misspelt name.
/// Errors: TraceError if a policy asks for a name that no value in any of its regions has.
void check_names_occur(const Graph& traced);

}  // namespace stow
