// The plan search: chooses the place of updates, tiles, resident values, order and moves ahead.
// Not the passes themselves, nor those that every plan goes through (fixed_passes.h).
#pragma once

#include "stowage/base/inside.h"
#include "stowage/runtime/target.h"
#include "stowage/session/compile.h"
#include "stowage/session/layout.h"
#include "stowage/session/overlap.h"

namespace stow {

/// The result of a plan search.
struct FoundPlan {
  Graph updates;  ///< The graph after updates have been placed.
  Graph tiled;    ///< `updates` with streamed work in tiles; `planned` is made from it.
  Planned planned;
};

/// Returns the options with which passes/lower.h lowers plans.
LowerOptions lowering_options(const CompileOptions& options, const Target& target);

/// Bounds of the work of a search in all its stages. Tests use smaller ones.
struct PlanSearchLimits {
  /// Nodes of all graphs that are lowered, and instants of all plans that overlap() searches. Beyond
  /// either, no target between the first and the smallest is tried; those two always are. Steps of
  /// some hundred nodes do not reach them.
  int64_t lowered_nodes = 300'000, overlapped_instants = 4'000;
  int repeated_rounds = 8;  ///< Rounds of passes/repeat_work.h.
  OverlapLimits overlap;    ///< Bounds of one overlap() call.
  /// Placements that find_fastest() plans with all moves ahead because their expected step is
  /// shorter than the best. Later ones must be shorter already with few moves ahead.
  size_t expected_placements = 2;
};

/// Chooses a plan for a graph after the fixed passes. Candidates are derived from *targets*: sizes
/// of the device's memory, powers of two at or below its capacity. The targets of a smaller
/// capacity are thus targets of a larger one. So if the search finds a plan for some capacity, it
/// finds one for every larger capacity. If no candidate fits, the result is the one with the
/// smallest shortfall, and it needs no more bytes than the result for a smaller capacity. If a plan
/// fits but compute waits for moves, a target nearer to the capacity is tried, too.
///
/// Candidates are compared by their scores (plan_score.h); those whose moves may run ahead have
/// step times. The search stops at a plan that fits and hides its moves. It goes on to smaller
/// targets if none fits, or, within a budget of work, if compute waits for moves. A bound that ends
/// the search is a sentence in the plan's `limits`.
FoundPlan search_plan(const Graph& graph, const CompileOptions& options, const Target& target,
                      const PlanSearchLimits& limits = {});

}  // namespace stow
