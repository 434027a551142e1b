// Text as Unicode: decoding UTF-8, classes of characters, normal forms.
// Not a general Unicode library; utf8proc holds the tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::text {

/// Returns the length in bytes (1 to 4) of the character at `at`. `text` must be valid UTF-8.
int char_bytes(std::string_view text, size_t at);

/// Returns the code point of the character at `at`. `text` must be valid UTF-8.
char32_t decode_char(std::string_view text, size_t at);

void append_utf8(std::string& out, char32_t code_point);

/// True if the character has the property White_Space, like `\s` of Oniguruma and Rust's regex.
bool is_space(char32_t c);
/// True if the character is of category Nd, Nl or No, like Rust's char::is_numeric.
bool is_numeric(char32_t c);
/// True if the character is alphabetic, a mark, a decimal digit or a connector, like `\w` of Rust's
/// regex.
bool is_word(char32_t c);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// Returns the text in a Unicode normal form. ASCII text is returned unchanged.
/// Errors: those of utf8proc, for text beyond its limits.
Result<std::string> normalize(std::string_view text, NormalForm form);

/// Returns the bytes as UTF-8, with each maximal ill-formed sequence replaced by one U+FFFD.
/// Source: Unicode 15, section 3.9, "U+FFFD Substitution of Maximal Subparts"; Rust's
/// from_utf8_lossy.
std::string to_utf8_lossy(std::string_view bytes);

}  // namespace stow::text
