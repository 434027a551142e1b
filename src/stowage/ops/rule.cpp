#include "stowage/ops/rule.h"

#include <numeric>

#include "stowage/ops/kind_error.h"

namespace stow::ops {

void check_size(const InferContext& c, const ArrayType& type, std::string_view what) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t bytes = dtype_bytes(type.dtype);
  for (int64_t extent : type.shape) {
    if (extent < 0) c.error("{} {} has a negative extent", what, to_string(type));
    if (extent > 0 && (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kLimit))
      c.error("{} {} is larger than 2^62 bytes", what, to_string(type));
  }
}

void check_count(const InferContext& c, size_t n) {
  if (c.operands.size() != n)
    c.error("takes {} operand{}, got {}", n, n == 1 ? "" : "s", c.operands.size());
}

void check_no_graphs(const InferContext& c) {
  if (!c.graphs.empty()) c.error("takes no nested graphs, got {}", c.graphs.size());
}

// Names operand `i`, which is not on the device, and one that is, or that is elsewhere.
[[noreturn]] void refuse_kind(const InferContext& c, size_t i) {
  const ArrayType& type = c.operand(i);
  for (size_t j = 0; j < c.operands.size(); ++j)
    if (c.operand(j).kind == MemoryKind::kDevice)
      throw KindError(fmt::format(
          "[{}] operand {} is on {} and operand {} on device: {} and {}; move them to one memory "
          "with device_put first",
          op_name(c.op), i, memory_kind_name(type.kind), j, to_string(type),
          to_string(c.operand(j))));
  for (size_t j = 0; j < c.operands.size(); ++j)
    if (c.operand(j).kind != type.kind)
      throw KindError(fmt::format(
          "[{}] operand {} is on {} and operand {} on {}: {} and {}; move them to the device with "
          "device_put first",
          op_name(c.op), i, memory_kind_name(type.kind), j, memory_kind_name(c.operand(j).kind),
          to_string(type), to_string(c.operand(j))));
  throw KindError(fmt::format("[{}] operand {} is on {}: {}; move it with device_put first",
                              op_name(c.op), i, memory_kind_name(type.kind), to_string(type)));
}

void check_operands(const InferContext& c) {
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const ArrayType& type = c.operand(i);
    if (type.kind != MemoryKind::kDevice) refuse_kind(c, i);
    check_size(c, type, fmt::format("operand {}", i));
  }
}

void wrong_params(const InferContext& c) { c.error("has the parameters of another op"); }

void check_axis(const InferContext& c, int64_t axis, const ArrayType& type) {
  if (axis < 0 || axis >= type.shape.rank())
    c.error("axis {} is out of range for {}", axis, to_string(type));
}

void check_axes(const InferContext& c, const Dims& axes, int rank, std::string_view what) {
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= rank) c.error("{} {} is out of range for rank {}", what, axis, rank);
    if (seen[static_cast<size_t>(axis)]) c.error("{} {} is named twice", what, axis);
    seen[static_cast<size_t>(axis)] = true;
  }
}

void check_sorted_axes(const InferContext& c, const Dims& axes, int rank, std::string_view what) {
  check_axes(c, axes, rank, what);
  for (size_t i = 1; i < axes.size(); ++i)
    if (axes[i] < axes[i - 1])
      c.error("{} {} follows {}; they must increase", what, axes[i], axes[i - 1]);
}

void check_per_axis(const InferContext& c, const Dims& list, const ArrayType& type,
                    std::string_view what) {
  if (static_cast<int>(list.size()) != type.shape.rank())
    c.error("{} has {} entries, one an axis of {} is needed", what, list.size(), to_string(type));
}

