// Traces as files, and traces and tables of simulated and real runs.
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/io/json.h"
#include "stowage/ops/build.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/session/compile.h"
#include "stowage/tune/kernel_times.h"
#include "stowage/tune/run_trace.h"
#include "tests/support/schedule_kit.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using testing::guarded;
using testing::round_device;
using testing::ScheduleKit;

// The events of a written file; those of one phase where one is named.
std::vector<Json> events_of(const std::string& path, const std::string& phase) {
  const Result<Json> file = parse_json(read_bytes(path));
  EXPECT_TRUE(file) << file.error();
  std::vector<Json> events;
  for (const Json& event : *file->find("traceEvents")->as_array())
    if (*event.find("ph")->as_string() == phase) events.push_back(event);
  return events;
}
double number(const Json& event, const char* key) {
  return *event.find(key)->as_double();
}

TEST(TraceFile, HoldsTracksSlicesAndCounters) {
  TemporaryFolder folder;
  TraceFile trace;
  trace.name = "a \"run\"";
  trace.tracks = {"compute", "copy in"};
  trace.slices = {{1, "put\n", 0.5, 0.75, {{"source", "layers/\xff"}}}};
  trace.counters = {"device bytes"};
  trace.samples = {{0, 0.25, 4096}, {0, 0.5, 0}};
  const std::string path = folder / "t.json";
  ASSERT_TRUE(write_trace(path, trace));
  const std::vector<Json> slices = events_of(path, "X");
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(*slices[0].find("name")->as_string(), "put\n");
  EXPECT_DOUBLE_EQ(number(slices[0], "ts"), 500'000);
  EXPECT_DOUBLE_EQ(number(slices[0], "dur"), 250'000);
  EXPECT_EQ(*slices[0].find("tid")->as_int(), 2);
  EXPECT_EQ(*slices[0].find("args")->find("source")->as_string(), "layers/\xef\xbf\xbd");
  const std::vector<Json> samples = events_of(path, "C");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(*samples[0].find("name")->as_string(), "device bytes");
  EXPECT_EQ(number(*samples[0].find("args"), "value"), 4096);
  std::vector<std::string> names;
  for (const Json& event : events_of(path, "M"))
    if (const Json* name = event.find("args")->find("name")) names.push_back(*name->as_string());
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "copy in", "a \"run\""}));
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(TraceFile, OfNothingIsStillAFile) {
  TemporaryFolder folder;
  ASSERT_TRUE(write_trace(folder / "t.json", {}));
  EXPECT_TRUE(events_of(folder / "t.json", "X").empty());
  const Result<void> refused = write_trace(folder / "none/t.json", {});
  EXPECT_EQ(refused.error(), (folder / "none/t.json") + ": No such file or directory");
}

TEST(RunTrace, PutsEveryInstructionOnItsStream) {
  ScheduleKit k;
  const Schedule schedule = k.schedule(
      {k.start_in(5, 0), k.dot(2), k.done_in(5, 0), k.start_out(1, 1), k.dot(3), k.done_out(1, 1)});
  SimulateOptions options;
  options.max_events = 100;
  const Simulation s = simulate(schedule, round_device(), options);
  const TraceFile trace = trace_run(schedule, s.events, "step");
  std::vector<std::string> got;
  for (const TraceSlice& slice : trace.slices)
    got.push_back(fmt::format("{}: {} {:.0f}-{:.0f}", trace.tracks[slice.track], slice.name,
                              1e3 * slice.begin_s, 1e3 * slice.end_s));
  // What nobody waited for is no slice.
  EXPECT_EQ(
      got, (std::vector<std::string>{"copy in: device_put 0-5", "compute: dot_general 0-2",
                                     "compute: wait for device_put 2-5", "copy out: device_put 5-6",
                                     "compute: dot_general 5-8"}));
}

TEST(RunTrace, CountersFollowThePlan) {
  ScheduleKit k;
  const Schedule schedule =
      k.schedule({k.dot(10), k.move(MemoryKind::kDevice, MemoryKind::kPinnedHost, 100), k.dot(20)});
  SimulateOptions options;
  options.max_events = 100;
  const Simulation s = simulate(schedule, round_device(), options);
  const TraceFile trace = trace_run(schedule, s.events, "step");
  EXPECT_EQ(trace.counters, (std::vector<std::string>{"device bytes", "pinned_host bytes"}));
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  const std::vector<int64_t> live = live_bytes(schedule, lifetimes, MemoryKind::kDevice);
  std::vector<std::pair<double, double>> got;
  for (const TraceSample& sample : trace.samples)
    if (sample.counter == 0) got.emplace_back(std::nearbyint(1e3 * sample.at_s), sample.value);
  const auto bytes = [&](size_t i) { return static_cast<double>(live[i]); };
  EXPECT_EQ(got, (std::vector<std::pair<double, double>>{
                     {0, bytes(0)}, {10, bytes(1)}, {110, bytes(2)}}));
}

