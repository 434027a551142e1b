// Arrays over several devices of one process: JAX's array_test and multihost_utils_test, in our
// words. Each memory kind runs the same tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

std::vector<float> counted(int64_t n) {
  std::vector<float> data(static_cast<size_t>(n));
  std::iota(data.begin(), data.end(), 0.0f);
  return data;
}

class ArraysOfShards : public ::testing::TestWithParam<MemoryKind> {
 protected:
  ArraysOfShards() {
    for (int i = 0; i < 8; ++i)
      devices_.push_back(Device::virtual_device({16 * kMiB, 16 * kMiB, 16 * kMiB}, 1));
    mesh_.emplace(make_mesh({4, 2}, {"x", "y"}, devices_));
  }
  NamedSharding cut(const PartitionSpec& spec) const {
    return NamedSharding(*mesh_, spec, memory_kind_name(GetParam()));
  }
  // [8, 4], counted, cut so.
  Array put(const PartitionSpec& spec) const {
    return device_put(std::span<const float>(data_), {8, 4}, cut(spec));
  }
  int64_t in_use(size_t device) const { return devices_[device]->in_use_bytes(GetParam()); }
  int64_t in_use() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < devices_.size(); ++i) bytes += in_use(i);
    return bytes;
  }

  std::vector<DevicePtr> devices_;
  std::optional<Mesh> mesh_;
  std::vector<float> data_ = counted(32);
};

TEST_P(ArraysOfShards, ShardsHaveDeviceIndexReplicaAndData) {
  const Array x = put(P("x", "y"));
  EXPECT_EQ(x.shape(), (Shape{8, 4}));
  EXPECT_EQ(sharding_of(x), Sharding(cut(P("x", "y"))));
  const auto shards = addressable_shards(x);
  ASSERT_EQ(shards.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const int64_t row = static_cast<int64_t>(i / 2) * 2, column = static_cast<int64_t>(i % 2) * 2;
    EXPECT_EQ(shards[i].device, devices_[i]);
    EXPECT_EQ(shards[i].index, (ShardIndex{{row, row + 2}, {column, column + 2}}));
    EXPECT_EQ(shards[i].replica_id, 0);
    EXPECT_EQ(shards[i].data.shape(), (Shape{2, 2}));
    const float first = static_cast<float>(row * 4 + column);
    EXPECT_EQ(shards[i].data.to_vector<float>(),
              (std::vector<float>{first, first + 1, first + 4, first + 5}));
    EXPECT_EQ(sharding_of(shards[i].data).device(), devices_[i]);
    EXPECT_EQ(in_use(i), 16);
  }
}

TEST_P(ArraysOfShards, ReplicasHoldTheSamePart) {
  const Array x = put(P("y"));
  const auto shards = addressable_shards(x);
  EXPECT_EQ(shards[5].index, (ShardIndex{{4, 8}, {0, 4}}));
  EXPECT_EQ(shards[5].replica_id, 2);
  EXPECT_EQ(shards[5].data.to_vector<float>(), shards[1].data.to_vector<float>());
  EXPECT_EQ(in_use(), 4 * 32 * 4);
  EXPECT_FALSE(is_fully_replicated(x));
  EXPECT_TRUE(is_fully_replicated(put(P())));
  EXPECT_TRUE(is_fully_addressable(x));
}

TEST_P(ArraysOfShards, AreReadWhole) {
  for (const PartitionSpec& spec : {P(), P("x"), P(nullptr, "y"), P("x", "y"), P("y", "x"),
                                    P(P::Axes{"y", "x"}), P(nullptr, P::Axes{"x"})})
    EXPECT_EQ(put(spec).to_vector<float>(), data_) << to_string(spec);
  const Array one = device_put(2.5f, cut(P()));
  EXPECT_EQ(one.item<float>(), 2.5f);
  EXPECT_EQ(put(P("x")).to_vector<int>(), std::vector<int>(data_.begin(), data_.end()));
  const Array bools = device_put(Array::from({true, false, true, true}), cut(P("x")));
  EXPECT_EQ(bools.to_vector<bool>(), (std::vector<bool>{true, false, true, true}));
  const Array none = device_put(zeros({0, 4}), cut(P("x", "y")));
  EXPECT_EQ(none.to_vector<float>(), std::vector<float>{});
  EXPECT_EQ(addressable_shards(none)[3].data.shape(), (Shape{0, 2}));
}

