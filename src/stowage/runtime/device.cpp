#include "stowage/runtime/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"
#include "stowage/core/disk_blocks.h"
#include "stowage/runtime/host_address.h"
#include "stowage/runtime/streams.h"
#include "stowage/runtime/target.h"

namespace stow {

class runtime::Mapping {
 public:
  virtual ~Mapping() = default;
  virtual Place place() const = 0;
  // Gives what can be given of a range back to the system; the range itself stays.
  virtual void discard(int64_t begin, int64_t end) = 0;
  // The bytes that the system keeps for the mapping once it is idle; 0 where idle memory is not
  // kept.
  virtual int64_t reusable_bytes() const { return 0; }

  // Ranges that no buffer uses, not discarded yet.
  std::vector<ByteRange> idle;
  int64_t idle_bytes() const {
    int64_t bytes = 0;
    for (const ByteRange& r : idle) bytes += r.end - r.begin;
    return bytes;
  }
};

namespace {

// Small buffers come from malloc, large ones are mapped apart so that they go back to the system.
class MemoryMapping final : public Mapping {
 public:
  static constexpr int64_t kMapFrom = 64 << 10;
  static constexpr int64_t kHugePageBytes = 2 << 20;

  MemoryMapping(int64_t bytes, int64_t least_alignment) : bytes_(bytes) {
    if (bytes < kMapFrom) {
      const int64_t alignment = bytes < kDiskBlockBytes ? least_alignment : kDiskBlockBytes;
      data_ = static_cast<std::byte*>(
          std::aligned_alloc(static_cast<size_t>(alignment),
                             static_cast<size_t>(align_up(bytes, alignment))));
      if (data_) std::memset(data_, 0, static_cast<size_t>(bytes));
    } else {
      data_ = map(bytes);
    }
    if (!data_)
      throw CapacityError(fmt::format("the machine refused {}", format_bytes(bytes)));
  }
  ~MemoryMapping() override {
    if (bytes_ < kMapFrom)
      std::free(data_);
    else
      munmap(data_, static_cast<size_t>(bytes_));
  }
  MemoryMapping(const MemoryMapping&) = delete;
  MemoryMapping& operator=(const MemoryMapping&) = delete;

  Place place() const override { return {data_, nullptr, 0}; }
  int64_t reusable_bytes() const override { return bytes_ < kMapFrom ? 0 : whole_pages(bytes_); }
  static int64_t whole_pages(int64_t bytes) { return align_up(bytes, sysconf(_SC_PAGESIZE)); }

  // Whole pages; their address space stays.
  void discard(int64_t begin, int64_t end) override {
    if (bytes_ < kMapFrom) return;
    const int64_t page = sysconf(_SC_PAGESIZE);
    begin = align_up(begin, page);
    end = end / page * page;
    if (begin < end) madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
  }

 private:
  // Begins where a huge page can: a walk of page tables for every 4 KiB costs kernels that stream
  // through memory up to a third of their time.
  static std::byte* map(int64_t bytes) {
    const int64_t slack = bytes >= kHugePageBytes ? kHugePageBytes : 0;
    const auto size = static_cast<size_t>(whole_pages(bytes));
    void* p = mmap(nullptr, size + static_cast<size_t>(slack), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    auto* data = static_cast<std::byte*>(p);
    if (slack == 0) return data;
    const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
    const int64_t before = align_up(at, kHugePageBytes) - at;
    if (before > 0) munmap(data, static_cast<size_t>(before));
    if (before < slack) munmap(data + before + size, static_cast<size_t>(slack - before));
    madvise(data + before, size, MADV_HUGEPAGE);  // where the system has none, pages are small
    return data + before;
  }

  std::byte* data_;
  int64_t bytes_;
};

class DiskMapping final : public Mapping {
 public:
  DiskMapping(std::shared_ptr<Disk> disk, int64_t bytes)
      : disk_(std::move(disk)), offset_(disk_->reserve(bytes)), bytes_(bytes) {}
  ~DiskMapping() override { disk_->release(offset_, bytes_); }
  DiskMapping(const DiskMapping&) = delete;
  DiskMapping& operator=(const DiskMapping&) = delete;

  Place place() const override { return {nullptr, disk_.get(), offset_}; }
  void discard(int64_t begin, int64_t end) override {
    disk_->discard(offset_ + begin, offset_ + end);
  }

