// The names that checkpoint policies ask for, and those that are refused: names that do not occur,
// that no derivative needs, or whose values lie elsewhere already.
// Not what is kept or recomputed; residuals.h has that.
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

/// The names in the regions of one policy; a product bears that of any product.
struct RegionNames {
  std::set<std::string> any, repeatable, elsewhere;
  std::set<std::string> returned;   // names of values that the body of a loop returns
  // To be moved: of the repeatable ones outside loops, branches and other regions.
  std::set<std::string> offloaded;
  std::map<std::string, MemoryKind> off_device;  // memories of values that cannot be offloaded
  bool differentiated = false;
  ProvenancePtr made;  // the first checkpoint of the policy
};

/// The names that the policies of a graph ask for, and what became of each request. Policies of one
/// name count as one: a function that makes its policy anew for each layer asks for the same in
/// each.
struct PolicyRequests {
  std::map<const Policy*, RegionNames> names;  // by policy, in its regions that have a derivative
  std::set<std::pair<std::string, std::string>> moved;  // the policy's name and the value's
  int most_kept_in_turn = 0;        // as shorten_lives'
  PassReport report;
};

/// The regions around a node, outermost first.
std::vector<RegionId> region_chain(const Graph& graph, RegionId region);
/// Returns the name by which a policy may ask for this node; nothing for a node without one.
std::optional<std::string> wanted_name(const Node& node);
/// The results of a node that its function has: residuals of scans and conds come behind them.
int n_own_results(const Node& node);
/// A name that a policy asks for must be one it can act on: of a value in its region, and where
/// there is a derivative, of one that this depends on. What lies elsewhere and products are asked for
/// where there is a derivative alone: a function without one keeps nothing anyway.
/// `is_body`: of a loop with carries.
void check_wanted_names(const Graph& graph, PolicyRequests& requests, bool is_body);
/// A name that a policy offloads must have been moved for a backward pass, in any of its regions. A name
/// that a policy keeps is a permission alone: a list of such names may hold more than a function needs.
/// Errors: TraceError when nothing of a name was moved. Where `twice` says that the program holds second
/// derivatives, a note in `requests.report` instead: they may read other values than the first does, and a
/// function does not know how often it is differentiated.
void check_effects(PolicyRequests& requests, bool twice);
/// True if a node of the graph, or of one nested in it, is of a derivative that has been differentiated.
bool is_differentiated_twice(const Graph& graph);

/// Checks the names that policies ask for in a graph as it was traced. Later passes may find
/// nothing left of a region whose gradient reads the region's inputs alone; a name that occurs
/// nowhere is found here all the same.
/// Errors: TraceError when a policy asks for a name that nothing in any of its regions has.
void check_names_occur(const Graph& traced);

}  // namespace stow
