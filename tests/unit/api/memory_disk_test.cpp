// Arrays and programs on disk, through api/memory and runtime/disk: faults in the midst of a run,
// devices without a disk, arrays in pieces, scans over stacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/stowage.h"
#include "tests/support/disk_faults.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using testing::RandomFaults;

constexpr int64_t kMiB = 1 << 20;
const SingleDeviceSharding kDisk("disk"), kDevice("device");

struct Weights {
  Array w1, w2;
};
STOW_TREE(Weights, w1, w2);

// Layers y = tanh(x w1), x = y w2, scanned, the carry offloaded to disk, the weights there, one
// step of descent in place.
class Training {
 public:
  static constexpr int64_t kLayers = 4, kRows = 20, kWidth = 24, kHidden = 60;

  static Weights initial() {
    return {random::normal(random::key(2), {kLayers, kWidth, kHidden}) * 0.2,
            random::normal(random::key(3), {kLayers, kHidden, kWidth}) * 0.2};
  }
  static Array input() { return random::normal(random::key(1), {kRows, kWidth}); }

  static Array loss(const Weights& weights, const Array& x, MemoryKind kind) {
    const auto body = checkpoint(
        [](const Array& h, const Weights& w) {
          const Weights here = device_put(w, kDevice);
          return matmul(tanh(matmul(checkpoint_name(h, "h"), here.w1)), here.w2);
        },
        kind == MemoryKind::kDevice ? everything_saveable()
                                    : save_and_offload_only_these_names({}, {"h"}, kind));
    return sum(scan(body, x, weights));
  }

  static Weights step(const Weights& w, const Array& x, MemoryKind kind) {
    const Weights g = grad([&](const Weights& p) { return loss(p, x, kind); })(w);
    const auto update = [&](const Array& p, const Array& d) {
      return device_put(device_put(p, kDevice) - device_put(d, kDevice) * 0.1,
                        SingleDeviceSharding(kind));
    };
    return {update(w.w1, g.w1), update(w.w2, g.w2)};
  }
};

std::vector<std::vector<float>> values(const Weights& w) {
  return {w.w1.to_vector<float>(), w.w2.to_vector<float>()};
}

TEST(DiskPrograms, EndRightOrWithAClearErrorWhateverTheDiskDoes) {
  TemporaryFolder folder;
  const auto faults = std::make_shared<RandomFaults>(RandomFaults::Rates{}, 7);
  const DevicePtr device = Device::virtual_device({64 * kMiB, 64 * kMiB, 64 * kMiB}, 1,
                                                  {.folder = folder.path(), .faults = faults});
  const DefaultDevice guard(device);
  const Array x = Training::input();
  const Weights on_device = Training::initial();
  const auto expected = values(
      jit([&](const Weights& w) { return Training::step(w, x, MemoryKind::kDevice); })(on_device));

  const auto kept =
      jit([](const Weights& w, const Array& a) { return Training::step(w, a, MemoryKind::kDisk); });
  const auto donating =
      jit([](const Weights& w, const Array& a) { return Training::step(w, a, MemoryKind::kDisk); },
          {.donate_argnums = {0}});
  const Weights parameters = device_put(on_device, kDisk);
  EXPECT_EQ(values(kept(parameters, x)), expected);
  { const Weights again = donating(device_put(on_device, kDisk), x); }
  const auto in_use = [&] {
    device->drop_arenas();
    std::array<int64_t, kNumMemoryKinds> bytes{};
    for (size_t k = 0; k < bytes.size(); ++k)
      bytes[k] = device->in_use_bytes(static_cast<MemoryKind>(k));
    return bytes;
  };
  const auto before = in_use();

  int n_right = 0, n_errors = 0;
  for (int run = 0; run < 200; ++run) {
    const bool donates = run % 3 == 0;
    Weights given = donates ? device_put(on_device, kDisk) : parameters;
    // From faults that are ridden out to disks that hardly work.
    faults->start({.error = run % 4 == 0 ? 0 : run % 4,
                   .interrupted = run % 10,
                   .short_transfer = run % 30,
                   .delay = run % 5});
    std::string error;
    std::vector<std::vector<float>> result;
    try {
      const Weights next = donates ? donating(given, x) : kept(given, x);
      faults->stop();
      result = values(next);
      ++n_right;
    } catch (const DiskError& e) {
      faults->stop();
      error = e.what();
      ++n_errors;
    }
    if (error.empty()) {
      ASSERT_EQ(result, expected) << run;
    } else {
      ASSERT_THAT(error, HasSubstr("disk folder '" + folder.path() + "'")) << run;
      ASSERT_THAT(error, HasSubstr("Input/output error")) << run;
      if (donates) {
        ASSERT_THAT(message_of([&] { given.w1.to_vector<float>(); }),
                    HasSubstr("whose run failed"));
      }
    }
    given = {};
    ASSERT_EQ(in_use(), before) << run;
    // What was not donated is as it was, and the device works on.
    if (run % 20 == 0) {
      ASSERT_EQ(values(parameters), values(on_device)) << run;
      ASSERT_EQ(values(kept(parameters, x)), expected) << run;
    }
  }
  EXPECT_GT(n_right, 40);
  EXPECT_GT(n_errors, 40);
  EXPECT_EQ(count_entries(folder.path()), 0u);
}

