#include "stowage/passes/keep_resident.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "stowage/passes/dead_code.h"

namespace stow {
namespace {

bool is_move(const Graph& graph, const Node& node, bool from_device, bool to_device) {
  const auto on_device = [&](ValueId v) { return graph.type(v).kind == MemoryKind::kDevice; };
  return node.op == OpKind::kDevicePut && on_device(node.operands[0]) == from_device &&
         on_device(node.first_result) == to_device;
}
bool leaves(const Graph& graph, const Node& node) {
  return is_move(graph, node, true, false);
}
bool comes_back(const Graph& graph, const Node& node) {
  return is_move(graph, node, false, true);
}

// A scan that saves slices in another memory, and the scan that reads them in the opposite order.
struct Pair {
  NodeId forward, backward;
  /// For each stack, the result of `forward` and the operand of `backward`.
  std::vector<std::pair<size_t, size_t>> stacks;
  int64_t slice_bytes = 0;  ///< Of all stacks, an iteration.
  int64_t kept = 0;         ///< The last so many iterations of `forward`.
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), users_(graph) {}

  // Chooses values from the last node up, as many as `most` bytes hold. Returns their bytes.
  int64_t run(const int64_t most) {
    int64_t bytes = most;
    for (size_t n = graph_.n_nodes(); n-- > 0 && bytes > 0;) {
      const NodeId id(n);
      const Node& node = graph_.node(id);
      if (leaves(graph_, node) && only_comes_back(graph_, users_, node.first_result)) {
        const int64_t size = graph_.type(node.first_result).bytes();
        if (size > bytes) continue;
        bytes -= size;
        kept_.insert(node.first_result);
      } else if (std::optional<Pair> pair = pair_of(id)) {
        const int64_t length = node.as<ScanParams>().length;
        pair->kept = std::min(length, bytes / pair->slice_bytes);
        if (pair->kept == 0) continue;
        bytes -= pair->kept * pair->slice_bytes;
        const auto at = static_cast<int>(pairs_.size());
        in_pair_[pair->forward] = in_pair_[pair->backward] = at;
        pairs_.push_back(std::move(*pair));
      }
    }
    return most - bytes;
  }
  bool is_kept(ValueId v) const { return kept_.contains(v); }
  const Pair* pair_with(NodeId id) const {
    const auto it = in_pair_.find(id);
    return it == in_pair_.end() ? nullptr : &pairs_[static_cast<size_t>(it->second)];
  }

 private:
  static bool is_returned(const Graph& graph, ValueId v) {
    return std::ranges::find(graph.outputs(), v) != graph.outputs().end();
  }
  static bool only_comes_back(const Graph& graph, const Users& users, ValueId v) {
    const auto uses = users.of(v);
    return !is_returned(graph, v) && !uses.empty() &&
           std::ranges::all_of(uses, [&](Use u) { return comes_back(graph, graph.node(u.node)); });
  }

  std::optional<Pair> pair_of(NodeId id) const {
    const Node& f = graph_.node(id);
    if (f.op != OpKind::kScan || in_pair_.contains(id)) return std::nullopt;
    const auto& p = f.as<ScanParams>();
    const Graph& body = *f.graphs[0];
    Pair pair;
    pair.forward = id;
    for (size_t j = 0; j < p.out_axes.size(); ++j) {
      const size_t result = static_cast<size_t>(p.n_carries) + j;
      const ValueId stack = f.result(static_cast<int>(result)), slice = body.outputs()[result];
      if (body.is_input(slice) || !leaves(body, body.def(slice)) || is_returned(graph_, stack) ||
          users_.of(stack).size() != 1)
        continue;
      const Use use = users_.of(stack)[0];
      const auto operand = static_cast<size_t>(use.operand);
      if (pair.backward.valid() ? use.node != pair.backward : in_pair_.contains(use.node)) continue;
      if (!takes_slices(graph_.node(use.node), operand, p, p.out_axes[j])) continue;
      pair.backward = use.node;
      pair.stacks.emplace_back(result, operand);
      pair.slice_bytes += body.type(slice).bytes();
    }
    return pair.slice_bytes > 0 ? std::optional(pair) : std::nullopt;
  }
  static bool takes_slices(const Node& b, size_t operand, const ScanParams& made_by, int64_t axis) {
    if (b.op != OpKind::kScan) return false;
    const auto& p = b.as<ScanParams>();
    const auto first_x = static_cast<size_t>(p.n_consts + p.n_carries);
    const Graph& body = *b.graphs[0];
    return operand >= first_x && p.in_axes[operand - first_x] == axis &&
           p.length == made_by.length && p.reverse != made_by.reverse &&
           p.unroll == made_by.unroll && only_comes_back(body, users(body), body.inputs()[operand]);
  }

  const Graph& graph_;
  const Users users_;
  std::set<ValueId> kept_;
  std::vector<Pair> pairs_;
  std::map<NodeId, int> in_pair_;
};

// Returns a body without the moves of some outputs to another memory, or of some inputs back.
GraphPtr without_moves(const Graph& from, const std::set<size_t>& outputs,
                       const std::set<size_t>& inputs) {
  Graph to;
  ValueMap map(from);
  std::set<ValueId> here;
  for (size_t i = 0; i < from.inputs().size(); ++i) {
    if (!inputs.contains(i)) {
      copy_input(from, i, to, map);
      continue;
    }
    const ValueId v = from.inputs()[i];
    ArrayType type = from.type(v);
    type.kind = MemoryKind::kDevice;
    map.set(v, to.add_input(type, from.input_names()[i]));
    here.insert(v);
  }
  const std::vector<RegionId> regions = import_regions(from, to, RegionId());
  for (const Node& node : from.nodes()) {
    if (node.op == OpKind::kDevicePut && here.contains(node.operands[0]))
      map.set(node.first_result, map[node.operands[0]]);
    else
      copy_node(from, node, to, map, regions);
  }
  std::vector<ValueId> results = map.images(from.outputs());
  for (size_t o : outputs) results[o] = map[from.def(from.outputs()[o]).operands[0]];
  to.set_outputs(std::move(results));
  return std::make_shared<const Graph>(std::move(to));
}

class Keeper {
 public:
  Keeper(const Graph& from, const Finder& found)
      : from_(from), found_(found), builder_(to_), map_(from) {
    builder_.pass = Pass::kTransfers;
  }

