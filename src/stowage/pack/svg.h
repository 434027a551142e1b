// A packing as an SVG drawing: time to the right, bytes upwards, one rectangle per live range.
// Not a report: it shows buffer names only.
#pragma once

#include <string>
#include <vector>

#include "stowage/pack/problem.h"

namespace stow::pack {

/// Returns an SVG document. `names`: tooltips, one per buffer; may be empty.
std::string draw_svg(const Problem& problem, const Solution& solution,
                     const std::vector<std::string>& names = {});

}  // namespace stow::pack
