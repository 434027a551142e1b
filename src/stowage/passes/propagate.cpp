#include "stowage/passes/propagate.h"

#include <algorithm>
#include <map>
#include <set>

#include "stowage/passes/reshard.h"

namespace stow {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

enum class Stage : uint8_t { kPassThrough, kNotOutOfBroadcasts, kAll };

// True if every result element comes from the operand elements at its place.
bool passes_through(OpKind op) {
  const OpClass c = op_class(op);
  return c == OpClass::kElementwise || c == OpClass::kIdentity || op == OpKind::kTranspose ||
         op == OpKind::kReverse || op == OpKind::kDevicePut;
}

using Level = GraphShardings;

Level& inner_of(Level& level, size_t node, size_t k) {
  return *level.nested[node][k];
}

// A value and the letters of its axes in one op or edge.
struct Place {
  Level* level;
  ValueId value;
  std::vector<int> letters;
};

class Propagation {
 public:
  explicit Propagation(const MeshShape& mesh) : mesh_(mesh) {}

  std::unique_ptr<Level> prepare(const Graph& graph) {
    auto level = std::make_unique<Level>();
    level->graph = &graph;
    level->fixed.assign(graph.n_values(), false);
    level->manual.assign(graph.n_values(), false);
    level->automatic.assign(graph.n_values(), 0);
    level->varies.assign(graph.n_values(), 0);
    for (size_t v = 0; v < graph.n_values(); ++v)
      level->of.push_back(whole_sharding(graph.type(ValueId(v)).shape.rank()));
    level->factors.resize(graph.n_nodes());
    level->nested.resize(graph.n_nodes());
    for (size_t n = 0; n < graph.n_nodes(); ++n) {
      const Node& node = graph.nodes()[n];
      for (const GraphPtr& nested : node.graphs) level->nested[n].push_back(prepare(*nested));
      if (node.graphs.empty()) level->factors[n] = factors_of(graph, node);
      if (node.op == OpKind::kReshard) fix(*level, node.result(), wanted(node));
      if (node.op == OpKind::kFullToShard) automatic_ |= bits(node.as<ReshardParams>().automatic);
    }
    return level;
  }

  void fix(Level& level, ValueId v, const AxisSharding& sharding) {
    if (level.fixed[v.index()]) return;
    level.of[v.index()] = sharding;
    level.fixed[v.index()] = true;
  }

  // Marks the values that bodies of shard_map compute, and fixes them as whole along all but
  // automatic axes.
  void find_manual(Level& level) {
    while (spread_manual(level)) {
    }
    check_borders(level);
    fix_manual(level);
  }

  void run(Level& level) {
    for (const Stage stage : {Stage::kPassThrough, Stage::kNotOutOfBroadcasts, Stage::kAll}) {
      stage_ = stage;
      while (sweep(level)) {
      }
    }
  }

 private:
  static ShardingFactors factors_of(const Graph& graph, const Node& node) {
    std::vector<ArrayType> operands, results;
    for (ValueId v : node.operands) operands.push_back(graph.type(v));
    for (int i = 0; i < node.n_results; ++i) results.push_back(graph.type(node.result(i)));
    return op_def(node.op).shard.function({node.op, operands, node.params, node.graphs}, results);
  }

  AxisSharding wanted(const Node& node) const {
    return canonical_sharding(node.as<ReshardParams>().sharding, mesh_);
  }

  static bool makes_manual(OpKind op) {
    return op == OpKind::kFullToShard || op == OpKind::kAxisIndex || is_collective(op);
  }

  static uint64_t bits(const MeshAxes& axes) {
    uint64_t mask = 0;
    for (int axis : axes) mask |= uint64_t{1} << axis;
    return mask;
  }
  static uint64_t bits(const AxisSharding& s) {
    uint64_t mask = 0;
    for (const MeshAxes& axes : s.axes) mask |= bits(axes);
    return mask;
  }

