// Spelling suggestions: the known name with the smallest edit distance to a mistyped one.
// Not a search with a threshold; a name is returned however distant it is.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stow {

/// Returns the number of letters to insert, delete or replace to turn one name into the other.
int edit_distance(std::string_view a, std::string_view b);

/// Returns the name nearest to `name`; the first if several are equally near, "" if `names` is
/// empty. A dotted name is also compared by its last part: "layerz" is near "model.layers".
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace stow