 private:
  std::shared_ptr<Disk> disk_;
  int64_t offset_, bytes_;
};

}  // namespace

DeviceBuffer::DeviceBuffer(std::shared_ptr<Device> device, MemoryKind kind,
                           std::shared_ptr<Mapping> mapping, int64_t begin, int64_t bytes)
    : device_(std::move(device)),
      kind_(kind),
      mapping_(std::move(mapping)),
      begin_(begin),
      place_(mapping_ ? mapping_->place().plus(begin) : Place()),
      bytes_(bytes) {}

DeviceBuffer::~DeviceBuffer() {
  if (!device_) return;
  device_->charge(kind_, -bytes_);
  if (mapping_) device_->set_idle(std::move(mapping_), kind_, {begin_, begin_ + bytes_});
}

std::byte* host_address(const DeviceBuffer& buffer) {
  if (buffer.place().disk) return nullptr;
  const bool is_hidden = buffer.kind() == MemoryKind::kDevice && buffer.device() &&
                         !buffer.device()->target()->has_host_memory();
  return is_hidden ? nullptr : buffer.place().memory;
}

std::byte* DeviceBuffer::data() const {
  STOW_CHECK(!place_.disk, "what lies on disk has no address");
  STOW_CHECK(bytes_ == 0 || host_address(*this), "the host has no address of the memory of {}",
             device_->name());
  return place_.memory;
}

// A view of bytes in memory that the host cannot reach.
static TensorView bytes_at(const std::byte* data, size_t n) {
  return {const_cast<std::byte*>(data), DType::kU8, {static_cast<int64_t>(n)}, {1}};
}

void DeviceBuffer::read(int64_t offset, std::span<std::byte> to) const {
  STOW_CHECK(offset >= 0 && offset + static_cast<int64_t>(to.size()) <= bytes_);
  if (to.empty()) return;
  if (place_.disk)
    place_.disk->read(place_.offset + offset, to);
  else if (const std::byte* const data = host_address(*this))
    std::memcpy(to.data(), data + offset, to.size());
  else
    device_->target()->copy(bytes_at(place_.memory + offset, to.size()),
                            bytes_at(to.data(), to.size()), 1);
}

void DeviceBuffer::write(int64_t offset, std::span<const std::byte> from) {
  STOW_CHECK(offset >= 0 && offset + static_cast<int64_t>(from.size()) <= bytes_);
  if (from.empty()) return;
  if (place_.disk)
    place_.disk->write(place_.offset + offset, from);
  else if (std::byte* const data = host_address(*this))
    std::memcpy(data + offset, from.data(), from.size());
  else
    device_->target()->copy(bytes_at(from.data(), from.size()),
                            bytes_at(place_.memory + offset, from.size()), 1);
}

static std::atomic<int64_t> n_devices = 0;

Device::Device(std::string name, Capacities capacities, int threads)
    : Device(std::move(name), capacities, host_target(threads)) {}

Device::Device(std::string name, Capacities capacities, TargetPtr target)
    : name_(std::move(name)),
      number_(n_devices++),
      target_(std::move(target)),
      capacity_(capacities) {}

int Device::threads() const {
  return target_->threads();
}

Device::~Device() = default;

std::string distinguishing_name(const Device& device, const Device& other) {
  if (device.name() != other.name()) return device.name();
  return fmt::format("{}:{}", device.name(), device.number());
}

Stream& Device::worker() {
  if (!worker_) worker_ = std::make_unique<Stream>();
  return *worker_;
}

Streams& Device::streams() {
  if (!streams_) {
    streams_ = std::make_unique<Streams>();
    streams_->set_timing(target_->stream_timing());
  }
  return *streams_;
}

namespace {

// Bytes that the machine can give now: MemAvailable, and at most what a cgroup leaves.
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

std::shared_ptr<Device> Device::cpu_with_capacity(int64_t device_bytes, int threads,
                                                  int64_t disk_bytes, DiskOptions disk) {
  auto device = std::make_shared<Device>(
      "cpu", Capacities{device_bytes, device_bytes, disk_bytes}, threads);
  device->one_ram_ = true;
  device->disk_options_ = std::move(disk);
  return device;
}

std::shared_ptr<Device> Device::virtual_device(Capacities capacities, int threads,
                                               DiskOptions disk) {
  auto device = std::make_shared<Device>("virtual", capacities, threads);
  device->disk_options_ = std::move(disk);
  return device;
}

Disk& Device::disk() {
  if (!disk_) disk_ = std::make_shared<Disk>(disk_options_);
  return *disk_;
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

// The missing bytes in words, if the rounded figures before would not show them.
static std::string lacking(int64_t bytes, int64_t capacity) {
  return bytes < capacity / 100 ? fmt::format(", {} too few", format_bytes(bytes)) : std::string();
}

void Device::set_idle(std::shared_ptr<Mapping> mapping, MemoryKind kind, ByteRange range) {
  const std::lock_guard lock(idle_mutex_);
  const bool is_last = mapping.use_count() == 1;
  if (mapping->reusable_bytes() == 0) {
    if (!is_last) mapping->discard(range.begin, range.end);
    return;
  }
  if (is_last) {
    idle_bytes_ += mapping->reusable_bytes() - mapping->idle_bytes();
    if (!mapping->idle.empty()) std::erase(partly_idle_, mapping.get());
    mapping->idle.clear();
    spare_.push_back(std::move(mapping));
  } else {
    idle_bytes_ += range.end - range.begin;
    if (mapping->idle.empty()) partly_idle_.push_back(mapping.get());
    mapping->idle.push_back(range);
  }
  trim_idle(std::min(left_bytes(kind), kMostIdleBytes));
}

void Device::trim_idle(int64_t most_bytes) {
  constexpr size_t kMostSpare = 64;  // so that a look for one of a size stays short
  while (!spare_.empty() && (idle_bytes_ > most_bytes || spare_.size() > kMostSpare)) {
    idle_bytes_ -= spare_.front()->reusable_bytes();
    spare_.erase(spare_.begin());
  }
  while (!partly_idle_.empty() && idle_bytes_ > most_bytes) {
    Mapping& mapping = *partly_idle_.front();
    idle_bytes_ -= mapping.idle_bytes();
    for (const ByteRange& r : std::exchange(mapping.idle, {})) mapping.discard(r.begin, r.end);
    partly_idle_.erase(partly_idle_.begin());
  }
}

std::shared_ptr<Mapping> Device::take_spare(int64_t bytes) {
  for (size_t i = spare_.size(); i-- > 0;)
    if (spare_[i]->reusable_bytes() == MemoryMapping::whole_pages(bytes)) {
      std::shared_ptr<Mapping> mapping = std::move(spare_[i]);
      spare_.erase(spare_.begin() + static_cast<std::ptrdiff_t>(i));
      idle_bytes_ -= mapping->reusable_bytes();
      return mapping;
    }
  return nullptr;
}

DeviceBufferPtr Device::allocate(int64_t bytes, MemoryKind kind) {
  return allocate(bytes, kind, true);
}
DeviceBufferPtr Device::allocate_unfilled(int64_t bytes, MemoryKind kind) {
  return allocate(bytes, kind, false);
}

DeviceBufferPtr Device::allocate(int64_t bytes, MemoryKind kind, bool zeroed) {
  STOW_CHECK(bytes >= 0);
  if (bytes > left_bytes(kind)) drop_arenas();
  if (bytes > left_bytes(kind))
    throw CapacityError(fmt::format(
        "{}: {} more of {} memory do not fit: {} of {} are in use{}", name_, format_bytes(bytes),
        memory_kind_name(kind), format_bytes(in_use_bytes(kind)),
        format_bytes(capacity_bytes(kind)),
        lacking(bytes - left_bytes(kind), capacity_bytes(kind))));
  std::shared_ptr<Mapping> mapping;
  if (bytes > 0 && kind == MemoryKind::kDisk) {
    disk();
    mapping = std::make_shared<DiskMapping>(disk_, bytes);
  } else if (bytes > 0) {
    {
      const std::lock_guard lock(idle_mutex_);
      mapping = take_spare(bytes);
      trim_idle(std::min(left_bytes(kind) - bytes, kMostIdleBytes));
    }
    if (mapping && zeroed) std::memset(mapping->place().memory, 0, static_cast<size_t>(bytes));
    if (!mapping) mapping = std::make_shared<MemoryMapping>(bytes, target_->alignment_bytes());
  }
  charge(kind, bytes);
  return std::make_shared<DeviceBuffer>(shared_from_this(), kind, std::move(mapping), 0, bytes);
}

DeviceBufferPtr Device::borrow_arena(int64_t bytes, MemoryKind kind) {
  DeviceBufferPtr& kept = arenas_[index(kind)];
  if (kept && kept->bytes() >= bytes && kept.use_count() == 1) return kept;
  drop(kept);
  DeviceBufferPtr arena = allocate(bytes, kind);
  if (bytes > 0 && kind != MemoryKind::kDisk)
    std::memset(arena->place().memory, 0, static_cast<size_t>(bytes));
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
  const std::lock_guard lock(idle_mutex_);
  trim_idle(0);
}

std::vector<DeviceBufferPtr> Device::split(DeviceBufferPtr whole,
                                           const std::vector<ByteRange>& ranges) {
  std::vector<DeviceBufferPtr> parts;
  std::vector<ByteRange> sorted = ranges;
  std::sort(sorted.begin(), sorted.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  int64_t at = 0;
  std::vector<ByteRange> cut_away;
  for (const ByteRange& r : sorted) {  // an empty one may lie within another
    if (r.begin > at) cut_away.push_back({at, r.begin});
    at = std::max(at, r.end);
  }
  if (at < whole->bytes()) cut_away.push_back({at, whole->bytes()});
  for (const ByteRange& r : ranges)
    parts.push_back(std::make_shared<DeviceBuffer>(shared_from_this(), whole->kind(),
                                                   whole->mapping_, r.begin, r.end - r.begin));
  // The parts' bytes stay charged; what is cut away is not.
  int64_t kept = 0;
  for (const ByteRange& r : ranges) kept += r.end - r.begin;
  charge(whole->kind(), kept - whole->bytes());
  for (const ByteRange& r : cut_away)
    if (whole->mapping_) set_idle(whole->mapping_, whole->kind(), r);
  whole->device_.reset();
  whole->mapping_.reset();
  return parts;
}

void Device::reset_high_water() { high_water_ = in_use_; }

}  // namespace stow
