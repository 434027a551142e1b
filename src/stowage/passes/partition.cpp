#include "stowage/passes/partition.h"

#include <algorithm>
#include <map>
#include <set>

#include "stowage/base/bytes.h"
#include "stowage/ops/build.h"
#include "stowage/ops/localize.h"
#include "stowage/passes/choose_axes.h"
#include "stowage/passes/combine.h"
#include "stowage/passes/combine_all_reduces.h"
#include "stowage/passes/propagate.h"
#include "stowage/passes/reshard.h"
#include "stowage/passes/sharding_notes.h"

namespace stow {
namespace {

AxisSharding with_axis(AxisSharding s, int64_t at) {
  s.axes.insert(s.axes.begin() + at, MeshAxes());
  return s;
}
AxisSharding without_axis(AxisSharding s, int64_t at) {
  s.axes.erase(s.axes.begin() + at);
  return s;
}

// Writes one level of the program of a position: a graph, or one that is written into another.
class Writer {
 public:
  Writer(const GraphShardings& level, const MeshShape& mesh, const PartitionOptions& options,
         GraphBuilder& builder, ShardingNotes& notes)
      : from_(*level.graph),
        level_(level),
        mesh_(mesh),
        options_(options),
        b_(builder),
        notes_(notes),
        map_(from_) {}

  // Writes the level for `inputs` with the shardings `in`. Returns the outputs with the shardings
  // `out`, or those of the level.
  std::vector<ValueId> write(std::span<const ValueId> inputs, std::span<const AxisSharding> in,
                             std::span<const AxisSharding* const> out, RegionId parent) {
    regions_ = import_regions(from_, b_.graph(), parent);
    parent_ = parent;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId v = from_.inputs()[i];
      const Val local(b_, inputs[i]);
      map_.set(v, reshard(from_.type(v), local, in[i], level_.at(v), input_name(i)).id());
    }
    for (size_t n = 0; n < from_.n_nodes(); ++n) {
      stamp(from_.nodes()[n]);
      write_node(n);
    }
    stamp_nothing();
    std::vector<ValueId> outputs;
    for (size_t o = 0; o < from_.outputs().size(); ++o) {
      const ValueId v = from_.outputs()[o];
      const AxisSharding& as = out[o] ? *out[o] : level_.at(v);
      outputs.push_back(operand(v, as).id());
    }
    return outputs;
  }

 private:
  // ---- Stamps and sources ----

  void stamp(const Node& node) {
    b_.provenance = node.provenance;
    b_.backward = node.backward;
    b_.region = node.region.valid() ? regions_[node.region.index()] : parent_;
  }
  void stamp_nothing() {
    b_.provenance = nullptr;
    b_.backward = false;
    b_.region = parent_;
  }
  std::string input_name(size_t i) const {
    const std::string& name = from_.input_names()[i];
    return name.empty() ? fmt::format("input {}", i) : name;
  }
  std::string source(ValueId v) const {
    if (from_.is_input(v)) return input_name(static_cast<size_t>(from_.value(v).index));
    const std::string place = to_string(from_.def(v).provenance);
    return place.empty() ? std::string(op_name(from_.def(v).op)) : place;
  }
  [[noreturn]] void error(const Node& node, const std::string& message) const {
    const std::string place = to_string(node.provenance);
    trace_error("[{}] {}{}{}", op_name(node.op), message, place.empty() ? "" : "\n  at ", place);
  }

  // ---- Values ----

  // Returns the index in a group, made once per level outside of any region.
  Val index(const MeshAxes& axes) {
    if (const auto it = indices_.find(axes); it != indices_.end()) return Val(b_, it->second);
    const RegionId region = std::exchange(b_.region, RegionId());
    const bool backward = std::exchange(b_.backward, false);
    const Val made = b_.add1(OpKind::kAxisIndex, CollectiveParams{.mesh = mesh_, .axes = axes}, {});
    b_.region = region;
    b_.backward = backward;
    indices_.emplace(axes, made.id());
    return made;
  }
  auto index_function() {
    return [this](const MeshAxes& axes) { return index(axes); };
  }

