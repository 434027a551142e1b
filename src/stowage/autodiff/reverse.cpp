#include "stowage/autodiff/reverse.h"

#include <algorithm>
#include <map>
#include <optional>

#include "stowage/autodiff/flatten.h"
#include "stowage/autodiff/scan_gradient.h"
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
    for (size_t i = 0; i < flat_.inputs().size(); ++i)
      map_.set(flat_.inputs()[i],
               joint_.add_input(flat_.type(flat_.inputs()[i]), flat_.input_names()[i]));
    const std::vector<RegionId> regions = import_regions(flat_, joint_, RegionId());
    scans_.resize(flat_.n_nodes());
    for (size_t n = 0; n < flat_.n_nodes(); ++n) {
      const Node& node = flat_.nodes()[n];
      if (node.op == OpKind::kScan && is_active_scan(node)) {
        scans_[n] = differentiate_scan(node, activity_);
        emit_forward_scan(node, scans_[n]->split, regions);
      } else {
        const NodeId id = copy_node(flat_, node, joint_, map_, regions);
        joint_.mutable_node(id).backward = false;
      }
    }
  }

  bool is_active_scan(const Node& node) const {
    bool varied = false, useful = false;
    for (ValueId v : node.operands) varied |= activity_.varied(v);
    for (int i = 0; i < node.n_results; ++i) useful |= activity_.active(node.result(i));
    return varied && useful;
  }

  // The forward scan with the residuals as further stacked results.
  void emit_forward_scan(const Node& node, const SplitScan& split,
                         std::span<const RegionId> regions) {
    builder_.provenance = node.provenance;
    builder_.region = node.region.valid() ? regions[node.region.index()] : RegionId();
    builder_.backward = false;
    std::vector<Val> operands;
    for (ValueId v : node.operands) operands.emplace_back(builder_, map_[v]);
    const std::vector<Val> results =
        builder_.add(OpKind::kScan, split.forward_params, operands, {split.forward_body});
    for (int i = 0; i < node.n_results; ++i)
      map_.set(node.result(i), results[static_cast<size_t>(i)].id());
    first_residual_.resize(flat_.n_nodes());
    first_residual_[flat_.value(node.first_result).node.index()] =
        results[0].id().index() + static_cast<size_t>(node.n_results);
  }

  void seed() {
    builder_.backward = true;  // an output that is there twice adds its cotangents
    builder_.region = RegionId();
    builder_.provenance = nullptr;
    cotangents_.resize(flat_.n_values());
    for (int i : spec_.outputs) {
      const ValueId out = flat_.outputs()[static_cast<size_t>(i)];
      const ValueId ct = joint_.add_input(flat_.type(out), fmt::format("cotangent/{}", i));
      accumulate(out, Val(builder_, ct));
    }
  }

  void accumulate(ValueId v, const Val& ct) {
    std::optional<Val>& sum = cotangents_[v.index()];
    sum = sum ? add_anywhere(*sum, ct) : ct;
  }

  // The cotangent of one run of slices along an axis, kept until all of its operand's are known:
  // together they are a concatenation, with no sum of padded arrays.
  struct Piece {
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
    const ArrayType& type = flat_.type(v);
    const Dims& dims = type.shape.dims();
    if (!apart && type.kind == MemoryKind::kDevice) {
      for (const Piece& piece : pieces) {
        Dims low(dims.size()), high(dims.size());
        low[piece.axis] = piece.start;
        high[piece.axis] = dims[piece.axis] - piece.limit;
        accumulate(v, pad(piece.cotangent, constant(builder_, type.dtype, 0), low, high,
                          Dims(dims.size())));
      }
      return;
    }
    if (!apart && pieces.size() > 1) {  // one at a time, each as large as the whole
      for (const Piece& piece : pieces) {
        pieces_[v] = {piece};
        settle_pieces(v);
      }
      return;
    }
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
      if (const std::optional<size_t> axis = cut_axis(node)) {
        const auto& p = node.as<SliceParams>();
        pieces_[node.operands[0]].push_back(
            {*axis, p.start[*axis], p.limit[*axis], *cotangents_[node.result().index()]});
      } else if (scans_[n])
        scan_vjp(n, node);
      else
        node_vjp(node, std::move(needed));
      // Cotangents of what this node made are not needed any more.
      for (int i = 0; i < node.n_results; ++i) cotangents_[node.result(i).index()].reset();
    }
  }

  void node_vjp(const Node& node, std::vector<bool> needed) {
    VjpContext context{node, {}, {}, {}, needed};
    for (ValueId v : node.operands) context.operands.emplace_back(builder_, map_[v]);
    for (int i = 0; i < node.n_results; ++i) {
      context.results.emplace_back(builder_, map_[node.result(i)]);
      context.cotangents.push_back(cotangents_[node.result(i).index()]);
    }
    const Cotangents cts = op_def(node.op).vjp.function(context);
    for (size_t i = 0; i < cts.size(); ++i) {
      if (!needed[i] || !cts[i]) continue;
      STOW_CHECK(cts[i]->type() == flat_.type(node.operands[i]),
                 "gradient of {} gives {} for operand {} of type {}", op_name(node.op),
                 to_string(cts[i]->type()), i, to_string(flat_.type(node.operands[i])));
      accumulate(node.operands[i], *cts[i]);
    }
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
      operands.push_back(zeros(flat_.type(node.operands[static_cast<size_t>(i)])));
    for (int i : split.forward_xs) take(p.n_consts + p.n_carries + i);
    for (int i = 0; i < split.forward_params.n_residuals; ++i)
      operands.emplace_back(builder_, ValueId(first_residual_[n] + static_cast<size_t>(i)));
    for (int i : g.active_ys) operands.push_back(cotangent_or_zero(node.result(i)));

    const std::vector<Val> results =
        builder_.add(OpKind::kScan, split.backward_params, operands, {split.backward_body});
    size_t r = 0;
    for (int i : g.active_carries)
      accumulate(node.operands[static_cast<size_t>(p.n_consts + i)], results[r++]);
    for (int i : g.active_consts)
      accumulate(node.operands[static_cast<size_t>(i)], results[r++]);
    for (int i : g.active_xs) accumulate(node.operands[static_cast<size_t>(i)], results[r++]);
  }

  Val zeros(const ArrayType& type) { return full_anywhere(builder_, type, 0); }
  Val cotangent_or_zero(ValueId v) {
    const std::optional<Val>& ct = cotangents_[v.index()];
    return ct ? *ct : zeros(flat_.type(v));
  }

  void finish() {
    std::vector<ValueId> outputs;
    for (ValueId v : flat_.outputs()) outputs.push_back(map_[v]);
    builder_.provenance = nullptr;
    for (ValueId v : flat_.inputs()) settle_pieces(v);
    for (int i : spec_.wrt)
      outputs.push_back(cotangent_or_zero(flat_.inputs()[static_cast<size_t>(i)]).id());
    joint_.set_outputs(std::move(outputs));
  }

  const Graph& flat_;
  const ReverseSpec& spec_;
  Graph joint_;
  GraphBuilder builder_;
  ValueMap map_;
  Activity activity_;
  std::vector<std::optional<Val>> cotangents_;     // of values of flat_
  std::map<ValueId, std::vector<Piece>> pieces_;   // of values of flat_ that are sliced
  std::vector<std::optional<ScanGradient>> scans_;  // of nodes of flat_
  std::vector<size_t> first_residual_;             // of nodes of flat_: a value of joint_
};

}  // namespace

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
