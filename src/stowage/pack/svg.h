// A picture of a packing: time to the right, bytes upwards, one rectangle a live range.
// Not a report: it names nothing but the buffers.
#pragma once

#include <string>
#include <vector>

#include "stowage/pack/problem.h"

namespace stow::pack {

/// An SVG document. `names` are the tooltips, one a buffer, or empty.
std::string draw_svg(const Problem& problem, const Solution& solution,
                     const std::vector<std::string>& names = {});

}  // namespace stow::pack
