// PassReport: sentences that passes add to the plan's report.
// Not the report itself; that is MemoryAnalysis in plan/analysis.h.
#pragma once

#include <string>
#include <vector>

namespace stow {

/// Sentences for MemoryAnalysis::limits and MemoryAnalysis::notes.
struct PassReport {
  std::vector<std::string> limits;  ///< Bounds of work that took effect.
  std::vector<std::string> notes;   ///< Requests without effect.
};

}  // namespace stow
