// Memory that a device keeps between buffers: no page faults for the next, nothing metered, never
// in the way of what was admitted.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <random>

#include "stowage/stowage.h"

namespace stow {
namespace {

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(IdleMemory, RepeatedCallsFaultNoPages) {
  const DefaultDevice device(Device::cpu_with_capacity(64 << 20, 1));
  const Array x = ones({512, 512});
  const auto results_alone = [](const Array& x) { return x + 1.0; };
  const auto beside_temporaries = [](const Array& x) { return matmul(tanh(matmul(x, x)), x) * x; };
  const auto count = [&](const auto& function) {
    const auto f = jit(function);
    Array y = f(x);
    for (int i = 0; i < 3; ++i) y = f(x);
    const int64_t before = page_faults();
    for (int i = 0; i < 20; ++i) y = f(x);
    return (page_faults() - before) / 20;
  };
  // A result has 256 pages.
  EXPECT_LT(count(results_alone), 32);
  EXPECT_LT(count(beside_temporaries), 32);
}

TEST(IdleMemory, IsGivenBackBeforeItIsInTheWay) {
  constexpr int64_t kCapacity = 16 << 20;
  const DevicePtr device = Device::cpu_with_capacity(kCapacity, 1);
  const auto in_use = [&] {
    return device->in_use_bytes(MemoryKind::kDevice) +
           device->in_use_bytes(MemoryKind::kPinnedHost);
  };
  std::mt19937 random(1);
  std::vector<DeviceBufferPtr> held;
  int n_idle = 0, n_refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto kind = random() % 4 ? MemoryKind::kDevice : MemoryKind::kPinnedHost;
    const int64_t bytes = static_cast<int64_t>(1 + random() % 6) << (14 + random() % 6);
    if (in_use() + bytes <= kCapacity) {
      held.push_back(device->allocate(bytes, kind));
      const std::byte* const data = held.back()->data();
      EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
      std::fill_n(held.back()->data(), bytes, std::byte{7});
      if (bytes % 3 == 0) {  // a result of a program whose temporaries go
        DeviceBufferPtr whole = std::move(held.back());
        held.pop_back();
        held.push_back(device->split(std::move(whole), {{bytes / 3, bytes * 2 / 3}})[0]);
      }
    } else {
      EXPECT_THROW(device->allocate(bytes, kind), CapacityError);
      ++n_refused;
    }
    while (!held.empty() && (in_use() > kCapacity / 2 || random() % 3 == 0)) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
    }
    EXPECT_LE(in_use() + device->idle_bytes(), kCapacity);
    n_idle += device->idle_bytes() > 0;
  }
  EXPECT_GT(n_idle, 1000);
  held.clear();
  EXPECT_EQ(in_use(), 0);
  device->drop_arenas();
  EXPECT_EQ(device->idle_bytes(), 0);
}

TEST(IdleMemory, IsNotMetered) {
  const DevicePtr device = Device::virtual_device({64 << 20, 64 << 20, 0}, 1);
  const DefaultDevice use(device);
  const Array x = ones({512, 512});
  const auto f = jit([](const Array& x) { return matmul(tanh(matmul(x, x)), x) * x; });
  const int64_t predicted = f.lower(x).compile().memory_analysis().device().total_bytes;
  for (int i = 0; i < 4; ++i) {
    device->reset_high_water();
    (void)f(x);
    EXPECT_EQ(device->high_water_bytes(MemoryKind::kDevice), predicted);
  }
}

}  // namespace
}  // namespace stow
