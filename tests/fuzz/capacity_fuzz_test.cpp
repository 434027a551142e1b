// Random programs over memory kinds and capacities: a plan for more memory is never worse.
//
// STOW_FUZZ_COUNT programs (8 of each kind) from STOW_FUZZ_SEED (1) on; STOW_FUZZ_FORK=1 runs each
// in a process of its own. A seed that fails is made smaller and written to
// capacity-fuzz-KIND-SEED.txt.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "stowage/ir/print.h"
#include "stowage/session/compile.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/null/built_in_devices.h"
#include "stowage/runtime/null/simulate.h"
#include "tests/fuzz/child_process.h"
#include "tests/fuzz/random_program.h"
#include "tests/fuzz/random_step.h"
#include "tests/fuzz/shrink.h"

namespace stow {
namespace {

using testing::RandomProgram;

// A step may take so much longer than one that was found for less memory: a search ends where a
// step is within 3 % of its busiest stream (`hides_well`), and that stream has some launches more
// or fewer by how work is tiled.
constexpr double kAsFast = 1.05;

double step_s(const Executable& program) {
  return simulate(program.schedule(), *common_cpu()).step_s;
}

CompileOptions options_of(const RandomProgram& program) {
  constexpr int64_t kTiles[] = {kTileBytes, kTileBytes, 1 << 14, 256, 32};
  const size_t n = program.graph.n_nodes();
  CompileOptions options;
  options.donated = program.donated;
  options.donated.resize(program.graph.inputs().size(), false);
  options.tile_bytes = kTiles[n % std::size(kTiles)];
  options.transfers_ahead = n % 4 == 0 ? 0 : 377;
  return options;
}

// What does not hold; empty when all does. Capacities rise; of those before, the least that was
// needed and the fastest that fitted are remembered.
std::string check_kind(const RandomProgram& program, MemoryKind limited) {
  CompileOptions options = options_of(program);
  const auto kind = static_cast<size_t>(limited);
  const auto compiled = [&](int64_t capacity) {
    options.capacities[kind] = capacity;
    return compile(program.graph, options, 1);
  };
  const auto needed_by = [&](const ExecutablePtr& p) {
    return p->memory_analysis().kinds[kind].total_bytes;
  };
  int64_t least = needed_by(compiled(1));
  if (least == 0) return "";
  std::optional<int64_t> fitting;
  ExecutablePtr fastest;
  int64_t fastest_at = 0;
  const auto base = static_cast<double>(least);
  for (const double share : {0.6, 0.97, 1.0, 1.03, 1.1, 1.3, 1.7, 3.0}) {
    const auto capacity = static_cast<int64_t>(base * share);
    const ExecutablePtr p = compiled(capacity);
    const int64_t needed = needed_by(p);
    const bool fits = needed <= capacity;
    if (fitting && !fits)
      return fmt::format("misses a plan that fits: {} {} needed of a capacity of {}, where {} fits",
                         needed, memory_kind_name(limited), capacity, *fitting);
    // A packing may leave so much more between a plan's bytes and what its order needs at least.
    if (!fits && static_cast<double>(needed) > (1 + kGoodGap) * static_cast<double>(least))
      return fmt::format("needs more: {} {} of a capacity of {}, where less capacity needs {}",
                         needed, memory_kind_name(limited), capacity, least);
    if (!fits && capacity >= least)
      return fmt::format("misses what was refused: {} {} needed of a capacity of {}, {} before",
                         needed, memory_kind_name(limited), capacity, least);
    least = std::min(least, needed);
    if (!fits) continue;
    if (!fitting) fitting = capacity;
    if (kind != 0 ||
        p->memory_analysis().host().total_bytes + p->memory_analysis().disk().total_bytes == 0)
      continue;
    if (!fastest) {
      fastest = p;
      fastest_at = capacity;
      continue;
    }
    const double time = step_s(*p) / step_s(*fastest);
    if (time > kAsFast)
      return fmt::format("is slower by {:.3f} with a capacity of {} than with {}", time - 1,
                         capacity, fastest_at);
    if (time < 1) {
      fastest = p;
      fastest_at = capacity;
    }
  }
  return "";
}

std::string check(const RandomProgram& program) {
  try {
    for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost})
      if (std::string fault = check_kind(program, kind); !fault.empty()) return fault;
  } catch (const std::exception& error) {
    return fmt::format("exception: {}", error.what());
  }
  return "";
}
std::string judge(const RandomProgram& program) {
  return testing::forks_checks() ? testing::check_in_child_process([&] { return check(program); })
                                 : check(program);
}

std::string report(const char* kind, uint64_t seed, RandomProgram program,
                   const std::string& fault) {
  program.forward.reset();
  for (testing::Bytes& bytes : program.inputs) bytes.clear();  // nothing is run
  const std::string fault_kind = testing::kind_of(fault);
  const RandomProgram small = testing::shrink(
      program,
      [&](const RandomProgram& candidate) {
        return testing::kind_of(judge(candidate)) == fault_kind;
      },
      static_cast<int>(testing::environment("STOW_FUZZ_SHRINK", 100)));
  std::string text = fmt::format("seed {} of {}: {}\nmade smaller: {}\n{}", seed, kind, fault,
                                 judge(small), print(small.graph));
  std::ofstream(fmt::format("capacity-fuzz-{}-{}.txt", kind, seed)) << text;
  return text;
}

struct ProgramKind {
  const char* name;
  RandomProgram (*make)(uint64_t seed);
};
class CapacityFuzz : public ::testing::TestWithParam<ProgramKind> {};

TEST_P(CapacityFuzz, AllLargerCapacitiesAreAsGood) {
  const auto& [kind, make] = GetParam();
  const uint64_t first = testing::environment("STOW_FUZZ_SEED", 1),
                 count = testing::environment("STOW_FUZZ_COUNT", 8);
  int n_failed = 0, n_moving = 0;
  for (uint64_t seed = first; seed < first + count && n_failed < 20; ++seed) {
    testing::set_crash_note(fmt::format("seed {} of {}", seed, kind));
    const RandomProgram program = make(seed);
    n_moving += std::any_of(program.graph.nodes().begin(), program.graph.nodes().end(),
                            [](const Node& n) { return n.op == OpKind::kDevicePut; });
    if (const std::string fault = judge(program); !fault.empty()) {
      ADD_FAILURE() << report(kind, seed, program, fault);
      ++n_failed;
    }
  }
  EXPECT_GT(n_moving, static_cast<int>(count / 5)) << "programs that move something";
}

INSTANTIATE_TEST_SUITE_P(Of, CapacityFuzz,
                         ::testing::Values(ProgramKind{"programs", testing::random_program},
                                           ProgramKind{"steps", testing::random_step}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stow