  Val reshard(const ArrayType& type, const Val& x, const AxisSharding& from, const AxisSharding& to,
              const std::string& from_where) {
    if (from == to) return x;
    const ReshardPlan plan = plan_reshard(type, from, to, mesh_);
    notes_.through_larger(type, plan, from, to, from_where);
    return apply_reshard(plan, type, x, mesh_, index_function());
  }

  // Returns an operand with the sharding `as`, resharded once for all nodes of a region and
  // direction.
  Val operand(ValueId v, const AxisSharding& as) {
    const bool made_here = is_made_here(v);
    if (!made_here && level_.at(v) == as) return Val(b_, map_[v]);
    const Key key{v.index(), as.axes, b_.backward,
                  b_.region.valid() ? b_.region.index() : ~size_t{0}};
    if (const auto it = resharded_.find(key); it != resharded_.end()) return Val(b_, it->second);
    const Val made = made_here ? make_here(v, as)
                     : is_widened(v)
                         ? widened(v, as)
                         : reshard(from_.type(v), Val(b_, map_[v]), level_.at(v), as, source(v));
    resharded_.emplace(key, made.id());
    return made;
  }
  Val local(ValueId v) { return operand(v, level_.at(v)); }

  bool is_made_here(ValueId v) const { return is_made_at_use(from_, v) && !level_.is_manual(v); }
  // Returns a splat, an iota or a broadcast scalar made with the sharding that its reader wants.
  Val make_here(ValueId v, const AxisSharding& as) {
    const NodeId id = from_.value(v).node;
    const Node& node = from_.node(id);
    LetterAxes axes;
    for (int i = 0; i < as.rank(); ++i)
      if (const MeshAxes& cut = as.axes[static_cast<size_t>(i)]; !cut.empty())
        axes.emplace(level_.factors[id.index()].results[0][static_cast<size_t>(i)], cut);
    std::vector<ArrayType> types;
    std::vector<Val> operands;
    for (ValueId scalar : node.operands) {
      types.push_back(from_.type(scalar));
      operands.push_back(local(scalar));
    }
    const ProvenancePtr reader = std::exchange(b_.provenance, node.provenance);
    const OpShardings shardings = shardings_of(level_.factors[id.index()], axes);
    const Val made = localize(node, types, std::span(&from_.type(v), 1), shardings, mesh_, b_,
                              operands, index_function())[0];
    b_.provenance = reader;
    return made;
  }

  // True for a value that is a widened form of another; the narrow form crosses the mesh.
  bool is_widened(ValueId v) const {
    if (from_.is_input(v) || from_.def(v).op != OpKind::kConvert) return false;
    const ValueId narrow = from_.def(v).operands[0];
    return dtype_bytes(from_.type(narrow).dtype) < dtype_bytes(from_.type(v).dtype) &&
           level_.at(narrow) == level_.at(v);
  }
  Val widened(ValueId v, const AxisSharding& as) {
    return convert(operand(from_.def(v).operands[0], as), from_.type(v).dtype);
  }

  // Sets a result with the sharding `as`, resharded to the sharding of its value.
  void set_result(const Node& node, int i, const Val& local, const AxisSharding& as) {
    const ValueId v = node.result(i);
    const ArrayType& type = from_.type(v);
    const Val x = reshard(type, local, as, level_.at(v), source(v));
    map_.set(v, x.id());
    Graph& graph = b_.graph();
    if (node.escapes_region && !graph.is_input(x.id()))
      graph.mutable_node(graph.value(x.id()).node).escapes_region = true;
    if (!level_.is_manual(v)) notes_.value(type, level_.at(v), source(v));
  }

  // ---- Nodes ----

