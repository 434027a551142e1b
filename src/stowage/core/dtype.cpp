#include "stowage/core/dtype.h"

#include <array>

#include "stowage/base/error.h"

namespace stow {
namespace {

struct Info {
  std::string_view name;
  int bytes;
};
constexpr std::array<Info, kNumDTypes> kInfo = {{{"f64", 8},
                                                 {"f32", 4},
                                                 {"bf16", 2},
                                                 {"f16", 2},
                                                 {"i64", 8},
                                                 {"i32", 4},
                                                 {"i8", 1},
                                                 {"u64", 8},
                                                 {"u32", 4},
                                                 {"u8", 1},
                                                 {"bool", 1}}};

int category(DType t) { return t == DType::kBool ? 0 : is_integer(t) ? 1 : 2; }

// Two strong types of one category.
DType join(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a)) {
    if ((a == DType::kBF16 && b == DType::kF16) || (a == DType::kF16 && b == DType::kBF16))
      return DType::kF32;
    return dtype_bytes(a) > dtype_bytes(b) ? a : b;
  }
  if (is_signed_int(a) == is_signed_int(b)) return dtype_bytes(a) > dtype_bytes(b) ? a : b;
  const DType s = is_signed_int(a) ? a : b, u = is_signed_int(a) ? b : a;
  if (dtype_bytes(s) > dtype_bytes(u)) return s;
  switch (dtype_bytes(u)) {
    case 1: return DType::kI32;  // i8 with u8: the set has no i16
    case 4: return DType::kI64;
    default: return DType::kF32;  // u64 with a signed type: a weak float in JAX
  }
}

}  // namespace

int64_t dtype_bytes(DType t) { return kInfo[static_cast<size_t>(t)].bytes; }
std::string_view dtype_name(DType t) { return kInfo[static_cast<size_t>(t)].name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i)
    if (kInfo[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

WeakDType promote(WeakDType a, WeakDType b) {
  if (a.dtype == b.dtype) return {a.dtype, a.weak && b.weak};
  if (a.weak && !b.weak) std::swap(a, b);
  const int ca = category(a.dtype), cb = category(b.dtype);
  if (a.weak == b.weak) {
    if (ca != cb) return ca > cb ? a : b;
    const bool lossy = ca == 1 && is_float(join(a.dtype, b.dtype));
    return {join(a.dtype, b.dtype), a.weak || lossy};
  }
  return ca >= cb ? a : b;  // b is weak and yields, unless it is of a higher category
}

}  // namespace stow
