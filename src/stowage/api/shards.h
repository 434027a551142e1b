// Arrays over several devices: their shards, and arrays made of shards.
// Not device_put, which cuts an array that is there whole (memory.h).
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "stowage/api/array.h"
#include "stowage/api/sharding.h"

namespace stow {

namespace sharding {

/// The part of an array on one device.
struct Shard {
  DevicePtr device;
  ShardIndex index;        ///< The part, a range an axis.
  int64_t replica_id = 0;  ///< How many devices before it in the mesh hold the same part.
  Array data;              ///< Shares the memory of the array.
};

}  // namespace sharding

/// The shards of a concrete array in this process, in the order of the mesh; one of an array on one
/// device. Errors: TraceError for an array without data.
std::vector<sharding::Shard> addressable_shards(const Array& x);

/// The shape of each shard of an array of that shape. Errors: TraceError as check_sharding().
Shape shard_shape(const Sharding& sharding, const Shape& shape);
/// Each device and the part that it holds, in the order of the mesh, those of other processes
/// included. The device is null where the sharding names none. Errors: as shard_shape().
std::vector<std::pair<DevicePtr, ShardIndex>> devices_indices(const Sharding& sharding,
                                                              const Shape& shape);

/// True if all devices belong to this process.
bool is_fully_addressable(const Sharding& sharding);
bool is_fully_addressable(const Array& x);  ///< True if its sharding is.
/// True if every device holds the whole array.
bool is_fully_replicated(const Sharding& sharding);
bool is_fully_replicated(const Array& x);  ///< True if its sharding is.

/// How parts that a function gives are made an array.
struct PartOptions {
  /// Compares digests of the parts that several devices hold, 16 bytes a device: then all processes of the
  /// sharding call it.
  bool check_same = false;
};

/// An array whose shards `callback` gives: it is called once for each shard of this process, in the
/// order of the mesh, and returns the elements of the part as an Array. Nothing crosses between
/// processes, unless `options` ask for a check. A part that lies on its device already is taken as it is, else copied.
/// `dtype`: what the parts must have. It is needed in a process that has no shard.
/// Errors: TraceError for a part of another shape or dtype; where parts are compared and differ, in all
/// processes; as check_sharding().
Array make_array_from_callback(const Shape& shape, const Sharding& sharding,
                               const std::function<Array(const ShardIndex&)>& callback,
                               std::optional<DType> dtype = std::nullopt,
                               const PartOptions& options = {}, STOW_AT);
/// The same, written in place: `fill(index, out)` fills `out` with the bytes of the part, row-major in
/// `dtype`. A part on a disk passes through host memory of its size.
Array make_array_from_fill(
    const Shape& shape, DType dtype, const Sharding& sharding,
    const std::function<void(const ShardIndex&, std::span<std::byte> out)>& fill,
    const PartOptions& options = {}, STOW_AT);

/// For the library: what make_array_from_process_local_data does.
Array make_array_from_process_local_bytes(const Sharding& sharding, const void* data, int64_t n,
                                          DType data_dtype, const Shape& local,
                                          const std::optional<Shape>& shape, DType dtype,
                                          SourceLocation at);
/// An array from what each process has of it: along an axis that is cut between processes, the parts
/// of this process one after another.
/// `shape`: of the whole array; without it, an extent is that of the local data times the number of
/// different parts that processes hold along the axis. With it, an axis may have the whole extent
/// locally: then each shard takes its part of it.
/// Errors: TraceError if the sizes differ; if the local extent is neither that of the process's parts
/// nor the whole; if processes hold unequal parts of an axis and no shape is given.
template <concepts::Scalar T>
Array make_array_from_process_local_data(const Sharding& sharding, std::span<const T> data,
                                         const Shape& local,
                                         const std::optional<Shape>& shape = std::nullopt,
                                         DType dtype = dtype_of<T>(), STOW_AT) {
  return make_array_from_process_local_bytes(sharding, data.data(),
                                             static_cast<int64_t>(data.size()), dtype_of<T>(),
                                             local, shape, dtype, at);
}
template <concepts::Scalar T>
requires(!std::same_as<T, bool>) Array make_array_from_process_local_data(
    const Sharding& sharding, const std::vector<T>& data, const Shape& local,
    const std::optional<Shape>& shape = std::nullopt, DType dtype = dtype_of<T>(), STOW_AT) {
  return make_array_from_process_local_data(sharding, std::span<const T>(data), local, shape, dtype,
                                            at);
}

/// An array of these shards, one on each device of the sharding in this process, in any order. No
/// copy is made; the arrays share their memory with it. They lie in the sharding's memory kind.
/// Errors: TraceError for another number of arrays, two on one device, one on a device that the
/// sharding has not, one of another dtype, shape or kind; each message has both sides.
Array make_array_from_single_device_arrays(const Shape& shape, const Sharding& sharding,
                                           const std::vector<Array>& arrays, STOW_AT);

}  // namespace stow
