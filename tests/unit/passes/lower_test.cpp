// Units that lowerings share are those that each would find.
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_printer.h"
#include "stowage/passes/lower.h"
#include "stowage/stowage.h"
#include "tests/support/realized.h"

namespace stow {
namespace {

// Two scans whose order is free, one with a scan inside, and their gradients.
Graph two_scans() {
  const auto layer = [](const Array& x, const Array& w) { return tanh(matmul(x, w)); };
  const auto loss = [&](const Array& ws, const Array& x) {
    const Array once = scan(layer, x, ws);
    const auto twice = [&](const Array& h, const Array& w) {
      return scan(layer, h, broadcast_to(w, {2, 8, 8})) + sum(h, {1}, true);
    };
    return sum(once) * sum(scan(twice, transpose(x), ws));
  };
  return testing::realized(
      jit(grad(loss)).lower(Array::abstract({3, 8, 8}), Array::abstract({8, 8})).graph());
}

TEST(UnitCache, ChangesNoSchedule) {
  const Graph graph = two_scans();
  LowerOptions alone, shared;
  shared.unit_cache = make_unit_cache();
  for (int round = 0; round < 2; ++round)
    for (int order = 0; order < kNumOrderStrategies; ++order)
      for (const bool apart : {false, true}) {
        alone.order = shared.order = static_cast<OrderStrategy>(order);
        alone.places_per_iteration = shared.places_per_iteration = apart;
        EXPECT_EQ(print(lower(graph, shared)), print(lower(graph, alone))) << order << apart;
      }
}

}  // namespace
}  // namespace stow
