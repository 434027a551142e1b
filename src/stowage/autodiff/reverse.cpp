#include "stowage/autodiff/reverse.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "stowage/autodiff/cond_gradient.h"
#include "stowage/autodiff/flatten.h"
#include "stowage/autodiff/scan_gradient.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"

namespace stow {
namespace {

class Reverser {
 public:
  Reverser(const Graph& flat, const ReverseSpec& spec)
      : flat_(flat), spec_(spec), builder_(joint_), map_(flat), activity_(activity(flat, spec)) {}

  Graph run() {
    copy_forward();
    seed();
    walk_back();
    finish();
    return std::move(joint_);
  }

 private:
  void copy_forward() {
    copy_inputs(flat_, joint_, map_);
    const std::vector<RegionId> regions = import_regions(flat_, joint_, RegionId());
    scans_.resize(flat_.n_nodes());
    custom_residuals_.resize(flat_.n_nodes());
    conds_.resize(flat_.n_nodes());
    first_residual_.resize(flat_.n_nodes());
    for (size_t n = 0; n < flat_.n_nodes(); ++n) {
      const Node& node = flat_.nodes()[n];
      if (node.op == OpKind::kCustomVjp && is_active(node)) {
        emit_forward_rule(n, node, regions);
      } else if (node.op == OpKind::kScan && is_active(node)) {
        scans_[n] = differentiate_scan(node, activity_, spec_.on_device);
        const SplitScan& split = scans_[n]->split;
        emit_forward(node, split.forward_params, {split.forward_body}, regions);
      } else if (node.op == OpKind::kCond && is_active(node)) {
        conds_[n] = differentiate_cond(node, activity_, spec_.on_device);
        const SplitCond& split = conds_[n]->split;
        emit_forward(node, CondParams{split.n_residuals}, split.forward, regions);
      } else {
        const NodeId id = copy_node(flat_, node, joint_, map_, regions);
        joint_.mutable_node(id).backward = false;
      }
    }
  }

  bool is_active(const Node& node) const {
    bool varied = false, useful = false;
    for (ValueId v : node.operands) varied |= activity_.varied(v);
    for (int i = 0; i < node.n_results; ++i) useful |= activity_.active(node.result(i));
    return varied && useful;
  }

  // The forward rule in place of the function.
  void emit_forward_rule(size_t n, const Node& node, std::span<const RegionId> regions) {
    std::vector<ValueId> operands = map_.images(node.operands);
    const RegionId region = node.region.valid() ? regions[node.region.index()] : RegionId();
    const std::vector<ValueId> outputs =
        inline_flat(*node.graphs[1], operands, joint_, region, false);
    for (int i = 0; i < node.n_results; ++i)
      map_.set(node.result(i), outputs[static_cast<size_t>(i)]);
    custom_residuals_[n].assign(outputs.begin() + node.n_results, outputs.end());
  }

  // The forward scan or cond with the residuals as further results.
  void emit_forward(const Node& node, Params params, std::vector<GraphPtr> graphs,
                    std::span<const RegionId> regions) {
    builder_.provenance = node.provenance;
    builder_.region = node.region.valid() ? regions[node.region.index()] : RegionId();
    builder_.backward = false;
    builder_.pass = Pass::kTraced;
    std::vector<Val> operands;
    for (ValueId v : node.operands) operands.emplace_back(builder_, map_[v]);
    const std::vector<Val> results =
        builder_.add(node.op, std::move(params), operands, std::move(graphs));
    for (int i = 0; i < node.n_results; ++i)
      map_.set(node.result(i), results[static_cast<size_t>(i)].id());
    first_residual_[flat_.value(node.first_result).node.index()] =
        results[0].id().index() + static_cast<size_t>(node.n_results);
  }

  void seed() {
    builder_.backward = true;  // an output that is there twice adds its cotangents
    builder_.pass = Pass::kVjp;
    builder_.region = RegionId();
    builder_.provenance = nullptr;
    cotangents_.resize(flat_.n_values());
    for (int i : spec_.outputs) {
      const ValueId out = flat_.outputs()[static_cast<size_t>(i)];
      const ValueId ct = joint_.add_input(cotangent_type(out), fmt::format("cotangent/{}", i));
      accumulate(out, Val(builder_, ct));
    }
    for (int i : spec_.accumulated) {
      const ValueId in = flat_.inputs()[static_cast<size_t>(i)];
      sums_.insert({in, Val(builder_, joint_.add_input(cotangent_type(in), "sum"))});
    }
  }

