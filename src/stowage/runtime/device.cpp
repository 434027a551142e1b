#include "stowage/runtime/device.h"

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"
#include "stowage/runtime/streams.h"

namespace stow {

// Small buffers come from malloc, large ones are mapped apart so that they go back to the system.
class Mapping {
 public:
  static constexpr int64_t kMapFrom = 64 << 10;

  Mapping(int64_t bytes, bool touch) : bytes_(bytes) {
    if (bytes < kMapFrom) {
      data_ = static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(align_up(bytes, 64))));
      if (data_) std::memset(data_, 0, static_cast<size_t>(bytes));
    } else {
      void* p = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (touch ? MAP_POPULATE : 0), -1, 0);
      data_ = p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
    }
    if (!data_)
      throw CapacityError(fmt::format("the machine refused {}", format_bytes(bytes)));
  }
  ~Mapping() {
    if (bytes_ < kMapFrom)
      std::free(data_);
    else
      munmap(data_, static_cast<size_t>(bytes_));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }

  // Gives the whole pages inside a range back to the system; their address space stays.
  void discard(std::byte* begin, std::byte* end) {
    if (bytes_ < kMapFrom) return;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t b = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
    const uintptr_t e = reinterpret_cast<uintptr_t>(end) / page * page;
    if (b < e) madvise(reinterpret_cast<void*>(b), e - b, MADV_DONTNEED);
  }

 private:
  std::byte* data_;
  int64_t bytes_;
};

DeviceBuffer::DeviceBuffer(std::shared_ptr<Device> device, MemoryKind kind,
                           std::shared_ptr<Mapping> mapping, std::byte* data, int64_t bytes)
    : device_(std::move(device)),
      kind_(kind),
      mapping_(std::move(mapping)),
      data_(data),
      bytes_(bytes) {}

DeviceBuffer::~DeviceBuffer() {
  if (mapping_ && mapping_.use_count() > 1) mapping_->discard(data_, data_ + bytes_);
  if (device_) device_->charge(kind_, -bytes_);
}

Device::Device(std::string name, Capacities capacities, int threads)
    : name_(std::move(name)),
      threads_(threads > 0 ? threads : omp_get_max_threads()),
      capacity_(capacities) {}

Device::~Device() = default;

Streams& Device::streams() {
  if (!streams_) streams_ = std::make_unique<Streams>();
  return *streams_;
}

namespace {

// What the machine can give now: MemAvailable, and what a cgroup leaves.
int64_t available_bytes() {
  int64_t available = Device::unlimited_bytes();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, rest; meminfo >> key && std::getline(meminfo, rest);)
    if (key == "MemAvailable:") available = std::strtoll(rest.c_str(), nullptr, 10) * 1024;
  int64_t limit = 0, used = 0;
  if (std::ifstream f("/sys/fs/cgroup/memory.max"); f >> limit)
    if (std::ifstream g("/sys/fs/cgroup/memory.current"); g >> used)
      available = std::min(available, std::max<int64_t>(0, limit - used));
  return available;
}

}  // namespace

std::shared_ptr<Device> Device::cpu_with_capacity(int64_t device_bytes, int threads) {
  auto device = std::make_shared<Device>("cpu", Capacities{device_bytes, device_bytes, 0}, threads);
  device->one_ram_ = true;
  return device;
}

std::shared_ptr<Device> Device::virtual_device(Capacities capacities, int threads) {
  return std::make_shared<Device>("virtual", capacities, threads);
}

int64_t Device::left_bytes(MemoryKind kind) const {
  int64_t used = in_use_bytes(kind);
  if (one_ram_ && kind == MemoryKind::kDevice) used += in_use_bytes(MemoryKind::kPinnedHost);
  if (one_ram_ && kind == MemoryKind::kPinnedHost) used += in_use_bytes(MemoryKind::kDevice);
  return capacity_bytes(kind) - used;
}

std::shared_ptr<Device> Device::cpu() {
  static const std::shared_ptr<Device> device = cpu_with_capacity(available_bytes());
  return device;
}

void Device::charge(MemoryKind kind, int64_t bytes) {
  int64_t& now = in_use_[index(kind)];
  now += bytes;
  high_water_[index(kind)] = std::max(high_water_[index(kind)], now);
}

DeviceBufferPtr Device::allocate(int64_t bytes, MemoryKind kind) {
  STOW_CHECK(bytes >= 0);
  if (bytes > left_bytes(kind)) drop_arenas();
  if (bytes > left_bytes(kind))
    throw CapacityError(fmt::format(
        "{}: {} more of {} memory do not fit: {} of {} are in use", name_, format_bytes(bytes),
        memory_kind_name(kind), format_bytes(in_use_bytes(kind)),
        format_bytes(capacity_bytes(kind))));
  std::shared_ptr<Mapping> mapping = bytes > 0 ? std::make_shared<Mapping>(bytes, false) : nullptr;
  std::byte* data = mapping ? mapping->data() : nullptr;
  charge(kind, bytes);
  return std::make_shared<DeviceBuffer>(shared_from_this(), kind, std::move(mapping), data, bytes);
}

DeviceBufferPtr Device::borrow_arena(int64_t bytes, MemoryKind kind) {
  DeviceBufferPtr& kept = arenas_[index(kind)];
  if (kept && kept->bytes() >= bytes && kept.use_count() == 1) return kept;
  drop(kept);
  DeviceBufferPtr arena = allocate(bytes, kind);
  if (bytes > 0) std::memset(arena->data(), 0, static_cast<size_t>(bytes));
  arena->device_.reset();  // else the device and what it keeps would hold each other
  kept = std::move(arena);
  return kept;
}

void Device::drop(DeviceBufferPtr& arena) {
  if (!arena || arena.use_count() > 1) return;
  charge(arena->kind(), -arena->bytes());
  arena.reset();
}

void Device::drop_arenas() {
  for (DeviceBufferPtr& arena : arenas_) drop(arena);
}

std::vector<DeviceBufferPtr> Device::split(DeviceBufferPtr whole,
                                           const std::vector<ByteRange>& ranges) {
  std::vector<DeviceBufferPtr> parts;
  std::vector<ByteRange> sorted = ranges;
  std::sort(sorted.begin(), sorted.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  int64_t at = 0;
  const auto discard = [&](int64_t begin, int64_t end) {
    if (whole->mapping_) whole->mapping_->discard(whole->data() + begin, whole->data() + end);
  };
  for (const ByteRange& r : sorted) {
    discard(at, r.begin);
    at = r.end;
  }
  discard(at, whole->bytes());
  for (const ByteRange& r : ranges)
    parts.push_back(std::make_shared<DeviceBuffer>(shared_from_this(), whole->kind(), whole->mapping_,
                                                   whole->data() + r.begin, r.end - r.begin));
  // The parts' bytes stay charged; what is cut away is not.
  int64_t kept = 0;
  for (const ByteRange& r : ranges) kept += r.end - r.begin;
  charge(whole->kind(), kept - whole->bytes());
  whole->device_.reset();
  whole->mapping_.reset();
  return parts;
}

void Device::reset_high_water() { high_water_ = in_use_; }

}  // namespace stow