TEST(DiskPrograms, AFullOrMissingDiskIsAnErrorBeforeAnythingRuns) {
  const Array x = random::normal(random::key(1), {300, 1000});
  const auto f =
      jit([](const Array& a) { return device_put(a + 1.0, kDisk); }, {.donate_argnums = {0}});
  {
    const DefaultDevice small(Device::virtual_device({64 * kMiB, 64 * kMiB, kMiB}, 1));
    const Array mine = ones({300, 1000});
    EXPECT_THAT(
        message_of([&] { f(mine); }),
        HasSubstr("virtual: 1.14 MiB more of disk memory do not fit: 0 B of 1.00 MiB are in "
                  "use"));
    EXPECT_EQ(mine.to_vector<float>(), std::vector<float>(300000, 1.0f));  // the donation is off
  }
  TemporaryFolder folder;
  {
    const DefaultDevice none(
        Device::virtual_device({64 * kMiB, 64 * kMiB, 64 * kMiB}, 1, {.folder = folder / "none"}));
    const Array mine = ones({300, 1000});
    EXPECT_THAT(message_of([&] { f(mine); }), HasSubstr("none': no file can be made there"));
    EXPECT_EQ(mine.to_vector<float>(), std::vector<float>(300000, 1.0f));
  }
  {
    const DefaultDevice full(
        Device::virtual_device({64 * kMiB, 64 * kMiB, 64 * kMiB}, 1, {.folder = folder.path()}));
    const FileSizeLimit limit(kMiB);
    const Array mine = ones({300, 1000});
    EXPECT_THAT(message_of([&] { f(mine); }), HasSubstr("1.14 MiB cannot be reserved"));
    EXPECT_EQ(mine.to_vector<float>(), std::vector<float>(300000, 1.0f));
  }
}

