// PassReport: sentences for the user that passes add to the plan's report.
// Not the report; plan/analysis.h has that.
#pragma once

#include <string>
#include <vector>

namespace stow {

/// Sentences for MemoryAnalysis, which says what each list is for.
struct PassReport {
  std::vector<std::string> limits;  ///< Bounds of work that took effect.
  std::vector<std::string> notes;   ///< Requests without effect.
};

}  // namespace stow
