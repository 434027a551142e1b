// DeviceDescription: the compute rates, bandwidths, latencies and sizes of a device.
// Not a device; only simulations use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/array_type.h"

namespace stow {

/// Rates are in operations/s and bytes/s, times in seconds, sizes in bytes. The keys of a
/// description file are the fields' names, as in `compute.bf16_flops`. Only the cache,
/// `slows_compute` and the network are optional.
struct DeviceDescription {
  std::string name;
  struct Compute {
    double f32_flops = 0;  ///< Rate of f32 products in the format `f32_as`; a multiply-add is two.
    std::string f32_as = "f32";  ///< "f32", or "tf32" if products round their operands to tf32.
    double bf16_flops = 0;       ///< Rate of bf16, f16 and i8 products; sums are in f32.
    double f64_flops = 0;
    double achievable = 1;            ///< Share of the rates above that large products reach.
    double attention_achievable = 1;  ///< Share of the rates above that attention reaches.
    double vector_flops = 0;          ///< Elementwise operations: an add, a multiply, a compare.
    double special_flops = 0;         ///< exp, log, tanh, a division, a root.
    double launch_s = 0;              ///< Overhead of each kernel.
  } compute;
  struct Memory {
    double bandwidth = 0;     ///< Bytes read and written together.
    double achievable = 1;    ///< Share of `bandwidth` that kernels reach.
    double cache_bandwidth = 0;  ///< If all operands of a kernel fit `cache`; 0: as `bandwidth`.
    int64_t cache = 0;           ///< Size.
    int64_t device = 0, pinned_host = 0, disk = 0;  ///< Sizes.
  } memory;
  struct Link {
    double to_device = 0, to_host = 0;  ///< Bandwidth of one copy of pinned memory.
    double latency_s = 0;  ///< From the start of a copy to its first byte; other copies may run.
    /// Share of its speed that compute loses while a copy runs, if the processor that computes also
    /// makes the copies.
    double slows_compute = 0;
  } link;
  struct Disk {
    double read = 0, write = 0;
    double latency_s = 0;      ///< Latency of each transfer; the disk is busy during it.
    double slows_compute = 0;  ///< See Link::slows_compute.
  } disk;
  /// A level of the network between devices: `[[network]]` in the file, the innermost first. Device
  /// i stands in block i / devices of the level; the level connects the devices of a block.
  struct Network {
    int64_t devices = 0;    ///< Devices in a block; a multiple of that of the next inner level.
    double bandwidth = 0;   ///< Each device's bandwidth in one direction when all devices send.
    double latency_s = 0;   ///< Latency of each step of a collective.
    double achievable = 1;  ///< Share of the bandwidth that collectives reach.
  };
  std::vector<Network> network;  ///< Empty: the devices are not connected.
};

using DeviceDescriptionPtr = std::shared_ptr<const DeviceDescription>;

/// Parses a description. Errors, one line that begins with `path` and the line number: syntax; an
/// unknown key (with the nearest known one); a value of the wrong type, negative or out of range; a
/// missing key; network levels that do not nest.
Result<DeviceDescription> parse_device_description(std::string_view text, const std::string& path);

/// Returns the description as TOML; parse_device_description() of it returns the same description.
std::string device_description_toml(const DeviceDescription& description);

/// Returns the seconds that a copy from one memory to another keeps its stream busy. A copy within
/// host memory or within the disk runs at the lower of the two directions' bandwidths.
double move_seconds(const DeviceDescription& description, MemoryKind from, MemoryKind to,
                    double bytes);

}  // namespace stow
