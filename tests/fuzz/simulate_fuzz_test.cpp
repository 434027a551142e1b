// Random schedules against the null runtime: what must hold of any simulated step, and that a
// loop's steady state multiplied out is what walking every iteration gives, to the last tick.
//
// STOW_FUZZ_COUNT schedules (300) from STOW_FUZZ_SEED (1) on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "stowage/runtime/null/order_bound.h"
#include "stowage/session/compile.h"
#include "tests/fuzz/random_program.h"
#include "tests/support/schedule_kit.h"

namespace stow {
namespace {

using testing::guarded;
using testing::ScheduleKit;

uint64_t environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Kernels and moves of all streams, whole and in pairs, in loops within loops; pairs run ahead of
// the loops that need them, or end behind those that made them.
class RandomSchedule {
 public:
  explicit RandomSchedule(uint64_t seed) : random_(seed) {}
  Schedule make() { return kit_.schedule(block(3, 6)); }

 private:
  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  // Long loops stand in loops of a few iterations alone, so that walking them all takes no age.
  int64_t length(int depth) { return depth >= 2 && draw(0, 2) == 0 ? draw(20, 300) : draw(1, 9); }

  struct Ends {
    MemoryKind from, to;
  };
  Ends ends() {
    constexpr MemoryKind kDevice = MemoryKind::kDevice, kHost = MemoryKind::kPinnedHost,
                         kDisk = MemoryKind::kDisk;
    constexpr Ends kEnds[] = {{kHost, kDevice}, {kDevice, kHost}, {kDisk, kDevice},
                              {kDevice, kDisk}, {kDisk, kHost},   {kHost, kHost}};
    return kEnds[draw(0, 5)];
  }

  std::vector<Instruction> block(int depth, int64_t n) {
    std::vector<Instruction> body;
    for (int64_t i = draw(1, n); i > 0; --i) append(depth, body);
    return body;
  }

  void append(int depth, std::vector<Instruction>& body) {
    const auto add_all = [&](std::vector<Instruction> more) {
      for (Instruction& i : more) body.push_back(std::move(i));
    };
    switch (draw(0, depth > 0 ? 7 : 3)) {
      case 0:
      case 1: body.push_back(kit_.dot(draw(1, 20))); break;
      case 2: {
        const Ends e = ends();
        body.push_back(kit_.move(e.from, e.to, draw(1, 20)));
        break;
      }
      case 3: {  // a pair around some work
        const Ends e = ends();
        const int64_t size = draw(1, 20);
        const int number = transfer_++;
        body.push_back(kit_.move(e.from, e.to, size, MovePhase::kStart, number));
        if (depth > 0) add_all(block(depth - 1, 3));
        body.push_back(kit_.move(e.from, e.to, size, MovePhase::kDone, number));
        break;
      }
      case 4: body.push_back(kit_.loop(length(depth), block(depth - 1, 4))); break;
      case 5:
        body.push_back(kit_.branch({block(depth - 1, 2), block(depth - 1, 2)}));
        break;
      case 6:  // starts run ahead of the loop
      case 7: {  // dones lag behind it
        const bool ahead = draw(0, 1) == 0;
        const Ends e = ends();
        const int64_t size = draw(1, 20), n = length(depth),
                      distance = draw(0, std::min<int64_t>(n, 3));
        const int number = transfer_++;
        const auto start = [&] { return kit_.move(e.from, e.to, size, MovePhase::kStart, number); };
        const auto done = [&] { return kit_.move(e.from, e.to, size, MovePhase::kDone, number); };
        std::vector<Instruction> inside = block(depth - 1, 3);
        if (ahead) {
          for (int64_t i = 0; i < distance; ++i) body.push_back(start());
          inside.insert(inside.begin(), guarded(start(), 0, n - distance));
          inside.insert(inside.begin() + draw(1, static_cast<int64_t>(inside.size())), done());
        } else {
          inside.insert(inside.begin() + draw(0, static_cast<int64_t>(inside.size())), start());
          inside.push_back(guarded(done(), distance, n));
        }
        body.push_back(kit_.loop(n, std::move(inside)));
        if (!ahead)
          for (int64_t i = 0; i < distance; ++i) body.push_back(done());
        break;
      }
    }
  }

