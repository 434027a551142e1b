// Collectives beside the computation: a layer's weights are gathered while the layer before
// computes, its gradients reduced while the next one does. The same bits, within every budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "stowage/ir/schedule_walk.h"
#include "stowage/runtime/comm/mesh_position.h"
#include "stowage/runtime/null/order_bound.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/runtime/streams.h"
#include "stowage/stowage.h"
#include "stowage/tune/devices.h"
#include "stowage/tune/run_trace.h"
#include "tests/support/check_lives.h"

namespace stow {
namespace {

using sharding::Mesh;
using sharding::P;
using ::testing::HasSubstr;

struct Weights {
  Array w1, w2;
};
STOW_TREE(Weights, w1, w2);

constexpr int64_t kLarge = int64_t{1} << 34;
constexpr int kDevices = 4;
// So many rows that weights are gathered rather than activations.
constexpr int64_t kLayers = 6, kRows = 1024, kWidth = 32, kHidden = 64;

// Where the layers' weights lie and in what type they are multiplied.
struct Form {
  MemoryKind kind = MemoryKind::kDevice;
  DType dtype = DType::kF32;
};

class CollectivesAhead : public ::testing::Test {
 protected:
  static Array values(const Shape& shape, float scale) {
    std::vector<float> v(static_cast<size_t>(ArrayType{DType::kF32, shape}.elems()));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = scale * static_cast<float>(static_cast<int>(i * 7919 % 211) - 105);
    return Array::from(v, shape);
  }
  NamedSharding rows() const { return NamedSharding(mesh_, P("data")); }
  NamedSharding layers(MemoryKind kind) const {
    return NamedSharding(mesh_, P(nullptr, "data"), memory_kind_name(kind));
  }
  Weights weights(MemoryKind kind) const {
    return {device_put(values({kLayers, kWidth, kHidden}, 0.002f), layers(kind)),
            device_put(values({kLayers, kHidden, kWidth}, 0.002f), layers(kind))};
  }
  Array input() const { return device_put(values({kRows, kWidth}, 0.01f), rows()); }

  // The gradients of a scan over layers whose weights are cut over all devices, as the weights lie.
  auto gradient(Form form) const {
    const NamedSharding away = layers(form.kind);
    return jit(
        [=](const Weights& w, const Array& x) {
          const auto body = checkpoint([=](const Array& x, const Weights& w) {
            const auto use = [&](const Array& a) {
              const Array here = form.kind == MemoryKind::kDevice
                                     ? a
                                     : device_put(a, MemoryKind::kDevice);
              return here.astype(form.dtype);
            };
            const Array h = tanh(matmul(x.astype(form.dtype), use(w.w1)));
            return matmul(h, use(w.w2)).astype(DType::kF32) + x;
          });
          return grad([&](const Weights& p) { return sum(square(scan(body, x, p))); })(w);
        },
        {.out_shardings = {{"w1", away}, {"w2", away}}});
  }

  static CompileOptions within(int64_t device_bytes, int ahead) {
    CompileOptions options;
    options.transfers_ahead = ahead;
    options.keep_resident = false;
    options.capacities[0] = device_bytes;
    return options;
  }