  void accumulate(ValueId v, const Val& ct) {
    std::optional<Val>& sum = cotangents_[v.index()];
    sum = sum ? add_anywhere(*sum, ct) : ct;
  }

  // The type of what belongs to a value: its cotangent, and sums of such.
  ArrayType cotangent_type(ValueId v) const {
    ArrayType type = flat_.type(v);
    if (spec_.on_device) type.kind = MemoryKind::kDevice;
    return type;
  }
  // Returns a cotangent in the memory of its value, where rules expect it.
  Val moved_to_memory_of(ValueId v, const Val& ct) const {
    return device_put(ct, flat_.type(v).kind);
  }
  // Returns the result of a rule in the memory that cotangents of this walk have.
  Val placed(const Val& ct) const {
    return spec_.on_device ? device_put(ct, MemoryKind::kDevice) : ct;
  }

  // The cotangent of one run of slices along an axis, kept until all of its operand's are known:
  // together they are a concatenation, with no sum of padded arrays.
  struct Piece {
    const Node* slice;
    size_t axis;
    int64_t start, limit;
    Val cotangent;
  };
  // The axis that a slice cuts, if it cuts one alone and without strides.
  std::optional<size_t> cut_axis(const Node& node) const {
    if (node.op != OpKind::kSlice) return std::nullopt;
    const auto& p = node.as<SliceParams>();
    const Shape& shape = flat_.type(node.operands[0]).shape;
    std::optional<size_t> axis;
    for (size_t a = 0; a < p.start.size(); ++a) {
      if (p.stride[a] != 1 || p.limit[a] <= p.start[a]) return std::nullopt;
      if (p.limit[a] - p.start[a] == shape.dims()[a]) continue;
      if (axis) return std::nullopt;
      axis = a;
    }
    return axis;
  }

  // Adds what the slices of v leave to its cotangent.
  void settle_pieces(ValueId v) {
    const auto found = pieces_.find(v);
    if (found == pieces_.end()) return;
    std::vector<Piece> pieces = std::move(found->second);
    pieces_.erase(found);
    std::reverse(pieces.begin(), pieces.end());  // as written
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.start < b.start; });
    bool apart = pieces.size() > 1;
    for (size_t i = 1; i < pieces.size(); ++i)
      apart &= pieces[i].axis == pieces[0].axis && pieces[i].start >= pieces[i - 1].limit;
    if (!apart) {
      for (const Piece& piece : pieces) {
        const VjpContext context{*piece.slice,
                                 {Val(builder_, map_[v])},
                                 {Val(builder_, map_[piece.slice->result()])},
                                 {piece.cotangent},
                                 {true}};
        accumulate(v, placed(*op_def(OpKind::kSlice).vjp.function(context)[0]));
      }
      return;
    }
    const ArrayType type = cotangent_type(v);
    const Dims& dims = type.shape.dims();
    const size_t axis = pieces[0].axis;
    std::vector<Val> parts;
    int64_t at = 0;
    const auto gap = [&](int64_t to) {
      if (to == at) return;
      Dims hole = dims;
      hole[axis] = to - at;
      parts.push_back(zeros({type.dtype, Shape(std::move(hole)), type.kind}));
    };
    for (const Piece& piece : pieces) {
      gap(piece.start);
      parts.push_back(piece.cotangent);
      at = piece.limit;
    }
    gap(dims[axis]);
    accumulate(v, concatenate(parts, static_cast<int64_t>(axis)));
  }

