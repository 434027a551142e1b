// Row programs whose only result is an operand of a product, and read nowhere else, make it in
// passing.
#include <algorithm>
#include <optional>

#include "stowage/ir/product_pieces.h"
#include "stowage/passes/fuser.h"

namespace stow::fusion {

void Fuser::add_prologues() {
  for (size_t u = 0; u < result_.units.size(); ++u) {
    if (unit(static_cast<int>(u)).nodes.empty() || !has_product(unit(static_cast<int>(u))))
      continue;
    for (size_t i = 0; i < 2; ++i) {
      const std::optional<int> rows = prologue_rows(static_cast<int>(u), i);
      if (!rows) continue;
      Unit& reader = result_.units[u];
      const ValueId made = use(graph_.node(reader.nodes[0]).operands[i]).root;
      const std::vector<NodeId>& nodes = unit(use(made).unit).nodes;
      reader.prologues[i] = {made, nodes, *rows};
      reader.nodes.insert(reader.nodes.end(), nodes.begin(), nodes.end());
      absorb(use(made).unit, static_cast<int>(u));
    }
  }
}

bool Fuser::has_product(const Unit& u) const {
  return (u.epilogue_output.valid() || u.kind == UnitKind::kOp) &&
         graph_.node(u.nodes[0]).op == OpKind::kDotGeneral;
}

std::optional<int> Fuser::prologue_rows(int u, size_t i) {
  const Unit& reader = unit(u);
  const NodeId id = reader.nodes[0];
  const Node& product = graph_.node(id);
  const ValueId v = product.operands[i], root = use(v).root;
  const int m = use(root).unit;
  if (m < 0 || m == u || use(v).splat || use(v).canon != root || n_readers_[root.index()] != 1)
    return std::nullopt;
  const Unit& maker = unit(m);
  const ArrayType& type = graph_.type(root);
  if (maker.kind != UnitKind::kRows || maker.epilogue_output.valid() || !maker.axes.empty() ||
      maker.dims != type.shape.dims() || type.shape.elems() < min_prologue_elems(i) ||
      !are_small_floats(product) || !product.as<DotParams>().lhs_batch.empty() ||
      is_far(maker.nodes.back(), id) || is_far(maker.nodes.front(), id))
    return std::nullopt;
  // All nodes are elementwise, have one result, and are little work: each thread makes a panel of
  // B, and a panel of A is made again for every tile of columns of C.
  for (NodeId n : maker.nodes) {
    const Node& node = graph_.node(n);
    const ValueId w = node.first_result;
    if (!is_little_work(node.op) || graph_.type(w).shape.dims() != maker.dims ||
        (w != root && n_reads(maker, w) != n_readers_[w.index()]))
      return std::nullopt;
  }
  // Contracted axes must be the first or the last.
  const auto& params = product.as<DotParams>();
  const auto& contracted = i == 0 ? params.lhs_contract : params.rhs_contract;
  const auto n = static_cast<int64_t>(contracted.size()), rank = int64_t{type.shape.rank()};
  if (n == 0 || n == rank) return std::nullopt;
  for (int64_t k = 0; k < n; ++k)
    if (contracted[static_cast<size_t>(k)] != contracted[0] + k) return std::nullopt;
  if (contracted[0] != 0 && contracted[0] != rank - n) return std::nullopt;
  if (read_bytes(m, id) > type.bytes()) return std::nullopt;
  return static_cast<int>(contracted[0] == 0 ? n : rank - n);
}

int64_t Fuser::min_prologue_elems(size_t i) const {
  if (least_epilogue_ == 0) return 0;
  return std::max(1, threads_) * product_piece_elems(i == 1) * 4;
}

bool Fuser::is_little_work(OpKind op) {
  return op == OpKind::kConvert || op == OpKind::kNeg || op == OpKind::kAdd || op == OpKind::kSub ||
         op == OpKind::kMul || op == OpKind::kMax || op == OpKind::kMin || op == OpKind::kSelect;
}

int64_t Fuser::read_bytes(int maker, NodeId product) {
  int64_t bytes = 0;
  std::vector<ValueId> seen;
  for (NodeId m : unit(maker).nodes)
    for (ValueId v : graph_.node(m).operands) {
      const ValueId root = use(v).root;
      if (use(v).splat || use(root).lazy_iota || graph_.is_input(root) || use(root).unit == maker ||
          std::find(seen.begin(), seen.end(), root) != seen.end())
        continue;
      seen.push_back(root);
      if (last_reader_[root.index()] <= product.index()) bytes += graph_.type(root).bytes();
    }
  return bytes;
}

}  // namespace stow::fusion
