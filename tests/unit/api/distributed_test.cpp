// Arrays over the devices of several processes: JAX's multiprocess/array_test and
// multihost_utils_test, in our words. Threads stand for processes; bench placement runs real ones.
#include "stowage/api/distributed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/threads_as_processes.h"

namespace stow {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::vector<float> counted(int64_t n) {
  std::vector<float> data(static_cast<size_t>(n));
  std::iota(data.begin(), data.end(), 0.0f);
  return data;
}

// What gtest's checks say is collected from all threads; its own macros may be used in each.
void expect_nothing_thrown(const std::vector<std::string>& thrown) {
  EXPECT_THAT(thrown, Each(""));
}

// Each element of the shards of this process, against its number in an array of counted elements.
void expect_counted(const Array& x) {
  for (const sharding::Shard& shard : addressable_shards(x)) {
    const auto values = shard.data.to_vector<float>();
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i)
      ASSERT_EQ(values[static_cast<size_t>(i)],
                static_cast<float>(run_in_box(x.shape(), shard.index, i).elem));
  }
}

TEST(Distributed, AProcessByItselfHasItsDefaultDevice) {
  const auto device = Device::virtual_device({1 << 20, 1 << 20, 1 << 20}, 1);
  const DefaultDevice guard(device);
  EXPECT_EQ(distributed::process_index(), 0);
  EXPECT_EQ(distributed::process_count(), 1);
  EXPECT_EQ(distributed::devices(), std::vector<DevicePtr>{device});
  EXPECT_EQ(make_mesh({1}, {"x"}).devices()[0], device);
  EXPECT_TRUE(distributed::is_local(device));
}

TEST(Distributed, SeveralDevicesOfOneProcess) {
  std::vector<DevicePtr> four;
  for (int i = 0; i < 4; ++i) four.push_back(Device::cpu_with_capacity((i + 1) << 20, i + 1));
  const ActAsProcess act(std::make_shared<const Processes>(four));  // so that no other test sees it
  distributed::set_local_devices({four[1], four[0], four[3], four[2]});
  EXPECT_EQ(distributed::local_devices().size(), 4u);
  const Mesh mesh = make_mesh({2, 2}, {"x", "y"});
  EXPECT_EQ(mesh.devices()[2], four[3]);
  EXPECT_EQ(mesh.devices()[2]->threads(), 4);
  const Array x = device_put(zeros({4, 4}), NamedSharding(mesh, P("x", "y")));
  EXPECT_EQ(four[3]->in_use_bytes(MemoryKind::kDevice), 16);
  EXPECT_THAT(message_of([&] { distributed::set_local_devices({}); }), HasSubstr("got none"));
  EXPECT_THAT(message_of([&] { distributed::set_local_devices({four[0], four[0]}); }),
              HasSubstr("is there twice"));
  EXPECT_THAT(message_of([&] { distributed::set_local_devices({four[0], nullptr}); }),
              HasSubstr("one of them is null"));
}

TEST(Distributed, DevicesOfOthersAreHandles) {
  expect_nothing_thrown(run_as_processes(3, 2, [](const ProcessOfTest& self) {
    EXPECT_EQ(distributed::process_index(), self.index);
    EXPECT_EQ(distributed::process_count(), 3);
    const auto devices = distributed::devices();
    ASSERT_EQ(devices.size(), 6u);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(distributed::process_of(devices[i]), static_cast<int>(i / 2));
      EXPECT_EQ(distributed::is_local(devices[i]), static_cast<int>(i / 2) == self.index);
    }
    const DevicePtr other = devices[self.index == 0 ? 5u : 0u];
    EXPECT_EQ(other->name(), self.index == 0 ? "process 2, device 1" : "process 0, device 0");
    EXPECT_THROW(other->allocate(4), CapacityError);
    EXPECT_THAT(message_of([&] { device_put(zeros({2}), SingleDeviceSharding(other)); }),
                HasSubstr("of another process; put it over a mesh"));
    EXPECT_THAT(message_of([&] { distributed::set_local_devices(self.devices); }),
                HasSubstr("the 3 processes know each other's devices already"));
  }));
}

