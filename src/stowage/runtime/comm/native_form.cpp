#include "stowage/runtime/comm/native_form.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "stowage/base/error.h"
#include "stowage/core/half.h"

namespace stow::comm {
namespace {

using Element = NativeForm::Element;

template <typename T>
T at(const std::byte* from, int64_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof value);
  return value;
}
template <typename T>
void put(std::byte* to, int64_t i, T value) {
  std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof value);
}

// The bits of a float as a number that is ordered as the float is. The map is its own inverse.
template <typename I>
I ordered(I bits) {
  return bits < 0 ? static_cast<I>(bits ^ std::numeric_limits<I>::max()) : bits;
}

// `infinity`: the bits of it; a magnitude above is a NaN.
template <typename I>
void encode_ordered(const std::byte* array, int64_t n, bool nan_is_least, I infinity,
                    std::byte* elements) {
  constexpr I kMagnitude = std::numeric_limits<I>::max();
  for (int64_t i = 0; i < n; ++i) {
    const I bits = at<I>(array, i);
    const bool is_nan = static_cast<I>(bits & kMagnitude) > infinity;
    const I key = !is_nan        ? ordered(bits)
                  : nan_is_least ? std::numeric_limits<I>::min()
                                 : kMagnitude;
    put(elements, i, key);
  }
}
// The keys of a NaN are the bits of one: all ones behind either sign.
template <typename I>
void decode_ordered(const std::byte* elements, int64_t n, std::byte* array) {
  for (int64_t i = 0; i < n; ++i) put(array, i, ordered(at<I>(elements, i)));
}

// Of bf16, f16 and bytes as they are summed.
template <typename Narrow>
void widen_all(const std::byte* array, int64_t n, std::byte* elements) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<Narrow, uint8_t>)
      put(elements, i, uint32_t{at<uint8_t>(array, i)});
    else
      put(elements, i, widen(at<Narrow>(array, i)));
  }
}
template <typename Narrow>
void narrow_all(const std::byte* elements, int64_t n, std::byte* array) {
  for (int64_t i = 0; i < n; ++i) {
    Narrow value;
    if constexpr (std::is_same_v<Narrow, uint8_t>)
      value = static_cast<uint8_t>(at<uint32_t>(elements, i));
    else
      narrow(at<float>(elements, i), value);
    put(array, i, value);
  }
}

Element element_of(ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::kSum && is_float(dtype))
    return dtype == DType::kF64 ? Element::kF64 : Element::kF32;
  const int64_t bytes = dtype_bytes(dtype);
  if (kind == ReduceKind::kSum && bytes == 1) return Element::kU32;
  const bool compares = kind == ReduceKind::kMax || kind == ReduceKind::kMin;
  if (compares && (is_float(dtype) || is_signed_int(dtype)))
    return bytes == 1   ? Element::kI8
           : bytes == 2 ? Element::kI16
           : bytes == 4 ? Element::kI32
                        : Element::kI64;
  STOW_CHECK(bytes == 1 || bytes == 4 || bytes == 8, "{} of {}", reduce_kind_name(kind),
             dtype_name(dtype));
  return bytes == 1 ? Element::kU8 : bytes == 4 ? Element::kU32 : Element::kU64;
}

}  // namespace

NativeForm NativeForm::of(ReduceKind kind, DType dtype) {
  const bool is_half = dtype == DType::kBF16 || dtype == DType::kF16;
  const bool is_sum = kind == ReduceKind::kSum;
  const bool is_plain = is_sum ? !is_half && dtype_bytes(dtype) > 1 : !is_float(dtype);
  return {kind, dtype, element_of(kind, dtype), is_plain};
}

int64_t NativeForm::elem_bytes() const {
  switch (element) {
    case Element::kI8:
    case Element::kU8: return 1;
    case Element::kI16: return 2;
    case Element::kI32:
    case Element::kU32:
    case Element::kF32: return 4;
    case Element::kI64:
    case Element::kU64:
    case Element::kF64: break;
  }
  return 8;
}

void NativeForm::encode(const std::byte* array, int64_t n, std::byte* elements) const {
  const bool is_min = kind == ReduceKind::kMin;
  if (n == 0) return;
  if (is_plain) {
    std::memcpy(elements, array, static_cast<size_t>(n * elem_bytes()));
  } else if (kind == ReduceKind::kSum) {
    if (dtype == DType::kBF16)
      widen_all<Bf16>(array, n, elements);
    else if (dtype == DType::kF16)
      widen_all<F16>(array, n, elements);
    else
      widen_all<uint8_t>(array, n, elements);
  } else if (dtype == DType::kF64) {
    encode_ordered<int64_t>(array, n, is_min, 0x7ff0'0000'0000'0000, elements);
  } else if (dtype == DType::kF32) {
    encode_ordered<int32_t>(array, n, is_min, 0x7f80'0000, elements);
  } else {
    encode_ordered<int16_t>(array, n, is_min, dtype == DType::kBF16 ? 0x7f80 : 0x7c00, elements);
  }
}

void NativeForm::decode(const std::byte* elements, int64_t n, std::byte* array) const {
  if (n == 0) return;
  if (is_plain) {
    std::memcpy(array, elements, static_cast<size_t>(n * elem_bytes()));
  } else if (kind == ReduceKind::kSum) {
    if (dtype == DType::kBF16)
      narrow_all<Bf16>(elements, n, array);
    else if (dtype == DType::kF16)
      narrow_all<F16>(elements, n, array);
    else
      narrow_all<uint8_t>(elements, n, array);
  } else if (elem_bytes() == 8) {
    decode_ordered<int64_t>(elements, n, array);
  } else if (elem_bytes() == 4) {
    decode_ordered<int32_t>(elements, n, array);
  } else {
    decode_ordered<int16_t>(elements, n, array);
  }
}

}  // namespace stow::comm