  void write_node(size_t n) {
    const Node& node = from_.nodes()[n];
    if (node.op == OpKind::kScan) return write_scan(n);
    if (node.op == OpKind::kCond) return write_cond(n);
    if (node.op == OpKind::kWhile) return write_while(n);
    if (node.op == OpKind::kCheckpoint) return write_checkpoint(n);
    if (node.op == OpKind::kCustomVjp) return write_inline(n);
    if (std::holds_alternative<ReshardParams>(node.params)) return write_border(node);
    if (node.n_results == 1 && is_made_here(node.result())) return;
    std::vector<ArrayType> operand_types, result_types;
    for (ValueId v : node.operands) operand_types.push_back(from_.type(v));
    for (int i = 0; i < node.n_results; ++i) result_types.push_back(from_.type(node.result(i)));
    const AxisChoice choice = choose_axes(level_, mesh_, n);
    std::vector<Val> operands;
    for (size_t i = 0; i < node.operands.size(); ++i)
      operands.push_back(operand(node.operands[i], choice.shardings.operands[i]));
    if (sums_in_f32(node, choice))
      return write_product_in_f32(node, operand_types, choice, operands);
    const std::vector<Val> results = localize(node, operand_types, result_types, choice.shardings,
                                              mesh_, b_, operands, index_function());
    for (int i = 0; i < node.n_results; ++i)
      set_result(node, i, results[static_cast<size_t>(i)],
                 choice.shardings.results[static_cast<size_t>(i)]);
  }

  // True for a product of narrow floats whose parts are summed over an axis that wants f32.
  bool sums_in_f32(const Node& node, const AxisChoice& choice) const {
    if (node.op != OpKind::kDotGeneral) return false;
    const DType out = node.as<DotParams>().out;
    const MeshAxes& partial = choice.shardings.results[0].partial;
    return is_float(out) && dtype_bytes(out) < 4 &&
           std::any_of(partial.begin(), partial.end(), [&](int axis) {
             const MeshAxes& wide = options_.f32_sum_axes;
             return std::find(wide.begin(), wide.end(), axis) != wide.end();
           });
  }

  // Parts are computed and summed in f32 and rounded once, as those of the whole product are.
  void write_product_in_f32(const Node& node, std::span<const ArrayType> operand_types,
                            const AxisChoice& choice, const std::vector<Val>& operands) {
    const ValueId v = node.result();
    Node wide = node;
    std::get<DotParams>(wide.params).out = DType::kF32;
    const ArrayType type{DType::kF32, from_.type(v).shape};
    const Val sum = localize(wide, operand_types, std::span(&type, 1), choice.shardings, mesh_, b_,
                             operands, index_function())[0];
    const Val part = reshard(type, sum, choice.shardings.results[0], level_.at(v), source(v));
    set_result(node, 0, convert(part, from_.type(v).dtype), level_.at(v));
  }

  // Writes a reshard node, or a border of code for one position, inside of which a part is the
  // value itself.
  void write_border(const Node& node) {
    const ValueId v = node.operands[0];
    const bool is_part = level_.is_manual(v);
    check_mesh(node, node.as<ReshardParams>().mesh);
    AxisSharding as = canonical_sharding(node.as<ReshardParams>().sharding, mesh_);
    // Automatic axes cut a part further, so the cut array is this part.
    const ValueId part = node.op == OpKind::kShardToFull ? v : node.result();
    if (level_.is_manual(part))
      for (size_t i = 0; i < as.axes.size(); ++i)
        as.axes[i].insert(as.axes[i].end(), level_.at(part).axes[i].begin(),
                          level_.at(part).axes[i].end());
    if (node.op == OpKind::kFullToShard && is_part)
      error(node,
            "expected an array over the mesh, got a part of one: shard_map stands in the body "
            "of another");
    // A value that depends on no part, such as a constant of the body, is equal at every position.
    const bool is_constant = !is_part && node.op == OpKind::kShardToFull;
    const Val x = is_part       ? local(v)
                  : is_constant ? operand(v, whole_sharding(from_.type(v).shape.rank()))
                                : operand(v, as);
    const bool gives_part = level_.is_manual(node.result());
    set_result(node, 0, x, gives_part ? level_.at(node.result()) : as);
  }

  void check_mesh(const Node& node, const MeshShape& mesh) const {
    if (!(mesh == mesh_))
      error(node, fmt::format("expected {}, the mesh of the program, got {}", to_string(mesh_),
                              to_string(mesh)));
  }

  // ---- Nodes with graphs ----

  const GraphShardings& inner(size_t n, size_t k) const { return *level_.nested[n][k]; }

