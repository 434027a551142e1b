#include "stowage/ir/element_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "stowage/core/scalar.h"

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

template <typename T>
std::string float_text(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return fmt::format("{}", value);
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}
// inf and nan only as float_text writes them; an overflow is no number.
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
  switch (dtype) {
    case DType::kF64: return float_text(load<double>(element));
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16: return float_text(static_cast<float>(decode_scalar(dtype, element)));
    case DType::kI64: return fmt::format("{}", load<int64_t>(element));
    case DType::kI32: return fmt::format("{}", load<int32_t>(element));
    case DType::kI8: return fmt::format("{}", int{load<int8_t>(element)});
    case DType::kU64: return fmt::format("{}", load<uint64_t>(element));
    case DType::kU32: return fmt::format("{}", load<uint32_t>(element));
    case DType::kU8: return fmt::format("{}", unsigned{load<uint8_t>(element)});
    case DType::kBool: return load<uint8_t>(element) ? "true" : "false";
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
    case DType::kF64: return parse_into<double>(text, element);
    case DType::kF32: return parse_into<float>(text, element);
    case DType::kBF16:
    case DType::kF16: {
      float value;
      if (!parse_float(text, value)) return false;
      const std::vector<std::byte> bytes = *encode_scalar(dtype, double{value});
      std::copy(bytes.begin(), bytes.end(), element.begin());
      return std::isinf(value) == std::isinf(decode_scalar(dtype, bytes));
    }
    case DType::kI64: return parse_into<int64_t>(text, element);
    case DType::kI32: return parse_into<int32_t>(text, element);
    case DType::kI8: return parse_into<int8_t>(text, element);
    case DType::kU64: return parse_into<uint64_t>(text, element);
    case DType::kU32: return parse_into<uint32_t>(text, element);
    case DType::kU8: return parse_into<uint8_t>(text, element);
    case DType::kBool:
      store(element, static_cast<uint8_t>(text == "true"));
      return text == "true" || text == "false";
  }
  return false;
}

}  // namespace stow
