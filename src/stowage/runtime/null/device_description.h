// DeviceDescription: what a device computes and moves in a second, by figures that a person can check.
// Not a device; nothing runs on it but simulate().
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

/// Rates are operations and bytes a second, times seconds, sizes bytes. The keys of the file are the
/// fields: `compute.bf16_flops`. Only the cache, `slows_compute` and the network may be left out.
struct DeviceDescription {
  std::string name;
  struct Compute {
    double f32_flops = 0;  ///< Products of f32, as `f32_as` says; a multiply-add is two.
    std::string f32_as = "f32";  ///< "f32", or "tf32" where products round their operands to that.
    double bf16_flops = 0;       ///< Products of bf16, sums in f32; of f16 and i8 too.
    double f64_flops = 0;
    double achievable = 1;            ///< Share of those that large products reach.
    double attention_achievable = 1;  ///< Share of those that attention reaches.
    double vector_flops = 0;          ///< Elementwise operations: an add, a multiply, a compare.
    double special_flops = 0;         ///< exp, log, tanh, a division, a root.
    double launch_s = 0;              ///< Time of each kernel beside its work.
  } compute;
  struct Memory {
    double bandwidth = 0;     ///< Read and written together.
    double achievable = 1;    ///< Share of it that kernels reach.
    double cache_bandwidth = 0;  ///< If all operands of a kernel fit `cache`; 0: as `bandwidth`.
    int64_t cache = 0;
    int64_t device = 0, pinned_host = 0, disk = 0;  ///< Sizes.
  } memory;
  struct Link {
    double to_device = 0, to_host = 0;  ///< Copies of pinned memory, alone on the link.
    double latency_s = 0;  ///< From giving a copy to the link to its first byte; others may run.
    /// Share of its speed that compute loses while a copy runs: where copies are made by the
    /// processor that computes.
    double slows_compute = 0;
  } link;
  struct Disk {
    double read = 0, write = 0;
    double latency_s = 0;      ///< Latency of each transfer, in which the disk does nothing else.
    double slows_compute = 0;  ///< As that of the link.
  } disk;
  /// A level of the network between devices: `[[network]]` in the file, the innermost first. Device
  /// i stands in block i / devices of the level; devices in one block reach each other over it.
  struct Network {
    int64_t devices = 0;    ///< In a block; a multiple of the next inner level's.
    double bandwidth = 0;   ///< One way, of each device, when all of them send at once.
    double latency_s = 0;   ///< Latency of each step of a collective.
    double achievable = 1;  ///< Share of the bandwidth that collectives reach.
  };
  std::vector<Network> network;  ///< Empty: the devices are not connected.
};

using DeviceDescriptionPtr = std::shared_ptr<const DeviceDescription>;  ///< Null: not known.

/// Reads a description. `path` is for the errors, which are one line that begins with it and the
/// number of the line: syntax, an unknown key (with the nearest known one), a value of the wrong
/// kind, negative or out of range; a figure that is missing; levels of a network that do not nest.
Result<DeviceDescription> parse_device_description(std::string_view text, const std::string& path);

/// The description as TOML that reads back to the same.
std::string device_description_toml(const DeviceDescription& description);

/// Seconds that a copy from one memory to another keeps its stream busy. Within the host's memory or
/// the disk it goes at the slower of that memory's two directions.
double move_seconds(const DeviceDescription& description, MemoryKind from, MemoryKind to,
                    double bytes);

}  // namespace stow