TEST_P(ArraysOfShards, ArePrinted) {
  const Array x = device_put(Array::from({1.f, 2.f, 3.f, 4.f}), cut(P("x")));
  const std::string text = to_string(x);
  EXPECT_THAT(text, AllOf(HasSubstr("Array([1. 2. 3. 4.], f32"),
                          HasSubstr("NamedSharding(Mesh('x': 4, 'y': 2), P('x'), ")));
}

TEST_P(ArraysOfShards, LargeArraysGoPieceByPiece) {
  const auto large = counted(1 << 20);  // 4 MiB: several pieces on the way to a disk and back
  const Array x = device_put(std::span<const float>(large), {1024, 1024}, cut(P("y", "x")));
  EXPECT_EQ(x.to_vector<float>(), large);
  EXPECT_EQ(in_use(3), 4 * kMiB / 8);
  EXPECT_EQ(device_put(x, cut(P("x"))).to_vector<float>(), large);
}

TEST_P(ArraysOfShards, ArraysGoFromOneShardingToAnother) {
  const std::vector<PartitionSpec> specs = {P(), P("x"), P("y"), P(nullptr, "x"), P("x", "y"),
                                            P("y", "x"), P(P::Axes{"x", "y"})};
  for (const PartitionSpec& from : specs)
    for (const PartitionSpec& to : specs) {
      const Array moved = device_put(put(from), cut(to));
      EXPECT_EQ(moved.to_vector<float>(), data_) << to_string(from) << to_string(to);
      EXPECT_EQ(sharding_of(moved), Sharding(cut(to)));
      const auto shards = addressable_shards(moved), straight = addressable_shards(put(to));
      for (size_t i = 0; i < shards.size(); ++i) {
        EXPECT_EQ(shards[i].index, straight[i].index);
        EXPECT_EQ(shards[i].data.to_vector<float>(), straight[i].data.to_vector<float>());
      }
    }
  // Other devices, another mesh of the same ones, one device and back.
  const Mesh half = make_mesh({2}, {"z"}, {devices_[6], devices_[1]});
  const NamedSharding other(half, P(nullptr, "z"), memory_kind_name(GetParam()));
  EXPECT_EQ(device_put(put(P("x")), other).to_vector<float>(), data_);
  const Array one = device_put(put(P("x", "y")), SingleDeviceSharding(devices_[2]));
  EXPECT_EQ(one.to_vector<float>(), data_);
  EXPECT_EQ(addressable_shards(one).size(), 1u);
  EXPECT_EQ(device_put(one, cut(P("y"))).to_vector<float>(), data_);
}

TEST_P(ArraysOfShards, PartsThatStayAreNotCopied) {
  const Array x = put(P("x"));
  const int64_t before = in_use();
  const Array same = device_put(x, cut(P("x", nullptr)));
  EXPECT_EQ(in_use(), before);
  EXPECT_EQ(sharding_of(same), Sharding(cut(P("x", nullptr))));
  EXPECT_EQ(device_put(x, cut(P("x"))).impl(), x.impl());
}

TEST_P(ArraysOfShards, KindsChangeOnEachDevice) {
  const Array x = put(P("x", "y"));
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kDisk}) {
    const Array moved = device_put(x, kind);
    EXPECT_EQ(moved.type().kind, kind);
    EXPECT_EQ(sharding_of(moved),
              Sharding(cut(P("x", "y"))).with_memory_kind(memory_kind_name(kind)));
    EXPECT_EQ(moved.to_vector<float>(), data_);
    EXPECT_GE(devices_[7]->in_use_bytes(kind), 16);
  }
}

