// Makes text from outside safe to print in a message or a drawing.
// Not quoting and not JSON; see io/json.h.
#pragma once

#include <string>
#include <string_view>

namespace stow {

/// Returns the text with '?' in place of control characters other than line ends and tabs, and of
/// bytes that are not UTF-8. The result contains only characters that XML allows; markup is not
/// escaped.
std::string printable(std::string_view text);

}  // namespace stow
