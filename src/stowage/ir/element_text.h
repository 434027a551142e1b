// Text of the elements of constants, which reads back to the same bits.
// Not number formatting for people; reports format numbers themselves.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stowage/core/dtype.h"

namespace stow {

/// Returns the decimal text of one element, from which element_from_text gives the same bits.
/// Returns none if no decimal text does: a NaN with a payload, a bool that is neither 0 nor 1.
std::optional<std::string> element_to_text(DType dtype, std::span<const std::byte> element);

/// Writes the element that `text` stands for; floats are rounded to nearest even. Returns false if
/// `text` is not a number of that dtype or is out of its range.
bool element_from_text(DType dtype, std::string_view text, std::span<std::byte> element);

}  // namespace stow
