// DevicePut: a value moved to another memory kind.
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

std::vector<ArrayType> infer_device_put(const InferContext& c) {
  const auto& p = params_of<DevicePutParams>(c);
  check_no_graphs(c);
  check_count(c, 1);
  check_size(c, c.operand(0), "operand 0");
  ArrayType type = c.operand(0);
  type.kind = p.kind;
  return {type};
}

// The cotangent goes to where the operand is: a gradient lies where its parameter lies.
Cotangents vjp_device_put(const VjpContext& c) {
  return cotangents(c, [&] { return device_put(c.ct(), c.operands[0].type().kind); });
}

}  // namespace

constinit const OpDef kDevicePut = {.op = OpKind::kDevicePut,
                                    .infer = infer_device_put,
                                    .vjp = vjp_device_put,
                                    .batch = batch_marks,
                                    .shard = shard_elementwise,
                                    .local = local_same,
                                    .cost = cost_move};

}  // namespace stow::ops
