#include "stowage/passes/gather_blocks.h"

#include <algorithm>
#include <map>

#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/tile_clusters.h"

namespace stow {
namespace {

constexpr int64_t kFewestBlocks = 4;

class BlockGatherer {
 public:
  BlockGatherer(const Graph& from, int64_t block_bytes)
      : from_(from), block_bytes_(block_bytes), users_(from), returned_(from.n_values(), false),
        map_(from), builder_(to_) {
    for (ValueId v : from.outputs()) returned_[v.index()] = true;
  }

  Graph run() {
    std::map<NodeId, int64_t> rows;
    for (size_t n = 0; n < from_.n_nodes(); ++n)
      if (const int64_t r = rows_of_block(from_.node(NodeId(n))); r > 0) rows.emplace(NodeId(n), r);
    if (rows.empty()) return from_;
    copy_inputs(from_, to_, map_);
    const std::vector<RegionId> regions = import_regions(from_, to_, RegionId());
    for (size_t n = 0; n < from_.n_nodes(); ++n) {
      const Node& node = from_.node(NodeId(n));
      if (const auto it = rows.find(NodeId(n)); it != rows.end())
        map_.set(node.first_result, by_blocks(node, it->second).id());
      else
        copy_node(from_, node, to_, map_, regions);
    }
    to_.set_outputs(map_.images(from_.outputs()));
    return remove_dead_code(to_);
  }

 private:
  // Returns the rows of a block; 0 if the node stays as it is.
  int64_t rows_of_block(const Node& node) const {
    if (node.op != OpKind::kGather || !is_fetch(from_, node.operands[0])) return 0;
    const ArrayType& table = from_.type(node.operands[0]);
    if (table.elems() == 0 || !takes_whole_rows(node.as<GatherParams>(), table.shape) ||
        from_.type(node.operands[1]).dtype == DType::kU64 || is_needed_whole(node.operands[0]))
      return 0;
    const int64_t n_rows = table.shape[0], row_bytes = table.bytes() / n_rows;
    const int64_t most = std::max(block_bytes_, from_.type(node.first_result).bytes());
    const int64_t rows = std::max<int64_t>(most / row_bytes, 1);
    return rows * kFewestBlocks <= n_rows ? rows : 0;
  }
  bool is_needed_whole(ValueId v) const {
    return returned_[v.index()] ||
           std::any_of(users_.of(v).begin(), users_.of(v).end(), [&](const Use& use) {
             const Node& reader = from_.node(use.node);
             const bool by_parts = op_class(reader.op) == OpClass::kElementwise ||
                                   first_reduced_axis(reader) > 0 || reader.op == OpKind::kSlice ||
                                   reader.op == OpKind::kGather;
             return !by_parts;
           });
  }

  Val by_blocks(const Node& node, int64_t rows) {
    builder_.provenance = node.provenance;
    builder_.pass = Pass::kTiles;
    builder_.backward = node.backward;
    const Val table(builder_, map_[from_.def(node.operands[0]).operands[0]]);
    // No block has a row for an index out of range: the fill value stays, or the index is clamped
    // first.
    const bool fills = node.operands.size() == 3;
    const Val given(builder_, map_[node.operands[1]]);
    const Val indices = fills ? convert(given, DType::kI64) : clamped(given, table.shape()[0]);
    const Shape& windows = from_.type(node.first_result).shape;
    Val found = fills ? broadcast_scalar(Val(builder_, map_[node.operands[2]]), windows)
                      : full(builder_, from_.type(node.first_result), 0);
    const Dims& dims = table.shape().dims();
    const int64_t n = dims[0] / rows, whole = n * rows;

    auto body = std::make_shared<Graph>();
    GraphBuilder b(*body);
    b.provenance = node.provenance;
    b.backward = node.backward;
    const Val all(b, body->add_input(indices.type()));
    const Val before(b, body->add_input(found.type()));
    ArrayType block = table.type();
    Dims cut = dims;
    cut[0] = rows;
    block.shape = Shape(cut);
    const Val part(b, body->add_input(block));
    const Val place(b, body->add_input(ArrayType{DType::kI64, {}}));
    body->set_outputs({with_rows_of(node, part, place, all, before).id()});
    cut.insert(cut.begin(), n);
    const ArrayType places{DType::kI64, Shape{n}};
    const Val stacked = reshape(slice_axis(table, 0, 0, whole), Shape(cut));
    const Val firsts =
        iota(builder_, places, 0) * full(builder_, places, static_cast<double>(rows));
    ScanParams params;
    params.length = n;
    params.n_consts = params.n_carries = 1;
    params.in_axes = {0, 0};
    const std::vector<Val> operands = {indices, found, stacked, firsts};
    found = builder_.add(OpKind::kScan, params, operands, {body}).front();
    if (whole == dims[0]) return found;
    return with_rows_of(node, slice_axis(table, 0, whole, dims[0]),
                        constant_int(builder_, DType::kI64, whole), indices, found);
  }

  // Returns indices clamped as gather does.
  static Val clamped(const Val& indices, int64_t n_rows) {
    const Val wide = convert(indices, DType::kI64);
    const Val last =
        broadcast_scalar(constant_int(wide.builder(), DType::kI64, n_rows - 1), wide.shape());
    return max(min(wide, last), zeros_like(wide));
  }

  // Returns `before` with the rows that lie in this part of the table, whose first row is `place`.
  static Val with_rows_of(const Node& node, const Val& part, const Val& place, const Val& indices,
                          const Val& before) {
    GatherParams p = node.as<GatherParams>();
    const Val near = indices - broadcast_scalar(place, indices.shape());
    const Val here = device_put(part, MemoryKind::kDevice);
    const Val rows = gather(here, near, p);
    const Val end =
        broadcast_scalar(constant_int(part.builder(), DType::kI64, part.shape()[0]), near.shape());
    const Val within = logical_and(ge(near, zeros_like(near)), lt(near, end));
    Dims axes;
    for (int64_t axis = 0; axis < before.rank(); ++axis)
      if (std::find(p.offset_axes.begin(), p.offset_axes.end(), axis) == p.offset_axes.end())
        axes.push_back(axis);
    const Dims lead(near.shape().begin(), near.shape().end() - 1);
    return select(broadcast(reshape(within, Shape(lead)), before.shape(), axes), rows, before);
  }

  const Graph& from_;
  const int64_t block_bytes_;
  const Users users_;
  std::vector<bool> returned_;
  Graph to_;
  ValueMap map_;
  GraphBuilder builder_;
};

}  // namespace

Graph gather_by_blocks(const Graph& graph, int64_t block_bytes) {
  return BlockGatherer(graph, block_bytes).run();
}

}  // namespace stow
