// Device: one heap of a fixed capacity per memory kind, metered. Buffers are released by RAII.
// Not an allocator for programs' temporaries; a program maps one arena that the plan laid out.
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

/// Address space, or a range of a disk, that buffers lie in; given back with the last of them.
class Mapping;

}  // namespace runtime

/// A range of a device's heap, returned when the last owner lets go.
class DeviceBuffer {
 public:
  /// `bytes` of a mapping from `begin` on; of none where there are no bytes.
  DeviceBuffer(std::shared_ptr<Device> device, MemoryKind kind, std::shared_ptr<runtime::Mapping> mapping,
               int64_t begin, int64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const;  ///< 64-byte aligned. Not of what lies on disk; see read() and write().
  /// The place where it begins: in memory, or on the device's disk. Null memory for no bytes.
  const runtime::Place& place() const { return place_; }
  /// Copies out of it or into it, wherever it lies; the range must be inside.
  /// Errors: DiskError.
  void read(int64_t offset, std::span<std::byte> to) const;
  void write(int64_t offset, std::span<const std::byte> from);  ///< As read().
  int64_t bytes() const { return bytes_; }  ///< Its length.
  MemoryKind kind() const { return kind_; }  ///< The memory kind of this heap.
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
using DeviceBufferPtr = std::shared_ptr<DeviceBuffer>;  ///< Freed with the last.

/// A half-open range of bytes.
struct ByteRange {
  int64_t begin = 0, end = 0;
};

/// Thread-compatible: one thread runs programs of a device at a time.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Capacity in bytes of each kind; unlimited_bytes() where nothing bounds it but the machine.
  using Capacities = std::array<int64_t, kNumMemoryKinds>;
  static constexpr int64_t unlimited_bytes() { return int64_t{1} << 62; }  ///< No bound.

  Device(std::string name, Capacities capacities, int threads);  ///< A CPU with any capacities.
  Device(std::string name, Capacities capacities, runtime::TargetPtr target);  ///< For this target.
  ~Device();

  /// The CPU, with what the machine can really give (cgroup limit, available memory) as capacity
  /// and one thread a core. Made once.
  static std::shared_ptr<Device> cpu();
  /// A CPU device with its own capacity, which `device` and `pinned_host` memory share: they are
  /// the same RAM. The disk is bounded by its file system, or by `disk_bytes`.
  static std::shared_ptr<Device> cpu_with_capacity(int64_t device_bytes, int threads = 0,
                                                   int64_t disk_bytes = unlimited_bytes(),
                                                   DiskOptions disk = {});
  /// A device whose kinds are heaps apart, each with a capacity of its own, as an accelerator has.
  static std::shared_ptr<Device> virtual_device(Capacities capacities, int threads = 0,
                                                DiskOptions disk = {});

  /// Maps `bytes` of zeroed memory, 64-byte aligned, or reserves them on the disk, on whole blocks.
  /// Zero bytes map nothing.
  /// Errors: CapacityError naming the device, the kind, what is in use and the capacity, or the
  /// disk's folder and what is wrong with it.
  DeviceBufferPtr allocate(int64_t bytes, MemoryKind kind = MemoryKind::kDevice);
  /// The same, of any content.
  DeviceBufferPtr allocate_unfilled(int64_t bytes, MemoryKind kind = MemoryKind::kDevice);

  /// An arena for a program's temporaries, at least `bytes` long, every page of memory touched. The
  /// device keeps the last one for the next program and gives it back when something else needs
  /// room.
  /// Errors: CapacityError as allocate().
  DeviceBufferPtr borrow_arena(int64_t bytes, MemoryKind kind = MemoryKind::kDevice);
  /// Gives the kept arenas and all idle memory back.
  void drop_arenas();
  /// Memory that is not in use and not given back to the system: the next buffer of the same size takes
  /// it without page faults. Not metered; with what is in use, never more than the capacity, and at most
  /// kMostIdleBytes.
  int64_t idle_bytes() const { return idle_bytes_; }
  static constexpr int64_t kMostIdleBytes = int64_t{256} << 20;
  /// Cuts `whole`, which nobody else holds, into buffers of these ranges and gives the rest back.
  std::vector<DeviceBufferPtr> split(DeviceBufferPtr whole, const std::vector<ByteRange>& ranges);

  /// The disk, opened when it is first needed. Errors: CapacityError naming the folder.
  runtime::Disk& disk();

  const std::string& name() const { return name_; }  ///< For errors.
  /// How many devices this process made before it.
  int64_t number() const { return number_; }
  const runtime::TargetPtr& target() const { return target_; }  ///< The target of its programs.
  int threads() const;                                 ///< Threads of its kernels.
  int64_t capacity_bytes(MemoryKind kind) const { return capacity_[index(kind)]; }  ///< A heap's.
  /// Bytes that are mapped now, and the most since the last reset.
  int64_t in_use_bytes(MemoryKind kind) const { return in_use_[index(kind)]; }
  int64_t high_water_bytes(MemoryKind kind) const { return high_water_[index(kind)]; }  ///< Peak.
  void reset_high_water();  ///< To what is in use.

  runtime::Streams& streams();  ///< Its copy streams, made when first asked for.
  /// The thread that runs its programs where several devices run at once, made when first asked for.
  runtime::Stream& worker();

 private:
  friend class DeviceBuffer;
  static size_t index(MemoryKind kind) { return static_cast<size_t>(kind); }
  void charge(MemoryKind kind, int64_t bytes);
  void drop(DeviceBufferPtr& arena);
  DeviceBufferPtr allocate(int64_t bytes, MemoryKind kind, bool zeroed);
  // A range of a mapping has lost its buffer; the caller's hold on the mapping goes with it.
  void set_idle(std::shared_ptr<runtime::Mapping> mapping, MemoryKind kind, ByteRange range);
  // Gives idle memory back until no more than this is left; under idle_mutex_, as take_spare() is.
  void trim_idle(int64_t most_bytes);
  // A spare mapping of as many pages; null where there is none.
  std::shared_ptr<runtime::Mapping> take_spare(int64_t bytes);

  // Bytes of `kind` that are left; of both where kinds share memory.
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
  std::vector<std::shared_ptr<runtime::Mapping>> spare_;  // the oldest first; no buffer uses them
  std::vector<runtime::Mapping*> partly_idle_;            // parts of which buffers use, the oldest first
  int64_t idle_bytes_ = 0;
  std::mutex idle_mutex_;  // guards the three above: buffers may end on any thread
  std::unique_ptr<runtime::Streams> streams_;
  std::unique_ptr<runtime::Stream> worker_;
};
using DevicePtr = std::shared_ptr<Device>;  ///< Kept by its buffers.

/// The name of `device` for a message that names `other` too: "virtual", or "virtual:3" with its
/// number where both have one name.
std::string name_beside(const Device& device, const Device& other);

}  // namespace stow
