// A step whose weights lie on the host, and a look at the moves of a schedule, for tests of searches.
// Not a random program; those are in tests/fuzz.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/stowage.h"

namespace stow::testing {

/// Returns the traced graph of a training step of `n` weights [width, width] in pinned host memory,
/// which are updated there, over an input [rows, width].
inline Graph offloaded_step_graph(size_t n, int64_t width, int64_t rows) {
  using Arrays = std::vector<Array>;
  const auto step = [](const Arrays& w, const Array& x) {
    const auto loss = [&](const Arrays& w) {
      Array h = x;
      for (const Array& v : w) h = tanh(matmul(h, device_put(v, MemoryKind::kDevice)));
      return sum(square(h));
    };
    Arrays next = grad(loss)(w);
    for (size_t i = 0; i < w.size(); ++i)
      next[i] = device_put(device_put(w[i], MemoryKind::kDevice) -
                               0.1 * device_put(next[i], MemoryKind::kDevice),
                           MemoryKind::kPinnedHost);
    return next;
  };
  const ArrayType weight{DType::kF32, Shape{width, width}, MemoryKind::kPinnedHost};
  const Arrays w(n, Array::abstract(weight));
  return jit(step).lower(w, Array::abstract({rows, width})).graph();
}

/// True if a move of the schedule runs beside other instructions.
inline bool has_moves_ahead(const Schedule& schedule) {
  bool has = false;
  for_each_kernel(schedule.instructions,
                  [&](const Kernel& k) { has = has || k.phase == MovePhase::kStart; });
  return has;
}

}  // namespace stow::testing
