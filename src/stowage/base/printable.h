// Text from outside as it may stand in a message or a drawing.
// Not quoting and not JSON; see io/json.h.
#pragma once

#include <string>
#include <string_view>

namespace stow {

/// The text with '?' for what a terminal would obey (control characters but line ends and tabs) and
/// for bytes that are no UTF-8. What is left may stand in XML too.
std::string printable(std::string_view text);

}  // namespace stow
