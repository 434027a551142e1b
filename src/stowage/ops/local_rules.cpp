// The localisation rules that ops share.
#include "stowage/ops/rule.h"

namespace stow::ops {

std::vector<Val> local_same(const LocalContext& c) {
  return local_with(c, c.node.params);
}

std::vector<Val> local_with(const LocalContext& c, Params params) {
  return local_with(c, std::move(params), c.operands);
}

std::vector<Val> local_with(const LocalContext& c, Params params, std::span<const Val> operands) {
  return c.builder.add(c.node.op, std::move(params), operands, c.node.graphs);
}

std::vector<Val> local_shaped(const LocalContext& c) {
  return local_with(c, ShapeParams{c.local_result()});
}

std::vector<Val> local_by_partitioner(const LocalContext& c) {
  STOW_CHECK(false, "the partitioner takes {} apart itself", op_name(c.node.op));
  std::abort();
}

Val local_start(const LocalContext& c, const MeshAxes& axes, int64_t extent, DType dtype) {
  if (axes.empty()) return constant_int(c.builder, dtype, 0);
  const int64_t part = extent / c.mesh.extent_of(axes);
  return convert(c.index(axes), dtype) * constant_int(c.builder, dtype, part);
}

}  // namespace stow::ops