void check_kinds(const InferContext& c, size_t operand, Kinds kinds) {
  const DType t = c.operand(operand).dtype;
  const auto fail = [&](std::string_view wanted) {
    c.error("needs {} dtype, got {}", wanted, to_string(c.operand(operand)));
  };
  switch (kinds) {
    case Kinds::kAny: return;
    case Kinds::kNumeric: return t == DType::kBool ? fail("a numeric") : void();
    case Kinds::kSigned: return is_float(t) || is_signed_int(t) ? void() : fail("a signed");
    case Kinds::kFloat: return is_float(t) ? void() : fail("a float");
    case Kinds::kInteger: return is_integer(t) ? void() : fail("an integer");
    case Kinds::kBits: return is_float(t) ? fail("a bool or integer") : void();
  }
}

void check_same_dtypes(const InferContext& c, size_t first) {
  for (size_t i = first + 1; i < c.operands.size(); ++i)
    if (c.operand(i).dtype != c.operand(first).dtype)
      c.error("operands differ in dtype: {} and {}", to_string(c.operand(first)),
              to_string(c.operand(i)));
}

void check_same_shapes(const InferContext& c, size_t first) {
  for (size_t i = first + 1; i < c.operands.size(); ++i)
    if (c.operand(i).shape != c.operand(first).shape)
      c.error("operands differ in shape: {} and {}", to_string(c.operand(first)),
              to_string(c.operand(i)));
}

ArrayType result_type(const InferContext& c, DType dtype, Shape shape) {
  ArrayType type = strong_result_type(c, dtype, std::move(shape));
  type.weak = !c.operands.empty();
  for (const ArrayType& operand : c.operands) type.weak = type.weak && operand.weak;
  return type;
}

ArrayType result_type_in_place(const InferContext& c, DType dtype, Shape shape) {
  ArrayType type = result_type(c, dtype, std::move(shape));
  type.kind = c.operand(0).kind;
  return type;
}

ArrayType strong_result_type(const InferContext& c, DType dtype, Shape shape) {
  ArrayType type{dtype, std::move(shape)};
  check_size(c, type, "result");
  return type;
}

Dims other_axes(const Dims& axes, int rank) {
  Dims result;
  for (int64_t i = 0; i < rank; ++i)
    if (!contains(axes, i)) result.push_back(i);
  return result;
}

Dims all_axes(int rank) { return other_axes({}, rank); }

Cotangents no_cotangents(const VjpContext& x) { return Cotangents(x.operands.size()); }

std::vector<int> letters(int n, int first) {
  std::vector<int> result(static_cast<size_t>(n));
  std::iota(result.begin(), result.end(), first);
  return result;
}

ShardingFactors shard_elementwise(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f;
  for (const ArrayType& t : c.operands) f.operands.push_back(letters(t.shape.rank()));
  for (const ArrayType& t : results) f.results.push_back(letters(t.shape.rank()));
  return f;
}

ShardingFactors shard_but_axis(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  const auto axis = static_cast<size_t>(c.as<AxisParams>().axis);
  for (auto& list : f.operands) list[axis] = ShardingFactors::kUnshardable;
  for (auto& list : f.results) list[axis] = ShardingFactors::kUnshardable;
  return f;
}

ShardingFactors shard_whole(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  for (auto& list : f.operands) list.assign(list.size(), ShardingFactors::kUnshardable);
  for (auto& list : f.results) list.assign(list.size(), ShardingFactors::kUnshardable);
  return f;
}

double traffic(const InferContext& c, std::span<const ArrayType> results) {
  double bytes = 0;
  for (const ArrayType& t : c.operands) bytes += static_cast<double>(t.bytes());
  for (const ArrayType& t : results) bytes += static_cast<double>(t.bytes());
  return bytes;
}

Cost cost_elementwise(const InferContext& c, std::span<const ArrayType> results) {
  return {static_cast<double>(results[0].elems()), traffic(c, results)};
}

Cost cost_move(const InferContext& c, std::span<const ArrayType> results) {
  return {0, traffic(c, results)};
}

Cost cost_free(const InferContext&, std::span<const ArrayType>) { return {}; }

}  // namespace stow::ops