  void walk_back() {
    for (size_t n = flat_.n_nodes(); n-- > 0;) {
      const Node& node = flat_.nodes()[n];
      builder_.provenance = node.provenance;
      for (int i = 0; i < node.n_results; ++i) settle_pieces(node.result(i));
      bool any = false;
      for (int i = 0; i < node.n_results; ++i)
        any |= cotangents_[node.result(i).index()].has_value();
      std::vector<bool> needed;
      bool wanted = false;
      for (ValueId v : node.operands) {
        needed.push_back(activity_.varied(v));
        wanted |= needed.back();
      }
      if (!any || !wanted) continue;
      mark_leaving(node);
      if (const std::optional<size_t> axis = cut_axis(node)) {
        const auto& p = node.as<SliceParams>();
        pieces_[node.operands[0]].push_back(
            {&node, *axis, p.start[*axis], p.limit[*axis], *cotangents_[node.result().index()]});
      } else if (node.op == OpKind::kCustomVjp) {
        custom_vjp(n, node);
      } else if (scans_[n]) {
        scan_vjp(n, node);
      } else if (conds_[n]) {
        cond_vjp(n, node);
      } else {
        node_vjp(node, std::move(needed));
      }
      // Cotangents of what this node made are not needed any more.
      for (int i = 0; i < node.n_results; ++i) cotangents_[node.result(i).index()].reset();
    }
  }

  // Marks values that a node reads from a region that it is not in; its gradient may read them too.
  void mark_leaving(const Node& node) {
    for (ValueId v : node.operands) {
      if (flat_.is_input(v) || joint_.is_input(map_[v])) continue;
      const RegionId from = outermost_region(flat_, flat_.def(v).region);
      if (!from.valid() || from == outermost_region(flat_, node.region)) continue;
      joint_.mutable_node(joint_.value(map_[v]).node).escapes_region = true;
    }
  }

  void node_vjp(const Node& node, std::vector<bool> needed) {
    // A move of a value leaves its cotangent in its place.
    if (node.op == OpKind::kDevicePut && spec_.on_device)
      return accumulate(node.operands[0], *cotangents_[node.result().index()]);
    // Rules that only look at a cotangent, or add some up, take it wherever it lies.
    const OpClass kind = op_class(node.op);
    const bool anywhere = kind == OpClass::kView || kind == OpClass::kIdentity ||
                          node.op == OpKind::kConcatenate;
    VjpContext context{node, {}, {}, {}, needed};
    for (ValueId v : node.operands) context.operands.emplace_back(builder_, map_[v]);
    for (int i = 0; i < node.n_results; ++i) {
      const ValueId v = node.result(i);
      context.results.emplace_back(builder_, map_[v]);
      std::optional<Val> ct = cotangents_[v.index()];
      if (ct && !anywhere) ct = moved_to_memory_of(v, *ct);
      context.cotangents.push_back(ct);
    }
    Cotangents cts = op_def(node.op).vjp.function(context);
    for (size_t i = 0; i < cts.size(); ++i) {
      if (!needed[i] || !cts[i]) continue;
      // The cotangents for one operand in several places (x * x) make one sum first, before any
      // other is added and wherever it lies.
      for (size_t k = i + 1; k < cts.size(); ++k)
        if (node.operands[k] == node.operands[i] && cts[k]) {
          cts[i] = add_anywhere(*cts[i], *cts[k]);
          cts[k].reset();
        }
      cts[i] = placed(*cts[i]);
      STOW_CHECK(cts[i]->type() == cotangent_type(node.operands[i]),
                 "gradient of {} gives {} for operand {} of type {}", op_name(node.op),
                 to_string(cts[i]->type()), i, to_string(flat_.type(node.operands[i])));
      accumulate(node.operands[i], *cts[i]);
    }
  }

  void custom_vjp(size_t n, const Node& node) {
    const auto n_args = static_cast<size_t>(node.as<CustomVjpParams>().n_args);
    for (size_t i = n_args; i < node.operands.size(); ++i)
      if (activity_.varied(node.operands[i]))
        throw_at(node,
                 fmt::format("[grad] a function with a rule of its own (custom_vjp, "
                             "custom_jvp) captures {}, by which it is differentiated; make it "
                             "an argument, so that the rule tells of it",
                             to_string(flat_.type(node.operands[i]))));
    std::vector<ValueId> inputs = custom_residuals_[n];
    for (int i = 0; i < node.n_results; ++i)
      inputs.push_back(moved_to_memory_of(node.result(i), cotangent_or_zero(node.result(i))).id());
    for (size_t i = n_args; i < node.operands.size(); ++i) inputs.push_back(map_[node.operands[i]]);
    const std::vector<ValueId> cts = inline_flat(*node.graphs[2], inputs, joint_, RegionId(), true);
    for (size_t i = 0; i < n_args; ++i)
      if (const ValueId v = node.operands[i]; activity_.varied(v))
        accumulate(v, device_put(Val(builder_, cts[i]), cotangent_type(v).kind));
  }