TEST(Distributed, ACallbackAShardAndNoTraffic) {
  expect_nothing_thrown(run_as_processes(4, 2, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({4, 2}, {"x", "y"});
    int calls = 0;
    const Array x = make_array_from_callback(
        {8, 4}, NamedSharding(mesh, P("x")), [&](const ShardIndex& index) {
          ++calls;
          EXPECT_EQ(index[0].begin, 2 * self.index);
          const auto all = counted(32);
          return Array::from(std::vector<float>(all.begin() + index[0].begin * 4,
                                                all.begin() + index[0].end * 4),
                             {2, 4});
        });
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(self.communicator->sent_bytes(), 0);
    EXPECT_EQ(self.communicator->n_collectives(), 0);
    EXPECT_FALSE(is_fully_addressable(x));
    const auto shards = addressable_shards(x);
    ASSERT_EQ(shards.size(), 2u);
    EXPECT_EQ(shards[1].replica_id, 1);
    expect_counted(x);
    EXPECT_THAT(
        message_of([&] { x.to_vector<float>(); }),
        AllOf(HasSubstr("[to_vector] expected an array that lies whole in this process, got "
                        "f32[8,4]"),
              HasSubstr("cut over processes 0 to 3"),
              HasSubstr("device_put(x, NamedSharding(mesh, P()))")));
    EXPECT_THAT(to_string(x),
                HasSubstr("Array(f32[8,4], cut over processes 0 to 3, NamedSharding("));
    const auto saved = save_tree("never-written", std::map<std::string, Array>{{"x", x}});
    ASSERT_FALSE(saved);
    EXPECT_THAT(saved.error(), HasSubstr("'x' is cut over processes 0 to 3"));
    // Programs run over the devices of all of them.
    const Array y = device_put(jit([](const Array& a) { return sum(a + 1.0f, {1}); })(x),
                               NamedSharding(mesh, P()));
    const std::vector<float> sums = y.to_vector<float>();
    for (size_t row = 0; row < 8; ++row)
      EXPECT_EQ(sums[row], 16.0f * static_cast<float>(row) + 10.0f);
  }));
}

TEST(Distributed, ProcessesOutsideTheMeshHoldNothing) {
  expect_nothing_thrown(run_as_processes(3, 1, [](const ProcessOfTest& self) {
    const auto devices = distributed::devices();
    const Mesh mesh = make_mesh({2}, {"x"}, {devices[0], devices[2]});
    const NamedSharding cut(mesh, P("x"));
    const auto one = [](const ShardIndex&) { return ones({2}); };
    if (self.index == 1) {
      EXPECT_THAT(message_of([&] { make_array_from_callback({4}, cut, one); }),
                  HasSubstr("expected a dtype: this process has no device of NamedSharding("));
    }
    const Array x = make_array_from_callback({4}, cut, one, DType::kF32);
    EXPECT_EQ(addressable_shards(x).size(), self.index == 1 ? 0u : 1u);
    EXPECT_EQ(x.dtype(), DType::kF32);
    // A placement asks those of the mesh alone; the value of process 1 does not matter.
    const Array y =
        device_put(Array::from(std::vector<float>(4, self.index == 1 ? 7.f : 3.f)), cut);
    EXPECT_EQ(self.communicator->n_collectives() > 0, self.index != 1);
    EXPECT_THAT(message_of([&] { y.to_vector<float>(); }), HasSubstr("cut over processes 0 and 2"));
  }));
}

TEST(Distributed, PlacementSendsDigestsOnly) {
  expect_nothing_thrown(run_as_processes(4, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({4}, {"x"});
    const auto data = counted(1 << 20);
    const DevicePtr device = self.devices[0];
    const Array whole =
        device_put(std::span<const float>(data), {1 << 20}, NamedSharding(mesh, P()));
    EXPECT_EQ(device->in_use_bytes(MemoryKind::kDevice), 4 << 20);
    EXPECT_LT(self.communicator->sent_bytes(), 1024);
    EXPECT_EQ(whole.to_vector<float>(), data);  // replicated: here too
    EXPECT_TRUE(is_fully_replicated(whole));
    const Array part =
        device_put(std::span<const float>(data), {1 << 20}, NamedSharding(mesh, P("x")));
    EXPECT_EQ(device->in_use_bytes(MemoryKind::kDevice), 5 << 20);
    expect_counted(part);
    const std::vector<Array> tree = {Array::from(data), Array(1.5f),
                                     Array::from({true, false, true, true})};
    const int64_t collectives = self.communicator->n_collectives();
    device_put(tree, NamedSharding(mesh, P()));
    EXPECT_EQ(self.communicator->n_collectives(), collectives + 1);  // for all leaves
    EXPECT_LT(self.communicator->sent_bytes(), 2048);
  }));
}