  // Returns the axes with which the partitioner may cut the results of a node if its operands allow
  // those of `mask`.
  static uint64_t automatic_of(const Node& node, uint64_t mask) {
    if (node.op == OpKind::kFullToShard) return bits(node.as<ReshardParams>().automatic);
    if (is_collective(node.op) || node.op == OpKind::kAxisIndex)
      return mask & ~bits(node.as<CollectiveParams>().axes);
    return mask;
  }

  // Returns the axes along which the results of a node differ if its operands differ along those of
  // `mask`.
  static uint64_t varying(const Node& node, uint64_t mask) {
    if (node.op == OpKind::kFullToShard) return bits(node.as<ReshardParams>().sharding);
    if (node.op == OpKind::kAllReduce || node.op == OpKind::kAllGather) {
      // Each group of an axis has a result of its own.
      const auto& p = node.as<CollectiveParams>();
      return p.n_groups > 1 ? mask : mask & ~bits(p.axes);
    }
    if (is_collective(node.op) || node.op == OpKind::kAxisIndex)
      return mask | bits(node.as<CollectiveParams>().axes);
    return mask;
  }

  bool spread_manual(Level& level) {
    bool changed = false;
    const Graph& graph = *level.graph;
    for (size_t n = 0; n < graph.n_nodes(); ++n) {
      const Node& node = graph.nodes()[n];
      if (node.graphs.empty()) {
        if (node.op == OpKind::kShardToFull) {
          const ValueId part = node.operands[0];
          if (level.is_manual(part))
            changed |= mark(level, part, 0, bits(node.as<ReshardParams>().automatic));
          continue;
        }
        bool manual = makes_manual(node.op);
        uint64_t mask = 0, automatic = automatic_;
        for (ValueId v : node.operands) {
          manual = manual || level.is_manual(v);
          mask |= level.varies[v.index()];
          automatic &= level.may_cut(v);
        }
        mask = varying(node, mask);
        automatic = automatic_of(node, automatic);
        for (int i = 0; manual && i < node.n_results; ++i)
          changed |= mark(level, node.result(i), mask, automatic);
        continue;
      }
      for_each_edge(level, n, [&](std::vector<Place> ends, size_t n_operands) {
        bool any = false;
        uint64_t mask = 0, automatic = automatic_;
        for (const Place& end : ends) {
          any = any || end.level->is_manual(end.value);
          mask |= end.level->varies[end.value.index()];
          automatic &= end.level->may_cut(end.value);
        }
        // Readers do not make their operands manual.
        for (size_t i = n_operands; any && i < ends.size(); ++i)
          changed |= mark(*ends[i].level, ends[i].value, mask, automatic);
      });
      for (size_t k = 0; k < level.nested[n].size(); ++k)
        changed |= spread_manual(inner_of(level, n, k));
    }
    return changed;
  }

  static bool mark(Level& level, ValueId v, uint64_t varies, uint64_t automatic) {
    const size_t i = v.index();
    const uint64_t left = level.may_cut(v) & automatic;
    if (level.manual[i] && (varies & ~level.varies[i]) == 0 && left == level.automatic[i])
      return false;
    level.manual[i] = true;
    level.varies[i] |= varies;
    level.automatic[i] = left;
    return true;
  }

  // Checks that results of a shard_map's body are equal along the axes that do not cut them.
  void check_borders(const Level& level) const {
    for (const Node& node : level.graph->nodes()) {
      if (node.op != OpKind::kShardToFull) continue;
      const uint64_t left_out =
          level.varies[node.operands[0].index()] & ~bits(node.as<ReshardParams>().sharding);
      for (int axis = 0; axis < mesh_.rank(); ++axis) {
        if ((left_out >> axis & 1) == 0 || mesh_.extents[static_cast<size_t>(axis)] == 1) continue;
        const std::string place = to_string(node.provenance);
        trace_error(
            "[shard_map] expected a result that is the same along mesh axis '{0}', which its "
            "specification leaves out, got one that may differ; reduce it over '{0}', or name "
            "the axis in out_specs{1}{2}",
            mesh_.names[static_cast<size_t>(axis)], place.empty() ? "" : "\n  at ", place);
      }
    }
    for (const auto& list : level.nested)
      for (const auto& nested : list) check_borders(*nested);
  }