TEST_P(ArraysOfShards, MemoryGoesBackWithTheArray) {
  {
    const Array x = put(P("x"));
    const Array y = device_put(x, cut(P("y")));
    EXPECT_GT(in_use(), 0);
  }
  EXPECT_EQ(in_use(), 0);
  Array shard;
  {
    const Array x = put(P("x"));
    shard = addressable_shards(x)[2].data;
  }
  EXPECT_EQ(in_use(), 32);
  EXPECT_EQ(shard.to_vector<float>(), (std::vector<float>{8, 9, 10, 11, 12, 13, 14, 15}));
}

TEST_P(ArraysOfShards, FullDevicesSaySo) {
  EXPECT_THROW(device_put(std::vector<Array>{zeros({5 << 20}), zeros({5 << 20})}, cut(P())),
               CapacityError);
  EXPECT_EQ(in_use(), 0);
}

// ---- make_array_from_callback ----

TEST_P(ArraysOfShards, FromACallbackCalledOnceAShard) {
  std::vector<std::string> calls;
  const Array x = make_array_from_callback({8, 4}, cut(P("x", "y")), [&](const ShardIndex& index) {
    calls.push_back(to_string(index));
    std::vector<float> part;
    for (int64_t r = index[0].begin; r < index[0].end; ++r)
      for (int64_t c = index[1].begin; c < index[1].end; ++c)
        part.push_back(data_[static_cast<size_t>(r * 4 + c)]);
    return Array::from(part, {2, 2});
  });
  EXPECT_EQ(x.to_vector<float>(), data_);
  EXPECT_EQ(calls.size(), 8u);
  EXPECT_EQ(calls[3], "[2:4, 2:4]");
  EXPECT_EQ(x.type().kind, GetParam());
}

TEST_P(ArraysOfShards, PartsOfACallbackAreChecked) {
  const auto from = [&](const std::function<Array(const ShardIndex&)>& callback,
                        std::optional<DType> dtype = std::nullopt) {
    return message_of([&] { make_array_from_callback({8, 4}, cut(P("x")), callback, dtype); });
  };
  EXPECT_THAT(
      from([](const ShardIndex&) {
        return zeros({2, 3});
      }),
      HasSubstr("[make_array_from_callback] expected a part of shape [2,4] for [0:2, 0:4], the "
                "callback returned f32[2,3]"));
  EXPECT_THAT(from([](const ShardIndex&) { return zeros({2, 4}); }, DType::kI32),
              HasSubstr("expected a part of i32 for [0:2, 0:4], the callback returned f32[2,4]"));
  EXPECT_THAT(from([](const ShardIndex& i) {
                return zeros({2, 4}, i[0].begin == 4 ? DType::kF64 : DType::kF32);
              }),
              HasSubstr("expected a part of f32 for [4:6, 0:4], the callback returned f64[2,4]"));
  EXPECT_THAT(from([](const ShardIndex&) { return Array(); }), HasSubstr("returned no data"));
  EXPECT_EQ(in_use(), 0);
}

TEST_P(ArraysOfShards, FilledInPlace) {
  const Array x = make_array_from_fill({8, 4}, DType::kF32, cut(P("y", "x")),
                                       [&](const ShardIndex& index, std::span<std::byte> out) {
                                         auto* to = reinterpret_cast<float*>(out.data());
                                         for (int64_t r = index[0].begin; r < index[0].end; ++r)
                                           for (int64_t c = index[1].begin; c < index[1].end; ++c)
                                             *to++ = static_cast<float>(r * 4 + c);
                                       });
  EXPECT_EQ(x.to_vector<float>(), data_);
}

// ---- make_array_from_single_device_arrays ----

