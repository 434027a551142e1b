// Python's operations on texts, for filters and methods of templates.
// Not those of other values; see jinja_filters.cpp.
#pragma once

#include "stowage/text/jinja_run.h"

namespace stow::text::jinja {

/// str.upper() or str.lower(). Throws Error for letters outside ASCII: their rules need special
/// cases.
std::string cased(std::string text, bool upper);
/// str.capitalize() and str.title().
std::string capitalized(const std::string& text);
std::string titled(const std::string& text);
/// str.strip(characters) at one or both ends. Null or None strips white space.
std::string stripped(const std::string& text, const Value* characters, bool left, bool right);
/// str.replace(from, to, count); -1 replaces all.
std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     int64_t count);
/// str.split(separator, most) or str.rsplit(). A null or None separator splits at runs of white
/// space.
List split(const std::string& text, const Value* separator, int64_t most, bool from_right);
/// str.splitlines(keep).
List split_lines(const std::string& text, bool keep);
/// Returns the number of characters of a text.
int64_t n_chars(const std::string& text);

/// Each returns a value or an argument that must be a text. Throws Error if it is none; `what`
/// begins the message.
const std::string& text_of(const Value& value, std::string_view what);
std::string text_argument(const Arguments& arguments, size_t position, std::string_view name,
                          std::string_view what);

/// Returns a method of str, bound to the text; undefined if there is none.
Value text_method(const std::string& text, std::string_view name);

}  // namespace stow::text::jinja