  std::vector<DevicePtr> devices_ = [] {
    std::vector<DevicePtr> devices;
    for (int i = 0; i < kDevices; ++i)
      devices.push_back(Device::virtual_device({kLarge, kLarge, kLarge}, 1));
    return devices;
  }();
  Mesh mesh_ = make_mesh({kDevices}, {"data"}, devices_);
};

// Instructions of the loops of a schedule, outer loops first.
std::vector<const Loop*> loops_of(const std::vector<Instruction>& list) {
  std::vector<const Loop*> loops;
  for (const Instruction& i : list)
    if (const Loop* loop = i.loop()) {
      loops.push_back(loop);
      for (const Loop* inside : loops_of(loop->body)) loops.push_back(inside);
    }
  return loops;
}

// Of a loop: starts of gathers for the next iteration that stand before this one's first product,
// and dones of reductions of the iteration before.
struct Across {
  int gathers = 0, reductions = 0, copies = 0;
};
Across across(const Loop& loop) {
  Across found;
  bool computed = false;
  for (const Instruction& i : loop.body) {
    const Kernel* k = i.kernel();
    if (!k) continue;
    computed = computed || k->op == OpKind::kDotGeneral;
    const bool ahead = k->phase == MovePhase::kStart && i.guard.end == loop.trip_count - 1;
    found.gathers += ahead && k->op == OpKind::kAllGather && !computed;
    found.copies += k->phase == MovePhase::kStart && i.guard.begin == 0 &&
                    i.guard.end < loop.trip_count - 1 && k->op == OpKind::kDevicePut;
    found.reductions += k->phase == MovePhase::kDone && i.guard.begin == 1 &&
                        k->op == OpKind::kReduceScatter;
  }
  return found;
}

// An accelerator of today whose network takes so many times what a step computes.
DeviceDescription slow_network(const Schedule& schedule, double times) {
  DeviceDescription device = load_device_description("h200").value();
  device.network = {{1024, 1e9, 0, 1}};
  const Simulation first = simulate(schedule, device);
  device.network[0].bandwidth *=
      first.stream(StreamKind::kCollective).busy_s / (times * first.compute_busy_s());
  return device;
}

int64_t count_starts(const Schedule& schedule) {
  int64_t n = 0;
  for_each_kernel(schedule.instructions, [&](const Kernel& k) {
    n += exchanges_data(k) && k.phase == MovePhase::kStart;
  });
  return n;
}

TEST_F(CollectivesAhead, TheNextLayerIsGatheredBeforeTheProductsOfThisOne) {
  const auto compiled = gradient({}).lower(weights(MemoryKind::kDevice), input())
                            .compile(within(kLarge, CompileOptions().transfers_ahead));
  const Schedule& schedule = compiled.executable().schedule();
  EXPECT_EQ(testing::check_lives(schedule), "");
  const std::vector<const Loop*> loops = loops_of(schedule.instructions);
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_GE(across(*loops[0]).gathers, 2);  // forward: both weights
  EXPECT_GE(across(*loops[1]).gathers, 2);
  EXPECT_GE(across(*loops[1]).reductions, 1);
}

// A shard that comes from the host, converted on the way or not: its copy starts two layers ahead.
TEST_F(CollectivesAhead, ShardsComeFromTheHostAheadOfTheirGathers) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto compiled = gradient({MemoryKind::kPinnedHost, dtype})
                              .lower(weights(MemoryKind::kPinnedHost), input())
                              .compile(within(kLarge, CompileOptions().transfers_ahead));
    const Schedule& schedule = compiled.executable().schedule();
    EXPECT_EQ(testing::check_lives(schedule), "");
    const std::vector<const Loop*> loops = loops_of(schedule.instructions);
    ASSERT_EQ(loops.size(), 2u);
    for (const Loop* loop : loops) {
      EXPECT_GE(across(*loop).gathers, 1) << dtype_name(dtype);
      EXPECT_GE(across(*loop).copies, 1) << dtype_name(dtype);
    }
    EXPECT_GE(across(*loops[1]).reductions, 1) << dtype_name(dtype);
  }
}

TEST_F(CollectivesAhead, TheSameBitsAndThePredictedBytesHoweverFarAhead) {
  for (const Form form : {Form{}, Form{MemoryKind::kPinnedHost, DType::kF32},
                          Form{MemoryKind::kPinnedHost, DType::kBF16}}) {
    const Weights w = weights(form.kind);
    const Array x = input();
    const auto lowered = gradient(form).lower(w, x);
    std::vector<float> want;
    for (const int ahead : {0, 1, 2, 3, 8, 34, 377}) {
      const auto compiled = lowered.compile(within(kLarge, ahead));
      EXPECT_EQ(count_starts(compiled.executable().schedule()) > 0, ahead > 0);
      for (const StreamTiming timing :
           {StreamTiming::kConcurrent, StreamTiming::kAtStart, StreamTiming::kAtWait}) {
        for (const DevicePtr& device : devices_) {
          device->streams().set_timing(timing);
          device->drop_arenas();
          device->reset_high_water();
        }
        const Weights g = compiled(w, x);
        for (const DevicePtr& device : devices_) {
          const int64_t before = device->in_use_bytes(MemoryKind::kDevice);
          EXPECT_GT(before, 0);
          EXPECT_EQ(device->high_water_bytes(MemoryKind::kDevice),
                    compiled.memory_analysis().device().total_bytes);
          device->streams().set_timing(StreamTiming::kConcurrent);
        }
        std::vector<float> got = g.w1.to_vector<float>();
        const std::vector<float> second = g.w2.to_vector<float>();
        got.insert(got.end(), second.begin(), second.end());
        if (want.empty()) want = got;
        EXPECT_EQ(got, want) << ahead;
      }
    }
  }
}

TEST_F(CollectivesAhead, MoreMemoryStartsMoreAheadAndTheLeastNone) {
  const auto lowered = gradient({}).lower(weights(MemoryKind::kDevice), input());
  const auto plan = [&](int64_t bytes, int ahead) { return lowered.compile(within(bytes, ahead)); };
  const int most = CompileOptions().transfers_ahead;
  const auto plain = plan(kLarge, 0);
  const int64_t least = plain.memory_analysis().device().total_bytes;
  const DeviceDescription device = slow_network(plain.executable().schedule(), 1);
  const auto exposed = [&](const Schedule& s) { return simulate(s, device).exposed_s; };
  const double all = exposed(plain.executable().schedule());
  double before = 2 * all;
  for (const int64_t bytes : {least, least + least / 8, 2 * least, kLarge}) {
    const auto compiled = plan(bytes, most);
    EXPECT_LE(compiled.memory_analysis().device().total_bytes, bytes);
    const double now = exposed(compiled.executable().schedule());
    EXPECT_LE(now, 1.02 * before) << bytes;
    before = now;
  }
  EXPECT_LT(before, 0.3 * all);
  // Nothing is left for a second layer's weights, or no budget is named.
  for (const int64_t bytes : {least, Device::unlimited_bytes()}) {
    const auto tight = plan(bytes, most);
    EXPECT_LE(tight.memory_analysis().device().total_bytes, least);
    const std::vector<const Loop*> loops = loops_of(tight.executable().schedule().instructions);
    EXPECT_EQ(across(*loops.back()).gathers, 0);
  }
}

