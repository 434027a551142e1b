#include "stowage/ir/element_text.h"

#include <fmt/core.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

namespace stow {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}
template <typename T>
void store(std::span<std::byte> bytes, T value) {
  std::memcpy(bytes.data(), &value, sizeof(T));
}

double half_to_double(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31)
    value = fraction ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  return bits & 0x8000 ? -value : value;
}

// A double rounded to nearest even to a float of `fraction_bits` and the exponent range of
// [min_exponent, max_exponent]; the bits without sign. The double is the exact value of a decimal
// up to 53 bits, so a second rounding could differ by one unit for texts of 17 digits and more;
// what element_to_text prints is exact.
uint16_t narrow(double value, int fraction_bits, int min_exponent, int max_exponent) {
  const int all_ones = max_exponent - min_exponent + 2;
  if (std::isnan(value))
    return static_cast<uint16_t>((all_ones << fraction_bits) | (1 << (fraction_bits - 1)));
  value = std::fabs(value);
  if (std::isinf(value)) return static_cast<uint16_t>(all_ones << fraction_bits);
  if (value == 0) return 0;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const auto units =
      static_cast<int64_t>(std::nearbyint(std::ldexp(value, fraction_bits - exponent)));
  const int64_t bits = (int64_t{exponent - min_exponent} << fraction_bits) + units;
  return static_cast<uint16_t>(std::min<int64_t>(bits, int64_t{all_ones} << fraction_bits));
}
uint16_t narrow(DType dtype, double value) {
  const uint16_t bits =
      dtype == DType::kF16 ? narrow(value, 10, -14, 15) : narrow(value, 7, -126, 127);
  return std::signbit(value) ? bits | 0x8000 : bits;
}

std::string float_text(double value) {
  return std::isnan(value) ? "nan" : std::isinf(value) ? (value < 0 ? "-inf" : "inf") : "";
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}
// inf and nan only as element_to_text writes them; an overflow is no number.
template <typename T>
bool parse_float(std::string_view text, T& value) {
  if (text == "nan") return value = std::numeric_limits<T>::quiet_NaN(), true;
  if (text == "inf") return value = std::numeric_limits<T>::infinity(), true;
  if (text == "-inf") return value = -std::numeric_limits<T>::infinity(), true;
  return parse_number(text, value) && std::isfinite(value);
}
template <typename T>
bool parse_into(std::string_view text, std::span<std::byte> element) {
  T value;
  if constexpr (std::is_floating_point_v<T>) {
    if (!parse_float(text, value)) return false;
  } else if (!parse_number(text, value)) {
    return false;
  }
  store(element, value);
  return true;
}

std::string plain_text(DType dtype, std::span<const std::byte> element) {
  auto of_float = [](auto value, double shown) {
    const std::string special = float_text(shown);
    return special.empty() ? fmt::format("{}", value) : special;
  };
  switch (dtype) {
    case DType::kF64:
      return of_float(load<double>(element), load<double>(element));
    case DType::kF32:
      return of_float(load<float>(element), load<float>(element));
    case DType::kBF16: {
      const auto value = std::bit_cast<float>(uint32_t{load<uint16_t>(element)} << 16);
      return of_float(value, value);
    }
    case DType::kF16: {
      const double value = half_to_double(load<uint16_t>(element));
      return of_float(value, value);
    }
    case DType::kI64:
      return fmt::format("{}", load<int64_t>(element));
    case DType::kI32:
      return fmt::format("{}", load<int32_t>(element));
    case DType::kI8:
      return fmt::format("{}", int{load<int8_t>(element)});
    case DType::kU64:
      return fmt::format("{}", load<uint64_t>(element));
    case DType::kU32:
      return fmt::format("{}", load<uint32_t>(element));
    case DType::kU8:
      return fmt::format("{}", unsigned{load<uint8_t>(element)});
    case DType::kBool:
      return load<uint8_t>(element) ? "true" : "false";
  }
  return {};
}

}  // namespace

std::optional<std::string> element_to_text(DType dtype, std::span<const std::byte> element) {
  std::string text = plain_text(dtype, element);
  std::byte back[8];
  const std::span<std::byte> slot(back, element.size());
  if (!element_from_text(dtype, text, slot) || std::memcmp(back, element.data(), slot.size()) != 0)
    return std::nullopt;
  return text;
}

bool element_from_text(DType dtype, std::string_view text, std::span<std::byte> element) {
  switch (dtype) {
    case DType::kF64:
      return parse_into<double>(text, element);
    case DType::kF32:
      return parse_into<float>(text, element);
    case DType::kBF16:
    case DType::kF16: {
      double value;
      if (!parse_float(text, value)) return false;
      const uint16_t bits = narrow(dtype, value);
      store(element, bits);
      const uint16_t infinity = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
      return (bits & 0x7fff) != infinity || std::isinf(value);
    }
    case DType::kI64:
      return parse_into<int64_t>(text, element);
    case DType::kI32:
      return parse_into<int32_t>(text, element);
    case DType::kI8:
      return parse_into<int8_t>(text, element);
    case DType::kU64:
      return parse_into<uint64_t>(text, element);
    case DType::kU32:
      return parse_into<uint32_t>(text, element);
    case DType::kU8:
      return parse_into<uint8_t>(text, element);
    case DType::kBool:
      store(element, static_cast<uint8_t>(text == "true"));
      return text == "true" || text == "false";
  }
  return false;
}

}  // namespace stow