  [[noreturn]] static void throw_at(const Node& node, const std::string& message) {
    const std::string place = to_string(node.provenance);
    throw TraceError(place.empty() ? message : message + "\n  at " + place);
  }

  void scan_vjp(size_t n, const Node& node) {
    const ScanGradient& g = *scans_[n];
    const SplitScan& split = g.split;
    const auto& p = node.as<ScanParams>();
    std::vector<Val> operands;
    const auto take = [&](int i) {
      operands.emplace_back(builder_, map_[node.operands[static_cast<size_t>(i)]]);
    };
    for (int i : split.forward_consts) take(i);
    for (int i : g.active_carries) operands.push_back(cotangent_or_zero(node.result(i)));
    for (int i : g.active_consts)
      operands.push_back(take_sum(node.operands[static_cast<size_t>(i)]));
    for (int i : split.forward_xs) take(p.n_consts + p.n_carries + i);
    for (int i = 0; i < split.forward_params.n_residuals; ++i)
      operands.emplace_back(builder_, ValueId(first_residual_[n] + static_cast<size_t>(i)));
    for (int i : g.active_ys) operands.push_back(cotangent_or_zero(node.result(i)));

    const std::vector<Val> results =
        builder_.add(OpKind::kScan, split.backward_params, operands, {split.backward_body});
    size_t r = g.active_carries.size();
    for (int i : g.active_consts) accumulate(node.operands[static_cast<size_t>(i)], results[r++]);
    for (size_t c = 0; c < g.active_carries.size(); ++c)
      accumulate(node.operands[static_cast<size_t>(p.n_consts + g.active_carries[c])], results[c]);
    for (int i : g.active_xs) accumulate(node.operands[static_cast<size_t>(i)], results[r++]);
  }

  // Returns the sum that a backward scan goes on from for a value that all iterations read: the
  // cotangent so far, which is taken away, and the running sum.
  Val take_sum(ValueId v) {
    std::optional<Val> sum = std::exchange(cotangents_[v.index()], std::nullopt);
    if (const auto running = sums_.find(v); running != sums_.end()) {
      sum = sum ? add_anywhere(running->second, *sum) : running->second;
      sums_.erase(running);
    }
    return sum ? *sum : zeros(cotangent_type(v));
  }

  void cond_vjp(size_t n, const Node& node) {
    const CondGradient& g = *conds_[n];
    if (g.active_operands.empty()) return;
    std::vector<Val> operands;
    const auto take = [&](ValueId v) { operands.emplace_back(builder_, map_[v]); };
    take(node.operands[0]);
    for (int i : g.split.forward_operands) take(node.operands[static_cast<size_t>(i) + 1]);
    for (int i : g.split.forward_results) take(node.result(i));
    for (int i : g.active_results) operands.push_back(cotangent_or_zero(node.result(i)));
    for (int i = 0; i < g.split.n_residuals; ++i)
      operands.emplace_back(builder_, ValueId(first_residual_[n] + static_cast<size_t>(i)));
    const std::vector<Val> results =
        builder_.add(OpKind::kCond, CondParams{}, operands, g.split.backward);
    for (size_t i = 0; i < g.active_operands.size(); ++i)
      accumulate(node.operands[static_cast<size_t>(g.active_operands[i])], results[i]);
  }

  Val zeros(const ArrayType& type) { return full_anywhere(builder_, type, 0); }
  Val cotangent_or_zero(ValueId v) {
    const std::optional<Val>& ct = cotangents_[v.index()];
    return ct ? *ct : zeros(cotangent_type(v));
  }

  void finish() {
    std::vector<ValueId> outputs = map_.images(flat_.outputs());
    builder_.provenance = nullptr;
    for (ValueId v : flat_.inputs()) settle_pieces(v);
    for (int i : spec_.wrt) {
      const ValueId v = flat_.inputs()[static_cast<size_t>(i)];
      builder_.provenance = spec_.provenance;
      const auto sum = sums_.find(v);
      const Val ct = cotangent_or_zero(v);
      outputs.push_back((sum == sums_.end() ? ct : add_anywhere(sum->second, ct)).id());
    }
    joint_.set_outputs(std::move(outputs));
  }

