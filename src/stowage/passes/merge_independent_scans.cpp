#include "stowage/passes/merge_independent_scans.h"

#include <algorithm>

#include "stowage/ir/utilities.h"
#include "stowage/ops/op_def.h"

namespace stow {
namespace {

bool is_tile_scan(const Node& node, int64_t length) {
  if (node.op != OpKind::kScan || !node.provenance || node.provenance->pass != Pass::kTiles)
    return false;
  const auto& p = node.as<ScanParams>();
  return p.length == length && p.n_carries == 0 && p.n_residuals == 0 && p.unroll == 1;
}

class Merger {
 public:
  explicit Merger(const Graph& from) : from_(from), map_(from) {}

  Graph run() {
    find_parts();
    if (parts_.size() < 2) return from_;
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    emitted_.assign(from_.n_nodes(), false);
    for (size_t n = 0; n < from_.n_nodes(); ++n) emit(NodeId(n));
    to_.set_outputs(map_.images(from_.outputs()));
    return std::move(to_);
  }

 private:
  const Node& host() const { return from_.node(parts_.front()); }

  // Finds the scan and the tile scans that join it.
  void find_parts() {
    const NodeId busiest = busiest_backward_scan(from_);
    if (!busiest.valid()) return;
    parts_ = {busiest};
    const int64_t length = host().as<ScanParams>().length;
    std::vector<bool> may_join = independent_of(from_, parts_);
    for (size_t n = 0; n < from_.n_nodes(); ++n) {
      if (!may_join[n] || !is_tile_scan(from_.node(NodeId(n)), length)) continue;
      parts_.push_back(NodeId(n));
      may_join = independent_of(from_, parts_);
    }
  }

  // Emits a node after its operands, which may stand behind it once it is part of the scan.
  void emit(NodeId id) {
    if (emitted_[id.index()]) return;
    const bool is_part = std::find(parts_.begin(), parts_.end(), id) != parts_.end();
    const std::vector<NodeId> together = is_part ? parts_ : std::vector<NodeId>{id};
    for (NodeId part : together) emitted_[part.index()] = true;
    for (NodeId part : together)
      for (ValueId v : from_.node(part).operands)
        if (!from_.is_input(v)) emit(from_.value(v).node);
    if (is_part)
      emit_merged();
    else
      copy_node(from_, from_.node(id), to_, map_, regions_);
  }

  // Calls f(part, index) for the operands of the merged scan in their order: constants of all
  // parts, carries of the first, scanned operands of all parts.
  template <typename F>
  void each_operand(F f) const {
    const auto first_carry = [](const Node& part) {
      return static_cast<size_t>(part.as<ScanParams>().n_consts);
    };
    const auto first_x = [&](const Node& part) {
      return first_carry(part) + static_cast<size_t>(part.as<ScanParams>().n_carries);
    };
    for (size_t k = 0; k < parts_.size(); ++k)
      for (size_t i = 0; i < first_carry(from_.node(parts_[k])); ++i) f(k, i);
    for (size_t i = first_carry(host()); i < first_x(host()); ++i) f(0, i);
    for (size_t k = 0; k < parts_.size(); ++k)
      for (size_t i = first_x(from_.node(parts_[k])); i < from_.node(parts_[k]).operands.size();
           ++i)
        f(k, i);
  }
  // The same for results: those of the other parts come before the residuals of the first.
  template <typename F>
  void each_result(F f) const {
    const auto n_kept = static_cast<size_t>(host().n_results - host().as<ScanParams>().n_residuals);
    const auto n_results = [](const Node& part) { return static_cast<size_t>(part.n_results); };
    for (size_t i = 0; i < n_kept; ++i) f(0, i);
    for (size_t k = 1; k < parts_.size(); ++k)
      for (size_t i = 0; i < n_results(from_.node(parts_[k])); ++i) f(k, i);
    for (size_t i = n_kept; i < n_results(host()); ++i) f(0, i);
  }

