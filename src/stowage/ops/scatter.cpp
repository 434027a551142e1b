// Scatter, ScatterAdd, ScatterMul, ScatterMin, ScatterMax, XLA's general form. A window of updates
// that does not lie within the operand as a whole is dropped.
#include <algorithm>
#include <limits>
#include <optional>

#include "stowage/ops/gather_rule.h"

namespace stow::ops {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

template <Kinds K>
std::vector<ArrayType> infer_scatter(const InferContext& c) {
  const auto& p = expect<GatherParams>(c, 3);
  const ArrayType &x = c.operand(0), &updates = c.operand(2);
  check_kinds(c, 0, K);
  const ArrayType wanted = strong_result_type(c, x.dtype, window_shape(c, p));
  if (!(updates == wanted))
    c.error("updates must be {}, got {}", to_string(wanted), to_string(updates));
  ArrayType type = strong_result_type(c, x.dtype, x.shape);
  type.weak = x.weak && updates.weak;
  return {std::move(type)};
}

Val scatter(OpKind op, const Val& x, const Val& indices, const Val& updates,
            const GatherParams& p) {
  return x.builder().add1(op, p, {x, indices, updates});
}

// Operands by name, and what all gradients need: gather clamps what scatters drop, so that what is
// read for a dropped window counts for nothing.
struct Scattered {
  const GatherParams& p;
  const Val &x, &indices, &updates;

