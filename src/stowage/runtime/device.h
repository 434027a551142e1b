// Device: one heap of fixed capacity for each memory kind, which counts its bytes in use.
// Not an allocator for temporaries; a program maps one arena that the plan laid out.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "stowage/core/array_type.h"
#include "stowage/runtime/disk/disk.h"
#include "stowage/runtime/place.h"

namespace stow {

class Device;

namespace runtime {

class Stream;
class Streams;
class Target;  // runtime/target.h
using TargetPtr = std::shared_ptr<const Target>;

/// A block of address space, or a range of a disk, that holds buffers. The last buffer releases it.
class Mapping;

}  // namespace runtime

/// A range of a device's heap. The destructor returns it to the heap.
class DeviceBuffer {
 public:
  /// Bytes [begin, begin + bytes) of a mapping. `mapping` is null if `bytes` is 0.
  DeviceBuffer(std::shared_ptr<Device> device, MemoryKind kind,
               std::shared_ptr<runtime::Mapping> mapping, int64_t begin, int64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const;  ///< 64-byte aligned. Not for disk buffers; see read() and write().
  /// The place where the buffer begins: an address, or an offset on the device's disk. Null if the
  /// buffer has no bytes.
  const runtime::Place& place() const { return place_; }
  /// Fills `to` with the buffer's bytes from `offset` on, for any memory kind. The range must lie
  /// within the buffer.
  /// Errors: DiskError.
  void read(int64_t offset, std::span<std::byte> to) const;
  /// Copies `from` into the buffer from `offset` on. The same conditions and errors as read().
  void write(int64_t offset, std::span<const std::byte> from);
  int64_t bytes() const { return bytes_; }  ///< Length of the buffer.
  MemoryKind kind() const { return kind_; }  ///< Memory kind of the heap.
  const std::shared_ptr<Device>& device() const { return device_; }  ///< Owner.

 private:
  friend class Device;
  std::shared_ptr<Device> device_;
  MemoryKind kind_;
  std::shared_ptr<runtime::Mapping> mapping_;
  int64_t begin_;
  runtime::Place place_;
  int64_t bytes_;
};
using DeviceBufferPtr = std::shared_ptr<DeviceBuffer>;  ///< The last pointer frees the buffer.

/// A half-open range of bytes.
struct ByteRange {
  int64_t begin = 0, end = 0;
};

/// Thread-compatible: one thread runs programs of a device at a time.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Capacity of each memory kind, in bytes. unlimited_bytes(): only the machine sets a limit.
  using Capacities = std::array<int64_t, kNumMemoryKinds>;
  static constexpr int64_t unlimited_bytes() { return int64_t{1} << 62; }  ///< No limit.

  /// A CPU device. `threads`: 0: one for each core.
  Device(std::string name, Capacities capacities, int threads);
  /// A device of any target.
  Device(std::string name, Capacities capacities, runtime::TargetPtr target);
  ~Device();

  /// The CPU, with the machine's available memory (or its cgroup limit) as capacity and one thread
  /// for each core. Every call returns the same device.
  static std::shared_ptr<Device> cpu();
  /// A CPU device with this capacity, which `device` and `pinned_host` memory share: they are the
  /// same RAM. `threads`: 0: one for each core. Disk memory is bounded by its file system and
  /// `disk_bytes`.
  static std::shared_ptr<Device> cpu_with_capacity(int64_t device_bytes, int threads = 0,
                                                   int64_t disk_bytes = unlimited_bytes(),
                                                   DiskOptions disk = {});
  /// A device whose memory kinds are separate heaps, each with its own capacity, as on an
  /// accelerator. Its kernels run on the CPU.
  static std::shared_ptr<Device> virtual_device(Capacities capacities, int threads = 0,
                                                DiskOptions disk = {});

  /// Allocates `bytes` of zeroed memory, 64-byte aligned, or reserves them on the disk in whole
  /// blocks. Zero bytes map nothing.
  /// Errors: CapacityError naming the device, the kind, the bytes in use and the capacity, or the
  /// disk's folder and the reason.
  DeviceBufferPtr allocate(int64_t bytes, MemoryKind kind = MemoryKind::kDevice);
  /// Like allocate(), but the bytes may hold old data.
  DeviceBufferPtr allocate_unfilled(int64_t bytes, MemoryKind kind = MemoryKind::kDevice);