TEST_P(ArraysOfShards, FromSingleDeviceArrays) {
  std::vector<Array> parts;
  for (const auto& shard : addressable_shards(put(P("x", "y")))) parts.push_back(shard.data);
  std::swap(parts[0], parts[6]);  // any order
  const int64_t before = in_use();
  const Array x = make_array_from_single_device_arrays({8, 4}, cut(P("x", "y")), parts);
  EXPECT_EQ(in_use(), before);
  EXPECT_EQ(x.to_vector<float>(), data_);
}

TEST_P(ArraysOfShards, SingleDeviceArraysAreChecked) {
  const auto part = [&](size_t device, const Array& value) {
    return device_put(value, SingleDeviceSharding(devices_[device], memory_kind_name(GetParam())));
  };
  std::vector<Array> good;
  for (size_t i = 0; i < 8; ++i) good.push_back(part(i, zeros({2, 4})));
  const auto made = [&](const std::function<void(std::vector<Array>&)>& change) {
    std::vector<Array> arrays = good;
    change(arrays);
    return message_of(
        [&] { make_array_from_single_device_arrays({8, 4}, cut(P("x")), arrays); });
  };
  EXPECT_EQ(made([](std::vector<Array>&) {}), "nothing was thrown");
  EXPECT_THAT(made([](std::vector<Array>& a) { a.pop_back(); }),
              AllOf(HasSubstr("expected 8 arrays, one for each device of NamedSharding("),
                    HasSubstr("got 7")));
  EXPECT_THAT(made([&](std::vector<Array>& a) { a[3] = part(5, zeros({2, 4})); }),
              HasSubstr("two arrays lie on the device virtual:"));
  EXPECT_THAT(made([&](std::vector<Array>& a) {
                a[3] = device_put(zeros({2, 4}),
                                  SingleDeviceSharding(
                                      Device::virtual_device({kMiB, kMiB, kMiB}, 1),
                                      memory_kind_name(GetParam())));
              }),
              HasSubstr("array 3 lies on the device virtual:"));
  EXPECT_THAT(made([&](std::vector<Array>& a) { a[3] = part(3, zeros({2, 4}, DType::kI32)); }),
              HasSubstr("expected arrays of one dtype, array 0 is f32 and array 3 is i32"));
  EXPECT_THAT(made([&](std::vector<Array>& a) { a[3] = part(3, zeros({4, 4})); }),
              AllOf(HasSubstr("expected shards of shape [2,4] for an array of shape [8,4]"),
                    HasSubstr("array 3 has shape [4,4]")));
  EXPECT_THAT(made([&](std::vector<Array>& a) {
                a[3] = device_put(a[3], GetParam() == MemoryKind::kDevice ? MemoryKind::kPinnedHost
                                                                          : MemoryKind::kDevice);
              }),
              HasSubstr("array 3 is in "));
  EXPECT_THAT(made([&](std::vector<Array>& a) { a[3] = put(P("x")); }),
              HasSubstr("expected an array on one device, array 3 is"));
}

// ---- trees and files ----

TEST_P(ArraysOfShards, TreesAreSavedWholeAndLoadedInParts) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/tree.safetensors";
  const std::map<std::string, Array> tree = {
      {"a", put(P("x", "y"))},
      {"b", Array::from({1.f, 2.f})},
      {"c", device_put(Array::from({true, false}), cut(P("y")))}};
  ASSERT_TRUE(save_tree(file, tree));
  for (const PartitionSpec& spec : {P("x", "y"), P("y", "x"), P(nullptr, "x"), P()}) {
    const std::map<std::string, Array> like = {
        {"a", device_put(Array::abstract({8, 4}), cut(spec))},
        {"b", Array::abstract({2})},
        {"c", device_put(Array::abstract({2}, DType::kBool), cut(P("y")))}};
    const auto loaded = load_tree(file, like);
    ASSERT_TRUE(loaded) << loaded.error();
    EXPECT_EQ(loaded->at("a").to_vector<float>(), data_);
    EXPECT_EQ(sharding_of(loaded->at("a")), Sharding(cut(spec)));
    EXPECT_EQ(addressable_shards(loaded->at("a")).size(), 8u);
    EXPECT_EQ(loaded->at("b").to_vector<float>(), (std::vector<float>{1, 2}));
    EXPECT_EQ(loaded->at("c").to_vector<bool>(), (std::vector<bool>{true, false}));
  }
}

