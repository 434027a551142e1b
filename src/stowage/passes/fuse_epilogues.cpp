// Row programs that read a product which nothing else reads run piece by piece behind it.
#include <algorithm>

#include "stowage/passes/fuser.h"

namespace stow::fusion {
namespace {

// Least number of rows of a product whose epilogue needs whole rows.
constexpr int64_t kLeastWholeRows = 64;

}  // namespace

void Fuser::add_epilogues() {
  find_readers();
  for (size_t u = 0; u < result_.units.size(); ++u) {
    if (unit(static_cast<int>(u)).kind != UnitKind::kRows) continue;
    const ValueId product = product_for_epilogue(static_cast<int>(u));
    if (!product.valid()) continue;
    const ValueId output = choose_epilogue_output(static_cast<int>(u), product);
    if (!output.valid()) continue;
    Unit& rows = result_.units[u];
    rows.epilogue_output = output;
    rows.n_row_dims = n_rows_of(graph_.def(product));
    rows.nodes.insert(rows.nodes.begin(), graph_.value(product).node);
    absorb(use(product).unit, static_cast<int>(u));
  }
}

void Fuser::find_readers() {
  n_readers_.assign(graph_.n_values(), 0);
  last_reader_.assign(graph_.n_values(), 0);
  for (size_t n = 0; n < graph_.n_nodes(); ++n) {
    if (!is_made(NodeId(n))) continue;
    for (ValueId v : graph_.nodes()[n].operands) {
      const size_t root = use(v).root.index();
      ++n_readers_[root];
      last_reader_[root] = n;
    }
  }
  for (ValueId v : graph_.outputs()) {
    ++n_readers_[use(v).root.index()];
    last_reader_[use(v).root.index()] = graph_.n_nodes();
  }
}

int Fuser::n_reads(const Unit& u, ValueId root) {
  int n = 0;
  for (NodeId m : u.nodes)
    for (ValueId v : graph_.node(m).operands) {
      if (use(v).root != root) continue;
      if (use(v).canon != root) return -1;
      ++n;
    }
  return n;
}

int Fuser::n_rows_of(const Node& product) const {
  return graph_.type(product.operands[0]).shape.rank() -
         static_cast<int>(product.as<DotParams>().lhs_contract.size());
}

ValueId Fuser::product_for_epilogue(int u) {
  const Unit& rows = unit(u);
  if (!rows.axes.empty() || rows.nodes.empty()) return ValueId();
  ValueId product;
  for (NodeId m : rows.nodes)
    for (ValueId v : graph_.node(m).operands)
      if (is_product(v) && use(v).unit >= 0 && use(v).unit != u &&
          unit(use(v).unit).nodes.size() == 1 && unit(use(v).unit).kind == UnitKind::kOp &&
          (!product.valid() || graph_.value(product).node < graph_.value(v).node))
        product = v;
  if (!product.valid() || n_reads(rows, product) != n_readers_[product.index()]) return ValueId();
  const Node& node = graph_.def(product);
  const NodeId id = graph_.value(product).node;
  const int n_rows = n_rows_of(node);
  if (graph_.type(product).shape.dims() != rows.dims ||
      Shape(rows.dims).elems() < least_epilogue_ || !are_small_floats(node) ||
      !node.as<DotParams>().lhs_batch.empty() || n_rows < 1 ||
      n_rows >= graph_.type(product).shape.rank() || is_far(id, rows.nodes.front()) ||
      is_far(id, rows.nodes.back()) || common_dims(rows.n_row_dims, n_rows) == -2)
    return ValueId();
  bool whole_rows = false;
  for (NodeId m : rows.nodes) {
    const Node& member = graph_.node(m);
    if (is_column_result(member.first_result)) return ValueId();
    whole_rows = whole_rows || graph_.type(member.first_result).shape.dims() != rows.dims;
  }
  // Threads share such a product by rows only.
  int64_t n = 1;
  for (int i = 0; i < n_rows; ++i) n *= rows.dims[static_cast<size_t>(i)];
  if (whole_rows && n < std::min(kLeastWholeRows, least_epilogue_)) return ValueId();
  for (int o : rows.operand_units) {
    if (o == use(product).unit) continue;
    // A move here runs as late as it can, when the product's operands may be gone.
    const bool is_move = graph_.node(unit(o).nodes[0]).op == OpKind::kDevicePut;
    if (is_move || reached_[static_cast<size_t>(o)] >= id.index()) return ValueId();
  }
  return product;
}

ValueId Fuser::choose_epilogue_output(int u, ValueId product) {
  const Unit& rows = unit(u);
  const DType dtype = graph_.type(product).dtype;
  const auto is_full = [&](ValueId v) { return graph_.type(v).shape.dims() == rows.dims; };
  ValueId output;
  int n_made = 0, n_freed = 0;
  for (NodeId m : rows.nodes) {
    const ValueId v = graph_.node(m).first_result;
    if (!is_full(v) || n_reads(rows, v) == n_readers_[v.index()]) continue;
    ++n_made;
    if (!output.valid() && graph_.type(v).dtype == dtype) output = v;
  }
  std::vector<ValueId> seen = {product};
  for (NodeId m : rows.nodes)
    for (ValueId v : graph_.node(m).operands) {
      const ValueId root = use(v).root;
      if (use(v).splat || use(root).unit == u || !is_full(root) ||
          std::find(seen.begin(), seen.end(), root) != seen.end())
        continue;
      seen.push_back(root);
      if (n_reads(rows, root) != n_readers_[root.index()]) continue;
      // An argument that is read for the last time must stay free to be written over.
      if (graph_.is_input(root)) return ValueId();
      ++n_freed;
    }
  if (n_made - 1 <= n_freed) return output;
  // Results beyond the product's lie beside its operands, which must therefore stay anyway.
  for (ValueId v : graph_.def(product).operands)
    if (const ValueId root = use(v).root; !graph_.is_input(root) && !use(v).splat &&
                                          last_reader_[root.index()] <= rows.nodes.back().index())
      return ValueId();
  return output;
}

bool Fuser::are_small_floats(const Node& product) const {
  for (const ValueId v : {product.operands[0], product.operands[1], product.first_result}) {
    const DType t = graph_.type(v).dtype;
    if (t != DType::kF32 && t != DType::kBF16 && t != DType::kF16) return false;
  }
  return true;
}

}  // namespace stow::fusion