  std::mt19937_64 random_;
  ScheduleKit kit_;
  int transfer_ = 0;
};

DeviceDescription random_device(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  DeviceDescription d = testing::round_device();
  d.compute.launch_s = draw(0, 0.001);
  d.link = {
      .to_device = draw(1000, 9000), .to_host = draw(1000, 9000), .latency_s = draw(0, 0.001)};
  d.disk = {.read = draw(1000, 9000), .write = draw(1000, 9000), .latency_s = draw(0, 0.001)};
  if (seed % 3 == 0) d.link.slows_compute = draw(0, 0.7);
  if (seed % 6 == 0) d.disk.slows_compute = draw(0, 0.7);
  return d;
}

void expect_same(const Simulation& a, const Simulation& b) {
  EXPECT_EQ(a.step_s, b.step_s);
  EXPECT_EQ(a.exposed_s, b.exposed_s);
  EXPECT_EQ(a.bound_s, b.bound_s);
  for (size_t s = 0; s < a.streams.size(); ++s) {
    EXPECT_EQ(a.streams[s].busy_s, b.streams[s].busy_s) << s;
    EXPECT_EQ(a.streams[s].runs, b.streams[s].runs) << s;
    EXPECT_EQ(a.streams[s].bytes, b.streams[s].bytes) << s;
  }
}

// What holds of any step, on any device.
void check(const Schedule& schedule, const DeviceDescription& device) {
  const Simulation s = simulate(schedule, device);
  SimulateOptions walking;
  walking.skips = false;
  walking.max_events = 1 << 22;
  const Simulation walked = simulate(schedule, device, walking);
  EXPECT_TRUE(s.exact);
  ASSERT_EQ(static_cast<int64_t>(walked.events.size()), walked.walked);
  expect_same(s, walked);
  EXPECT_LE(s.walked, walked.walked);
  double sum = 0;
  for (const StreamUse& use : s.streams) {
    EXPECT_LE(use.busy_s, s.step_s * (1 + 1e-12));
    // A copy may wait for the link beside all that, for a whole number of picoseconds.
    sum += use.busy_s + static_cast<double>(use.runs) * (device.link.latency_s + 1e-12);
  }
  EXPECT_LE(s.bound_s, s.step_s * (1 + 1e-12));
  const std::optional<double> in_order = order_bound(schedule, device);
  ASSERT_TRUE(in_order);
  EXPECT_GE(*in_order, s.bound_s * (1 - 1e-6));
  EXPECT_LE(*in_order, s.step_s * (1 + 1e-6));
  EXPECT_LE(s.step_s, sum * (1 + 1e-12));
  EXPECT_GE(s.exposed_s, 0);
  EXPECT_NEAR(s.exposed_s + s.compute_busy_s(), s.step_s, 1e-9 * s.step_s + 1e-12);
  // No stream does two things at once, and nothing begins before compute has come by it.
  std::array<double, kNumStreams> free_s{};
  std::array<double, kNumStreams> busy_s{};
  double reached_s = 0;
  for (const RunEvent& e : walked.events) {
    const auto stream = static_cast<size_t>(e.stream);
    EXPECT_GE(e.begin_s, free_s[stream]);
    EXPECT_GE(e.begin_s, reached_s);
    EXPECT_GE(e.end_s, e.begin_s);
    free_s[stream] = e.end_s;
    if (e.kernel->phase != MovePhase::kDone) busy_s[stream] += e.end_s - e.begin_s;
    if (e.kernel->phase != MovePhase::kStart) reached_s = e.end_s;
  }
  for (size_t s2 = 0; s2 < busy_s.size(); ++s2)
    EXPECT_NEAR(busy_s[s2], walked.streams[s2].busy_s, 1e-9 * s.step_s + 1e-12);
}

TEST(SimulateFuzz, RandomSchedules) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_COUNT", 300);
  int64_t walked = 0, whole = 0;
  for (uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const Schedule schedule = RandomSchedule(seed).make();
    const DeviceDescription device = random_device(seed);
    check(schedule, device);
    SimulateOptions walking;
    walking.skips = false;
    walked += simulate(schedule, device).walked;
    whole += simulate(schedule, device, walking).walked;
  }
  // The steady state was found, and early.
  EXPECT_LT(walked, whole / 2);
}

TEST(SimulateFuzz, CompiledPrograms) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_COUNT", 300) / 20;
  for (uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const testing::RandomProgram program = testing::random_program(seed);
    const ExecutablePtr executable = compile(program.graph, {.donated = program.donated}, 1);
    check(executable->schedule(), random_device(seed));
    check(executable->schedule(), [&] {
      DeviceDescription d = random_device(seed + 1);
      d.memory.bandwidth = 1e4;
      return d;
    }());
  }
}

}  // namespace
}  // namespace stow