TEST(Distributed, ValuesThatDifferNameLeafAndProcess) {
  const auto thrown = run_as_processes(4, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({4}, {"x"});
    std::map<std::string, Array> tree = {{"bias", ones({4})}, {"scale", ones({4})}};
    auto weights = counted(64);
    if (self.index == 2) weights[37] = 36.5f;
    tree["weights"] = Array::from(weights);
    const int64_t before = self.devices[0]->high_water_bytes(MemoryKind::kDevice);
    try {
      device_put(tree, NamedSharding(mesh, P()));
    } catch (...) {
      EXPECT_EQ(self.devices[0]->high_water_bytes(MemoryKind::kDevice), before);
      throw;
    }
  });
  EXPECT_THAT(thrown,
              Each(AllOf(HasSubstr("[device_put] expected the same value on each process, got the "
                                   "leaf 'weights' f32[64]: process 2 has another value"),
                         Not(HasSubstr("bias")))));
}

TEST(Distributed, TypesThatDifferAreSeenToo) {
  const auto thrown = run_as_processes(3, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({3}, {"x"});
    // The same bytes.
    const Array zero = zeros({3}, self.index == 1 ? DType::kI32 : DType::kF32);
    device_put(zero, NamedSharding(mesh, P()));
  });
  EXPECT_THAT(thrown, Each(HasSubstr("process 1 has another value than most")));
}

TEST(Distributed, ChecksCanBeLeftOut) {
  expect_nothing_thrown(run_as_processes(2, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({2}, {"x"});
    device_put(Array::from({1.f, static_cast<float>(self.index)}), NamedSharding(mesh, P()),
               {.check_same = false});
    EXPECT_EQ(self.communicator->n_collectives(), 0);
  }));
}

TEST(Distributed, ArraysPlacedByNameDoNotSpread) {
  expect_nothing_thrown(run_as_processes(2, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({2}, {"x"});
    const Array here = device_put(zeros({2}), SingleDeviceSharding(self.devices[0]));
    for (const bool check : {true, false})
      EXPECT_THAT(
          message_of([&] { device_put(here, NamedSharding(mesh, P("x")), {.check_same = check}); }),
          AllOf(HasSubstr("[device_put] expected a value that every process has, got f32[2]"),
                HasSubstr("make_array_from_process_local_data")));
    // Over a mesh of this process alone, too.
    const Array local = device_put(
        zeros({2}), NamedSharding(make_mesh({1, 1}, {"a", "b"}, {self.devices[0]}), P()));
    EXPECT_THAT(message_of([&] { device_put(local, NamedSharding(mesh, P("x"))); }),
                HasSubstr("expected a value that every process has"));
  }));
}

TEST(Distributed, ReshardsGoPieceByPiece) {
  const std::vector<PartitionSpec> specs = {P(),         P("x"),           P("y"),
                                            P(nullptr, "x"), P("x", "y"), P(P::Axes{"y", "x"})};
  expect_nothing_thrown(run_as_processes(4, 2, [&](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({4, 2}, {"x", "y"});
    const auto data = counted(16 * 24);
    for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kDisk})
      for (const PartitionSpec& from : specs)
        for (const PartitionSpec& to : specs) {
          const Array x =
              device_put(std::span<const float>(data), {16, 24}, NamedSharding(mesh, from));
          const Array y = device_put(x, NamedSharding(mesh, to, memory_kind_name(kind)));
          EXPECT_EQ(y.type().kind, kind);
          expect_counted(y);
          if (is_fully_replicated(y)) {
            EXPECT_EQ(y.to_vector<float>(), data);
          }
        }
    EXPECT_EQ(self.devices[0]->in_use_bytes(MemoryKind::kDevice), 0);
  }));
}

