// General categories of characters that are newer than the tables of the regular expressions.
// Not the categories themselves.
#pragma once

#include <string_view>

namespace stow::text {

/// The characters of a general category ("L", "Nd") that Unicode 15.0 to 16.0 added to it, as the
/// inside of a class of PCRE2; null for a category that is not known, or that lost characters since
/// Unicode 14.0.
const char* newer_characters(std::string_view category);

}  // namespace stow::text
