#include "stowage/api/at.h"

#include <algorithm>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/reduce.h"

namespace stow {
namespace {

// The elementwise op of a scatter; none for Scatter, which replaces.
std::optional<OpKind> elementwise(OpKind scatter) {
  if (scatter == OpKind::kScatterAdd) return OpKind::kAdd;
  if (scatter == OpKind::kScatterMul) return OpKind::kMul;
  if (scatter == OpKind::kScatterMin) return OpKind::kMin;
  if (scatter == OpKind::kScatterMax) return OpKind::kMax;
  return std::nullopt;
}

// x with its slice replaced by `part`.
Array put_slice(const Array& x, const Places& places, const Array& part) {
  const SliceParams& p = places.slice;
  if (part.size() == 0) return x;
  const Array forward = places.reversed.empty()
                            ? part
                            : record1(OpKind::kReverse, AxesParams{places.reversed}, {part});
  bool whole = true, dense = true;
  for (size_t i = 0; i < p.start.size(); ++i) {
    dense = dense && p.stride[i] == 1;
    whole = whole && p.limit[i] - p.start[i] == x.shape()[static_cast<int>(i)];
  }
  if (whole && dense) return forward;
  if (dense) {
    std::vector<Array> operands = {x, forward};
    for (int64_t start : p.start) operands.push_back(scalar_constant(start, DType::kI64));
    return record(OpKind::kDynamicUpdateSlice, NoParams{}, operands).front();
  }
  // Spread out with holes, and chosen where there is none.
  PadParams pad{p.start, {}, {}};
  for (size_t i = 0; i < p.start.size(); ++i) {
    const auto axis = static_cast<int>(i);
    const int64_t n = places.cut[axis];
    pad.interior.push_back(p.stride[i] - 1);
    pad.high.push_back(x.shape()[axis] - p.start[i] - (n - 1) * p.stride[i] - 1);
  }
  const Array spread = record1(OpKind::kPad, pad, {forward, scalar_constant(0, x.dtype())});
  const Array mask =
      record1(OpKind::kPad, pad,
              {full(places.cut, true, DType::kBool), scalar_constant(false, DType::kBool)});
  return record1(OpKind::kSelect, NoParams{}, {mask, spread, x});
}

}  // namespace

AtIndex Array::at(std::initializer_list<Index> indices, SourceLocation at) const {
  return {*this, indices, at};
}

Array AtIndex::update(OpKind op, const Operand& value, bool negate) const {
  const Site site(at_);
  const WeakDType dtype{array_.dtype(), array_.type().weak};
  const Array v = to_array(value, dtype);
  const Array updated = run_as_one("at", [&]() -> Array {
    const Places places(array_, indices_);
    const ArrayType target{v.dtype(), places.result};
    if (v.rank() > places.result.rank() ||
        !(broadcast_shapes("at", v.type(), target) == places.result))
      fail_here("[at] {} does not broadcast to ({}), the places of {}", to_string(v.type()),
                to_string(places.result), to_string(array_.type()));
    Array u = reshape(broadcast_array(v, places.result), places.read.dims());
    if (negate) u = -u;
    const Array part = places.take_slice(array_);
    if (part.size() == 0) return array_;  // every place is out of range
    if (places.has_arrays)
      return put_slice(array_, places, record1(op, places.gather, {part, places.vectors, u}));
    u = reshape(u, places.cut.dims());
    if (const auto combine = elementwise(op)) u = binary_op(*combine, part, u);
    return put_slice(array_, places, with_weak(u, false));
  });
  return with_weak(updated, dtype.weak);
}

Array AtIndex::set(const Operand& value) const {
  return update(OpKind::kScatter, value);
}
Array AtIndex::add(const Operand& value) const {
  return update(OpKind::kScatterAdd, value);
}
Array AtIndex::subtract(const Operand& value) const {
  return update(OpKind::kScatterAdd, value, true);
}
Array AtIndex::multiply(const Operand& value) const {
  return update(OpKind::kScatterMul, value);
}
Array AtIndex::divide(const Operand& value) const {
  const Site site(at_);
  if (!is_float(array_.dtype()))
    fail_here("[at] divide of {}: integers have no inverse", to_string(array_.type()));
  // Divided once by all of a place's divisors.
  const Array divisor = AtIndex(ones_like(array_), indices_, at_).multiply(value);
  return array_ / divisor;
}
Array AtIndex::power(const Operand& value) const {
  const Site site(at_);
  return pow(array_, AtIndex(ones_like(array_), indices_, at_).multiply(value));
}
Array AtIndex::min(const Operand& value) const {
  return update(OpKind::kScatterMin, value);
}
Array AtIndex::max(const Operand& value) const {
  return update(OpKind::kScatterMax, value);
}

Array AtIndex::get(IndexMode mode) const {
  const Site site(at_);
  return run_as_one("at", [&] {
    const Places places(array_, indices_);
    const Array part = places.take_slice(array_);
    if (!places.has_arrays) return reshape(part, places.result.dims());
    Array vectors = places.vectors;
    if (mode == IndexMode::kWrap) {
      std::vector<int64_t> extents;
      for (int64_t axis : places.gather.start_index_map)
        extents.push_back(part.shape()[static_cast<int>(axis)]);
      const Shape shape{static_cast<int64_t>(extents.size())};
      vectors = remainder(vectors,
                          Array::from(std::span<const int64_t>(extents), shape, vectors.dtype()));
    }
    const Array read = record1(OpKind::kGather, places.gather, {part, vectors});
    if (mode != IndexMode::kFill) return reshape(read, places.result.dims());
    const Array filled =
        filled_outside(read, vectors, part, places.gather, out_of_range_value(read.dtype()));
    return reshape(filled, places.result.dims());
  });
}

}  // namespace stow
