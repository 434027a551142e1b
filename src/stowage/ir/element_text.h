// Elements of constants as text that reads back to the same bits.
// Not number formatting for people; reports have their own.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stowage/core/dtype.h"

namespace stow {

/// Decimal text of one element that element_from_text turns into the same bits; none where there is
/// no such text (a NaN with a payload, a bool that is neither 0 nor 1).
std::optional<std::string> element_to_text(DType dtype, std::span<const std::byte> element);

/// Writes the element that `text` stands for, floats rounded to nearest even. False if `text` is no
/// number of that dtype or is out of its range.
bool element_from_text(DType dtype, std::string_view text, std::span<std::byte> element);

}  // namespace stow