  // Returns the local form of a nested graph whose inputs have the shardings `in`.
  GraphPtr nested(const GraphShardings& level, std::span<const AxisSharding> in,
                  std::span<const AxisSharding* const> out) {
    auto graph = std::make_shared<Graph>();
    GraphBuilder builder(*graph);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < in.size(); ++i)
      inputs.push_back(
          graph->add_input(local_type(level.graph->type(level.graph->inputs()[i]), in[i], mesh_),
                           level.graph->input_names()[i]));
    graph->set_outputs(
        Writer(level, mesh_, options_, builder, notes_).write(inputs, in, out, RegionId()));
    return graph;
  }

  std::vector<Val> add(const Node& node, std::span<const Val> operands,
                       std::vector<GraphPtr> graphs) {
    return b_.add(node.op, node.params, operands, std::move(graphs));
  }

  void write_scan(size_t n) {
    const Node& node = from_.nodes()[n];
    const auto& p = node.as<ScanParams>();
    const GraphShardings& body = inner(n, 0);
    const auto n_consts = static_cast<size_t>(p.n_consts),
               n_carries = static_cast<size_t>(p.n_carries);
    const auto of_input = [&](size_t i) -> const AxisSharding& {
      return body.at(body.graph->inputs()[i]);
    };
    std::vector<AxisSharding> in;
    std::vector<Val> operands;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      in.push_back(of_input(i));
      AxisSharding as = of_input(i);
      if (i >= n_consts + n_carries) {
        const int64_t axis = p.in_axes[i - n_consts - n_carries];
        check_scanned(node, i, axis);
        as = with_axis(as, axis);
      }
      operands.push_back(operand(node.operands[i], as));
    }
    // Slices have the sharding of their stack in the loop, unless the stacked axis is cut.
    std::vector<AxisSharding> slices, made;
    for (size_t i = 0; i < static_cast<size_t>(node.n_results); ++i) {
      if (i < n_carries) {
        slices.push_back(of_input(n_consts + i));
        made.push_back(slices.back());
        continue;
      }
      const int64_t axis = p.out_axes[i - n_carries];
      const AxisSharding& stack = level_.at(node.result(static_cast<int>(i)));
      const bool cut = !stack.axes[static_cast<size_t>(axis)].empty();
      slices.push_back(cut ? body.at(body.graph->outputs()[i]) : without_axis(stack, axis));
      made.push_back(with_axis(slices.back(), axis));
    }
    std::vector<const AxisSharding*> out;
    for (const AxisSharding& slice : slices) out.push_back(&slice);
    const std::vector<Val> results = add(node, operands, {nested(body, in, out)});
    for (size_t i = 0; i < results.size(); ++i)
      set_result(node, static_cast<int>(i), results[i], made[i]);
  }

  void check_scanned(const Node& node, size_t i, int64_t axis) const {
    const ValueId v = node.operands[i];
    const AxisSharding& s = level_.at(v);
    if (s.axes[static_cast<size_t>(axis)].empty()) return;
    const ReshardPlan plan =
        plan_reshard(from_.type(v), s, with_axis(without_axis(s, axis), axis), mesh_);
    error(node,
          fmt::format("expected axis {} of {} to be whole, since the loop goes over it; it is "
                      "cut as {}. Gathering it would take {} more a position; cut another "
                      "axis of {}",
                      axis, to_string(from_.type(v)), to_string(s, mesh_),
                      format_bytes(plan.most_bytes - local_type(from_.type(v), s, mesh_).bytes()),
                      source(v)));
  }

  // True for a part of a shard_map's body that is not the same along every mesh axis.
  bool may_differ(const GraphShardings& level, ValueId v) const {
    for (int axis = 0; axis < mesh_.rank(); ++axis)
      if (level.is_manual(v) && (level.varies[v.index()] >> axis & 1) != 0 &&
          mesh_.extents[static_cast<size_t>(axis)] > 1)
        return true;
    return false;
  }

  void check_same_everywhere(const Node& node, bool differs) const {
    if (differs)
      error(node,
            "expected the same value on every position, got one that may differ between "
            "them; reduce it over the mesh first");
  }

  void write_cond(size_t n) {
    const Node& node = from_.nodes()[n];
    check_same_everywhere(node, may_differ(level_, node.operands[0]));
    std::vector<Val> operands = {local(node.operands[0])};
    std::vector<AxisSharding> in;
    for (size_t i = 1; i < node.operands.size(); ++i) {
      in.push_back(level_.at(node.operands[i]));
      operands.push_back(local(node.operands[i]));
    }
    std::vector<const AxisSharding*> out;
    for (int i = 0; i < node.n_results; ++i) out.push_back(&level_.at(node.result(i)));
    std::vector<GraphPtr> branches;
    for (size_t k = 0; k < node.graphs.size(); ++k)
      branches.push_back(nested(inner(n, k), in, out));
    const std::vector<Val> results = add(node, operands, std::move(branches));
    for (int i = 0; i < node.n_results; ++i)
      set_result(node, i, results[static_cast<size_t>(i)], level_.at(node.result(i)));
  }

  void write_while(size_t n) {
    const Node& node = from_.nodes()[n];
    const auto& p = node.as<WhileParams>();
    const GraphShardings &condition = inner(n, 0), &body = inner(n, 1);
    check_same_everywhere(node, may_differ(condition, condition.graph->outputs()[0]));
    const auto n_cond = static_cast<size_t>(p.n_cond_consts),
               n_body = static_cast<size_t>(p.n_body_consts);
    const auto of_input = [](const GraphShardings& level, size_t i) -> const AxisSharding& {
      return level.at(level.graph->inputs()[i]);
    };
    std::vector<AxisSharding> in_condition, in_body;
    std::vector<Val> operands;
    std::vector<const AxisSharding*> out;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const AxisSharding& as = i < n_cond ? of_input(condition, i) : of_input(body, i - n_cond);
      if (i < n_cond || i >= n_cond + n_body) in_condition.push_back(as);
      if (i >= n_cond) in_body.push_back(as);
      if (i >= n_cond + n_body) out.push_back(&as);
      operands.push_back(operand(node.operands[i], as));
    }
    const AxisSharding* const scalar[] = {&condition.at(condition.graph->outputs()[0])};
    const std::vector<Val> results =
        add(node, operands, {nested(condition, in_condition, scalar), nested(body, in_body, out)});
    for (int i = 0; i < node.n_results; ++i)
      set_result(node, i, results[static_cast<size_t>(i)], *out[static_cast<size_t>(i)]);
  }

  void write_checkpoint(size_t n) {
    const Node& node = from_.nodes()[n];
    const GraphShardings& body = inner(n, 0);
    std::vector<AxisSharding> in;
    std::vector<Val> operands;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      in.push_back(body.at(body.graph->inputs()[i]));
      operands.push_back(operand(node.operands[i], in.back()));
    }
    std::vector<const AxisSharding*> out;
    for (int i = 0; i < node.n_results; ++i) out.push_back(&level_.at(node.result(i)));
    const std::vector<Val> results = add(node, operands, {nested(body, in, out)});
    for (int i = 0; i < node.n_results; ++i)
      set_result(node, i, results[static_cast<size_t>(i)], *out[static_cast<size_t>(i)]);
  }

  // Writes the function of a custom rule in its place, since gradients were taken before.
  void write_inline(size_t n) {
    const Node& node = from_.nodes()[n];
    const GraphShardings& function = inner(n, 0);
    std::vector<ValueId> inputs;
    std::vector<AxisSharding> in;
    for (ValueId v : node.operands) {
      inputs.push_back(local(v).id());
      in.push_back(level_.at(v));
    }
    std::vector<const AxisSharding*> out;
    for (int i = 0; i < node.n_results; ++i) out.push_back(&level_.at(node.result(i)));
    const std::vector<ValueId> results =
        Writer(function, mesh_, options_, b_, notes_).write(inputs, in, out, b_.region);
    stamp(node);
    for (int i = 0; i < node.n_results; ++i)
      set_result(node, i, Val(b_, results[static_cast<size_t>(i)]), level_.at(node.result(i)));
  }

  using Key = std::tuple<size_t, std::vector<MeshAxes>, bool, size_t>;

  const Graph& from_;
  const GraphShardings& level_;
  const MeshShape& mesh_;
  const PartitionOptions& options_;
  GraphBuilder& b_;
  ShardingNotes& notes_;
  ValueMap map_;  // to local values
  std::vector<RegionId> regions_;
  RegionId parent_;
  std::map<MeshAxes, ValueId> indices_;
  std::map<Key, ValueId> resharded_;
};

