// The HTML text of a plan's page around its figures.
// Not the figures; plan_page.h has those.
#pragma once

#include <string_view>

namespace stow {

/// The text before and after the JSON of the figures.
extern const std::string_view kPlanPageHead, kPlanPageTail;

}  // namespace stow
