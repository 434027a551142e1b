#include "stowage/ops/build.h"

#include <algorithm>

#include "stowage/core/scalar.h"

namespace stow {
namespace {

ConstantParams scalar_params(DType dtype, std::optional<std::vector<std::byte>> data,
                             double value) {
  if (!data) trace_error("[constant] {} does not fit {}", value, dtype_name(dtype));
  return {{dtype, {}}, std::move(*data)};
}

Val splat_like(const Val& x, double value) {
  return broadcast_scalar(constant(x.builder(), x.dtype(), value), x.shape());
}

std::vector<Val> with(const Val& x, std::span<const Val> rest) {
  std::vector<Val> all = {x};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

bool counts_up(const Dims& axes) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != static_cast<int64_t>(i)) return false;
  return true;
}

bool all_zero(const Dims& list) {
  return std::all_of(list.begin(), list.end(), [](int64_t x) { return x == 0; });
}

// True when `list` is as long as x has axes; anything else is left to the type rule to refuse.
bool per_axis(const Dims& list, const Val& x) {
  return list.size() == static_cast<size_t>(x.rank());
}

}  // namespace

std::vector<Val> GraphBuilder::add(OpKind op, Params params, std::span<const Val> operands,
                                   std::vector<GraphPtr> graphs) {
  Node node{.op = op,
            .params = std::move(params),
            .operands = {},
            .graphs = std::move(graphs),
            .provenance = stamp(),
            .region = region,
            .backward = backward};
  std::vector<ArrayType> operand_types, types;
  try {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (&operands[i].builder().graph() != graph_)
        trace_error("[{}] operand {} is a value of another graph", op_name(op), i);
      node.operands.push_back(operands[i].id());
      operand_types.push_back(operands[i].type());
    }
    types = infer_types({op, operand_types, node.params, node.graphs});
  } catch (const TraceError& error) {
    const std::string place = to_string(stamp());
    if (place.empty()) throw;
    throw TraceError(fmt::format("{}\n  at {}", error.what(), place));
  }
  const NodeId id = graph_->add_node(std::move(node), types);
  std::vector<Val> results;
  for (size_t i = 0; i < types.size(); ++i)
    results.emplace_back(*this, graph_->node(id).result(static_cast<int>(i)));
  return results;
}

ProvenancePtr GraphBuilder::stamp() {
  if (pass == Pass::kTraced) return provenance;
  if (!stamped_ || stamped_->pass != pass || stamped_from_ != provenance) {
    stamped_from_ = provenance;
    stamped_ = made_by(pass, provenance);
  }
  return stamped_;
}

Val GraphBuilder::add1(OpKind op, Params params, std::initializer_list<Val> operands) {
  return add(op, std::move(params), std::span(operands.begin(), operands.size())).front();
}

// ---- Leaves ----

Val constant(GraphBuilder& b, DType dtype, double value) {
  return b.add1(OpKind::kConstant, scalar_params(dtype, encode_scalar(dtype, value), value), {});
}

Val constant_int(GraphBuilder& b, DType dtype, int64_t value) {
  return b.add1(OpKind::kConstant,
                scalar_params(dtype, encode_scalar_int(dtype, value), static_cast<double>(value)),
                {});
}

Val full(GraphBuilder& b, const ArrayType& type, double value) {
  return broadcast_scalar(constant(b, type.dtype, value), type.shape);
}

Val zeros_like(const Val& x) { return splat_like(x, 0); }
Val full_like(const Val& x, double value) { return splat_like(x, value); }

Val iota(GraphBuilder& b, const ArrayType& type, int64_t axis) {
  return b.add1(OpKind::kIota, IotaParams{type, axis}, {});
}

Val random_bits(const Val& key, const Val& first, const Shape& shape) {
  return key.builder().add1(OpKind::kRandomBits, ShapeParams{shape}, {key, first});
}

// ---- Elementwise ----

