// Moves beside the computation: the same bits whenever they are made, within every budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "stowage/ir/parse.h"
#include "stowage/passes/transfers.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/runtime/program.h"
#include "stowage/runtime/streams.h"
#include "stowage/stowage.h"
#include "stowage/tune/devices.h"
#include "tests/support/check_lives.h"
#include "tests/support/linked_device.h"

namespace stow {
namespace {

struct Weights {
  Array w1, w2;
};
STOW_TREE(Weights, w1, w2);

constexpr int64_t kLayers = 8, kRows = 64, kWidth = 64, kHidden = 256;

class Transfers : public ::testing::Test {
 protected:
  DevicePtr device_ = Device::virtual_device(
      {Device::unlimited_bytes(), Device::unlimited_bytes(), Device::unlimited_bytes()}, 1);
  DefaultDevice guard_{device_};
  Array x_ = random::normal(random::key(1), {kRows, kWidth});

  static Weights weights(int64_t layers, MemoryKind kind) {
    return {device_put(random::normal(random::key(2), {layers, kWidth, kHidden}) * 0.1, kind),
            device_put(random::normal(random::key(3), {layers, kHidden, kWidth}) * 0.1, kind)};
  }

  // The loss of layers whose weights stream in and whose inputs wait elsewhere.
  static Array loss(const Weights& w, const Array& x, bool scanned, MemoryKind away) {
    auto body = checkpoint(
        [](const Array& x, const Weights& w) {
          const Weights here = device_put(w, MemoryKind::kDevice);
          return matmul(tanh(matmul(checkpoint_name(x, "x"), here.w1)), here.w2) + x;
        },
        save_and_offload_only_these_names({}, {"x"}, away));
    if (scanned) return sum(scan(body, x, w));
    Array h = x;
    const int64_t layers = w.w1.dim(0);
    for (int64_t i = 0; i < layers; ++i)
      h = body(h, Weights{w.w1.slice(0, i, i + 1).reshape({kWidth, kHidden}),
                          w.w2.slice(0, i, i + 1).reshape({kHidden, kWidth})});
    return sum(h);
  }
  static auto gradient(bool scanned, MemoryKind away) {
    return jit([=](const Weights& w, const Array& x) {
      return grad([&](const Weights& p) { return loss(p, x, scanned, away); })(w);
    });
  }
  static CompileOptions within(int64_t device_bytes, int ahead) {
    CompileOptions options;
    options.transfers_ahead = ahead;
    options.keep_resident = false;  // all moves are made
    options.capacities[0] = device_bytes;
    return options;
  }
};

int count_starts(const std::vector<Instruction>& list, bool guarded) {
  int n = 0;
  for (const Instruction& i : list) {
    if (const Kernel* k = i.kernel())
      n += k->phase == MovePhase::kStart && (!guarded || !i.guard.holds(kLayers - 1));
    if (const Loop* loop = i.loop()) n += count_starts(loop->body, guarded);
  }
  return n;
}

// What enters a block comes back an outer iteration ahead, into the first slot of a stack that the
// inner loop fills: the ring of such stacks keeps their slots apart.
TEST_F(Transfers, WhatEntersABlockComesBackAheadOfTheBlockBefore) {
  const Weights w = weights(9, MemoryKind::kDevice);
  const auto f = jit([](const Weights& w, const Array& x) {
    return grad([&](const Weights& p) {
      // What writes the next slot reads none: else it would go on with the life that it reads.
      const auto body = [](const Array& h, const Weights& w) {
        return matmul(tanh(matmul(h, w.w1)), w.w2);
      };
      return sum(nested_scan(
          body, x, p,
          {.blocks = {3}, .block_policy = save_and_offload_only_these_names({}, {"block_in"})}));
    })(w);
  });
  const auto lowered = f.lower(w, x_);
  const Result<GraphPtr> graph = parse_graph(lowered.text(), "lowered", policy_by_name);
  ASSERT_TRUE(graph.ok()) << graph.error();
  EXPECT_EQ(testing::check_lives_of_all(**graph, {}), "");
  const auto plain = lowered.compile(within(Device::unlimited_bytes(), 0));
  const std::vector<float> want = plain(w, x_).w1.to_vector<float>();
  for (const int ahead : {1, 2, 13, 89, 377}) {
    const auto compiled = lowered.compile(within(1 << 30, ahead));
    EXPECT_GT(count_starts(compiled.executable().schedule().instructions, false), 0);
    EXPECT_EQ(compiled(w, x_).w1.to_vector<float>(), want);
  }
}

TEST_F(Transfers, TheSameBitsWheneverAMoveIsMade) {
  for (const MemoryKind away : {MemoryKind::kPinnedHost, MemoryKind::kDisk})
    for (const bool scanned : {true, false}) {
      const Weights w = weights(kLayers, away);
      const auto f = gradient(scanned, away);
      const auto plain = f.lower(w, x_).compile(within(Device::unlimited_bytes(), 0));
      EXPECT_EQ(count_starts(plain.executable().schedule().instructions, false), 0);
      const std::vector<float> want = plain(w, x_).w1.to_vector<float>();
      for (const int ahead : {1, 2, 3, 13, 89, 377}) {
        const auto compiled = f.lower(w, x_).compile(within(1 << 30, ahead));
        const auto& list = compiled.executable().schedule().instructions;
        EXPECT_GT(count_starts(list, false), 4);
        if (scanned) {
          EXPECT_GT(count_starts(list, true), 0);  // for the iteration after
        }
        for (const StreamTiming timing :
             {StreamTiming::kConcurrent, StreamTiming::kAtStart, StreamTiming::kAtWait}) {
          device_->streams().set_timing(timing);
          EXPECT_EQ(compiled(w, x_).w1.to_vector<float>(), want) << ahead;
        }
        device_->streams().set_timing(StreamTiming::kConcurrent);
      }
    }
}

// Starts for a loop that enter the last iterations of the one before, past others that wait for
// what leaves there; and rings of as many slots as there are iterations.
TEST_F(Transfers, TheSameBitsFarAheadAndPastOthers) {
  for (const MemoryKind away : {MemoryKind::kPinnedHost, MemoryKind::kDisk}) {
    const Weights w = weights(kLayers, away);
    const auto plain =
        gradient(true, away).lower(w, x_).compile(within(Device::unlimited_bytes(), 0));
    const std::vector<float> want = plain(w, x_).w1.to_vector<float>();
    const Schedule& schedule = plain.executable().schedule();
    std::vector<DeviceBufferPtr> arguments;
    for (const Array& a : {w.w1, w.w2, x_}) {
      const std::vector<float> values = a.to_vector<float>();
      arguments.push_back(device_->allocate(a.type().bytes(), a.type().kind));
      arguments.back()->write(0, std::as_bytes(std::span(values)));
    }
    int64_t most_overtaking = 0;
    int entering = 0, deepest = 0;
    for (const int ahead : {3, 13, 34, 55, 89, 377})
      for (const int64_t overtaking : {int64_t{0}, int64_t{100'000}, int64_t{1} << 40}) {
        const std::vector<int> all(count_moves(schedule), ahead);
        const Overlapped made = overlap_transfers(schedule, all, {overtaking, overtaking});
        EXPECT_EQ(testing::check_lives(made.schedule), "");
        most_overtaking = std::max(most_overtaking, made.overtook.early);
        if (overtaking == 0) {
          EXPECT_EQ(made.overtook.early + made.overtook.late, 0);
        }
        for (const Instruction& i : made.schedule.instructions)
          if (const Loop* loop = i.loop())
            for (const Instruction& inside : loop->body) {
              const int64_t end = inside.guard.end;
              entering += inside.guard.is_only(kLayers - 1);
              if (end < kLayers) deepest = std::max(deepest, static_cast<int>(kLayers - end));
            }
        const Program program(made.schedule, make_plan(made.schedule, {}), host_target(1));
        for (const StreamTiming timing :
             {StreamTiming::kConcurrent, StreamTiming::kAtStart, StreamTiming::kAtWait}) {
          device_->streams().set_timing(timing);
          const std::vector<DeviceBufferPtr> results = program.run(*device_, arguments);
          std::vector<float> got(want.size());
          results[0]->read(0, std::as_writable_bytes(std::span(got)));
          EXPECT_EQ(got, want) << ahead << " " << overtaking;
        }
        device_->streams().set_timing(StreamTiming::kConcurrent);
      }
    EXPECT_GT(most_overtaking, 0);
    EXPECT_GT(entering, 0);
    EXPECT_EQ(deepest, kLayers - 1);
  }
}

TEST_F(Transfers, EveryBudgetIsKeptAndMoreMemoryBuysTime) {
  const Weights w = weights(kLayers, MemoryKind::kPinnedHost);
  const auto f = gradient(true, MemoryKind::kPinnedHost);
  const DeviceDescription h200 = load_device_description("h200").value();
  const auto compiled = [&](int64_t budget, int ahead) {
    return f.lower(w, x_).compile(within(budget, ahead));
  };
  const auto least = compiled(Device::unlimited_bytes(), 0);
  const int64_t floor = least.memory_analysis().device().total_bytes;
  const double slowest = simulate(least.executable().schedule(), h200).step_s;
  double fastest = slowest;
  for (int64_t budget = floor; budget < 3 * floor; budget += floor / 8) {
    const auto c = compiled(budget, 3);
    EXPECT_LE(c.memory_analysis().device().total_bytes, budget);
    const double step = simulate(c.executable().schedule(), h200).step_s;
    EXPECT_LE(step, slowest) << budget;
    fastest = std::min(fastest, step);
  }
  EXPECT_LT(fastest, 0.6 * slowest);
  // No limit: what overlaps costs nothing.
  EXPECT_LE(compiled(Device::unlimited_bytes(), 3).memory_analysis().device().total_bytes, floor);
}

// A budget that overlap nearly fills is no worse than a smaller one: a layout that misses it is
// tried with less, down to what lives far from the peak.
TEST_F(Transfers, ALargerBudgetDoesNotCostTime) {
  const Weights w = weights(kLayers, MemoryKind::kPinnedHost), m = w;
  const auto step = jit([](const Weights& w, const Weights& m, const Array& x) {
    const Weights g =
        grad([&](const Weights& p) { return loss(p, x, true, MemoryKind::kPinnedHost); })(w);
    const auto next = [](const Array& w, const Array& m, const Array& g) {
      const Array moment =
          0.9 * device_put(m, MemoryKind::kDevice) + device_put(g, MemoryKind::kDevice);
      return std::pair(
          device_put(moment, MemoryKind::kPinnedHost),
          device_put(device_put(w, MemoryKind::kDevice) - 0.1 * moment, MemoryKind::kPinnedHost));
    };
    return std::pair(next(w.w1, m.w1, g.w1), next(w.w2, m.w2, g.w2));
  });
  const DeviceDescription h200 = load_device_description("h200").value();
  const auto compiled = [&](int64_t budget, int ahead) {
    CompileOptions options = within(budget, ahead);
    options.tile_bytes = 16 << 10;
    return step.lower(w, m, x_).compile(options);
  };
  const int64_t floor = compiled(1 << 30, 0).memory_analysis().device().total_bytes;
  double best = std::numeric_limits<double>::infinity();
  for (int64_t budget = floor; budget < 2 * floor; budget += floor / 20) {
    const auto c = compiled(budget, 21);
    EXPECT_LE(c.memory_analysis().device().total_bytes, budget);
    const double step_s = simulate(c.executable().schedule(), h200).step_s;
    EXPECT_LE(step_s, 1.05 * best) << budget << " beyond " << floor;
    best = std::min(best, step_s);
  }
}

// Whether the layers are a scan or a loop of the program, as much is hidden: what one iteration has
// under way leaves no gaps in the memory of all, and small arrays come whole, not in many tiles.
TEST_F(Transfers, LayersHideTheirMovesScannedAndUnrolled) {
  constexpr int64_t kMany = 32, kWide = 1024, kMiddle = 4096, kMiB = 1 << 20;
  const auto weight = [](Dims dims) {
    return Array::abstract({DType::kF32, Shape(std::move(dims)), MemoryKind::kPinnedHost});
  };
  const Weights w{weight({kMany, kWide, kMiddle}), weight({kMany, kMiddle, kWide})};
  const Array x = Array::abstract(Shape{2048, kWide});
  const auto body = checkpoint(
      [](const Array& x, const Weights& w) {
        const Weights here = device_put(w, MemoryKind::kDevice);
        const Array h = rms_norm(checkpoint_name(x, "x"), full(Shape{kWide}, 1.0));
        return x + matmul(silu(matmul(h, here.w1)), here.w2);
      },
      save_and_offload_only_these_names({}, {"x"}, MemoryKind::kPinnedHost));
  for (const bool scanned : {true, false}) {
    const auto lowered = jit(grad([&](const Weights& w, const Array& x) {
                           if (scanned) return sum(square(scan(body, x, w)));
                           Array h = x;
                           for (int64_t i = 0; i < kMany; ++i)
                             h = body(h,
                                      Weights{w.w1.slice(0, i, i + 1).reshape({kWide, kMiddle}),
                                              w.w2.slice(0, i, i + 1).reshape({kMiddle, kWide})});
                           return sum(square(h));
                         })).lower(w, x);
    for (const int64_t budget : {200 * kMiB, 300 * kMiB}) {
      const auto compiled = lowered.compile(within(budget, CompileOptions().transfers_ahead));
      EXPECT_LE(compiled.memory_analysis().device().total_bytes, budget);
      const Schedule& schedule = compiled.executable().schedule();
      const DeviceDescription h200 = *load_device_description("h200");
      const Simulation even = simulate(schedule, testing::linked_device(h200, schedule, 1));
      EXPECT_LE(even.step_s, (budget < 300 * kMiB ? 1.3 : 1.2) * even.bound_s)
          << (scanned ? "scanned, " : "unrolled, ") << budget;
    }
  }
}

// Capacities bound what moves ahead may take, and not the program.
TEST_F(Transfers, ABudgetTooSmallCompilesWithEveryMoveByItself) {
  const Weights w = weights(kLayers, MemoryKind::kPinnedHost);
  const auto f = gradient(true, MemoryKind::kPinnedHost);
  const auto compiled = [&](Device::Capacities capacities, int ahead) {
    CompileOptions options;
    options.transfers_ahead = ahead;
    options.capacities = capacities;
    return f.lower(w, x_).compile(options);
  };
  constexpr int64_t kNoLimit = Device::unlimited_bytes();
  const auto plain = compiled({1 << 30, kNoLimit, kNoLimit}, 0);
  const int64_t device = plain.memory_analysis().device().total_bytes;
  const int64_t host = plain.memory_analysis().host().total_bytes;
  for (const Device::Capacities& small : {Device::Capacities{device - 1, kNoLimit, kNoLimit},
                                          Device::Capacities{1 << 30, host - 1, kNoLimit}}) {
    const auto over = compiled(small, 3);
    EXPECT_EQ(over.memory_analysis().device().total_bytes, device);
    EXPECT_EQ(over.memory_analysis().host().total_bytes, host);
    EXPECT_EQ(count_starts(over.executable().schedule().instructions, false), 0);
    EXPECT_EQ(over(w, x_).w1.to_vector<float>(), plain(w, x_).w1.to_vector<float>());
  }
  // One with just enough takes no more than that.
  const auto enough = compiled({device, host, kNoLimit}, 3);
  EXPECT_LE(enough.memory_analysis().device().total_bytes, device);
  EXPECT_LE(enough.memory_analysis().host().total_bytes, host);
}

TEST_F(Transfers, UnrolledLayersTakeNoMoreThanWhatIsUnderWay) {
  const Weights w{Array::abstract({DType::kF32, {32, kWidth, kHidden}, MemoryKind::kPinnedHost}),
                  Array::abstract({DType::kF32, {32, kHidden, kWidth}, MemoryKind::kPinnedHost})};
  const auto f = gradient(false, MemoryKind::kPinnedHost);
  const auto peak = [&](int ahead) {
    return f.lower(w, Array::abstract(x_.type())).compile(within(1 << 30, ahead)).memory_analysis();
  };
  const int64_t plain = peak(0).device().total_bytes;
  for (const int ahead : {1, 2, 3, 5, 8, 21}) {
    const MemoryAnalysis a = peak(ahead);
    EXPECT_GT(a.in_flight_bytes, 0);
    EXPECT_LE(a.device().total_bytes, plain + a.in_flight_bytes) << ahead;
  }
}

TEST_F(Transfers, AnErrorOfAStreamIsThrownByWhoWaits) {
  for (const StreamTiming timing :
       {StreamTiming::kConcurrent, StreamTiming::kAtStart, StreamTiming::kAtWait}) {
    Stream stream;
    stream.set_timing(timing);
    int done = 0;
    stream.wait(stream.start([&] { ++done; }));
    const uint64_t bad = stream.start([] { throw std::runtime_error("torn"); });
    const uint64_t behind = stream.start([&] { ++done; });
    EXPECT_THROW(stream.wait(behind), std::runtime_error);
    EXPECT_NO_THROW(stream.wait(bad));  // once
    EXPECT_EQ(done, 1);
    stream.drain();
    stream.wait(stream.start([&] { ++done; }));
    EXPECT_EQ(done, 2);
  }
}

}  // namespace
}  // namespace stow