  explicit Scattered(const VjpContext& c)
      : p(c.node.as<GatherParams>()),
        x(c.operands[0]),
        indices(c.operands[1]),
        updates(c.operands[2]) {}
  // One value a window, as an array like the updates.
  Val per_window(const Val& v) const {
    return broadcast(v, updates.shape(), other_axes(p.offset_axes, updates.rank()));
  }
  Val within() const { return per_window(windows_within(indices, x.shape(), p)); }
  Val read(const Val& from) const { return gather(from, indices, p); }
};

Cotangents vjp_add(const VjpContext& c) {
  Cotangents result(3);
  const Scattered s(c);
  if (c.needed[0]) result[0] = c.ct();
  if (c.needed[2]) {
    const Val read = s.read(c.ct());
    result[2] = select(s.within(), read, zeros_like(read));
  }
  return result;
}

// Windows are numbered from 1; scattering the numbers tells who wrote last, 0 meaning nobody.
Cotangents vjp_set(const VjpContext& c) {
  Cotangents result(3);
  if (!c.needed[0] && !c.needed[2]) return result;
  const Scattered s(c);
  Dims windows(s.indices.shape().begin(), s.indices.shape().end() - 1);
  const int64_t n = Shape(windows).elems();
  const DType count = n < std::numeric_limits<int32_t>::max() ? DType::kI32 : DType::kI64;
  GraphBuilder& b = c.ct().builder();
  const Val one = full(b, {count, {n}}, 1);
  const Val numbers = s.per_window(reshape(iota(b, {count, {n}}, 0) + one, Shape(windows)));
  const Val nobody = full(b, {count, s.x.shape()}, 0);
  const Val writer = scatter(OpKind::kScatter, nobody, s.indices, numbers, s.p);
  if (c.needed[0]) result[0] = select(eq(writer, nobody), c.ct(), zeros_like(c.ct()));
  if (c.needed[2]) {
    const Val read = s.read(c.ct());
    const Val mine = logical_and(s.within(), eq(s.read(writer), numbers));
    result[2] = select(mine, read, zeros_like(read));
  }
  return result;
}

// The product without one factor: that of all factors but the zeros, divided by it, unless a zero
// is left.
Cotangents vjp_mul(const VjpContext& c) {
  Cotangents result(3);
  const Scattered s(c);
  if (c.needed[0]) result[0] = scatter(OpKind::kScatterMul, c.ct(), s.indices, s.updates, s.p);
  if (c.needed[2]) {
    const Val zero = zeros_like(s.updates), one = full_like(s.updates, 1);
    const Val is_zero = eq(s.updates, zero), factor = select(is_zero, one, s.updates);
    const Val product = scatter(OpKind::kScatterMul, s.x, s.indices, factor, s.p);
    const Val zeros = scatter_add(zeros_like(s.x), s.indices, select(is_zero, one, zero), s.p);
    const Val left = s.read(zeros) - select(is_zero, one, zero);
    const Val others = s.read(c.ct() * product) / factor;
    const Val counts = logical_and(s.within(), eq(left, zero));
    result[2] = select(counts, others, zero);
  }
  return result;
}

// All that equal the extreme share alike, the operand's element among them. A NaN of the operand
// has the gradient of its place to itself, as where no update comes; a NaN of the updates has none.
Cotangents vjp_extreme(const VjpContext& c) {
  Cotangents result(3);
  if (!c.needed[0] && !c.needed[2]) return result;
  const Scattered s(c);
  const Val& y = c.results[0];
  const Val from_x = select(eq(s.x, s.x), convert(eq(s.x, y), y.dtype()), full_like(y, 1));
  const Val hit = logical_and(s.within(), eq(s.updates, s.read(y)));
  const Val from_updates = convert(hit, y.dtype());
  const Val n = scatter_add(from_x, s.indices, from_updates, s.p);
  const Val share = c.ct() / max(n, full_like(n, 1));
  if (c.needed[0]) result[0] = share * from_x;
  if (c.needed[2]) result[2] = s.read(share) * from_updates;
  return result;
}

// The reduction that combines results over shares of the updates; none for ops whose order counts.
constexpr std::optional<ReduceKind> kind_of(OpKind op) {
  if (op == OpKind::kScatterAdd) return ReduceKind::kSum;
  if (op == OpKind::kScatterMax) return ReduceKind::kMax;
  if (op == OpKind::kScatterMin) return ReduceKind::kMin;
  return std::nullopt;
}

// Axes of the indices that are cut give a part of the updates to each position.
ShardingFactors shard_scatter(const InferContext& c, std::span<const ArrayType>) {
  ShardingFactors f = shard_gather_like(c, c.operand(2).shape);
  const int rank = c.operand(0).shape.rank();
  std::vector<int> updates = f.results[0];
  const std::optional<ReduceKind> kind = kind_of(c.op);
  for (std::vector<int>* list : {&f.operands[1], &updates})
    for (int& letter : *list)
      if (letter >= rank && !kind) letter = kWhole;
  if (kind)
    f.kinds.assign(static_cast<size_t>(rank + c.operand(1).shape.rank()), *kind);
  f.results = {f.operands[0]};
  f.operands.push_back(std::move(updates));
  return f;
}

bool is_zero(const Val& x) {
  const Graph& graph = x.builder().graph();
  if (graph.is_input(x.id())) return false;
  const Node& node = graph.def(x.id());
  if (node.op == OpKind::kBroadcast || node.op == OpKind::kConvert)
    return is_zero(Val(x.builder(), node.operands[0]));
  if (node.op != OpKind::kConstant) return false;
  const auto& data = node.as<ConstantParams>().data;
  return std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Updates of other parts of the operand are dropped. Where sums are partial, one position of the
// group adds the operand.
std::vector<Val> local_scatter(const LocalContext& c) {
  std::vector<Val> operands = c.operands;
  const MeshAxes& partial = c.result_shardings[0].partial;
  if (!partial.empty() && c.node.op == OpKind::kScatterAdd && !is_zero(operands[0])) {
    const Val first = eq(c.index(partial), constant_int(c.builder, DType::kI32, 0));
    operands[0] = select(broadcast_scalar(first, operands[0].shape()), operands[0],
                         zeros_like(operands[0]));
  }
  if (cuts_indexed_axis(c)) operands[1] = local_indices(c, operands[1]);
  return local_with(c, local_gather_params(c), operands);
}

// In place: reads and writes one element an update.
Cost cost_scatter(const InferContext& c, std::span<const ArrayType>) {
  const ArrayType& updates = c.operand(2);
  const double within = 1.0 / static_cast<double>(c.as<GatherParams>().n_tiles);
  return {within * static_cast<double>(updates.elems()),
          within * 3.0 * static_cast<double>(updates.bytes()) +
              static_cast<double>(c.operand(1).bytes())};
}

Batched batch_scatter(const BatchContext& c) {
  const WideGather wide = widen_gather(c, true);
  return rebuilt(c, wide.params,
                 std::vector{batched_at(c, 0, 0), wide.indices, batched_at(c, 2, 0)}, 0);
}

template <Kinds K>
constexpr OpDef scattering(OpKind op, VjpFunction vjp) {
  return {.op = op,
          .infer = infer_scatter<K>,
          .vjp = vjp,
          .batch = batch_scatter,
          .shard = shard_scatter,
          .local = local_scatter,
          .cost = cost_scatter};
}

}  // namespace

constinit const OpDef kScatter = scattering<Kinds::kAny>(OpKind::kScatter, vjp_set);
constinit const OpDef kScatterAdd = scattering<Kinds::kNumeric>(OpKind::kScatterAdd, vjp_add);
constinit const OpDef kScatterMul = scattering<Kinds::kNumeric>(OpKind::kScatterMul, vjp_mul);
constinit const OpDef kScatterMin = scattering<Kinds::kNumeric>(OpKind::kScatterMin, vjp_extreme);
constinit const OpDef kScatterMax = scattering<Kinds::kNumeric>(OpKind::kScatterMax, vjp_extreme);

}  // namespace stow::ops
