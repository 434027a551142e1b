// Schedules by hand whose simulated times are known.
#include "stowage/runtime/null/simulate.h"

#include <gtest/gtest.h>

#include <chrono>

#include "stowage/runtime/null/kernel_cost.h"
#include "stowage/runtime/null/order_bound.h"
#include "tests/support/schedule_kit.h"

namespace stow {
namespace {

using testing::guarded;
using testing::round_device;
using testing::ScheduleKit;

constexpr MemoryKind kDevice = MemoryKind::kDevice, kHost = MemoryKind::kPinnedHost,
                     kDisk = MemoryKind::kDisk;

Simulation run(ScheduleKit& kit, std::vector<Instruction> instructions,
               const SimulateOptions& options = {}) {
  return simulate(kit.schedule(std::move(instructions)), round_device(), options);
}
double ms(double seconds) {
  return 1e3 * seconds;
}
// What simulate() gives, and what it must not be taken for.
void expect_times(const Simulation& s, double step_ms, double compute_ms) {
  EXPECT_DOUBLE_EQ(ms(s.step_s), step_ms);
  EXPECT_DOUBLE_EQ(ms(s.compute_busy_s()), compute_ms);
  EXPECT_NEAR(ms(s.exposed_s), step_ms - compute_ms, 1e-9);
}

TEST(Simulate, KernelsAddUp) {
  ScheduleKit k;
  const Simulation s = run(k, {k.dot(3), k.dot(4)});
  expect_times(s, 7, 7);
  EXPECT_EQ(s.stream(StreamKind::kCompute).runs, 2);
  EXPECT_DOUBLE_EQ(s.bound_s, s.step_s);
  EXPECT_TRUE(s.every_run);
}

TEST(Simulate, NothingTakesNoTime) {
  ScheduleKit k;
  expect_times(run(k, {}), 0, 0);
}

TEST(Simulate, WholeMoveBlocksCompute) {
  ScheduleKit k;
  const Simulation s = run(k, {k.dot(3), k.move(kHost, kDevice, 5), k.dot(2)});
  expect_times(s, 10, 5);
  EXPECT_DOUBLE_EQ(ms(s.stream(StreamKind::kCopyIn).busy_s), 5);
  EXPECT_EQ(s.stream(StreamKind::kCopyIn).bytes, 20);
  EXPECT_EQ(s.stream(StreamKind::kCompute).bytes, 0);
}

TEST(Simulate, OverlapIsPerfectWhereComputeIsLonger) {
  ScheduleKit k;
  const Simulation s = run(k, {k.start_in(5, 0), k.dot(6), k.done_in(5, 0), k.dot(1)});
  expect_times(s, 7, 7);
  EXPECT_DOUBLE_EQ(ms(s.stream(StreamKind::kCopyIn).busy_s), 5);
}

TEST(Simulate, WhatComputeDoesNotCoverIsExposed) {
  ScheduleKit k;
  const Simulation s = run(k, {k.start_in(5, 0), k.dot(2), k.done_in(5, 0), k.dot(1)});
  expect_times(s, 6, 3);
  EXPECT_DOUBLE_EQ(ms(s.bound_s), 5);
}

TEST(Simulate, StartWaitsForCompute) {
  ScheduleKit k;
  expect_times(run(k, {k.dot(4), k.start_out(3, 0), k.done_out(3, 0)}), 7, 4);
}

TEST(Simulate, StreamTakesOneAfterAnother) {
  ScheduleKit k;
  // The second copy begins when the first has ended, whichever is awaited first.
  const Simulation s = run(k, {k.start_in(5, 0), k.start_in(1, 1), k.done_in(1, 1), k.dot(1),
                               k.done_in(5, 0)});
  expect_times(s, 7, 1);
}

TEST(Simulate, StreamsRunBesideOneAnother) {
  ScheduleKit k;
  const Simulation s =
      run(k, {k.start_in(5, 0), k.start_out(4, 1), k.move(kDisk, kHost, 3, MovePhase::kStart, 2),
              k.move(kDevice, kDisk, 2, MovePhase::kStart, 3), k.dot(1), k.done_in(5, 0),
              k.done_out(4, 1), k.move(kDisk, kHost, 3, MovePhase::kDone, 2),
              k.move(kDevice, kDisk, 2, MovePhase::kDone, 3)});
  expect_times(s, 5, 1);
  EXPECT_DOUBLE_EQ(ms(s.stream(StreamKind::kCopyOut).busy_s), 4);
  EXPECT_DOUBLE_EQ(ms(s.stream(StreamKind::kDiskRead).busy_s), 3);
  EXPECT_DOUBLE_EQ(ms(s.stream(StreamKind::kDiskWrite).busy_s), 2);
}

TEST(Simulate, DoneWaitsForTheOldestStartOfItsNumber) {
  ScheduleKit k;
  expect_times(run(k, {k.start_in(2, 0), k.start_in(6, 0), k.done_in(2, 0), k.dot(3),
                       k.done_in(6, 0)}),
               8, 3);
}

TEST(Simulate, WholeMoveWaitsItsTurnOnTheStream) {
  ScheduleKit k;
  expect_times(run(k, {k.start_in(4, 0), k.move(kHost, kDevice, 2), k.done_in(4, 0)}), 6, 0);
}

TEST(Simulate, MoveThatNothingWaitsForEndsBeforeTheStep) {
  ScheduleKit k;
  expect_times(run(k, {k.dot(1), k.start_out(5, 0)}), 6, 1);
}

TEST(Simulate, LatencyAndRatesOfEachDirection) {
  DeviceDescription d = round_device();
  d.link = {.to_device = 8000, .to_host = 2000, .latency_s = 0.001};
  d.disk = {.read = 16000, .write = 1000, .latency_s = 0.002};
  const double bytes = 40;
  EXPECT_DOUBLE_EQ(ms(move_seconds(d, kHost, kDevice, bytes)), 5);
  EXPECT_DOUBLE_EQ(ms(move_seconds(d, kDevice, kHost, bytes)), 20);
  EXPECT_DOUBLE_EQ(ms(move_seconds(d, kDisk, kHost, bytes)), 2 + 2.5);
  EXPECT_DOUBLE_EQ(ms(move_seconds(d, kDisk, kDevice, bytes)), 2 + 2.5);
  EXPECT_DOUBLE_EQ(ms(move_seconds(d, kHost, kDisk, bytes)), 2 + 40);
  EXPECT_DOUBLE_EQ(ms(move_seconds(d, kHost, kHost, bytes)), 20);
  // The link's latency of the second copy lies beside the first; the disk's keeps it busy.
  ScheduleKit k;
  expect_times(simulate(k.schedule({k.start_in(10, 0), k.start_in(10, 1), k.done_in(10, 1)}), d),
               1 + 5 + 5, 0);
  ScheduleKit k2;
  expect_times(simulate(k2.schedule({k2.move(kDisk, kDevice, 10), k2.move(kDisk, kDevice, 10)}), d),
               2 * (2 + 2.5), 0);
}

// The next iteration's operand comes while this one computes.
std::vector<Instruction> prefetching(ScheduleKit& k, int64_t n, int64_t compute, int64_t copy,
                                     int64_t ahead) {
  std::vector<Instruction> all;
  for (int64_t i = 0; i < ahead; ++i) all.push_back(k.start_in(copy, 0));
  all.push_back(k.loop(n, {guarded(k.start_in(copy, 0), 0, n - ahead), k.done_in(copy, 0),
                           k.dot(compute)}));
  return all;
}

TEST(Simulate, GuardedStartsPrefetch) {
  ScheduleKit k;
  const Simulation s = run(k, prefetching(k, 10, 5, 3, 1));
  // The first copy cannot be covered, all others are.
  expect_times(s, 3 + 10 * 5, 50);
  EXPECT_EQ(s.stream(StreamKind::kCopyIn).runs, 10);
}

TEST(Simulate, LinkThatIsTheLongerOneSetsThePace) {
  ScheduleKit k;
  expect_times(run(k, prefetching(k, 10, 3, 5, 1)), 10 * 5 + 3, 30);
}

TEST(Simulate, GuardsInABranchSpeakOfTheLoopAround) {
  ScheduleKit k;
  const Simulation s = run(k, {k.loop(6, {k.branch({{guarded(k.dot(2), 1, 3)}})})});
  expect_times(s, 4, 4);
}

TEST(Simulate, GuardOnALoopCountsTheLoopAround) {
  ScheduleKit k;
  expect_times(run(k, {k.loop(6, {guarded(k.loop(4, {k.dot(1)}), 5, 9)})}), 4, 4);
}

TEST(Simulate, LongLoopsAreMultipliedOut) {
  for (const auto& [compute, copy, ahead] :
       {std::array<int64_t, 3>{5, 3, 1}, {3, 5, 2}, {4, 4, 3}, {7, 1, 4}}) {
    const int64_t n = 1'000'000'000;
    ScheduleKit k;
    const auto begin = std::chrono::steady_clock::now();
    const Simulation s = run(k, prefetching(k, n, compute, copy, ahead));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
    EXPECT_LT(s.walked, 1000);
    EXPECT_TRUE(s.exact);
    const double longer = static_cast<double>(std::max(compute, copy));
    EXPECT_NEAR(ms(s.step_s),
                static_cast<double>(n) * longer + static_cast<double>(std::min(compute, copy)),
                100);
    EXPECT_EQ(s.stream(StreamKind::kCopyIn).runs, n);
    EXPECT_EQ(s.stream(StreamKind::kCopyIn).bytes, static_cast<double>(4 * copy * n));
  }
}

TEST(Simulate, LoopOfHeavyKernelsDoesNotOverflow) {
  ScheduleKit k;
  const int64_t n = int64_t{1} << 40;
  const Simulation s = run(k, {k.loop(n, {k.loop(1000, {k.dot(1'000'000)})})});
  EXPECT_NEAR(s.step_s / (static_cast<double>(n) * 1e6), 1, 1e-9);
}

TEST(Simulate, LoopThatOnlyFillsAStreamIsCarriedOn) {
  ScheduleKit k;
  SimulateOptions options;
  options.max_walked = 1000;
  // Nothing waits for the copies: what is under way grows from iteration to iteration.
  const Simulation s = run(k, {k.loop(100'000, {k.start_out(3, 0), k.dot(1)})}, options);
  EXPECT_FALSE(s.exact);
  EXPECT_LT(s.walked, 10'000);
  EXPECT_NEAR(ms(s.compute_busy_s()), 100'000, 1e-6);
  EXPECT_NEAR(ms(s.stream(StreamKind::kCopyOut).busy_s), 300'000, 1e-6);
}

TEST(Simulate, BranchTakesTheLongestAlternative) {
  ScheduleKit k;
  const Simulation s = run(k, {k.branch({{k.dot(1)}, {k.dot(2), k.dot(3)}, {}})});
  expect_times(s, 5, 5);
  EXPECT_FALSE(s.every_run);
}

TEST(Simulate, OpenLoopChecksOnceMore) {
  for (const int64_t n : {0, 1, 3}) {
    ScheduleKit k;
    SimulateOptions options;
    options.open_iterations = n;
    const Simulation s = run(k, {k.open_loop({k.dot(1)}, {k.dot(10)}), k.dot(100)}, options);
    expect_times(s, 100 + 11 * static_cast<double>(n) + 1, 100 + 11 * static_cast<double>(n) + 1);
    EXPECT_FALSE(s.every_run);
  }
}

TEST(Simulate, EventsSayWhatRanWhen) {
  ScheduleKit k;
  Schedule schedule = k.schedule(
      {k.start_in(5, 0), k.loop(2, {k.dot(1)}), k.done_in(5, 0), k.move(kDevice, kHost, 2)});
  SimulateOptions options;
  options.max_events = 100;
  const Simulation s = simulate(schedule, round_device(), options);
  ASSERT_EQ(s.events.size(), 5u);
  const auto is = [&](size_t i, StreamKind stream, double begin, double end) {
    EXPECT_EQ(s.events[i].stream, stream) << i;
    EXPECT_EQ(s.events[i].instant, static_cast<int64_t>(i));
    EXPECT_DOUBLE_EQ(ms(s.events[i].begin_s), begin) << i;
    EXPECT_DOUBLE_EQ(ms(s.events[i].end_s), end) << i;
  };
  is(0, StreamKind::kCopyIn, 0, 5);
  is(1, StreamKind::kCompute, 0, 1);
  is(2, StreamKind::kCompute, 1, 2);
  is(3, StreamKind::kCompute, 2, 5);
  is(4, StreamKind::kCopyOut, 5, 7);
  options.max_events = 2;
  EXPECT_EQ(simulate(schedule, round_device(), options).events.size(), 2u);
}

TEST(Simulate, CopiesSlowWhatRunsBesideThem) {
  DeviceDescription d = round_device();
  d.link.slows_compute = 0.5;
  d.disk.slows_compute = 0.25;
  ScheduleKit k;
  // 4 ms beside both at a quarter, 2 ms beside the copy at a half, then 3 ms alone: 1 + 1 + 3.
  const Simulation s = simulate(
      k.schedule({k.start_in(6, 0), k.move(kDisk, kHost, 4, MovePhase::kStart, 1), k.dot(5),
                  k.done_in(6, 0), k.move(kDisk, kHost, 4, MovePhase::kDone, 1)}),
      d);
  expect_times(s, 9, 9);
  EXPECT_DOUBLE_EQ(ms(s.bound_s), 9);  // 5 of compute, 6 / 2 and 4 / 4 that the copies take
}

TEST(Simulate, TheBoundIsOfTheBusiestStreamAndOfWhatCopiesTake) {
  DeviceDescription d = round_device();
  const auto bound = [&](double compute, double in, double read) {
    std::array<double, kNumStreams> work_s{};
    work_s[static_cast<size_t>(StreamKind::kCompute)] = compute;
    work_s[static_cast<size_t>(StreamKind::kCopyIn)] = in;
    work_s[static_cast<size_t>(StreamKind::kDiskRead)] = read;
    return step_bound_s(work_s, d);
  };
  EXPECT_DOUBLE_EQ(bound(5, 2, 7), 7);
  d.link.slows_compute = 0.5;
  EXPECT_DOUBLE_EQ(bound(5, 2, 0), 6);
  EXPECT_DOUBLE_EQ(bound(5, 2, 7), 7);
  // Together they would take more than all: compute keeps a twentieth.
  d.disk.slows_compute = 0.75;
  EXPECT_DOUBLE_EQ(bound(10, 2, 4), 10 + 0.95 / 1.25 * (2 * 0.5 + 4 * 0.75));
}

TEST(Simulate, MovedBytesNeedNoDevice) {
  ScheduleKit k;
  const auto streams = moved_bytes(
      k.schedule({k.loop(7, {k.start_in(5, 0), k.dot(1), k.done_in(5, 0)}), k.start_out(3, 1)}));
  EXPECT_EQ(streams[static_cast<size_t>(StreamKind::kCopyIn)].bytes, 7 * 20);
  EXPECT_EQ(streams[static_cast<size_t>(StreamKind::kCopyIn)].runs, 7);
  EXPECT_EQ(streams[static_cast<size_t>(StreamKind::kCopyOut)].bytes, 12);
}

TEST(Simulate, MeasuredTimesStandBeforeTheDescription) {
  ScheduleKit k;
  SimulateOptions options;
  options.measured_s = [](const Kernel& kernel, int64_t run) {
    if (kernel.op != OpKind::kDotGeneral || kernel.inputs[0].dims[0] != 3) return -1.0;
    return 0.5 + 0.001 * static_cast<double>(run);
  };
  expect_times(run(k, {k.loop(3, {k.dot(3)}), k.dot(4)}, options), 1507, 1507);
}

// --- the cost of kernels

Kernel rows(const RowProgram& program) {
  Kernel kernel;
  kernel.kind = KernelKind::kRows;
  kernel.program = std::make_shared<const RowProgram>(program);
  return kernel;
}

TEST(KernelCost, RowProgramsAreCountedStepByStep) {
  // exp(x - max(x)) * scale, over 10 rows of 100; `scale` is one a row.
  RowProgram p;
  p.dims = {10, 100};
  p.n_row_dims = 1;
  p.inputs = {{DType::kBF16, {100, 1}}, {DType::kF32, {1, 0}}};
  p.outputs = {{DType::kF32, {100, 1}}};
  p.steps = {{.kind = StepKind::kLoad, .index = 0},
             {.kind = StepKind::kLoad, .index = 1},
             {.kind = StepKind::kReduceRow, .op = OpKind::kReduceMax, .args = {0, -1, -1}},
             {.kind = StepKind::kCompute, .op = OpKind::kSub, .args = {0, 2, -1}},
             {.kind = StepKind::kCompute, .op = OpKind::kExp, .args = {3, -1, -1}},
             {.kind = StepKind::kCompute, .op = OpKind::kSqrt, .args = {1, -1, -1}},
             {.kind = StepKind::kCompute, .op = OpKind::kMul, .args = {4, 5, -1}},
             {.kind = StepKind::kStore, .index = 0, .args = {6, -1, -1}}};
  const KernelCost work = kernel_cost(rows(p), {});
  EXPECT_EQ(work.bytes, 1000 * 2 + 10 * 4 + 1000 * 4);
  EXPECT_EQ(work.vector_ops, 1000 + 1000 + 1000);  // max, sub, mul
  EXPECT_EQ(work.special_ops, 1000 + 10);          // exp of all, the root of one a row
  EXPECT_EQ(work.product_flops, 0);
  EXPECT_EQ(work.stream(), StreamKind::kCompute);
}

double order_bound_ms(ScheduleKit& kit, std::vector<Instruction> instructions) {
  return ms(*order_bound(kit.schedule(std::move(instructions)), round_device()));
}
// The second reads what the first wrote.
Instruction reading(Instruction second, const Instruction& first) {
  second.edit_kernel()->inputs[0].buffer = first.kernel()->outputs[0].buffer;
  return second;
}

TEST(OrderBound, NothingWaitsForASlotToBeFree) {
  ScheduleKit k;
  // One staging buffer, so nothing runs beside anything; without end of memory the copies would.
  const Instruction in = k.move(kHost, kDevice, 4);
  const std::vector<Instruction> all = {k.loop(5, {in, reading(k.dot(3), in)})};
  EXPECT_DOUBLE_EQ(order_bound_ms(k, all), 5 * 4 + 3);
}

TEST(OrderBound, WhatIsReadMustHaveBeenWritten) {
  for (const int64_t between : {1, 20}) {
    ScheduleKit k;
    const Instruction made = k.dot(2), out = reading(k.move(kDevice, kHost, 5), made),
                      in = reading(k.move(kHost, kDevice, 3), out);
    const std::vector<Instruction> all = {made, out, k.dot(between), in, reading(k.dot(1), in)};
    EXPECT_DOUBLE_EQ(order_bound_ms(k, all), std::max<int64_t>(2 + 5 + 3, 2 + between) + 1);
  }
}

TEST(OrderBound, SlicesAreToldApart) {
  for (const int64_t slot : {0, 1}) {
    ScheduleKit k;
    const Instruction both = k.move(kDevice, kHost, 8);
    Instruction out = k.move(kDevice, kHost, 4), in = k.move(kHost, kDevice, 4);
    out.edit_kernel()->outputs[0].buffer = in.edit_kernel()->inputs[0].buffer =
        both.kernel()->outputs[0].buffer;
    in.edit_kernel()->inputs[0].offset_bytes = slot * 16;
    const std::vector<Instruction> all = {out, in, reading(k.dot(1), in)};
    EXPECT_DOUBLE_EQ(order_bound_ms(k, all), slot == 0 ? 9 : 5);
  }
}

TEST(OrderBound, TooMuchIsNotGoneThrough) {
  ScheduleKit k;
  const Schedule schedule = k.schedule({k.loop(10, {k.dot(1)})});
  EXPECT_FALSE(order_bound(schedule, round_device(), {.max_walked = 9}));
  EXPECT_TRUE(order_bound(schedule, round_device(), {.max_walked = 10}));
}

TEST(KernelCost, RooflineTakesTheLonger) {
  DeviceDescription d = round_device();
  d.compute.launch_s = 0.25;
  KernelCost work;
  work.vector_ops = 1000;  // a second
  work.bytes = 100;
  EXPECT_DOUBLE_EQ(kernel_seconds(work, d), 1.25);
  d.memory.bandwidth = 100;
  d.memory.achievable = 0.5;
  EXPECT_DOUBLE_EQ(kernel_seconds(work, d), 2.25);
  d.memory.cache = 100;
  d.memory.cache_bandwidth = 1000;
  EXPECT_DOUBLE_EQ(kernel_seconds(work, d), 1.25);
  work.bytes = 101;
  EXPECT_DOUBLE_EQ(kernel_seconds(work, d), 2.27);
}

TEST(KernelCost, ProductsHaveTheRateOfTheirDType) {
  DeviceDescription d = round_device();
  d.compute.achievable = 0.5;
  d.compute.attention_achievable = 0.25;
  KernelCost work;
  work.product_flops = 1000;
  const auto seconds = [&](DType t) {
    work.product_dtype = t;
    return kernel_seconds(work, d);
  };
  EXPECT_DOUBLE_EQ(seconds(DType::kF32), 1);
  EXPECT_DOUBLE_EQ(seconds(DType::kBF16), 0.5);
  EXPECT_DOUBLE_EQ(seconds(DType::kF64), 2);
  EXPECT_DOUBLE_EQ(seconds(DType::kI32), 1);  // no product unit
  work.attention = true;
  EXPECT_DOUBLE_EQ(seconds(DType::kF32), 2);
}

TEST(KernelCost, UpdateElsewhereCopiesTheRest) {
  ScheduleKit k;
  Kernel kernel;
  kernel.op = OpKind::kDynamicUpdateSlice;
  const Instruction big = k.move(kDevice, kDevice, 1000), small = k.move(kDevice, kDevice, 10);
  kernel.inputs = {big.kernel()->inputs[0], small.kernel()->inputs[0]};
  kernel.outputs = {kernel.inputs[0]};
  const Schedule schedule = k.schedule({});
  EXPECT_EQ(kernel_cost(kernel, schedule).bytes, 80);
  kernel.outputs = {big.kernel()->outputs[0]};
  EXPECT_EQ(kernel_cost(kernel, schedule).bytes, 8080);
}

}  // namespace
}  // namespace stow
