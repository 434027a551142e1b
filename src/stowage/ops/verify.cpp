#include "stowage/ops/verify.h"

#include <algorithm>
#include <unordered_map>

#include "stowage/ir/fields.h"
#include "stowage/ir/parse.h"
#include "stowage/ir/print.h"
#include "stowage/ops/op_def.h"

namespace stow {
namespace {

constexpr size_t kMaxShownNode = 240;

class Verifier {
 public:
  // Returns how deep graphs are nested in `g`, itself counted; `depth` is its own.
  int graph(const Graph& g, int depth) {
    auto check_depth = [&](int height) {
      if (depth + height - 1 > kMaxGraphDepth)
        trace_error("graphs are nested more than {} deep", kMaxGraphDepth);
    };
    check_depth(1);
    if (const auto known = heights_.find(&g); known != heights_.end()) {
      check_depth(known->second);
      return known->second;
    }
    regions(g);
    size_t n_values = 0;  // that belong to an input or a node, all of them in the end
    for (size_t i = 0; i < g.inputs().size(); ++i) {
      const ValueId id = g.inputs()[i];
      if (id.index() >= g.n_values() || g.value(id).node.valid() ||
          g.value(id).index != static_cast<int>(i))
        trace_error("input {}, %{}, is not an input of the graph", i, id.value);
      ++n_values;
    }
    int height = 1;
    ValueId first_free(0u);
    for (size_t i = 0; i < g.n_nodes(); ++i) {
      const Node& n = g.nodes()[i];
      if (n.first_result < first_free)
        trace_error("results of node {}, {}, come before those of an earlier node", i,
                    op_name(n.op));
      height = std::max(height, 1 + node_with_place(g, NodeId(i), depth));
      first_free = n.result(n.n_results);
      n_values += static_cast<size_t>(g.nodes()[i].n_results);
    }
    if (n_values != g.n_values())
      trace_error("the graph has {} values, its inputs and nodes {}", g.n_values(), n_values);
    for (ValueId output : g.outputs())
      if (output.index() >= g.n_values()) trace_error("output %{} does not exist", output.value);
    heights_.emplace(&g, height);
    return height;
  }

 private:
  void regions(const Graph& g) {
    for (size_t i = 0; i < g.regions().size(); ++i) {
      const RegionId parent = g.regions()[i].parent;
      if (parent.valid() && parent.index() >= i)
        trace_error("region {} has the parent {}, which does not come before it", i, parent.value);
    }
  }

  int node_with_place(const Graph& g, NodeId id, int depth) {
    try {
      return node(g, id, depth);
    } catch (const TraceError& e) {
      std::string place = print_node(g, g.node(id));
      if (place.size() > kMaxShownNode) place = place.substr(0, kMaxShownNode) + "…";
      const std::string message = fmt::format("{}\n  in {}", e.what(), place);
      if (const auto* inner = dynamic_cast<const VerifyError*>(&e))
        throw VerifyError(message, inner->graph, inner->node);
      throw VerifyError(message, &g, id);
    }
  }

  // Returns how deep graphs are nested in it.
  int node(const Graph& g, NodeId id, int depth) {
    const Node& n = g.node(id);
    auto error = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
      trace_error("[{}] {}", op_name(n.op), fmt::format(format, std::forward<Args>(args)...));
    };
    if (n.params.index() != empty_params(n.op).index()) error("has the parameters of another op");
    if (const NestedCount count = n_nested_graphs(n.op); !count.admits(n.graphs.size())) {
      if (count.least == count.most)
        error("takes {} nested graphs, got {}", count.least, n.graphs.size());
      error("takes at least {} nested graphs, got {}", count.least, n.graphs.size());
    }
    if (n.region.valid() && n.region.index() >= g.regions().size())
      error("is in region {} of {}", n.region.value, g.regions().size());
    results(g, id, error);
    for (ValueId operand : n.operands)
      if (operand >= n.first_result)
        error("operand %{} is not defined before its use", operand.value);
    // The rule of an op with nested graphs reads their types: they are checked first.
    int height = 0;
    for (const GraphPtr& nested : n.graphs) {
      if (!nested) error("has no nested graph");
      height = std::max(height, graph(*nested, depth + 1));
    }
    operand_types_.clear();
    for (ValueId operand : n.operands) operand_types_.push_back(g.type(operand));
    const std::vector<ArrayType> types = infer_types({n.op, operand_types_, n.params, n.graphs});
    if (types.size() != static_cast<size_t>(n.n_results))
      error("has {} results, its type rule gives {}", n.n_results, types.size());
    for (int i = 0; i < n.n_results; ++i)
      if (const ArrayType& t = types[static_cast<size_t>(i)]; !(t == g.type(n.result(i))))
        error("result {} is {}, its type rule gives {}", i, to_string(g.type(n.result(i))),
              to_string(t));
    return height;
  }

  // The values a node says are its results exist and say the same.
  template <typename Error>
  void results(const Graph& g, NodeId id, Error& error) {
    const Node& n = g.node(id);
    const size_t first = n.first_result.index();
    if (n.n_results < 0 || first > g.n_values() ||
        static_cast<size_t>(n.n_results) > g.n_values() - first)
      error("has {} results from %{} on, the graph {} values", n.n_results, first, g.n_values());
    for (int i = 0; i < n.n_results; ++i) {
      const Value& v = g.value(n.result(i));
      if (v.node != id || v.index != i) error("%{} is not its result {}", n.result(i).value, i);
    }
  }

  std::unordered_map<const Graph*, int> heights_;  // of what was verified; bodies may be shared
  std::vector<ArrayType> operand_types_;
};

}  // namespace

void verify(const Graph& graph) {
  Verifier().graph(graph, 1);
}

}  // namespace stow