TEST(Distributed, LargeReshardsNeverHoldTheWhole) {
  expect_nothing_thrown(run_as_processes(4, 1, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({4}, {"x"});
    const int64_t rows = 1536, bytes = rows * rows * 4;  // transfers of several pieces
    const Array x = make_array_from_fill(
        {rows, rows}, DType::kF32, NamedSharding(mesh, P("x")),
        [&](const ShardIndex& index, std::span<std::byte> out) {
          auto* to = reinterpret_cast<float*>(out.data());
          for (int64_t i = 0; i < elems_of(index); ++i)
            to[i] = static_cast<float>(run_in_box({rows, rows}, index, i).elem);
        });
    Device& device = *self.devices[0];
    device.reset_high_water();
    const Array y = device_put(x, NamedSharding(mesh, P(nullptr, "x")));
    EXPECT_EQ(device.high_water_bytes(MemoryKind::kDevice), bytes / 2);  // a quarter each
    expect_counted(y);
    EXPECT_LT(self.communicator->sent_bytes(), bytes / 2);
  }));
}

TEST(Distributed, ReshardsStayOnTheSameDevices) {
  expect_nothing_thrown(run_as_processes(3, 1, [](const ProcessOfTest&) {
    const auto devices = distributed::devices();
    const Mesh mesh = make_mesh({2}, {"x"}, {devices[0], devices[1]});
    const Mesh other = make_mesh({2}, {"x"}, {devices[0], devices[2]});
    const Array x = device_put(zeros({4}), NamedSharding(mesh, P("x")));
    EXPECT_THAT(message_of([&] { device_put(x, NamedSharding(other, P("x"))); }),
                HasSubstr("[device_put] expected a sharding over the same devices, since f32[4]"));
  }));
}

// ---- make_array_from_process_local_data ----

TEST(Distributed, LocalDataGivesTheShape) {
  expect_nothing_thrown(run_as_processes(4, 2, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({4, 2}, {"x", "y"});
    const int process = self.index;
    const auto all = counted(8 * 4);
    // [2, 4] of rows of this process.
    const std::vector<float> rows(all.begin() + process * 8, all.begin() + (process + 1) * 8);
    for (const PartitionSpec& spec : {P("x"), P("x", "y"), P(P::Axes{"x", "y"})}) {
      const Array x = make_array_from_process_local_data(NamedSharding(mesh, spec), rows, {2, 4});
      EXPECT_EQ(x.shape(), (Shape{8, 4})) << to_string(spec);
      expect_counted(x);
    }
    // Not cut between processes: everyone has all of it.
    for (const PartitionSpec& spec : {P(), P("y"), P(nullptr, "y")}) {
      const Array x = make_array_from_process_local_data(NamedSharding(mesh, spec), all, {8, 4});
      EXPECT_EQ(x.shape(), (Shape{8, 4}));
      expect_counted(x);
    }
    // Given whole, an axis is cut here.
    const Array cut = make_array_from_process_local_data(NamedSharding(mesh, P("x", "y")), all,
                                                         {8, 4}, Shape{8, 4});
    expect_counted(cut);
    const Array same = make_array_from_process_local_data(NamedSharding(mesh, P("x")), rows, {2, 4},
                                                          Shape{8, 4});
    expect_counted(same);
    EXPECT_EQ(self.communicator->n_collectives(), 0);
  }));
}

TEST(Distributed, LocalDataOfProcessesThatAlternate) {
  // Process 0 has parts 0 and 2 of the rows, process 1 has 1 and 3.
  expect_nothing_thrown(run_as_processes(2, 2, [](const ProcessOfTest& self) {
    const auto d = distributed::devices();
    const Mesh mesh = make_mesh({4}, {"x"}, {d[0], d[2], d[1], d[3]});
    const float first = static_cast<float>(self.index);
    const std::vector<float> own = {first, first + 2};
    const Array x = make_array_from_process_local_data(NamedSharding(mesh, P("x")), own, {2});
    EXPECT_EQ(x.shape(), Shape{4});
    expect_counted(x);
  }));
}