// A layer's weights are gathered in one direction and its gradients reduced in the other, on one
// stream.
TEST_F(CollectivesAhead, AShardedStepTakesLittleLongerThanItsComputationOrItsNetwork) {
  constexpr int64_t kMany = 16, kWide = 1024, kMiddle = 4096, kTokens = 8 * 1024;
  const Weights w{
      device_put(Array::abstract({kMany, kWide, kMiddle}), layers(MemoryKind::kDevice)),
      device_put(Array::abstract({kMany, kMiddle, kWide}), layers(MemoryKind::kDevice))};
  const Array x = device_put(Array::abstract({kTokens, kWide}), rows());
  const auto lowered = gradient({}).lower(w, x);
  const auto plain = lowered.compile(within(kLarge, 0));
  const auto ahead = lowered.compile(within(kLarge, CompileOptions().transfers_ahead));
  for (const auto& [times, most] :
       {std::pair(0.5, 1.05), std::pair(1.0, 1.1), std::pair(2.0, 1.05)}) {
    const DeviceDescription device = slow_network(plain.executable().schedule(), times);
    const Simulation one = simulate(plain.executable().schedule(), device),
                     s = simulate(ahead.executable().schedule(), device);
    EXPECT_NEAR(one.step_s / one.compute_busy_s(), 1 + times, 1e-6);  // nothing beside anything
    EXPECT_NEAR(s.bound_s / one.compute_busy_s(), std::max(1.0, times), 1e-6);
    EXPECT_LE(s.step_s, most * s.bound_s) << times;
    EXPECT_GE(s.exposed_s + s.compute_busy_s(), s.bound_s * (1 - 1e-9));
  }
}

TEST_F(CollectivesAhead, WaitsAndStreamsNameTheCollective) {
  const auto compiled = gradient({}).lower(weights(MemoryKind::kDevice), input())
                            .compile(within(kLarge, 0));
  const Schedule& schedule = compiled.executable().schedule();
  SimulateOptions options;
  options.max_events = 10'000;
  const Simulation s = simulate(schedule, slow_network(schedule, 1), options);
  EXPECT_THAT(streams_table(s), HasSubstr("\n  collective "));
  // A gathered weight of 8 KiB, of which three quarters come from others.
  EXPECT_THAT(waits_table(schedule, s.events, 9), HasSubstr("all_gather, 6.00 KiB at "));
  EXPECT_THAT(waits_table(schedule, s.events, 9), HasSubstr("reduce_scatter, 6.00 KiB at "));
  EXPECT_EQ(s.stream(StreamKind::kCollective).bytes,
            static_cast<double>(s.stream(StreamKind::kCollective).runs * 6 * 1024));
}

// An observer that fails at the so many-th event, on whatever thread that is.
class FailsAt final : public RunObserver {
 public:
  explicit FailsAt(int event) : left_(event) {}
  void ran(const RunEvent&) override {
    if (--left_ == 0) throw std::runtime_error("torn");
  }

 private:
  std::atomic<int> left_;
};

TEST_F(CollectivesAhead, APositionThatFailsEndsTheOthersWithinSeconds) {
  const auto compiled = gradient({}).lower(weights(MemoryKind::kDevice), input())
                            .compile(within(kLarge, CompileOptions().transfers_ahead));
  const Executable& program = compiled.executable();
  ASSERT_GT(count_starts(program.schedule()), 0);
  for (const int event : {3, 20, 47, 90}) {
    const auto communicators = comm::communicators_of_threads(kDevices);
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::string> errors(kDevices);
    std::vector<std::thread> threads;
    for (int d = 0; d < kDevices; ++d)
      threads.emplace_back([&, d] {
        const DevicePtr& device = devices_[static_cast<size_t>(d)];
        std::vector<DeviceBufferPtr> arguments;
        for (const ArrayType& type : program.input_types())
          arguments.push_back(device->allocate(type.bytes(), type.kind));
        const comm::MeshPosition at{communicators[static_cast<size_t>(d)].get(), {0, 1, 2, 3}, d};
        FailsAt observer(d == 2 ? event : -1);
        try {
          program.bound_again()->run(*device, arguments, &observer, &at);
        } catch (const std::exception& error) {
          errors[static_cast<size_t>(d)] = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("torn")) << event;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  }
}

}  // namespace
}  // namespace stow