Val unary(OpKind op, const Val& x) { return x.builder().add1(op, NoParams{}, {x}); }
Val binary(OpKind op, const Val& a, const Val& b) {
  return a.builder().add1(op, NoParams{}, {a, b});
}

Val operator+(const Val& a, const Val& b) { return binary(OpKind::kAdd, a, b); }
Val operator-(const Val& a, const Val& b) { return binary(OpKind::kSub, a, b); }
Val operator*(const Val& a, const Val& b) { return binary(OpKind::kMul, a, b); }
Val operator/(const Val& a, const Val& b) { return binary(OpKind::kDiv, a, b); }
Val operator-(const Val& a) { return unary(OpKind::kNeg, a); }
Val operator+(const Val& a, double b) { return a + splat_like(a, b); }
Val operator-(const Val& a, double b) { return a - splat_like(a, b); }
Val operator*(const Val& a, double b) { return a * splat_like(a, b); }
Val operator/(const Val& a, double b) { return a / splat_like(a, b); }
Val operator-(double a, const Val& b) { return splat_like(b, a) - b; }

Val select(const Val& condition, const Val& on_true, const Val& on_false) {
  return condition.builder().add1(OpKind::kSelect, NoParams{}, {condition, on_true, on_false});
}

Val convert(const Val& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return x.builder().add1(OpKind::kConvert, DTypeParams{dtype}, {x});
}

Val bitcast(const Val& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return x.builder().add1(OpKind::kBitcast, DTypeParams{dtype}, {x});
}

// ---- Shape ----

Val broadcast(const Val& x, const Shape& shape, const Dims& axes) {
  if (x.shape() == shape && per_axis(axes, x) && counts_up(axes)) return x;
  return x.builder().add1(OpKind::kBroadcast, BroadcastParams{shape, axes}, {x});
}

Val broadcast_scalar(const Val& x, const Shape& shape) { return broadcast(x, shape, {}); }

Val reshape(const Val& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return x.builder().add1(OpKind::kReshape, ShapeParams{shape}, {x});
}

Val transpose(const Val& x, const Dims& axes) {
  if (per_axis(axes, x) && counts_up(axes)) return x;
  return x.builder().add1(OpKind::kTranspose, AxesParams{axes}, {x});
}

Val reverse(const Val& x, const Dims& axes) {
  if (axes.empty()) return x;
  return x.builder().add1(OpKind::kReverse, AxesParams{axes}, {x});
}

Val slice(const Val& x, const Dims& start, const Dims& limit, const Dims& stride) {
  const Dims steps = stride.empty() ? Dims(start.size(), 1) : stride;
  const bool unit = std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; });
  if (unit && per_axis(start, x) && per_axis(steps, x) && all_zero(start) &&
      limit == x.shape().dims())
    return x;
  return x.builder().add1(OpKind::kSlice, SliceParams{start, limit, steps}, {x});
}

Val slice_axis(const Val& x, int64_t axis, int64_t start, int64_t limit) {
  if (axis < 0 || axis >= x.rank())
    trace_error("[slice] axis {} is out of range for {}", axis, to_string(x.type()));
  Dims starts(static_cast<size_t>(x.rank()), 0), limits = x.shape().dims();
  starts[static_cast<size_t>(axis)] = start;
  limits[static_cast<size_t>(axis)] = limit;
  return slice(x, starts, limits, {});
}

Val pad(const Val& x, const Val& value, const Dims& low, const Dims& high, const Dims& interior) {
  if (per_axis(low, x) && per_axis(high, x) && per_axis(interior, x) && all_zero(low) &&
      all_zero(high) && all_zero(interior))
    return x;
  return x.builder().add1(OpKind::kPad, PadParams{low, high, interior}, {x, value});
}

Val concatenate(std::span<const Val> parts, int64_t axis) {
  if (parts.empty()) trace_error("[concatenate] takes at least 1 operand, got 0");
  if (parts.size() == 1) return parts[0];
  return parts[0].builder().add(OpKind::kConcatenate, AxisParams{axis, false}, parts).front();
}