  /// Returns an arena for a program's temporaries, at least `bytes` long, with every page already
  /// touched. The device caches the last arena of each memory kind for the next program, and frees
  /// it when another allocation needs the room.
  /// Errors: CapacityError as allocate().
  DeviceBufferPtr borrow_arena(int64_t bytes, MemoryKind kind = MemoryKind::kDevice);
  /// Frees the cached arenas and all idle memory.
  void drop_arenas();
  /// Bytes that no buffer uses and that the device keeps from the system: the next buffer of the
  /// same size then has no page faults. in_use_bytes() does not count them. They are at most
  /// kMostIdleBytes, and idle bytes and bytes in use together are at most the capacity.
  int64_t idle_bytes() const { return idle_bytes_; }
  static constexpr int64_t kMostIdleBytes = int64_t{256} << 20;
  /// Splits `whole` into one buffer for each range, and frees the bytes outside of them. The
  /// caller's pointer must be the only owner of `whole`.
  std::vector<DeviceBufferPtr> split(DeviceBufferPtr whole, const std::vector<ByteRange>& ranges);

  /// The device's disk; the first call opens it. Errors: CapacityError naming the folder.
  runtime::Disk& disk();

  const std::string& name() const { return name_; }  ///< Name of the device in errors.
  /// The number of devices that this process made before this one.
  int64_t number() const { return number_; }
  const runtime::TargetPtr& target() const { return target_; }  ///< The target of its programs.
  int threads() const;                                 ///< Threads of its kernels.
  int64_t capacity_bytes(MemoryKind kind) const { return capacity_[index(kind)]; }  ///< Constant.
  /// Bytes in use now.
  int64_t in_use_bytes(MemoryKind kind) const { return in_use_[index(kind)]; }
  /// The most bytes in use since reset_high_water().
  int64_t high_water_bytes(MemoryKind kind) const { return high_water_[index(kind)]; }
  void reset_high_water();  ///< Sets the high water to the bytes in use.

  runtime::Streams& streams();  ///< Streams of this device; the first call makes them.
  /// The thread that runs this device's programs if several devices of the process run together.
  /// The first call makes it.
  runtime::Stream& worker();

 private:
  friend class DeviceBuffer;
  static size_t index(MemoryKind kind) { return static_cast<size_t>(kind); }
  void charge(MemoryKind kind, int64_t bytes);
  void drop(DeviceBufferPtr& arena);
  DeviceBufferPtr allocate(int64_t bytes, MemoryKind kind, bool zeroed);
  // Records that no buffer uses a range of a mapping any more. Takes over the caller's reference.
  void set_idle(std::shared_ptr<runtime::Mapping> mapping, MemoryKind kind, ByteRange range);
  // Returns idle memory to the system until at most `most_bytes` are idle. The caller holds
  // idle_mutex_.
  void trim_idle(int64_t most_bytes);
  // Removes from spare_ a mapping with as many pages as `bytes` need, and returns it; null if there
  // is none. The caller holds idle_mutex_.
  std::shared_ptr<runtime::Mapping> take_spare(int64_t bytes);

  // Capacity of `kind` minus the bytes in use. Counts `device` and `pinned_host` together if
  // one_ram_.
  int64_t left_bytes(MemoryKind kind) const;

  std::string name_;
  int64_t number_;
  bool one_ram_ = false;  // `device` and `pinned_host` share one capacity
  runtime::TargetPtr target_;
  Capacities capacity_;
  DiskOptions disk_options_;
  std::shared_ptr<runtime::Disk> disk_;
  std::array<int64_t, kNumMemoryKinds> in_use_{}, high_water_{};
  std::array<DeviceBufferPtr, kNumMemoryKinds> arenas_;  // hold no reference to the device
  std::vector<std::shared_ptr<runtime::Mapping>> spare_;  // mappings without buffers, oldest first
  std::vector<runtime::Mapping*> partly_idle_;  // with both buffers and idle ranges, oldest first
  int64_t idle_bytes_ = 0;
  std::mutex idle_mutex_;  // guards the three above: any thread may free a buffer
  std::unique_ptr<runtime::Streams> streams_;
  std::unique_ptr<runtime::Stream> worker_;
};
using DevicePtr = std::shared_ptr<Device>;  ///< Each buffer holds one.

/// Returns the name of `device` for a message that names `other` too: "virtual", or "virtual:3"
/// with its number() if both devices have the same name.
std::string distinguishing_name(const Device& device, const Device& other);

}  // namespace stow