TEST(RunTrace, SummaryOfSimulatedEventsIsTheSimulation) {
  ScheduleKit k;
  const Schedule schedule =
      k.schedule({k.start_in(5, 0), k.dot(2), k.done_in(5, 0),
                  k.move(MemoryKind::kDevice, MemoryKind::kDisk, 4), k.dot(3)});
  SimulateOptions options;
  options.max_events = 100;
  const Simulation s = simulate(schedule, round_device(), options);
  const Simulation summary = summarize_run(schedule, s.events);
  EXPECT_DOUBLE_EQ(summary.step_s, s.step_s);
  EXPECT_DOUBLE_EQ(summary.exposed_s, s.exposed_s);
  EXPECT_DOUBLE_EQ(summary.bound_s, s.bound_s);
  for (size_t i = 0; i < s.streams.size(); ++i) {
    EXPECT_DOUBLE_EQ(summary.streams[i].busy_s, s.streams[i].busy_s);
    EXPECT_EQ(summary.streams[i].runs, s.streams[i].runs);
    EXPECT_EQ(summary.streams[i].bytes, s.streams[i].bytes);
  }
  EXPECT_EQ(streams_table(summary),
            "  compute                   5.00 ms busy,  42 % of the step\n"
            "  copy in           20 B    5.00 ms busy,  42 % of the step\n"
            "  disk write        16 B    4.00 ms busy,  33 % of the step\n");
  EXPECT_EQ(waits_table(schedule, s.events, 5),
            "    4.00 ms      1 time   disk write, 16 B at \n"
            "    3.00 ms      1 time   copy in, 20 B at \n");
  EXPECT_EQ(waits_table(schedule, s.events, 1),
            "    4.00 ms      1 time   disk write, 16 B at \n");
}

TEST(RunTrace, SecondsForPeople) {
  EXPECT_EQ(format_seconds(0), "0.00 ns");
  EXPECT_EQ(format_seconds(3.14159e-9), "3.14 ns");
  EXPECT_EQ(format_seconds(99.96e-6), "100 us");
  EXPECT_EQ(format_seconds(12.34e-3), "12.3 ms");
  EXPECT_EQ(format_seconds(999), "999 s");
  EXPECT_EQ(format_seconds(7200), "2.00 h");
}

// A real program on a virtual device: what runs is what its schedule says, in order.
TEST(RunRecorder, HearsEveryKernelOfARun) {
  const ArrayType type{DType::kF32, Shape{64, 64}};
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input(type)), y(b, graph.add_input(type));
  const Val away = device_put(matmul(x, y), MemoryKind::kPinnedHost);
  graph.set_outputs({matmul(device_put(away, MemoryKind::kDevice), y).id()});
  const ExecutablePtr program = compile(graph, {}, 1);
  constexpr int64_t any = Device::unlimited_bytes();
  const DevicePtr device = Device::virtual_device({any, any, any}, 1);
  const std::vector<DeviceBufferPtr> arguments = {device->allocate(type.bytes()),
                                                  device->allocate(type.bytes())};
  RunRecorder recorder;
  program->run(*device, arguments, &recorder);
  const std::vector<RunEvent> events = recorder.take();
  EXPECT_TRUE(recorder.take().empty());
  SimulateOptions options;
  options.max_events = 100;
  const Simulation s = simulate(program->schedule(), round_device(), options);
  ASSERT_EQ(events.size(), s.events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].kernel, s.events[i].kernel);
    EXPECT_EQ(events[i].instant, s.events[i].instant);
    EXPECT_GE(events[i].begin_s, 0);
    EXPECT_GE(events[i].end_s, events[i].begin_s);
  }
  const Simulation use = summarize_run(program->schedule(), events);
  for (size_t i = 0; i < use.streams.size(); ++i) {
    EXPECT_EQ(use.streams[i].runs, s.streams[i].runs) << i;
    EXPECT_EQ(use.streams[i].bytes, s.streams[i].bytes) << i;
  }
  EXPECT_EQ(use.stream(StreamKind::kCopyOut).bytes, 64 * 64 * 4);

  // Simulated with the times that were measured, every stream is busy as long as it really was.
  KernelTimes times;
  times.add(events);
  SimulateOptions replay;
  replay.measured_s = [&](const Kernel& kernel, int64_t run) {
    return times.seconds(kernel, run);
  };
  const Simulation again = simulate(program->schedule(), round_device(), replay);
  for (size_t i = 0; i < use.streams.size(); ++i)
    EXPECT_NEAR(again.streams[i].busy_s, use.streams[i].busy_s, 1e-9) << i;
}

TEST(KernelTimes, AreThoseOfEachRun) {
  ScheduleKit k;
  const Schedule schedule = k.schedule({k.dot(1), k.dot(2), k.done_in(3, 0)});
  const auto kernel = [&](size_t i) { return schedule.instructions[i].kernel(); };
  KernelTimes times;
  std::vector<RunEvent> events;
  for (const double seconds : {5.0, 1.0, 9.0})
    events.push_back({kernel(0), StreamKind::kCompute, 0, 10, 10 + seconds});
  events.push_back({kernel(2), StreamKind::kCompute, 0, 0, 7});
  times.add(events);
  EXPECT_EQ(times.seconds(*kernel(0), 0), 5);
  EXPECT_EQ(times.seconds(*kernel(0), 2), 9);
  EXPECT_EQ(times.seconds(*kernel(0), 3), -1);  // ran three times
  EXPECT_EQ(times.seconds(*kernel(1), 0), -1);  // never ran
  EXPECT_EQ(times.seconds(*kernel(2), 0), -1);  // a wait is no work
}

}  // namespace
}  // namespace stow
