// Constant, Iota, RandomBits.
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

void check_leaf(const InferContext& c, const ArrayType& type) {
  if (type.kind != MemoryKind::kDevice)
    c.error("makes its result on the device, not on {}: {}", memory_kind_name(type.kind),
            to_string(type));
  check_size(c, type, "result");
}

std::vector<ArrayType> infer_constant(const InferContext& c) {
  const auto& p = expect<ConstantParams>(c, 0);
  check_leaf(c, p.type);
  const auto n = static_cast<int64_t>(p.data.size());
  if (n != p.type.bytes() && !p.is_splat())
    c.error("{} has {} bytes of data; {} or {} are needed", to_string(p.type), n,
            dtype_bytes(p.type.dtype), p.type.bytes());
  if (p.type.dtype == DType::kBool)
    for (std::byte b : p.data)
      if (b > std::byte{1}) c.error("a bool is stored as 0 or 1, got {}", static_cast<int>(b));
  return {p.type};
}

// A dense constant would have to be cut up; a splat is alike everywhere.
ShardingFactors shard_constant(const InferContext& c, std::span<const ArrayType> results) {
  return c.as<ConstantParams>().is_splat() ? shard_elementwise(c, results)
                                           : shard_whole(c, results);
}

std::vector<ArrayType> infer_iota(const InferContext& c) {
  const auto& p = expect<IotaParams>(c, 0);
  check_leaf(c, p.type);
  if (p.type.dtype == DType::kBool) c.error("needs a numeric dtype, got {}", to_string(p.type));
  check_axis(c, p.axis, p.type);
  return {p.type};
}

ShardingFactors shard_iota(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  f.results[0][static_cast<size_t>(c.as<IotaParams>().axis)] = ShardingFactors::kUnshardable;
  return f;
}

std::vector<ArrayType> infer_random_bits(const InferContext& c) {
  const bool counts = c.operands.size() == 2;
  const auto& p = expect<ShapeParams>(c, counts ? 2 : 1);
  if (!(c.operand(0) == ArrayType{DType::kU32, {2}}))
    c.error("the key must be u32[2], got {}", to_string(c.operand(0)));
  if (counts && !(c.operand(1) == ArrayType{DType::kI64, {}}))
    c.error("the first count must be i64[], got {}", to_string(c.operand(1)));
  return {strong(c, DType::kU32, p.shape)};
}

// Threefry 2x32: 20 rounds of three operations give two words.
Cost cost_random_bits(const InferContext& c, std::span<const ArrayType> results) {
  return {40.0 * static_cast<double>(results[0].elems()), traffic(c, results)};
}

}  // namespace

constinit const OpDef kConstant = {.op = OpKind::kConstant,
                                   .infer = infer_constant,
                                   .vjp = no_cotangents,
                                   .batch = batch_leaf,
                                   .shard = shard_constant,
                                   .cost = cost_move};
constinit const OpDef kIota = {.op = OpKind::kIota,
                               .infer = infer_iota,
                               .vjp = no_cotangents,
                               .batch = batch_leaf,
                               .shard = shard_iota,
                               .cost = cost_move};
constinit const OpDef kRandomBits = {.op = OpKind::kRandomBits,
                                     .infer = infer_random_bits,
                                     .vjp = no_cotangents,
                                     .batch = batch_by_loop,
                                     .shard = shard_whole,
                                     .cost = cost_random_bits};

}  // namespace stow::ops
