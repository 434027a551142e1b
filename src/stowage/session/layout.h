// The layout of one graph: its orders, what no layout of them gets below, and the best of them.
// Not a choice among graphs (plan_search.h), and no moves that run ahead (overlap.h).
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

/// Bytes of each kind beyond the capacities, summed; 0: it fits.
int64_t shortfall(const std::array<int64_t, kNumMemoryKinds>& bytes,
                  const Device::Capacities& capacities);
int64_t shortfall(const MemoryAnalysis& analysis, const Device::Capacities& capacities);

/// A graph lowered once an order, its cheap summands made where they are summed (repeat_summands.h).
class OrderedGraph {
 public:
  /// Every order of passes/order.h; one alone where nothing is reused, as no order matters then.
  OrderedGraph(const Graph& graph, const LowerOptions& options);

  /// No layout of any order falls short by less.
  int64_t least_shortfall(const Device::Capacities& capacities) const;

  /// Bytes of the device that no layout of any order gets below.
  int64_t least_device_bytes() const;
  /// The graph that is lowered.
  const Graph& graph() const { return graph_; }
  /// One an order.
  const std::vector<Schedule>& schedules() const { return schedules_; }

  /// The best layout: one that fits, or falls short by least; then one that takes less of the
  /// device. `lowering` becomes the options that gave it.
  Planned lay_out(const Device::Capacities& capacities, LowerOptions& lowering) &&;

 private:
  /// Quick layouts by order; none of an order whose bound shows that it cannot win.
  std::vector<std::optional<MemoryPlan>> trial_plans(const Device::Capacities& capacities) const;

  Graph graph_;
  LowerOptions options_;
  std::vector<Schedule> schedules_;  // by order
  std::vector<PeakBound> bounds_;
};

}  // namespace stow
