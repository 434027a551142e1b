#include <cmath>
#include <limits>

#include "stowage/base/error.h"
#include "stowage/runtime/reference/element.h"
#include "stowage/runtime/reference/families.h"

namespace stow::ref {
namespace {

// Truncated towards zero and clamped to the type; NaN is 0.
int64_t saturate(double x, DType dtype) {
  const IntType type = int_type(dtype);
  if (std::isnan(x)) return 0;
  const int value_bits = type.is_signed ? type.bits - 1 : type.bits;
  const double bound = std::ldexp(1.0, value_bits);  // one beyond the largest
  const uint64_t largest = ~uint64_t{0} >> (64 - value_bits);
  if (x >= bound) return static_cast<int64_t>(largest);
  if (!type.is_signed) return x <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x));
  if (x <= -bound) return -static_cast<int64_t>(largest) - 1;
  return static_cast<int64_t>(x);
}

}  // namespace

void map1(Views in, Views out, Float1 on_float, Int1 on_int) {
  const TensorView &x = in[0], &y = out[0];
  const bool floats = is_float(x.dtype);
  STOW_CHECK(floats ? on_float != nullptr : on_int != nullptr, "{}", dtype_name(x.dtype));
  for_each_index(y.dims, [&](const Dims& i) {
    if (floats)
      store_float(y, i, on_float(load_float(x, i)));
    else
      store_int(y, i, on_int(load_int(x, i), int_type(x.dtype)));
  });
}

void map2(Views in, Views out, Float2 on_float, Int2 on_int) {
  const TensorView &a = in[0], &b = in[1], &y = out[0];
  const bool floats = is_float(a.dtype);
  STOW_CHECK(floats ? on_float != nullptr : on_int != nullptr, "{}", dtype_name(a.dtype));
  for_each_index(y.dims, [&](const Dims& i) {
    if (floats)
      store_float(y, i, on_float(load_float(a, i), load_float(b, i)));
    else
      store_int(y, i, on_int(load_int(a, i), load_int(b, i), int_type(a.dtype)));
  });
}

void compare(Views in, Views out, FloatTest on_float, Int2 on_int) {
  const TensorView &a = in[0], &b = in[1], &y = out[0];
  for_each_index(y.dims, [&](const Dims& i) {
    if (is_float(a.dtype))
      store_int(y, i, on_float(load_float(a, i), load_float(b, i)));
    else
      store_int(y, i, on_int(load_int(a, i), load_int(b, i), int_type(a.dtype)));
  });
}

void is_finite(Views in, Views out) {
  for_each_index(out[0].dims,
                 [&](const Dims& i) { store_int(out[0], i, std::isfinite(load_float(in[0], i))); });
}

void select(Views in, Views out) {
  for_each_index(out[0].dims, [&](const Dims& i) {
    copy_element(load_int(in[0], i) != 0 ? in[1] : in[2], i, out[0], i);
  });
}

void convert(Views in, Views out) {
  const TensorView &x = in[0], &y = out[0];
  for_each_index(y.dims, [&](const Dims& i) {
    if (is_float(x.dtype)) {
      const double value = load_float(x, i);
      if (is_float(y.dtype))
        store_float(y, i, value);
      else if (y.dtype == DType::kBool)
        store_int(y, i, value != 0);
      else
        store_int(y, i, saturate(value, y.dtype));
    } else {
      const int64_t value = load_int(x, i);
      if (!is_float(y.dtype))
        store_int(y, i, value);
      else if (x.dtype == DType::kU64)  // long double holds 64 bits: one rounding
        store_float(y, i, static_cast<long double>(static_cast<uint64_t>(value)));
      else
        store_float(y, i, static_cast<long double>(value));
    }
  });
}

}  // namespace stow::ref