Val dynamic_slice(const Val& x, std::span<const Val> starts, const Dims& sizes) {
  return x.builder().add(OpKind::kDynamicSlice, ShapeParams{Shape(sizes)}, with(x, starts)).front();
}

Val dynamic_update_slice(const Val& x, const Val& update, std::span<const Val> starts) {
  std::vector<Val> operands = {x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return x.builder().add(OpKind::kDynamicUpdateSlice, NoParams{}, operands).front();
}

Val gather(const Val& x, const Val& indices, const GatherParams& params) {
  return x.builder().add1(OpKind::kGather, params, {x, indices});
}

Val scatter_add(const Val& x, const Val& indices, const Val& updates, const GatherParams& params) {
  return x.builder().add1(OpKind::kScatterAdd, params, {x, indices, updates});
}

// ---- Reductions ----

Val reduce(OpKind op, const Val& x, const Dims& axes) {
  if (axes.empty()) return x;
  Dims sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  return x.builder().add1(op, AxesParams{std::move(sorted)}, {x});
}

Val reduce_sum(const Val& x, const Dims& axes) { return reduce(OpKind::kReduceSum, x, axes); }

Val cumsum(const Val& x, int64_t axis, bool reverse) {
  return x.builder().add1(OpKind::kCumSum, AxisParams{axis, reverse}, {x});
}

std::vector<Val> sort(std::span<const Val> operands, int64_t axis, bool descending) {
  if (operands.empty()) trace_error("[sort] takes at least 1 operand, got 0");
  return operands[0].builder().add(OpKind::kSort, AxisParams{axis, descending}, operands);
}

Val keep_axes(const Val& reduced, const Shape& full, const Dims& axes) {
  Shape shape = full;
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= full.rank())
      trace_error("[reshape] axis {} is out of range for rank {}", axis, full.rank());
    shape[static_cast<int>(axis)] = 1;
  }
  return reshape(reduced, shape);
}

Val unreduce(const Val& reduced, const Shape& full, const Dims& axes) {
  Dims kept;
  for (int64_t i = 0; i < full.rank(); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) kept.push_back(i);
  return broadcast(reduced, full, kept);
}

// ---- Products and marks ----

Val dot_general(const Val& a, const Val& b, const DotParams& params) {
  return a.builder().add1(OpKind::kDotGeneral, params, {a, b});
}

Val matmul(const Val& a, const Val& b) {
  if (a.rank() < 2 || (b.rank() != 2 && b.rank() != a.rank()))
    trace_error("[matmul] takes [..., m, k] x [k, n] or [B, m, k] x [B, k, n], got {} x {}",
                to_string(a.type()), to_string(b.type()));
  DotParams p{.lhs_contract = {a.rank() - 1}, .rhs_contract = {b.rank() - 2}, .out = a.dtype()};
  if (b.rank() > 2)
    for (int64_t i = 0; i < b.rank() - 2; ++i) {
      p.lhs_batch.push_back(i);
      p.rhs_batch.push_back(i);
    }
  return dot_general(a, b, p);
}

Val name(const Val& x, std::string name) {
  return x.builder().add1(OpKind::kName, NameParams{std::move(name)}, {x});
}

Val device_put(const Val& x, MemoryKind kind) {
  if (x.type().kind == kind) return x;
  return x.builder().add1(OpKind::kDevicePut, DevicePutParams{kind}, {x});
}

Val add_anywhere(const Val& a, const Val& b) {
  const MemoryKind kind = a.type().kind;
  return device_put(device_put(a, MemoryKind::kDevice) + device_put(b, MemoryKind::kDevice), kind);
}

Val full_anywhere(GraphBuilder& b, const ArrayType& type, double value) {
  return device_put(full(b, {type.dtype, type.shape}, value), type.kind);
}

Val broadcast_anywhere(const Val& x, const Shape& shape, const Dims& axes) {
  return device_put(broadcast(device_put(x, MemoryKind::kDevice), shape, axes), x.type().kind);
}

}  // namespace stow