  void emit_merged() {
    Node merged = host();
    merged.region = host().region.valid() ? regions_[host().region.index()] : RegionId();
    merged.graphs = {merged_body()};
    merged.operands.clear();
    each_operand([&](size_t k, size_t i) {
      merged.operands.push_back(map_[from_.node(parts_[k]).operands[i]]);
    });
    auto& p = std::get<ScanParams>(merged.params);
    const auto out_at = p.out_axes.end() - p.n_residuals;
    Dims out_axes(p.out_axes.begin(), out_at);
    for (size_t k = 1; k < parts_.size(); ++k) {
      const auto& part = from_.node(parts_[k]).as<ScanParams>();
      p.n_consts += part.n_consts;
      p.in_axes.insert(p.in_axes.end(), part.in_axes.begin(), part.in_axes.end());
      out_axes.insert(out_axes.end(), part.out_axes.begin(), part.out_axes.end());
    }
    out_axes.insert(out_axes.end(), out_at, p.out_axes.end());
    p.out_axes = std::move(out_axes);
    std::vector<ValueId> results;
    std::vector<ArrayType> types;
    each_result([&](size_t k, size_t i) {
      results.push_back(from_.node(parts_[k]).result(static_cast<int>(i)));
      types.push_back(from_.type(results.back()));
    });
    merged.n_results = static_cast<int>(results.size());
    const NodeId id = to_.add_node(std::move(merged), types);
    for (size_t i = 0; i < results.size(); ++i)
      map_.set(results[i], to_.node(id).result(static_cast<int>(i)));
  }

  GraphPtr merged_body() const {
    auto body = std::make_shared<Graph>();
    const auto body_of = [&](size_t k) -> const Graph& { return *from_.node(parts_[k]).graphs[0]; };
    std::vector<ValueMap> maps;
    for (size_t k = 0; k < parts_.size(); ++k) maps.emplace_back(body_of(k));
    each_operand([&](size_t k, size_t i) { copy_input(body_of(k), i, *body, maps[k]); });
    for (size_t k = 0; k < parts_.size(); ++k) {
      const std::vector<RegionId> regions = import_regions(body_of(k), *body, RegionId());
      for (const Node& node : body_of(k).nodes())
        copy_node(body_of(k), node, *body, maps[k], regions);
    }
    std::vector<ValueId> outputs;
    each_result([&](size_t k, size_t i) { outputs.push_back(maps[k][body_of(k).outputs()[i]]); });
    body->set_outputs(std::move(outputs));
    return body;
  }

  const Graph& from_;
  Graph to_;
  ValueMap map_;
  std::vector<RegionId> regions_;
  std::vector<NodeId> parts_;  // the scan, then what goes into it
  std::vector<bool> emitted_;
};

}  // namespace

NodeId busiest_backward_scan(const Graph& graph) {
  NodeId busiest;
  double most = 0;
  for (size_t n = 0; n < graph.n_nodes(); ++n) {
    const Node& node = graph.node(NodeId(n));
    if (node.op != OpKind::kScan || !node.backward ||
        count_ops(*node.graphs[0], OpKind::kDotGeneral, true) == 0)
      continue;
    const double flops =
        graph_cost(*node.graphs[0]).flops * static_cast<double>(node.as<ScanParams>().length);
    if (flops > most) {
      most = flops;
      busiest = NodeId(n);
    }
  }
  return busiest;
}

std::vector<bool> independent_of(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<bool> behind(graph.n_nodes(), false), needed(graph.n_nodes(), false);
  for (NodeId id : nodes) behind[id.index()] = needed[id.index()] = true;
  for (size_t n = 0; n < graph.n_nodes(); ++n)
    for (ValueId v : graph.node(NodeId(n)).operands)
      if (!graph.is_input(v) && behind[graph.value(v).node.index()]) behind[n] = true;
  for (size_t n = graph.n_nodes(); n-- > 0;)
    if (needed[n])
      for (ValueId v : graph.node(NodeId(n)).operands)
        if (!graph.is_input(v)) needed[graph.value(v).node.index()] = true;
  std::vector<bool> independent(graph.n_nodes());
  for (size_t n = 0; n < independent.size(); ++n) independent[n] = !behind[n] && !needed[n];
  return independent;
}

Graph merge_independent_scans(const Graph& graph) {
  return Merger(graph).run();
}

}  // namespace stow
