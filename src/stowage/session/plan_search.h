// The plan search: where updates stand, how streamed work is tiled, what stays, in which order, and
// which moves run ahead. Not the passes themselves, nor those that every plan takes (compile.cpp).
#pragma once

#include "stowage/base/inside.h"
#include "stowage/runtime/target.h"
#include "stowage/session/compile.h"
#include "stowage/session/layout.h"
#include "stowage/session/overlap.h"

namespace stow {

/// The result of a plan search.
struct FoundPlan {
  Graph updates;  ///< With its updates where they happen.
  Graph tiled;    ///< And with streamed work in tiles: what `planned` is of.
  Planned planned;
};

/// How the plans of these options are lowered.
LowerOptions lowering_options(const CompileOptions& options, const Target& target);

/// Bounds of a search's work beyond the first target and the smallest: nodes that are lowered for the
/// others, and instants of plans whose moves are overlapped for them. Steps of some hundred nodes are
/// searched whole. Smaller ones are for tests.
struct PlanSearchLimits {
  int64_t lowered_nodes = 300'000;
  int64_t overlapped_instants = 4'000;
  int repeated_rounds = 8;  ///< As repeat_work's (passes/repeat_work.h).
  OverlapLimits overlap;
};

/// Chooses a plan for a graph that the fixed passes have been through. Candidates are derived from
/// *targets*, sizes of the device's memory on a grid that no capacity shifts, at or below the
/// device's capacity: all of a smaller capacity's candidates are a larger one's. So for a larger
/// capacity a plan is found wherever one was found for a smaller one, and where none is, the result
/// is the candidate that falls short by least, by no more bytes than that of the smaller capacity
/// needs. Where a plan fits and moves are waited for, a target nearer to the capacity is tried, too.
///
/// One score: a plan that fits, or falls short by less; where moves may run ahead, the shorter
/// simulated step; else fewer bytes. The search stops at a plan that fits and hides its moves; it
/// goes on to smaller targets where none fits, or within a budget of work where moves are waited
/// for. A bound that ends it is a sentence in the plan's `limits`.
FoundPlan search_plan(const Graph& graph, const CompileOptions& options, const Target& target,
                      const PlanSearchLimits& limits = {});

}  // namespace stow
