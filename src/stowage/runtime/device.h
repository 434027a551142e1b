// Device: one heap of a fixed capacity per memory kind, metered. Buffers are released by RAII.
// Not an allocator for programs' temporaries; a program maps one arena that the plan laid out.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "stowage/core/array_type.h"

namespace stow {

class Device;

/// A mapped range of a device's heap, returned when the last owner lets go.
class DeviceBuffer {
 public:
  DeviceBuffer(std::shared_ptr<Device> device, MemoryKind kind, std::byte* data, int64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  std::shared_ptr<Device> device_;
  MemoryKind kind_;
  std::byte* data_;
  int64_t bytes_;
};
using DeviceBufferPtr = std::shared_ptr<DeviceBuffer>;

/// Thread-compatible: one thread runs programs of a device at a time.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Capacity in bytes of each kind; unlimited_bytes() where nothing bounds it but the machine.
  using Capacities = std::array<int64_t, kNumMemoryKinds>;
  static constexpr int64_t unlimited_bytes() { return int64_t{1} << 62; }

  explicit Device(std::string name, Capacities capacities, int threads);

  /// The CPU, with what the machine can really give (cgroup limit, available memory) as capacity
  /// and one thread a core. Made once.
  static std::shared_ptr<Device> cpu();
  /// A CPU device with its own capacity for `device` memory.
  static std::shared_ptr<Device> cpu_with_capacity(int64_t device_bytes, int threads = 0);

  /// Maps `bytes` of zeroed memory, 64-byte aligned. Zero bytes map nothing.
  /// Errors: CapacityError naming the device, the kind, what is in use and the capacity.
  DeviceBufferPtr allocate(int64_t bytes, MemoryKind kind = MemoryKind::kDevice);

  const std::string& name() const { return name_; }
  int threads() const { return threads_; }
  int64_t capacity_bytes(MemoryKind kind) const { return capacity_[index(kind)]; }
  /// What is mapped now, and the most that ever was since the last reset.
  int64_t in_use_bytes(MemoryKind kind) const { return in_use_[index(kind)]; }
  int64_t high_water_bytes(MemoryKind kind) const { return high_water_[index(kind)]; }
  void reset_high_water();

 private:
  friend class DeviceBuffer;
  static size_t index(MemoryKind kind) { return static_cast<size_t>(kind); }
  void release(MemoryKind kind, std::byte* data, int64_t bytes);

  std::string name_;
  int threads_;
  Capacities capacity_;
  std::array<int64_t, kNumMemoryKinds> in_use_{}, high_water_{};
};
using DevicePtr = std::shared_ptr<Device>;

}  // namespace stow
