#include "stowage/passes/sum_slices.h"

#include <map>
#include <optional>

#include "stowage/ops/build.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/tile_clusters.h"

namespace stow {
namespace {

class Summer {
 public:
  explicit Summer(const Graph& from) : from_(from), map_(from), slices_of_(from.n_values()) {}

  Graph run() {
    for (const Node& node : from_.nodes()) look_at(node);
    if (sums_.empty()) return from_;
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (const Node& node : from_.nodes()) emit(node);
    to_.set_outputs(map_.images(from_.outputs()));
    return remove_dead_code(to_);
  }

 private:
  // ---- what can be done on slices ----

  // The value in the scan's body of which result `i` stacks what it is moved to; invalid for
  // others.
  static ValueId leaves(const Node& scan, int i) {
    const auto& p = scan.as<ScanParams>();
    if (i < p.n_carries || p.out_axes[static_cast<size_t>(i - p.n_carries)] != 0) return ValueId();
    const Graph& body = *scan.graphs[0];
    const ValueId slice = body.outputs()[static_cast<size_t>(i)];
    if (body.is_input(slice) || body.def(slice).op != OpKind::kDevicePut) return ValueId();
    const ValueId here = body.def(slice).operands[0];
    const bool leaves =
        body.type(here).kind == MemoryKind::kDevice && body.type(slice).kind != MemoryKind::kDevice;
    return leaves ? here : ValueId();
  }

  void look_at(const Node& node) {
    const ValueId v = node.first_result;
    if (is_fetch(from_, v)) {
      const ValueId stack = node.operands[0];
      if (from_.is_input(stack) || from_.def(stack).op != OpKind::kScan) return;
      if (leaves(from_.def(stack), from_.value(stack).index).valid())
        slices_of_[v.index()] = from_.value(stack).node;
      return;
    }
    const bool reduces = first_reduced_axis(from_, node) > 0;
    if (!reduces && op_class(node.op) != OpClass::kElementwise) return;
    NodeId scan;
    for (ValueId operand : node.operands) {
      if (is_constant(operand)) continue;
      const NodeId of = slices_of_[operand.index()];
      if (!of.valid() || (scan.valid() && of != scan)) return;
      scan = of;
    }
    if (!scan.valid()) return;
    if (reduces)
      sums_[scan].push_back(v);
    else
      slices_of_[v.index()] = scan;
  }
  bool is_constant(ValueId v) const {
    const ValueId source = uniform_source(from_, v);
    return source.valid() && !from_.is_input(source) && from_.def(source).op == OpKind::kConstant;
  }

  // ---- the graph with that done ----

  void emit(const Node& node) {
    if (map_.has(node.first_result)) return;  // a sum that its scan made
    const auto found = sums_.find(from_.value(node.first_result).node);
    if (found == sums_.end()) {
      copy_node(from_, node, to_, map_, regions_);
      return;
    }
    const std::vector<ValueId>& sums = found->second;
    Node copy = node;
    for (ValueId& v : copy.operands) v = map_[v];
    copy.region = node.region.valid() ? regions_[node.region.index()] : RegionId();
    copy.graphs[0] = body_with(node, sums);
    // Before the residuals, which are the last.
    auto& params = std::get<ScanParams>(copy.params);
    const int first_new = node.n_results - params.n_residuals,
              n_new = static_cast<int>(sums.size());
    params.out_axes.insert(params.out_axes.begin() + (first_new - params.n_carries), sums.size(),
                           0);
    copy.n_results += n_new;
    std::vector<ValueId> results;
    for (int i = 0; i < node.n_results; ++i) results.push_back(node.result(i));
    results.insert(results.begin() + first_new, sums.begin(), sums.end());
    std::vector<ArrayType> types;
    for (ValueId v : results) types.push_back(from_.type(v));
    const NodeId id = to_.add_node(std::move(copy), types);
    for (size_t i = 0; i < results.size(); ++i)
      map_.set(results[i], to_.node(id).result(static_cast<int>(i)));
  }

  GraphPtr body_with(const Node& scan, const std::vector<ValueId>& sums) {
    auto body = std::make_shared<Graph>(*scan.graphs[0]);
    GraphBuilder b(*body);
    b.pass = Pass::kTransfers;
    std::map<ValueId, Val> known;
    std::vector<ValueId> outputs = body->outputs(), sliced;
    for (ValueId sum : sums) sliced.push_back(on_slice(b, scan, sum, known).id());
    const auto residuals = outputs.end() - scan.as<ScanParams>().n_residuals;
    outputs.insert(residuals, sliced.begin(), sliced.end());
    body->set_outputs(std::move(outputs));
    return body;
  }

  // What a value of this graph is in one iteration of the scan.
  Val on_slice(GraphBuilder& b, const Node& scan, ValueId v, std::map<ValueId, Val>& known) {
    if (const auto it = known.find(v); it != known.end()) return it->second;
    const auto remember = [&](Val made) { return known.emplace(v, made).first->second; };
    const Dims& dims = from_.type(v).shape.dims();
    if (is_constant(v)) {
      ConstantParams constant = from_.def(uniform_source(from_, v)).as<ConstantParams>();
      constant.type = {from_.type(v).dtype, {}};
      return remember(broadcast_scalar(b.add1(OpKind::kConstant, std::move(constant), {}),
                                       Shape(Dims(dims.begin() + 1, dims.end()))));
    }
    const Node& node = from_.def(v);
    if (is_fetch(from_, v))
      return remember(Val(b, leaves(scan, from_.value(node.operands[0]).index)));
    std::vector<Val> operands;
    for (ValueId operand : node.operands) operands.push_back(on_slice(b, scan, operand, known));
    Params params = node.params;
    if (op_class(node.op) == OpClass::kReduce)
      for (int64_t& axis : std::get<AxesParams>(params).axes) --axis;
    b.provenance = node.provenance;
    b.backward = node.backward;
    return remember(b.add(node.op, std::move(params), operands).front());
  }

  const Graph& from_;
  Graph to_;
  ValueMap map_;
  std::vector<RegionId> regions_;
  std::vector<NodeId> slices_of_;                // of a value whose slices a scan's body can make
  std::map<NodeId, std::vector<ValueId>> sums_;  // reductions that the scan's body can make
};

}  // namespace

Graph sum_slices(const Graph& graph) {
  return Summer(graph).run();
}

}  // namespace stow