void count_collectives(const Graph& graph, double times,
                       std::map<OpKind, CollectiveCount>& counts) {
  for (const Node& node : graph.nodes()) {
    const double n = node.op == OpKind::kScan
                         ? times * static_cast<double>(node.as<ScanParams>().length)
                         : times;
    for (const GraphPtr& nested : node.graphs) count_collectives(*nested, n, counts);
    if (!is_collective(node.op)) continue;
    const auto size = static_cast<double>(node.as<CollectiveParams>().group_size());
    const int64_t operand = graph.type(node.operands[0]).bytes();
    const double bytes = static_cast<double>(std::max(operand, graph.type(node.result()).bytes()));
    const double share = node.op == OpKind::kPermute     ? 1
                         : node.op == OpKind::kAllReduce ? 2 * (size - 1) / size
                                                         : (size - 1) / size;
    CollectiveCount& count = counts[node.op];
    count.op = node.op;
    count.count += static_cast<int64_t>(times);
    count.bytes += times * share * bytes;
  }
}

void check_fits(std::string_view what, size_t i, const ArrayType& type, const AxisSharding& s,
                const MeshShape& mesh) {
  if (!s.partial.empty())
    trace_error("[partition] {} {} is a partial result; reduce it first", what, i);
  if (const auto fault = sharding_fault(type, s, mesh))
    trace_error("[partition] {} {}: {}", what, i, *fault);
}

}  // namespace

