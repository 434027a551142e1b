// The memory plan of a training run as one HTML page: who owns which bytes when, and what would need
// less. Not the report on the terminal; describe.cpp has that, with the same figures.
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
  const JobPlan& plan;  ///< The chosen plan; of a refusal, the one that lacks least.
  const Json& report;   ///< The object that `plan --json` writes.
  std::span<const Remedy> remedies;   ///< All shown with what they would need.
  std::span<const Shortfall> near;    ///< Shortfalls of a refusal; else empty.
  std::span<const SweepRow> sweep = {};  ///< The meshes that the plan was chosen from; else empty.
};

/// The figures of the page: {"report": …, "programs": [{"name", "kinds": [{"kind", "total_bytes",
/// "instants", "owners": [{"use", "what", "source", "peak_bytes", "bytes"}], …}]}], "remedies", …}.
/// A sweep also has {"sweep": [to_json(SweepRow), …]}.
/// The series `bytes` are runs: value, length, value, length. Its size is bounded: a chart has at most
/// 400 columns and 24 owners, the smaller ones merged by what they serve; texts are cut at 200 bytes and
/// lists at 256 entries.
Json plan_page_json(const PlanPage& page);

/// The page of these figures, whole: style and script within, nothing from a network.
std::string plan_page_html(const Json& figures);

/// Writes the page and commits the file. Errors: "PATH: reason".
Result<void> write_plan_page(AtomicFile& file, const PlanPage& page);

}  // namespace stow
