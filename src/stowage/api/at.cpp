#include "stowage/api/at.h"

#include <algorithm>

#include "stowage/api/control.h"
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
Array put_slice(const Array& x, const ResolvedIndex& places, const Array& part) {
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

// Index vectors as `mode` has them; what is out of range still is dropped, or clamped where read.
Array resolved(const Array& part, const ResolvedIndex& places, IndexMode mode) {
  switch (mode) {
    case IndexMode::kFill:
      return places.vectors;
    case IndexMode::kClip:
      return clamp_starts(places.vectors, part, places.gather);
    case IndexMode::kWrap: {
      std::vector<int64_t> extents;
      for (int64_t axis : places.gather.start_index_map)
        extents.push_back(part.shape()[static_cast<int>(axis)]);
      const Shape shape{static_cast<int64_t>(extents.size())};
      const DType dtype = places.vectors.dtype();
      return remainder(places.vectors,
                       Array::from(std::span<const int64_t>(extents), shape, dtype));
    }
  }
  return places.vectors;
}

// `function` of x, which must be like x.
Array applied(const std::function<Array(const Array&)>& function, const Array& x) {
  const SourceLocation here = context().site;
  const Array y = function(x);
  const CallSiteScope back(here);
  if (y.empty() || !(y.type() == x.type()))
    trace_error_here("[at] expected the function to return {}, got {}", to_string(x.type()),
                     y.empty() ? "an empty Array" : to_string(y.type()));
  return y;
}

}  // namespace

Array apply_repeatedly(const Array& x, const Array& counts,
                       const std::function<Array(const Array&)>& function) {
  using Carry = std::pair<Array, Array>;
  return while_loop([](const Carry& c) { return any(c.second > 0); },
                    [&](const Carry& c) {
                      return Carry(where(c.second > 0, applied(function, c.first), c.first),
                                   c.second - 1);
                    },
                    Carry(x, counts))
      .first;
}

AtIndex Array::at(std::initializer_list<Index> indices, SourceLocation at) const {
  return {*this, indices, at};
}

Array AtIndex::update(OpKind op, const Operand& value, Mode mode, bool negate) const {
  const CallSiteScope site(at_);
  const WeakDType dtype{array_.dtype(), array_.type().weak};
  const Array v = to_array(value, dtype);
  if (dtype.dtype == DType::kBool && (op == OpKind::kScatterMin || op == OpKind::kScatterMax)) {
    const AtIndex bytes(convert_to(array_, DType::kU8), indices_, at_);
    return convert_to(bytes.update(op, convert_to(v, DType::kU8), mode), DType::kBool);
  }
  const Array updated = run_as_one("at", [&]() -> Array {
    const ResolvedIndex places(array_, indices_);
    const ArrayType target{v.dtype(), places.result};
    if (v.rank() > places.result.rank() ||
        !(broadcast_shapes("at", v.type(), target) == places.result))
      trace_error_here("[at] {} does not broadcast to ({}), the places of {}", to_string(v.type()),
                       to_string(places.result), to_string(array_.type()));
    Array u = reshape(broadcast_array(v, places.result), places.read.dims());
    if (negate) u = -u;
    const Array part = places.take_slice(array_);
    if (part.size() == 0) return array_;  // every place is out of range
    if (places.has_arrays)
      return put_slice(array_, places,
                       record1(op, places.gather, {part, resolved(part, places, mode), u}));
    u = reshape(u, places.cut.dims());
    if (const auto combine = elementwise(op)) u = binary_op(*combine, part, u);
    return put_slice(array_, places, with_weak(u, false));
  });
  return with_weak(updated, dtype.weak);
}

Array AtIndex::set(const Operand& value, Mode mode) const {
  return update(OpKind::kScatter, value, mode);
}
Array AtIndex::add(const Operand& value, Mode mode) const {
  return update(OpKind::kScatterAdd, value, mode);
}
Array AtIndex::subtract(const Operand& value, Mode mode) const {
  return update(OpKind::kScatterAdd, value, mode, true);
}
Array AtIndex::multiply(const Operand& value, Mode mode) const {
  return update(OpKind::kScatterMul, value, mode);
}
Array AtIndex::divide(const Operand& value, Mode mode) const {
  const CallSiteScope site(at_);
  if (!is_float(array_.dtype()))
    trace_error_here("[at] expected floats for divide, got {}", to_string(array_.type()));
  // Divided once by all of a place's divisors.
  const Array divisor = AtIndex(ones_like(array_), indices_, at_).multiply(value, mode);
  return array_ / divisor;
}
Array AtIndex::power(const Operand& value, Mode mode) const {
  const CallSiteScope site(at_);
  return pow(array_, AtIndex(ones_like(array_), indices_, at_).multiply(value, mode));
}
Array AtIndex::min(const Operand& value, Mode mode) const {
  return update(OpKind::kScatterMin, value, mode);
}
Array AtIndex::max(const Operand& value, Mode mode) const {
  return update(OpKind::kScatterMax, value, mode);
}

Array AtIndex::apply(const std::function<Array(const Array&)>& function, Mode mode) const {
  const CallSiteScope site(at_);
  return run_as_one("at", [&] {
    if (!ResolvedIndex(array_, indices_).has_arrays) return set(applied(function, get()));
    const Array none = zeros(array_.shape(), DType::kI32);
    return apply_repeatedly(array_, AtIndex(none, indices_, at_).add(1, mode), function);
  });
}

Array AtIndex::get(Mode mode, const std::optional<ScalarValue>& fill_value) const {
  const CallSiteScope site(at_);
  if (fill_value && mode != Mode::kFill)
    trace_error_here("[at] a fill_value has no effect in this mode; set kFill or leave it out");
  return run_as_one("at", [&] {
    const ResolvedIndex places(array_, indices_);
    const Array part = places.take_slice(array_);
    if (!places.has_arrays) return reshape(part, places.result.dims());
    // The gather clamps places out of range anyway.
    const Array vectors = mode == Mode::kWrap ? resolved(part, places, mode) : places.vectors;
    const Array read = record1(OpKind::kGather, places.gather, {part, vectors});
    if (mode != IndexMode::kFill) return reshape(read, places.result.dims());
    const ScalarValue value = fill_value.value_or(out_of_range_value(read.dtype()));
    const Array filled = fill_out_of_bounds(read, vectors, part, places.gather, value);
    return reshape(filled, places.result.dims());
  });
}

}  // namespace stow
