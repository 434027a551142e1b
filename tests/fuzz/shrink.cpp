#include "tests/fuzz/shrink.h"

#include <optional>

#include "stowage/ops/verify.h"
#include "stowage/passes/dead_code.h"

namespace stow::testing {
namespace {

// The graph with one node replaced: by inputs (whose types are returned) or by zeros.
Graph without_node(const Graph& graph, size_t dropped, std::vector<ArrayType>* as_inputs) {
  Graph result;
  ValueMap map(graph);
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    map.set(graph.inputs()[i],
            result.add_input(graph.type(graph.inputs()[i]), graph.input_names()[i]));
  const std::vector<RegionId> regions = import_regions(graph, result, RegionId());
  for (size_t n = 0; n < graph.n_nodes(); ++n) {
    const Node& node = graph.nodes()[n];
    if (n != dropped) {
      copy_node(graph, node, result, map, regions);
      continue;
    }
    for (int i = 0; i < node.n_results; ++i) {
      const ArrayType type = graph.type(node.result(i));
      if (as_inputs) {
        as_inputs->push_back(type);
        map.set(node.result(i), result.add_input(type));
        continue;
      }
      Node zero;
      zero.op = OpKind::kConstant;
      zero.params =
          ConstantParams{type, Bytes(static_cast<size_t>(dtype_bytes(type.dtype)), std::byte{0})};
      zero.region =
          node.region.valid() && !regions.empty() ? regions[node.region.index()] : RegionId();
      zero.backward = node.backward;
      map.set(node.result(i), result.node(result.add_node(std::move(zero), {&type, 1})).result());
    }
  }
  std::vector<ValueId> outputs;
  for (ValueId v : graph.outputs()) outputs.push_back(map[v]);
  result.set_outputs(outputs);
  return result;
}

class Shrinker {
 public:
  Shrinker(RandomProgram program, const std::function<bool(const RandomProgram&)>& fails, int tries)
      : best_(std::move(program)), fails_(fails), tries_(tries) {}

  RandomProgram run() {
    for (bool better = true; better && tries_ > 0;) {
      better = drop_outputs();
      better |= clean();
      better |= drop_nodes();
      better |= drop_nested();
      better |= drop_donations();
    }
    return std::move(best_);
  }

 private:
  bool accept(RandomProgram candidate) {
    if (tries_-- <= 0) return false;
    try {
      verify(candidate.graph);
    } catch (const TraceError&) {
      return false;
    }
    if (!fails_(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }

  bool clean() {
    RandomProgram candidate = best_;
    candidate.graph = remove_dead_code(best_.graph);
    return candidate.graph.n_nodes() < best_.graph.n_nodes() && accept(std::move(candidate));
  }

  bool drop_outputs() {
    bool any = false;
    for (size_t o = best_.graph.outputs().size(); o-- > 0 && best_.graph.outputs().size() > 1;) {
      RandomProgram candidate = best_;
      std::vector<ValueId> outputs = best_.graph.outputs();
      outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(o));
      candidate.graph.set_outputs(outputs);
      any |= accept(std::move(candidate));
    }
    return any;
  }

  bool drop_nodes() {
    bool any = false;
    for (size_t n = best_.graph.n_nodes(); n-- > 0;) {
      if (n >= best_.graph.n_nodes()) continue;
      RandomProgram candidate = best_;
      std::vector<ArrayType> added;
      candidate.graph = without_node(best_.graph, n, &added);
      for (const ArrayType& type : added) {
        candidate.inputs.push_back(random_values(n, type));
        candidate.donated.push_back(false);
      }
      if (accept(std::move(candidate))) {
        any = true;
        clean();
      }
    }
    return any;
  }

  // Nodes of bodies, two deep.
  bool drop_nested() {
    bool any = false;
    for (size_t n = best_.graph.n_nodes(); n-- > 0;) {
      const size_t n_graphs = best_.graph.nodes()[n].graphs.size();
      // A while without its counter would not end.
      if (best_.graph.nodes()[n].op == OpKind::kWhile) continue;
      for (size_t g = 0; g < n_graphs; ++g)
        for (size_t m = best_.graph.nodes()[n].graphs[g]->n_nodes(); m-- > 0;) {
          const Graph& body = *best_.graph.nodes()[n].graphs[g];
          if (m >= body.n_nodes() || body.nodes()[m].op == OpKind::kConstant) continue;
          RandomProgram candidate = best_;
          candidate.graph.mutable_node(NodeId(n)).graphs[g] =
              std::make_shared<const Graph>(without_node(body, m, nullptr));
          any |= accept(std::move(candidate));
        }
    }
    return any && (clean(), true);
  }

  bool drop_donations() {
    bool any = false;
    for (size_t i = 0; i < best_.donated.size(); ++i) {
      if (!best_.donated[i]) continue;
      RandomProgram candidate = best_;
      candidate.donated[i] = false;
      any |= accept(std::move(candidate));
    }
    return any;
  }

  RandomProgram best_;
  const std::function<bool(const RandomProgram&)>& fails_;
  int tries_;
};

}  // namespace

RandomProgram shrink(const RandomProgram& program,
                     const std::function<bool(const RandomProgram&)>& fails, int max_tries) {
  return Shrinker(program, fails, max_tries).run();
}

}  // namespace stow::testing