  void fix_manual(Level& level) {
    for (size_t v = 0; v < level.manual.size(); ++v) {
      const ValueId id(v);
      if (!level.is_closed(id)) continue;
      level.of[v] = whole_sharding(level.graph->type(id).shape.rank());
      level.fixed[v] = true;
    }
    for (auto& list : level.nested)
      for (auto& nested : list) fix_manual(*nested);
  }

  static std::vector<int> plain_letters(const Level& level, ValueId v) {
    std::vector<int> letters(static_cast<size_t>(level.graph->type(v).shape.rank()));
    for (size_t i = 0; i < letters.size(); ++i) letters[i] = static_cast<int>(i);
    return letters;
  }
  static Place plain(Level& level, ValueId v) { return {&level, v, plain_letters(level, v)}; }
  // Returns the place of a stack, whose axis `axis` has no letter.
  static Place stack(Level& level, ValueId v, int64_t axis) {
    Place place{&level, v, {}};
    const int rank = level.graph->type(v).shape.rank();
    for (int i = 0, letter = 0; i < rank; ++i)
      place.letters.push_back(i == axis ? kWhole : letter++);
    return place;
  }

  // Calls visit(places that lie alike, how many of the first are operands) for the edges of a node
  // that holds graphs.
  template <typename Visit>
  void for_each_edge(Level& level, size_t n, Visit visit) {
    const Node& node = level.graph->nodes()[n];
    const auto operand = [&](size_t i) { return plain(level, node.operands[i]); };
    const auto result = [&](size_t i) { return plain(level, node.result(static_cast<int>(i))); };
    const auto inner = [&](size_t k) -> Level& { return inner_of(level, n, k); };
    const auto input = [&](size_t k, size_t i) {
      return plain(inner(k), inner(k).graph->inputs()[i]);
    };
    const auto output = [&](size_t k, size_t i) {
      return plain(inner(k), inner(k).graph->outputs()[i]);
    };
    if (node.op == OpKind::kScan) {
      const auto& p = node.as<ScanParams>();
      const auto n_consts = static_cast<size_t>(p.n_consts),
                 n_carries = static_cast<size_t>(p.n_carries);
      for (size_t i = 0; i < n_consts; ++i) visit({operand(i), input(0, i)}, 1);
      for (size_t i = 0; i < n_carries; ++i)
        visit({operand(n_consts + i), input(0, n_consts + i), output(0, i), result(i)}, 1);
      for (size_t i = 0; i < p.in_axes.size(); ++i) {
        const size_t at = n_consts + n_carries + i;
        visit({stack(level, node.operands[at], p.in_axes[i]), input(0, at)}, 1);
      }
      for (size_t i = 0; i < p.out_axes.size(); ++i) {
        const size_t at = n_carries + i;
        visit({output(0, at), stack(level, node.result(static_cast<int>(at)), p.out_axes[i])}, 0);
      }
    } else if (node.op == OpKind::kCond) {
      for (size_t i = 1; i < node.operands.size(); ++i) {
        std::vector<Place> ends = {operand(i)};
        for (size_t k = 0; k < node.graphs.size(); ++k) ends.push_back(input(k, i - 1));
        visit(std::move(ends), 1);
      }
      for (size_t i = 0; i < static_cast<size_t>(node.n_results); ++i) {
        std::vector<Place> ends;
        for (size_t k = 0; k < node.graphs.size(); ++k) ends.push_back(output(k, i));
        ends.push_back(result(i));
        visit(std::move(ends), 0);
      }
    } else if (node.op == OpKind::kWhile) {
      const auto& p = node.as<WhileParams>();
      const auto n_cond = static_cast<size_t>(p.n_cond_consts),
                 n_body = static_cast<size_t>(p.n_body_consts);
      for (size_t i = 0; i < n_cond; ++i) visit({operand(i), input(0, i)}, 1);
      for (size_t i = 0; i < n_body; ++i) visit({operand(n_cond + i), input(1, i)}, 1);
      for (size_t i = 0; i < static_cast<size_t>(node.n_results); ++i)
        visit({operand(n_cond + n_body + i), input(0, n_cond + i), input(1, n_body + i),
               output(1, i), result(i)},
              1);
    } else {  // checkpoint, custom_vjp: the first graph has their meaning
      for (size_t i = 0; i < node.operands.size(); ++i) visit({operand(i), input(0, i)}, 1);
      for (size_t i = 0; i < static_cast<size_t>(node.n_results); ++i)
        visit({output(0, i), result(i)}, 0);
    }
  }

