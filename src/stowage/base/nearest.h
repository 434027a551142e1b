// Spelling suggestions: which known name a mistyped one is nearest to.
// Not a search; an answer is given however far it is.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stow {

/// The number of letters to insert, delete or replace to turn one name into the other.
int edit_distance(std::string_view a, std::string_view b);

/// The name nearest to `name`; the first of several. A dotted name also counts by its last part, so
/// that "layerz" is near "model.layers". Empty when there are no names.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace stow
