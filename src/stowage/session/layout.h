// The layout of one graph: a schedule for each order strategy, lower bounds, and the best layout.
// Not a choice among graphs (plan_search.h), and without moves ahead (overlap.h).
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/lower.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/device.h"

namespace stow {

/// A schedule and its layout.
struct Planned {
  Schedule schedule;
  MemoryPlan plan;
};

/// A graph after passes/repeat_summands.h, lowered once for each order strategy.
class OrderedGraph {
 public:
  /// Lowers the graph with every strategy of passes/order.h; with the first only if !options.reuse,
  /// because the order then does not matter.
  OrderedGraph(const Graph& graph, const LowerOptions& options);

  /// Returns a lower bound on the shortfall of any layout of any order.
  int64_t least_shortfall(const Device::Capacities& capacities) const;

  /// Returns a lower bound on the device bytes of any layout of any order.
  int64_t least_device_bytes() const;
  /// The graph that was lowered.
  const Graph& graph() const { return graph_; }
  /// The schedules by order strategy.
  const std::vector<Schedule>& schedules() const { return schedules_; }

  /// Returns the layout with the best score (plan_score.h). Sets `lowering` to the options of that
  /// layout.
  Planned lay_out(const Device::Capacities& capacities, LowerOptions& lowering) &&;

 private:
  // Returns quick layouts by order; none for an order whose bound shows that it cannot be best.
  std::vector<std::optional<MemoryPlan>> trial_plans(const Device::Capacities& capacities) const;

  Graph graph_;
  LowerOptions options_;
  std::vector<Schedule> schedules_;  // by order
  std::vector<PeakBound> bounds_;
};

}  // namespace stow