  bool sweep(Level& level) {
    bool changed = false;
    const size_t n = level.graph->n_nodes();
    for (size_t i = 0; i < n; ++i) changed |= visit_node(level, i);
    for (size_t i = n; i-- > 0;) changed |= visit_node(level, i);
    return changed;
  }

  bool visit_node(Level& level, size_t n) {
    const Node& node = level.graph->nodes()[n];
    bool changed = false;
    if (!node.graphs.empty()) {
      const auto edges = [&] {
        for_each_edge(level, n,
                      [&](std::vector<Place> ends, size_t) { changed |= relate(ends, 0); });
      };
      edges();
      // Only the function of a custom rule is meant.
      const size_t n_graphs = node.op == OpKind::kCustomVjp ? 1 : node.graphs.size();
      for (size_t k = 0; k < n_graphs; ++k) changed |= sweep(inner_of(level, n, k));
      edges();
      return changed;
    }
    if (node.op == OpKind::kReshard) return extend(level, node.operands[0], wanted(node));
    if (node.op == OpKind::kFullToShard)
      return relate_border(level, node, node.operands[0], node.result());
    if (node.op == OpKind::kShardToFull)
      return relate_border(level, node, node.result(), node.operands[0]);
    if (level.is_closed(node.result())) return false;
    if (stage_ == Stage::kPassThrough && !passes_through(node.op)) return false;
    std::vector<Place> places;
    for (int i = 0; i < node.n_results; ++i)
      places.push_back({&level, node.result(i), level.factors[n].results[static_cast<size_t>(i)]});
    const bool backward_only =
        node.op == OpKind::kBroadcast && stage_ == Stage::kNotOutOfBroadcasts;
    const size_t first_changed = backward_only ? places.size() : 0;
    for (size_t i = 0; i < node.operands.size(); ++i)
      places.push_back({&level, node.operands[i], level.factors[n].operands[i]});
    return relate(places, first_changed);
  }

  // The border says how a whole array is best sharded outside, unless something else does. Cuts by
  // automatic axes are the same on both sides.
  bool relate_border(Level& level, const Node& node, ValueId whole, ValueId part) {
    const uint64_t automatic = bits(node.as<ReshardParams>().automatic);
    AxisSharding outside = wanted(node), inside = level.at(whole);
    for (int i = 0; i < outside.rank(); ++i) {
      const auto at = static_cast<size_t>(i);
      if (level.is_manual(part))
        outside.axes[at].insert(outside.axes[at].end(), level.at(part).axes[at].begin(),
                                level.at(part).axes[at].end());
      std::erase_if(inside.axes[at], [&](int axis) { return (automatic >> axis & 1) == 0; });
    }
    bool changed = extend(level, whole, outside);
    if (level.is_manual(part)) changed |= extend(level, part, inside);
    return changed;
  }
  // A constraint also says how a value is best sharded before it, unless something else does.
  bool extend(Level& level, ValueId v, const AxisSharding& wanted) {
    bool changed = false;
    for (int i = 0; i < wanted.rank(); ++i)
      changed |= extend_axis(level, v, i, wanted.axes[static_cast<size_t>(i)]);
    return changed;
  }

