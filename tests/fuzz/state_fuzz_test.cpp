// Random states of one to a thousand arrays on any memory: what the device needs grows with them
// and never jumps where a pass has more to do.
//
// STOW_FUZZ_STATES states (8) from STOW_FUZZ_SEED (1) on.
#include <gtest/gtest.h>

#include "stowage/base/bytes.h"
#include "stowage/base/inside.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/session/compile.h"
#include "tests/fuzz/child_process.h"
#include "tests/fuzz/random_state.h"
#include "tests/support/execute.h"

namespace stow {
namespace {

using testing::environment;
using testing::random_state;
using testing::RandomState;

int64_t temp_bytes(const RandomState& state, int transfers_ahead) {
  CompileOptions options;
  options.donated = state.program.donated;
  options.transfers_ahead = transfers_ahead;
  return compile(state.program.graph, options, 1)->memory_analysis().device().temp_bytes;
}

// Every array that came takes on the device what stands in no argument's memory: a weight that was
// moved there waits for its gradient, and a gradient waits until the norm of all is known. Beside
// those a few arrays are on their way, however many there are.
constexpr int64_t kOnTheirWay = 3;

void check_growth(uint64_t seed, int n, int transfers_ahead) {
  const RandomState half = random_state(seed, n / 2, false), whole = random_state(seed, n, false);
  const int64_t more = temp_bytes(whole, transfers_ahead) - temp_bytes(half, transfers_ahead);
  const int64_t of_each = (whole.weights == MemoryKind::kDevice ? 0 : 1) + (whole.clipped ? 1 : 0);
  const int64_t allowed = of_each * (whole.array_bytes - half.array_bytes) +
                          kOnTheirWay * whole.largest_bytes;
  EXPECT_LE(more, allowed) << fmt::format("{}, {} moves ahead: {} more than {} arrays, allowed {}",
                                          whole.what, transfers_ahead, format_bytes(more), n / 2,
                                          format_bytes(allowed));
}

TEST(StateFuzz, GrowsByWhatItsArraysTake) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_STATES", 8);
  constexpr int kSizes[] = {2, 11, 40, 90, 20, 60, 160, 250};
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const int n = kSizes[seed % std::size(kSizes)];
    check_growth(seed, n, 0);
    if (n <= 20) check_growth(seed, n, CompileOptions().transfers_ahead);
  }
}

TEST(StateFuzz, AThousandArraysGrowAsFewerDo) { check_growth(5, 1000, 0); }

TEST(StateFuzz, IsPlannedAsItRuns) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_STATES", 8);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const RandomState state = random_state(seed, 1 + static_cast<int>(seed * 7 % 10), true);
    const testing::RandomProgram& p = state.program;
    CompileOptions options;
    options.donated = p.donated;
    options.transfers_ahead = seed % 3 == 0 ? 377 : 0;
    options.tile_bytes = seed % 4 == 0 ? 100 : kTileBytes;
    const testing::Execution e = testing::execute(p.graph, options, p.inputs, 1);
    EXPECT_EQ(e.fault, "") << state.what;
    options.fuse = options.reuse = false;
    EXPECT_EQ(e.outputs, testing::execute(p.graph, options, p.inputs, 1).outputs) << state.what;
  }
}

// As for any program (capacity_fuzz_test.cpp): what fits a capacity fits each larger one, and a
// plan that does not fit needs no more than one for less. Moves run ahead in some.
TEST(StateFuzz, LargerCapacitiesAreAsGood) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_STATES", 8);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const RandomState state = random_state(seed, 1 + static_cast<int>(seed % 6), false);
    CompileOptions options;
    options.donated = state.program.donated;
    options.transfers_ahead = seed % 3 == 0 ? 377 : 0;
    const auto needed = [&](int64_t capacity) {
      options.capacities[0] = capacity;
      return compile(state.program.graph, options, 1)->memory_analysis().device().total_bytes;
    };
    int64_t least = needed(1);
    const auto base = static_cast<double>(least);
    bool fitted = false;
    for (const double share : {0.6, 1.0, 1.03, 1.3, 2.0}) {
      const auto capacity = static_cast<int64_t>(base * share);
      const int64_t bytes = needed(capacity);
      EXPECT_TRUE(bytes <= capacity || (!fitted && capacity < least)) << fmt::format(
          "{}: {} needed of a capacity of {} where {} fits", state.what, bytes, capacity, least);
      if (bytes > capacity) {
        EXPECT_LE(static_cast<double>(bytes), (1 + kGoodGap) * static_cast<double>(least))
            << state.what;
      }
      fitted = fitted || bytes <= capacity;
      least = std::min(least, bytes);
    }
    EXPECT_TRUE(fitted) << state.what;
  }
}

}  // namespace
}  // namespace stow