// ---- programs ----

TEST_P(ArraysOfShards, ProgramsRunOverTheirMesh) {
  if (GetParam() != MemoryKind::kDevice) return;
  const Array x = put(P("x"));
  const std::vector<float> want =
      (Array::from(x.to_vector<float>(), {8, 4}) + 1.0f).to_vector<float>();
  EXPECT_EQ((x + 1.0f).to_vector<float>(), want);
  EXPECT_EQ(jit([](const Array& a) { return a + 1.0f; })(x).to_vector<float>(), want);
  EXPECT_EQ(jit([&] { return x + 1.0f; })().to_vector<float>(), want);
  const Array ones = jit([](const Array& a) { return a + 1.0f; }, {.in_shardings = cut(P("x"))})(
      zeros({8}));
  EXPECT_EQ(addressable_shards(ones).size(), 8u);
  EXPECT_EQ(ones.to_vector<float>(), std::vector<float>(8, 1));
  EXPECT_EQ(jit([&](const Array& a) { return device_put(a, cut(P("x"))); })(zeros({8}))
                .to_vector<float>(),
            std::vector<float>(8, 0));
}

TEST_P(ArraysOfShards, ProgramsSeeShardingsThatDiffer) {
  if (GetParam() != MemoryKind::kDevice) return;
  const auto f = jit([](const Array& a, const Array& b) { return a + b; }, {.name = "step"});
  const Mesh other = make_mesh({8}, {"z"}, {devices_.rbegin(), devices_.rend()});
  const Array on_other = device_put(zeros({8, 4}), NamedSharding(other, P("z")));
  EXPECT_THAT(
      message_of([&] { f(put(P("x")), on_other); }),
      HasSubstr("[step] expected one mesh, argument 0 is on Mesh('x': 4, 'y': 2) and argument 1 "
                "on Mesh('z': 8)"));
  EXPECT_THAT(message_of([&] {
                jit([](const Array& a) { return a + a; },
                    {.in_shardings = cut(P("y")), .name = "step"})(put(P("x")));
              }),
              HasSubstr(
                  "[step] in_shardings say NamedSharding(Mesh('x': 4, 'y': 2), P('y'), device) for "
                  "argument 0, which lies as NamedSharding(Mesh('x': 4, 'y': 2), P('x'), device)"));
  // The cache: each sharding is traced once.
  for (int i = 0; i < 2; ++i)
    for (const PartitionSpec& spec : {P("x"), P("y"), P()})
      message_of([&] { f(put(spec), put(spec)); });
  EXPECT_EQ(f.n_traces(), 3);
  // What is planned without data, too.
  const Array x = device_put(Array::abstract({8, 4}), cut(P("x")));
  EXPECT_EQ(f.lower(x, x).compile().memory_analysis().device().argument_bytes, 2 * 8 * 4 * 4 / 4);
}

TEST_P(ArraysOfShards, ShardsAreNotDonatedUnderTheirArray) {
  if (GetParam() != MemoryKind::kDevice) return;
  const auto f =
      jit([](const Array& a) { return a + 1.0; }, {.donate_argnums = {0}, .name = "step"});
  Array x = put(P("x"));
  const Array shard = addressable_shards(x)[1].data;
  EXPECT_THAT(message_of([&] { f(shard); }),
              HasSubstr("[step] argument 0 is donated, and shares its memory"));
  EXPECT_EQ(x.to_vector<float>(), data_);
  x = Array();  // then nobody else has it
  EXPECT_EQ(f(shard).to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, ArraysOfShards,
                         ::testing::Values(MemoryKind::kDevice, MemoryKind::kPinnedHost,
                                           MemoryKind::kDisk),
                         [](const auto& info) {
                           return std::string(memory_kind_name(info.param));
                         });

}  // namespace
}  // namespace stow
