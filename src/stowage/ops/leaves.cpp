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

std::vector<Val> local_constant(const LocalContext& c) {
  ConstantParams p = c.node.as<ConstantParams>();
  if (p.is_splat()) p.type.shape = c.local_result();
  return local_with(c, std::move(p));
}

std::vector<ArrayType> infer_iota(const InferContext& c) {
  const auto& p = expect<IotaParams>(c, 0);
  check_leaf(c, p.type);
  if (p.type.dtype == DType::kBool) c.error("needs a numeric dtype, got {}", to_string(p.type));
  check_axis(c, p.axis, p.type);
  return {p.type};
}

// Along the cut axis it counts on from the part's first element. Floats are rounded once, after
// that.
std::vector<Val> local_iota(const LocalContext& c) {
  const auto& p = c.node.as<IotaParams>();
  ArrayType type{p.type.dtype, c.local_result()};
  const auto axis = static_cast<size_t>(p.axis);
  const MeshAxes& axes = c.result_axes()[axis];
  if (axes.empty()) return {iota(c.builder, type, p.axis)};
  if (is_float(type.dtype)) type.dtype = DType::kI64;
  const Val start =
      local_start(c, axes, p.type.shape[static_cast<int>(axis)], DType::kI64);
  const Val counts = iota(c.builder, type, p.axis);
  return {convert(counts + broadcast_scalar(convert(start, type.dtype), type.shape),
                  p.type.dtype)};
}

std::vector<ArrayType> infer_random_bits(const InferContext& c) {
  const bool counts = c.operands.size() == 2;
  const auto& p = expect<ShapeParams>(c, counts ? 2 : 1);
  if (!(c.operand(0) == ArrayType{DType::kU32, {2}}))
    c.error("the key must be u32[2], got {}", to_string(c.operand(0)));
  if (counts && !(c.operand(1) == ArrayType{DType::kI64, {}}))
    c.error("the first count must be i64[], got {}", to_string(c.operand(1)));
  return {strong_result_type(c, DType::kU32, p.shape)};
}

ShardingFactors shard_random_bits(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_whole(c, results);
  f.results[0] = letters(results[0].shape.rank());
  return f;
}

// Each element has a counter of its own, so that the part of a position is the same numbers. A run
// of elements with successive counters is made at once; runs that lie apart are made by a loop.
std::vector<Val> local_random_bits(const LocalContext& c) {
  const Shape &whole = c.node.as<ShapeParams>().shape, local = c.local_result();
  const std::vector<MeshAxes>& cut = c.result_axes();
  int last = whole.rank() - 1;
  while (last >= 0 && cut[static_cast<size_t>(last)].empty()) --last;
  if (last < 0) return local_same(c);
  const Dims strides = contiguous_strides(whole);
  GraphBuilder& b = c.builder;
  const auto count = [&](int64_t n) { return constant_int(b, DType::kI64, n); };
  const auto start = [&](int axis) {
    const auto i = static_cast<size_t>(axis);
    return local_start(c, cut[i], whole[axis], DType::kI64) * count(strides[i]);
  };
  Val first = c.operands.size() == 2 ? c.operands[1] : count(0);
  for (int axis = 0; axis <= last; ++axis)
    if (!cut[static_cast<size_t>(axis)].empty()) first = first + start(axis);
  Dims outer(local.begin(), local.begin() + last);
  const int64_t n_runs = Shape(outer).elems();
  const Shape run(Dims(local.begin() + last, local.end()));
  if (n_runs == 1) return {reshape(random_bits(c.operands[0], first, run), local)};

  const ArrayType counters{DType::kI64, Shape(outer)};
  Val firsts = broadcast_scalar(first, counters.shape);
  for (int axis = 0; axis < last; ++axis)
    firsts =
        firsts + iota(b, counters, axis) *
                     broadcast_scalar(count(strides[static_cast<size_t>(axis)]), counters.shape);
  auto body = std::make_shared<Graph>();
  GraphBuilder inside(*body);
  inside.provenance = b.provenance;
  const Val key(inside, body->add_input(c.operands[0].type()));
  const Val at(inside, body->add_input({DType::kI64, {}}));
  body->set_outputs({random_bits(key, at, run).id()});
  const ScanParams p{.length = n_runs, .n_consts = 1, .in_axes = {0}, .out_axes = {0}};
  const Val operands[] = {c.operands[0], reshape(firsts, {n_runs})};
  return {reshape(b.add(OpKind::kScan, p, operands, {body})[0], local)};
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
                                   .local = local_constant,
                                   .cost = cost_move};
constinit const OpDef kIota = {.op = OpKind::kIota,
                               .infer = infer_iota,
                               .vjp = no_cotangents,
                               .batch = batch_leaf,
                               .shard = shard_elementwise,
                               .local = local_iota,
                               .cost = cost_move};
constinit const OpDef kRandomBits = {.op = OpKind::kRandomBits,
                                     .infer = infer_random_bits,
                                     .vjp = no_cotangents,
                                     .batch = batch_by_loop,
                                     .shard = shard_random_bits,
                                     .local = local_random_bits,
                                     .cost = cost_random_bits};

}  // namespace stow::ops
