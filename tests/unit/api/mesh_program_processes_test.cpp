// Programs over meshes of several processes, for which threads stand, and what their arguments,
// copies and communicators cost. Real processes are started by tests/error/processes.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>

#include "stowage/base/inside.h"
#include "stowage/runtime/streams.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"
#include "tests/support/threads_as_processes.h"

namespace stow {
namespace {

using sharding::Mesh;
using sharding::P;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kLarge = int64_t{1} << 30;

std::vector<DevicePtr> virtual_devices(int n) {
  std::vector<DevicePtr> devices;
  for (int i = 0; i < n; ++i)
    devices.push_back(Device::virtual_device({kLarge, kLarge, kLarge}, 1));
  return devices;
}

std::vector<float> numbers(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01f * static_cast<float>(static_cast<int>(i * 7919 % 211) - 105);
  return values;
}
Array ramp(const Shape& shape) { return Array::from(numbers(shape.elems()), shape); }

struct Mlp {
  Array up, down;
};
STOW_TREE(Mlp, up, down);

Array loss(const Mlp& w, const Array& x) {
  return mean(square(matmul(tanh(matmul(x, w.up)), w.down)));
}

// Two steps of training over a mesh of all devices that the caller can name; the weights, whole.
std::vector<float> trained_weights() {
  const Mesh mesh = make_mesh({2, 2}, {"data", "model"});
  const NamedSharding up(mesh, P("data", "model")), down(mesh, P("model", "data"));
  Mlp w{device_put(ramp({16, 32}), up), device_put(ramp({32, 16}), down)};
  const Array x = device_put(ramp({8, 16}), NamedSharding(mesh, P("data")));
  const auto step = jit(
      [&](const Mlp& v, const Array& in) {
        const Mlp g = grad(loss)(v, in);
        const Mlp next =
            tree_map([](const Array& p, const Array& d) { return p - 0.5f * d; }, v, g);
        return Mlp{with_sharding_constraint(next.up, up),
                   with_sharding_constraint(next.down, down)};
      },
      {.donate_argnums = {0}, .name = "step"});
  for (int i = 0; i < 2; ++i) w = step(w, x);
  std::vector<float> all = device_put(w.up, NamedSharding(mesh, P())).to_vector<float>();
  const std::vector<float> rest = device_put(w.down, NamedSharding(mesh, P())).to_vector<float>();
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

TEST(MeshProcesses, HoweverDevicesAreSpreadTheBitsAreThoseOfOneProcess) {
  std::vector<float> want;
  {
    const ActAsProcess act(std::make_shared<const Processes>(virtual_devices(4)));
    want = trained_weights();
  }
  ASSERT_NE(want, numbers(static_cast<int64_t>(want.size())));
  for (const int count : {2, 4}) {
    std::atomic<int> n_equal = 0;
    EXPECT_THAT(
        run_as_processes(count, 4 / count,
                         [&](const ProcessOfTest&) { n_equal += trained_weights() == want; }),
        Each(""));
    EXPECT_EQ(n_equal, count);
  }
}

TEST(MeshProcesses, ProgramsThatDifferAreRefusedBeforeTheyRun) {
  const auto thrown = run_as_processes(3, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({3}, {"x"});
    const Array x = device_put(ramp({6, 4}), NamedSharding(mesh, P("x")));
    // The same collective, of another value.
    jit([&](const Array& a) { return sum(self.index == 1 ? exp(a) : tanh(a)); })(x);
  });
  EXPECT_THAT(thrown, Each(AllOf(HasSubstr("the digest of the program is"),
                                 HasSubstr("expected the same at every process"))));
}

TEST(MeshProcesses, AThreadThatPlacesWaitsForOneThatIsInCollectives) {
  const auto thrown = run_as_processes(2, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({2}, {"x"});
    const auto membership = processes();
    const auto place = [&] {
      const DefaultDevice guard(self.devices[0]);
      const ActAsProcess act(membership);
      device_put(ramp({6, 4}), NamedSharding(mesh, P("x")));
    };
    std::future<void> placed;
    {
      const std::lock_guard lock(membership->collectives_mutex());
      placed = std::async(std::launch::async, place);
      EXPECT_EQ(placed.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    }
    placed.get();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(MeshProcesses, APositionThatIsLateIsWaitedForAsLongAsWasSaid) {
  const std::vector<DevicePtr> devices = virtual_devices(2);
  const ActAsProcess act(std::make_shared<const Processes>(devices, 0.2));
  const Mesh mesh = make_mesh({2}, {"x"});
  const Array x = device_put(ramp({6, 4}), NamedSharding(mesh, P("x")));
  const auto f = jit([](const Array& a) { return sum(a); });
  f(x);  // in time
  std::promise<void> go;
  const uint64_t busy = devices[1]->worker().start([&] { go.get_future().wait(); });
  auto said = std::async(std::launch::async, [&] {
    const ActAsProcess same(processes());
    return message_of([&] { f(x); });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  go.set_value();
  EXPECT_THAT(said.get(), AllOf(HasSubstr("rank 1 has not entered"), HasSubstr("for 0.2")));
  devices[1]->worker().wait(busy);
  EXPECT_NEAR(f(x).item<float>(), sum(ramp({6, 4})).item<float>(), 1e-5);
}

TEST(MeshProcesses, WithoutRoomForAPartTheOthersEndAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto thrown = run_as_processes(2, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({2}, {"x"});
    const int64_t rows = 4096, bytes = rows * rows / 2 * 4;  // of a part: 32 MiB of 64
    const Array x = make_array_from_fill({rows, rows}, DType::kF32, NamedSharding(mesh, P("x")),
                                         [](const ShardIndex&, std::span<std::byte>) {});
    DeviceBufferPtr full;
    if (self.index == 1) full = self.devices[0]->allocate(bytes / 2);
    device_put(x, NamedSharding(mesh, P(nullptr, "x")));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(thrown[0], HasSubstr("process 1: "));
  EXPECT_THAT(thrown, Each(HasSubstr("32.00 MiB")));
}

// ---- Arguments that lie whole ----

// Of a device, without the arena that it keeps for the next program.
int64_t held_bytes(const DevicePtr& device) {
  device->drop_arenas();
  return device->in_use_bytes(MemoryKind::kDevice);
}

TEST(MeshProcesses, AWholeArgumentThatComesAgainIsCopiedNoMore) {
  const std::vector<DevicePtr> devices = virtual_devices(2);
  const DefaultDevice guard(devices[0]);
  const Mesh mesh = make_mesh({2}, {"x"}, devices);
  const Array cut = device_put(ramp({8, 4}), NamedSharding(mesh, P("x")));
  const auto f = jit([](const Array& a, const Array& b) { return a * sum(b); });
  const auto held = [&] { return held_bytes(devices[1]); };
  const int64_t before = held();
  {
    const Array whole = ramp({64, 4});
    f(cut, whole);
    EXPECT_EQ(held(), before);  // it may have been the only call
    f(cut, whole);
    EXPECT_EQ(held(), before + 64 * 4 * 4);
    f(cut, whole);
    EXPECT_EQ(held(), before + 64 * 4 * 4);
  }
  f(cut, ramp({64, 4}));
  EXPECT_EQ(held(), before);
}

TEST(MeshProcesses, ACapturedArrayIsCopiedOnce) {
  const std::vector<DevicePtr> devices = virtual_devices(2);
  const DefaultDevice guard(devices[0]);
  const Mesh mesh = make_mesh({2}, {"x"}, devices);
  const Array cut = device_put(ramp({8, 4}), NamedSharding(mesh, P("x"))), whole = ramp({64, 4});
  const int64_t before = held_bytes(devices[1]);
  const auto f = jit([&](const Array& a) { return a * sum(whole); });
  const std::vector<float> first = f(cut).to_vector<float>();
  EXPECT_EQ(held_bytes(devices[1]), before + 64 * 4 * 4);
  EXPECT_EQ(f(cut).to_vector<float>(), first);
  EXPECT_EQ(held_bytes(devices[1]), before + 64 * 4 * 4);
}

TEST(MeshProcesses, WholeArgumentsAreComparedAtEachCallInOneCollective) {
  const auto thrown = run_as_processes(2, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({2}, {"x"});
    const Array cut = device_put(ramp({8, 4}), NamedSharding(mesh, P("x")));
    const auto f =
        jit([](const Array& a, const Array& b, const Array& c) { return a * (sum(b) + sum(c)); },
            {.name = "f"});
    const Array b = ramp({64, 4}), c = ramp({4});
    f(cut, b, c);
    // One process gives the same array again, the other an equal one.
    const int64_t before = self.communicator->n_collectives();
    f(cut, self.index == 0 ? b : ramp({64, 4}), c);
    EXPECT_EQ(self.communicator->n_collectives(), before + 1);
    f(cut, b, c);
    EXPECT_THAT(message_of([&] { f(cut, b, self.index == 0 ? c : c + 1.0f); }),
                AllOf(HasSubstr("the leaf '2' f32[4]"),
                      HasSubstr("process 1 has another value than most")));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(MeshProcesses, ArgumentsThatSwapShardingsAreNamedWithBoth) {
  const std::vector<DevicePtr> devices = virtual_devices(2);
  const Mesh mesh = make_mesh({2}, {"x"}, devices);
  const Array rows = device_put(ramp({4, 4}), NamedSharding(mesh, P("x")));
  const Array columns = device_put(ramp({4, 4}), NamedSharding(mesh, P(nullptr, "x")));
  const auto compiled = jit([](const Array& a, const Array& b) { return a + b; }, {.name = "f"})
                            .lower(rows, columns)
                            .compile();
  compiled(rows, columns);
  EXPECT_THAT(
      message_of([&] { compiled(columns, rows); }),
      AllOf(
          HasSubstr("[f] argument 0 lies over a mesh as NamedSharding(Mesh('x': 2), P(None, 'x')"),
          HasSubstr("compiled for one over a mesh as NamedSharding(Mesh('x': 2), P('x')")));
  EXPECT_THAT(message_of([&] { compiled(rows, ramp({4, 4})); }),
              HasSubstr("argument 1 lies on one device, compiled for one over a mesh as"));
  const Mesh other = make_mesh({2}, {"x"}, virtual_devices(2));
  EXPECT_THAT(message_of([&] {
                compiled(rows, device_put(columns, NamedSharding(other, P(nullptr, "x"))));
              }),
              HasSubstr("of other devices, compiled for one"));
}

// ---- Communicators, effects, checks ----

// Mappings in which ranks meet.
int64_t n_regions() {
  std::ifstream maps("/proc/self/maps");
  int64_t n = 0;
  for (std::string line; std::getline(maps, line);)
    n += line.find("/dev/zero (deleted)") != std::string::npos;
  return n;
}

TEST(MeshProcesses, ProgramsOfOneMeshShareWhereItsPositionsMeet) {
  const std::vector<DevicePtr> devices = virtual_devices(2);
  const DefaultDevice guard(devices[0]);
  const int64_t before = n_regions();
  {
    const Mesh mesh = make_mesh({2}, {"x"}, devices);
    const Array x = device_put(ramp({4, 4}), NamedSharding(mesh, P("x")));
    for (int i = 1; i < 9; ++i) {
      sum(x + static_cast<float>(i));
      jit([&](const Array& a) { return sum(a) * static_cast<float>(i); })(x);
    }
    EXPECT_EQ(n_regions(), before + 1);
  }
}

TEST(MeshProcesses, DebugPrintPrintsOnce) {
  const std::vector<DevicePtr> devices = virtual_devices(4);
  const DefaultDevice guard(devices[0]);
  const Mesh mesh = make_mesh({2, 2}, {"x", "y"}, devices);
  const Array x = device_put(Array::from({1.0f, 2.0f, 3.0f, 4.0f}), NamedSharding(mesh, P("x")));
  const auto f = jit([](const Array& a) {
    debug_print("a {}", a);
    return scan(
        [](const Array& carry, const Array& one) {
          debug_print("carry {}", carry);
          return std::pair(carry + one, carry);
        },
        Array(0.0f), ones({2}));
  });
  ::testing::internal::CaptureStdout();
  f(x);
  std::fflush(stdout);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "a [1. 2. 3. 4.]\ncarry 0.0\ncarry 1.0\n");
}

TEST(MeshProcesses, PartsOfACallbackAreComparedWhereThatIsAsked) {
  const std::vector<DevicePtr> devices = virtual_devices(4);
  const Mesh mesh = make_mesh({2, 2}, {"x", "y"}, devices);
  int calls = 0;
  const auto counting = [&](const ShardIndex&) {
    return full({2}, static_cast<float>(calls++ == 3));
  };
  make_array_from_callback({4}, NamedSharding(mesh, P("x")), counting);
  calls = 0;
  EXPECT_THAT(
      message_of([&] {
        make_array_from_callback({4}, NamedSharding(mesh, P("x")), counting, std::nullopt,
                                 {.check_same = true});
      }),
      AllOf(HasSubstr("[make_array_from_callback] expected the same part on each device that holds "
                      "it, got f32[4] whose part"),
            HasSubstr("position 3 of the mesh has another value than most")));
  const auto fill = [](const ShardIndex& index, std::span<std::byte> out) {
    std::fill(out.begin(), out.end(), static_cast<std::byte>(index[0].begin));
  };
  make_array_from_fill({4}, DType::kI32, NamedSharding(mesh, P("x")), fill, {.check_same = true});

  const auto thrown = run_as_processes(3, 1, [](const ProcessOfTest& self) {
    const Mesh all = make_mesh({3}, {"x"});
    const auto same = [](const ShardIndex&) { return full({4}, 7.0f); };
    make_array_from_callback({4}, NamedSharding(all, P()), same, DType::kF32, {.check_same = true});
    EXPECT_LT(self.communicator->sent_bytes(), 200);
    make_array_from_callback(
        {4}, NamedSharding(all, P()),
        [&](const ShardIndex&) { return full({4}, self.index == 2 ? 8.0f : 7.0f); }, DType::kF32,
        {.check_same = true});
  });
  EXPECT_THAT(thrown,
              Each(HasSubstr("position 2 of the mesh (process 2) has another value than most")));
}

// ---- Rules of the user's own ----

TEST(MeshProcesses, ACustomRuleMayHoldCollectives) {
  const Mesh mesh = make_mesh({4}, {"x"}, virtual_devices(4));
  const auto gather = custom_vjp(
      [](const Array& w) { return all_gather(w, "x", {.tiled = true}); },
      [](const Array& w) { return std::pair(all_gather(w, "x", {.tiled = true}), Array(0.0f)); },
      [](const Array&, const Array& ct) { return psum_scatter(ct, "x", {.tiled = true}); });
  const auto loss_with = [&](const auto& gathered, bool again) {
    return shard_map(
        [=](const Array& w, const Array& x) {
          const auto layer = [=](const Array& part, const Array& in) {
            return tanh(matmul(in, gathered(part)));
          };
          return pmean(mean(square(again ? checkpoint(layer)(w, x) : layer(w, x))), "x");
        },
        mesh, {P("x"), P("x")}, P());
  };
  const Array w = ramp({8, 16}), x = ramp({12, 8});
  const auto plain = [](const Array& part) { return all_gather(part, "x", {.tiled = true}); };
  const auto want = jit(grad(loss_with(plain, false)))(w, x).to_vector<float>();
  EXPECT_EQ(jit(grad(loss_with(gather, false)))(w, x).to_vector<float>(), want);
  EXPECT_EQ(jit(grad(loss_with(gather, true)))(w, x).to_vector<float>(), want);
  const auto whole = [](const Array& v, const Array& in) {
    return mean(square(tanh(matmul(in, v))));
  };
  const auto near = jit(grad(whole))(w, x).to_vector<float>();
  for (size_t i = 0; i < near.size(); ++i) ASSERT_NEAR(want[i], near[i], 1e-6);
}

TEST(MeshProcesses, ACustomRuleMayMoveItsCotangent) {
  const Mesh mesh = make_mesh({2}, {"x"}, virtual_devices(2));
  const NamedSharding rows(mesh, P("x")), columns(mesh, P(nullptr, "x"));
  const auto turned = custom_vjp(
      [&](const Array& a) { return sharding::reshard(a * 3.0f, columns); },
      [&](const Array& a) { return std::pair(sharding::reshard(a * 3.0f, columns), Array(0.0f)); },
      [&](const Array&, const Array& ct) { return sharding::reshard(ct, rows) * 3.0f; });
  const Array x = device_put(ramp({4, 6}), rows);
  const auto f = [&](const Array& a) { return sum(square(turned(a))); };
  const auto compiled = jit(grad(f)).lower(x).compile();
  const Array g = compiled(x);
  int64_t n_turns = 0;
  for (const CollectiveCount& c : compiled.executable().collectives())
    if (c.op == ir::OpKind::kAllToAll) n_turns += c.count;
  EXPECT_EQ(n_turns, 2);
  EXPECT_EQ(g.to_vector<float>(), (ramp({4, 6}) * 3.0f * 2.0f * 3.0f).to_vector<float>());
}

TEST(MeshProcesses, CollectivesAreCountedAsTheyRun) {
  const auto thrown = run_as_processes(2, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({2}, {"x"});
    const Array w = device_put(ramp({3, 8, 8}), NamedSharding(mesh, P(nullptr, "x")));
    const Array x = device_put(ramp({4, 8}), NamedSharding(mesh, P("x")));
    const auto net = [](const Array& stack, const Array& in) {
      return sum(scan(checkpoint([](const Array& carry, const Array& layer) {
                        return tanh(matmul(carry, layer));
                      }),
                      in, stack));
    };
    const auto compiled = jit(grad(net)).lower(w, x).compile();
    int64_t n = 0;
    for (const CollectiveCount& c : compiled.executable().collectives()) n += c.count;
    compiled(w, x);  // compares programs once
    const int64_t before = self.communicator->n_collectives();
    compiled(w, x);
    EXPECT_EQ(self.communicator->n_collectives() - before, n);
    EXPECT_GE(n, 6);  // a collective in each iteration, forward and backward
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace stow