Partitioned partition(const Graph& graph, const MeshShape& mesh, std::span<const AxisSharding> in,
                      std::span<const std::optional<AxisSharding>> out,
                      const PartitionOptions& options) {
  if (const auto fault = mesh_fault(mesh)) trace_error("[partition] {}", *fault);
  if (in.size() != graph.inputs().size() || out.size() != graph.outputs().size())
    trace_error("[partition] expected {} input and {} output shardings, got {} and {}",
                graph.inputs().size(), graph.outputs().size(), in.size(), out.size());
  for (size_t i = 0; i < in.size(); ++i)
    check_fits("input", i, graph.type(graph.inputs()[i]), in[i], mesh);
  for (size_t o = 0; o < out.size(); ++o)
    if (out[o]) check_fits("output", o, graph.type(graph.outputs()[o]), *out[o], mesh);

  std::vector<AxisSharding> plain_in;
  std::vector<std::optional<AxisSharding>> plain_out;
  for (const AxisSharding& s : in) plain_in.push_back(canonical_sharding(s, mesh));
  for (const auto& s : out)
    plain_out.push_back(s ? std::optional(canonical_sharding(*s, mesh)) : std::nullopt);

  const std::unique_ptr<GraphShardings> shardings = propagate(graph, mesh, plain_in, plain_out);
  Partitioned result;
  ShardingNotes notes(mesh, options);
  GraphBuilder builder(result.graph);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < in.size(); ++i) {
    const ArrayType& type = graph.type(graph.inputs()[i]);
    const std::string& name = graph.input_names()[i];
    inputs.push_back(result.graph.add_input(local_type(type, in[i], mesh), name));
    notes.value(type, plain_in[i], name.empty() ? fmt::format("input {}", i) : name);
  }
  std::vector<const AxisSharding*> wanted;
  for (size_t o = 0; o < out.size(); ++o) {
    wanted.push_back(plain_out[o] ? &*plain_out[o] : nullptr);
    result.out.push_back(out[o] ? *out[o] : shardings->at(graph.outputs()[o]));
  }
  Writer writer(*shardings, mesh, options, builder, notes);
  result.graph.set_outputs(writer.write(inputs, plain_in, wanted, RegionId()));
  result.graph = combine_all_reduces(combine_sums(result.graph));
  result.notes = notes.take();
  if (options.strict && !result.notes.empty()) refuse_notes(result.notes);
  std::map<OpKind, CollectiveCount> counts;
  count_collectives(result.graph, 1, counts);
  for (const auto& [op, count] : counts) result.collectives.push_back(count);
  return result;
}

}  // namespace stow
