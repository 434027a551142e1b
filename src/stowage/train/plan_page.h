// The memory plan of a training run as an HTML page: owners of bytes over time, and remedies.
// Not the report on the terminal; describe.cpp has that, with the same figures.
#pragma once

#include <span>
#include <string>

#include "stowage/base/atomic_file.h"
#include "stowage/base/inside.h"
#include "stowage/io/json.h"
#include "stowage/train/sweep.h"
#include "stowage/train/trainer.h"

namespace stow {

/// The content of a page.
struct PlanPage {
  const Job& job;
  const Choice& choice;
  const Budgets& budgets;
  const JobPlan& plan;  ///< The chosen plan; for a refusal, the one with the smallest shortfall.
  const Json& report;   ///< The object that `plan --json` writes.
  std::span<const Remedy> remedies;   ///< Remedies to show, with their peaks.
  std::span<const Shortfall> near;    ///< Shortfalls of a refusal; else empty.
  std::span<const SweepRow> sweep = {};  ///< The meshes that the plan was chosen from; else empty.
};

/// Returns the figures of the page: {"report": …, "programs": [{"name", "kinds": [{"kind",
/// "total_bytes", "instants", "owners": [{"use", "what", "source", "peak_bytes", "bytes"}], …}]}],
/// "remedies", …}. A sweep also has {"sweep": [to_json(SweepRow), …]}. The series `bytes` are
/// run-length encoded: value, length, value, length. The size of the result is bounded: a chart has
/// at most 400 columns and 24 owners, with smaller owners merged by use; texts are cut at 200 bytes
/// and lists at 256 entries.
Json plan_page_json(const PlanPage& page);

/// Returns the HTML page of these figures. It contains its style and script, and loads nothing.
std::string plan_page_html(const Json& figures);

/// Writes the page and commits the file. Errors: "PATH: reason".
Result<void> write_plan_page(AtomicFile& file, const PlanPage& page);

}  // namespace stow