  const Graph& flat_;
  const ReverseSpec& spec_;
  Graph joint_;
  GraphBuilder builder_;
  ValueMap map_;
  Activity activity_;
  std::vector<std::optional<Val>> cotangents_;          // of values of flat_
  std::map<ValueId, Val> sums_;                         // of inputs of flat_, nothing added yet
  std::map<ValueId, std::vector<Piece>> pieces_;        // of values of flat_ that are sliced
  std::vector<std::optional<ScanGradient>> scans_;      // of nodes of flat_
  std::vector<std::optional<CondGradient>> conds_;      // of nodes of flat_
  std::vector<size_t> first_residual_;                  // of nodes of flat_: a value of joint_
  std::vector<std::vector<ValueId>> custom_residuals_;  // of nodes of flat_: values of joint_
};

// The inputs and the outputs of one half of `joint`: its nodes that are backward work, or not.
Graph half(const Graph& joint, bool backward, std::span<const ValueId> inputs,
           std::span<const ValueId> outputs) {
  Graph graph;
  ValueMap map(joint);
  for (ValueId v : inputs) {
    const bool named = joint.is_input(v);
    map.set(v, graph.add_input(
                   joint.type(v),
                   named ? joint.input_names()[static_cast<size_t>(joint.value(v).index)] : ""));
  }
  const std::vector<RegionId> regions = import_regions(joint, graph, RegionId());
  for (const Node& node : joint.nodes())
    if (node.backward == backward) copy_node(joint, node, graph, map, regions);
  std::vector<ValueId> images;
  for (ValueId v : outputs) images.push_back(map[v]);
  graph.set_outputs(std::move(images));
  return graph;
}

}  // namespace

SplitReverse reverse_in_two(const Graph& graph, const ReverseSpec& spec) {
  const Graph joint = reverse(graph, spec);
  const size_t n_inputs = graph.inputs().size(), n_outputs = graph.outputs().size();
  const std::span<const ValueId> inputs = joint.inputs(), outputs = joint.outputs();
  std::vector<bool> seen(joint.n_values());
  std::vector<ValueId> crossing;
  const auto is_forward = [&](ValueId v) {
    return joint.is_input(v) ? static_cast<size_t>(joint.value(v).index) < n_inputs
                             : !joint.def(v).backward;
  };
  const auto read = [&](ValueId v) {
    if (seen[v.index()] || !is_forward(v)) return;
    seen[v.index()] = true;
    crossing.push_back(v);
  };
  for (const Node& node : joint.nodes())
    if (node.backward)
      for (ValueId v : node.operands) read(v);
  for (ValueId v : outputs.subspan(n_outputs)) read(v);

  std::vector<ValueId> forward_outputs(outputs.begin(),
                                       outputs.begin() + static_cast<ptrdiff_t>(n_outputs));
  forward_outputs.insert(forward_outputs.end(), crossing.begin(), crossing.end());
  std::vector<ValueId> backward_inputs = crossing;
  for (ValueId v : inputs.subspan(n_inputs)) backward_inputs.push_back(v);
  return {half(joint, false, inputs.first(n_inputs), forward_outputs),
          half(joint, true, backward_inputs, outputs.subspan(n_outputs))};
}

Graph reverse(const Graph& graph, const ReverseSpec& spec) {
  for (int i : spec.wrt) {
    const ArrayType& type = graph.type(graph.inputs()[static_cast<size_t>(i)]);
    if (!is_float(type.dtype))
      trace_error("[grad] cannot differentiate with respect to '{}' of type {}: it is not a float",
                  graph.input_names()[static_cast<size_t>(i)], to_string(type));
  }
  for (int i : spec.outputs) {
    const ArrayType& type = graph.type(graph.outputs()[static_cast<size_t>(i)]);
    if (!is_float(type.dtype))
      trace_error("[grad] output {} of type {} is not a float and has no cotangent", i,
                  to_string(type));
  }
  const Graph flat = flatten_checkpoints(graph);
  return Reverser(flat, spec).run();
}

}  // namespace stow