TEST(Distributed, LocalDataIsChecked) {
  expect_nothing_thrown(run_as_processes(2, 2, [](const ProcessOfTest&) {
    const auto d = distributed::devices();
    const Mesh mesh = make_mesh({2, 2}, {"x", "y"});
    const std::vector<float> six = counted(6);
    const auto made = [&](const Sharding& sharding, const Shape& local,
                          const std::optional<Shape>& shape = std::nullopt) {
      return message_of([&] { make_array_from_process_local_data(sharding, six, local, shape); });
    };
    const NamedSharding rows(mesh, P("x")), both(mesh, P(P::Axes{"x", "y"}));
    EXPECT_THAT(made(rows, {5}), HasSubstr("local data of shape [5] has 5 elements, got 6"));
    EXPECT_THAT(
        made(rows, {6}, Shape{20}),
        HasSubstr("expected 10 or 20 elements along axis 0 of the local data for an array of "
                  "shape [20]"));
    EXPECT_THAT(made(rows, {6}, Shape{3, 4}), HasSubstr("expected local data of rank 2"));
    EXPECT_THAT(made(rows, {6}, Shape{7}), HasSubstr("the nearest sizes that are: 6 and 8"));
    EXPECT_EQ(made(both, {6}), "nothing was thrown");
    EXPECT_THAT(made(NamedSharding(make_mesh({3}, {"x"}, {d[0], d[1], d[2]}), P("x")), {6}),
                HasSubstr("axis 0 is cut unevenly between processes by NamedSharding(Mesh('x': 3), "
                          "P('x'), device); give the shape of the whole array"));
  }));
}

TEST(Distributed, SingleDeviceArraysOfEachProcess) {
  expect_nothing_thrown(run_as_processes(2, 2, [](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({4}, {"x"});
    std::vector<Array> parts;
    for (int i = 0; i < 2; ++i)
      parts.push_back(device_put(Array::from({static_cast<float>(2 * self.index + i)}),
                                 SingleDeviceSharding(self.devices[static_cast<size_t>(i)])));
    const NamedSharding cut(mesh, P("x"));
    expect_counted(make_array_from_single_device_arrays({4}, cut, parts));
    parts.pop_back();
    EXPECT_THAT(message_of([&] { make_array_from_single_device_arrays({4}, cut, parts); }),
                HasSubstr("expected 2 arrays, one for each device of"));
  }));
}

TEST(Distributed, HostDataUnderCutInShardingsIsRefused) {
  expect_nothing_thrown(run_as_processes(2, 1, [](const ProcessOfTest&) {
    const Mesh mesh = make_mesh({2}, {"x"});
    const auto f = [](const Array& a) { return a + a; };
    EXPECT_THAT(message_of([&] {
                  jit(f, {.in_shardings = NamedSharding(mesh, P("x")), .name = "step"})(zeros({4}));
                }),
                AllOf(HasSubstr("[step] expected an array over the mesh for argument 0"),
                      HasSubstr("make_array_from_process_local_data")));
  }));
}

TEST(Distributed, LoadingReadsTheRangesOfOwnShards) {
  const auto data = counted(64);
  const TemporaryFolder folder;
  const std::string file = folder / "tree.safetensors";
  ASSERT_TRUE(save_tree(file, std::map<std::string, Array>{{"x", Array::from(data, {16, 4})}}));
  expect_nothing_thrown(run_as_processes(4, 1, [&](const ProcessOfTest& self) {
    const Mesh mesh = make_mesh({4}, {"x"});
    for (const PartitionSpec& spec : {P("x"), P(nullptr, "x"), P()}) {
      const auto loaded = load_tree(
          file, std::map<std::string, Array>{
                    {"x", device_put(Array::abstract({16, 4}), NamedSharding(mesh, spec))}});
      ASSERT_TRUE(loaded) << loaded.error();
      expect_counted(loaded->at("x"));
    }
    EXPECT_EQ(self.communicator->n_collectives(), 0);
  }));
}

}  // namespace
}  // namespace stow