// What comes from the program's own memory, or from another device, is never whole in the host's.
TEST(DiskPrograms, ArraysReachTheDiskInPieces) {
  TemporaryFolder folder;
  const auto make = [&](int64_t host_bytes) {
    return Device::virtual_device({64 * kMiB, host_bytes, 64 * kMiB}, 1, {.folder = folder.path()});
  };
  const DevicePtr device = make(2 * kMiB), other = make(2 * kMiB);
  const DefaultDevice guard(device);
  const auto at_most = [](const DevicePtr& d, int64_t bytes) {
    EXPECT_GT(d->high_water_bytes(MemoryKind::kPinnedHost), 0);
    EXPECT_LE(d->high_water_bytes(MemoryKind::kPinnedHost), bytes);
    EXPECT_EQ(d->in_use_bytes(MemoryKind::kPinnedHost), 0);
  };
  // More than some pieces, whole pieces, no whole blocks, a few bytes.
  for (const int64_t n : {int64_t{2'000'001}, kMiB, int64_t{1025}, int64_t{3}, int64_t{0}}) {
    SCOPED_TRACE(n);
    std::vector<float> data(static_cast<size_t>(n));
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 4099);
    device->reset_high_water();
    const Array far = device_put(std::span<const float>(data), {n}, kDisk);
    EXPECT_EQ(far.type(), (ArrayType{DType::kF32, {n}, MemoryKind::kDisk}));
    EXPECT_EQ(device->in_use_bytes(MemoryKind::kDisk), 4 * n);
    if (n > 0) at_most(device, std::min(kMiB, 4 * n + kDiskBlockBytes) + kDiskBounceBytes);
    EXPECT_EQ(far.to_vector<float>(), data);
    const std::vector<int> numbers(data.begin(), data.end());
    EXPECT_EQ(
        device_put(std::span<const int>(numbers), {n}, kDisk, DType::kBF16).to_vector<float>(),
        device_put(std::span<const float>(data), {n}, kDevice, DType::kBF16).to_vector<float>());

    other->reset_high_water();
    const Array there = device_put(far, SingleDeviceSharding(other, "disk"));
    EXPECT_EQ(other->in_use_bytes(MemoryKind::kDisk), 4 * n);
    if (n > 0) at_most(other, std::min(kMiB, 4 * n + kDiskBlockBytes) + kDiskBounceBytes);
    EXPECT_EQ(there.to_vector<float>(), data);
    EXPECT_EQ(device_put(there, SingleDeviceSharding(device)).to_vector<float>(), data);
  }
  // A host without room for a piece is told so, and nothing stays behind.
  const DevicePtr narrow = make(kMiB);
  const std::vector<float> data(static_cast<size_t>(kMiB));
  EXPECT_THAT(message_of([&] {
                device_put(std::span<const float>(data), {kMiB},
                           SingleDeviceSharding(narrow, "disk"));
              }),
              HasSubstr("1.50 MiB more of pinned_host memory do not fit"));
  EXPECT_EQ(narrow->in_use_bytes(MemoryKind::kDisk), 0);
}

// Slices of stacks on disk along any axis, and results written slice by slice.
TEST(DiskPrograms, ScansOverStacksOnDisk) {
  TemporaryFolder folder;
  const DevicePtr device =
      Device::virtual_device({64 * kMiB, 64 * kMiB, 64 * kMiB}, 1, {.folder = folder.path()});
  const DefaultDevice guard(device);
  const Array x = random::normal(random::key(1), {6, 33, 50});
  for (int axis = 0; axis < 3; ++axis) {
    const auto f = [&](const Array& stack) {
      const auto body = [](const Array& total, const Array& slice) {
        const Array here = device_put(slice, kDevice);
        return std::pair(total + sum(here), device_put(here * 2.0, sharding_of(slice)));
      };
      return scan(body, Array(0.0f), stack, {.axes = {axis}, .out_axes = {axis}});
    };
    const auto [total, doubled] = jit(f)(x);
    const auto compiled = jit(f).lower(device_put(x, kDisk)).compile();
    const auto [far_total, far_doubled] = compiled(device_put(x, kDisk));
    EXPECT_EQ(sharding_of(far_doubled), kDisk);
    EXPECT_EQ(far_total.item<float>(), total.item<float>());
    EXPECT_EQ(far_doubled.to_vector<float>(), doubled.to_vector<float>());
    const MemoryAnalysis analysis = compiled.memory_analysis();
    EXPECT_LT(analysis.device().total_bytes, 4 * x.size() * 4 / x.dim(axis) + 1000);
    EXPECT_EQ(analysis.disk().total_bytes, 2 * x.size() * 4);
    // What is not aligned bounces through memory of the plan.
    EXPECT_GT(analysis.host().total_bytes, 0);
    EXPECT_LE(analysis.host().total_bytes, kDiskBounceBytes);
  }
}

}  // namespace
}  // namespace stow
