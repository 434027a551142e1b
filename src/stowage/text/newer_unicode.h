// newer_characters: characters of general categories that PCRE2's Unicode tables lack.
// Not the complete categories.
#pragma once

#include <string_view>

namespace stow::text {

/// Returns the characters that Unicode 15.0 to 16.0 added to a general category ("L", "Nd"), as the
/// content of a PCRE2 character class. Null if the category is unknown or has lost characters since
/// Unicode 14.0.
const char* newer_characters(std::string_view category);

}  // namespace stow::text