  Graph run() {
    copy_inputs(from_, to_, map_);
    const std::vector<RegionId> regions = import_regions(from_, to_, RegionId());
    for (size_t n = 0; n < from_.n_nodes(); ++n) {
      const Node& node = from_.nodes()[n];
      if (node.op == OpKind::kDevicePut && found_.is_kept(node.first_result)) continue;
      if (node.op == OpKind::kDevicePut && found_.is_kept(node.operands[0])) {
        map_.set(node.first_result, map_[from_.def(node.operands[0]).operands[0]]);
      } else if (const Pair* pair = found_.pair_with(NodeId(n))) {
        builder_.provenance = node.provenance;
        builder_.backward = node.backward;
        builder_.region = node.region.valid() ? regions[node.region.index()] : RegionId();
        cut(node, *pair);
      } else {
        copy_node(from_, node, to_, map_, regions);
      }
    }
    to_.set_outputs(map_.images(from_.outputs()));
    return remove_dead_code(std::move(to_));
  }

 private:
  // The stacks of the iterations that run first in the forward scan, and of those that are kept.
  // The first is absent if all are kept.
  struct Parts {
    const Pair* pair;
    std::optional<Val> early;
    Val late;
  };

  struct Range {
    int64_t start, limit;
    int64_t length() const { return limit - start; }
  };

  void cut(const Node& node, const Pair& pair) {
    const auto& p = node.as<ScanParams>();
    const bool forward = &node == &from_.node(pair.forward);
    std::set<size_t> outputs, inputs;
    for (const auto& [result, operand] : pair.stacks) {
      if (forward)
        outputs.insert(result);
      else
        inputs.insert(operand);
    }
    const GraphPtr kept = without_moves(*node.graphs[0], outputs, inputs);
    // Early iterations have the low indices if the forward scan counts up.
    const bool early_low = p.reverse != forward;
    const int64_t n = p.length, n_early = n - pair.kept;
    const auto range_of = [&](bool early) {
      const int64_t length = early ? n_early : n - n_early;
      return early == early_low ? Range{0, length} : Range{n - length, n};
    };
    const auto n_consts = static_cast<size_t>(p.n_consts),
               n_carries = static_cast<size_t>(p.n_carries);
    std::vector<Val> carries;
    for (size_t k = 0; k < n_carries; ++k)
      carries.emplace_back(builder_, map_[node.operands[n_consts + k]]);
    std::array<std::vector<Val>, 2> results;  // of the late part, of the early one
    for (const bool early : {forward, !forward}) {
      const Range range = range_of(early);
      if (range.length() == 0) continue;
      std::vector<Val> operands;
      for (size_t i = 0; i < n_consts; ++i) operands.emplace_back(builder_, map_[node.operands[i]]);
      operands.insert(operands.end(), carries.begin(), carries.end());
      for (size_t i = n_consts + n_carries; i < node.operands.size(); ++i)
        operands.push_back(
            slices_of(pair, node.operands[i], p.in_axes[i - n_consts - n_carries], early, range));
      ScanParams params = p;
      params.length = range.length();
      results[early] =
          builder_.add(OpKind::kScan, params, operands, {early ? node.graphs[0] : kept});
      for (size_t k = 0; k < n_carries; ++k) carries[k] = results[early][k];
    }
    for (size_t k = 0; k < n_carries; ++k)
      map_.set(node.result(static_cast<int>(k)), carries[k].id());
    for (size_t j = 0; j < p.out_axes.size(); ++j) {
      const ValueId result = node.result(static_cast<int>(n_carries + j));
      Parts parts{&pair, {}, results[false][n_carries + j]};
      if (n_early > 0) parts.early = results[true][n_carries + j];
      if (forward) parts_.emplace(result, parts);
      if (outputs.contains(n_carries + j)) continue;  // two memories; read as parts alone
      std::vector<Val> both = {parts.late};
      if (parts.early) both.insert(early_low ? both.begin() : both.end(), *parts.early);
      map_.set(result, (both.size() == 1 ? both[0] : concatenate(both, p.out_axes[j])).id());
    }
  }

  Val slices_of(const Pair& pair, ValueId stack, int64_t axis, bool early, const Range& range) {
    if (const auto it = parts_.find(stack); it != parts_.end() && it->second.pair == &pair)
      return early ? *it->second.early : it->second.late;
    return slice_axis(Val(builder_, map_[stack]), axis, range.start, range.limit);
  }

  const Graph& from_;
  const Finder& found_;
  Graph to_;
  GraphBuilder builder_;
  ValueMap map_;
  std::map<ValueId, Parts> parts_;
};

}  // namespace

KeptResident keep_resident(const Graph& graph, int64_t bytes) {
  Finder found(graph);
  const int64_t kept = found.run(bytes);
  return {kept > 0 ? Keeper(graph, found).run() : graph, kept};
}

}  // namespace stow