  // Extends the mesh axes of one array axis towards `wanted`, as far as these are free and divide.
  bool extend_axis(Level& level, ValueId v, int axis, const MeshAxes& wanted) {
    if (level.fixed[v.index()] || is_made_at_use(*level.graph, v)) return false;
    AxisSharding& s = level.of[v.index()];
    MeshAxes& have = s.axes[static_cast<size_t>(axis)];
    if (wanted.size() <= have.size() || !std::equal(have.begin(), have.end(), wanted.begin()))
      return false;
    const int64_t extent = level.graph->type(v).shape[axis];
    bool changed = false;
    for (size_t i = have.size(); i < wanted.size(); ++i) {
      if (s.cuts_with(wanted[i]) || (level.may_cut(v) >> wanted[i] & 1) == 0) break;
      have.push_back(wanted[i]);
      if (extent == 0 || extent % mesh_.extent_of(have) != 0) {
        have.pop_back();
        break;
      }
      changed = true;
    }
    return changed;
  }

  static bool takes_part(const Place& place) {
    return !place.level->is_closed(place.value) &&
           !is_made_at_use(*place.level->graph, place.value);
  }

  // Merges the mesh axes of each letter, in the order in which the places list the letters. Outer
  // axes of results come first, so a batch keeps its mesh axis if the width of a table competes for
  // it. Places from `first_changed` on may change.
  bool relate(const std::vector<Place>& places, size_t first_changed) {
    std::map<int, MeshAxes> merged;
    std::vector<int> order;
    std::set<int> conflicts;
    for (const Place& place : places) {
      if (!takes_part(place)) continue;
      for (size_t i = 0; i < place.letters.size(); ++i) {
        const int letter = place.letters[i];
        if (letter == kWhole) continue;
        const MeshAxes& axes = place.level->of[place.value.index()].axes[i];
        if (!merged.contains(letter)) order.push_back(letter);
        MeshAxes& all = merged[letter];
        const size_t both = std::min(all.size(), axes.size());
        if (!std::equal(axes.begin(), axes.begin() + static_cast<ptrdiff_t>(both), all.begin()))
          conflicts.insert(letter);
        else if (axes.size() > all.size())
          all = axes;
      }
    }
    bool changed = false;
    for (int letter : order) {
      MeshAxes& axes = merged[letter];
      if (axes.empty() || conflicts.contains(letter)) continue;
      for (const Place& place : places)
        for (size_t i = 0; i < place.letters.size(); ++i)
          if (place.letters[i] == letter) {
            const int64_t extent = place.level->graph->type(place.value).shape[static_cast<int>(i)];
            while (!axes.empty() && (extent == 0 || extent % mesh_.extent_of(axes) != 0))
              axes.pop_back();
          }
      for (size_t k = first_changed; k < places.size(); ++k)
        for (size_t i = 0; i < places[k].letters.size(); ++i)
          if (places[k].letters[i] == letter)
            changed |= extend_axis(*places[k].level, places[k].value, static_cast<int>(i), axes);
    }
    return changed;
  }

  const MeshShape& mesh_;
  uint64_t automatic_ = 0;  // axes that are automatic in any body
  Stage stage_ = Stage::kPassThrough;
};

}  // namespace

bool is_made_at_use(const Graph& graph, ValueId v) {
  if (graph.is_input(v)) return false;
  const Node& node = graph.def(v);
  if (node.op == OpKind::kConstant) return node.as<ConstantParams>().is_splat();
  if (node.op == OpKind::kBroadcast) return graph.type(node.operands[0]).shape.rank() == 0;
  return node.op == OpKind::kIota;
}

std::unique_ptr<GraphShardings> propagate(const Graph& graph, const MeshShape& mesh,
                                          std::span<const AxisSharding> in,
                                          std::span<const std::optional<AxisSharding>> out) {
  constexpr int kMostAxes = 64;  // a bit each
  if (mesh.rank() > kMostAxes)
    trace_error("[partition] expected a mesh of at most {} axes, got {}", kMostAxes, mesh.rank());
  Propagation propagation(mesh);
  std::unique_ptr<Level> level = propagation.prepare(graph);
  propagation.find_manual(*level);
  for (size_t i = 0; i < in.size(); ++i) propagation.fix(*level, graph.inputs()[i], in[i]);
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i]) propagation.fix(*level, graph.outputs()[i], *out[i]);
  propagation.run(*level);
  return level;
}

}  // namespace stow
