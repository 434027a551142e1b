// Arrays over several devices: access to their shards, and arrays made from shards.
// Not device_put (memory.h), which cuts an array that a process has whole.
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
  ShardIndex index;        ///< The part: one range for each axis.
  int64_t replica_id = 0;  ///< The number of earlier devices of the mesh that hold the same part.
  Array data;              ///< The elements; shares the memory of the array.
};

}  // namespace sharding

/// The shards of a concrete array in this process, in the order of the mesh. An array on one device
/// has one shard. Errors: TraceError for an array without data.
std::vector<sharding::Shard> addressable_shards(const Array& x);

/// The shape of each shard of an array of that shape. Errors: TraceError as check_sharding().
Shape shard_shape(const Sharding& sharding, const Shape& shape);
/// Each device and the part that it holds, in the order of the mesh, including devices of other
/// processes. The device is null if the sharding names none. Errors: as shard_shape().
std::vector<std::pair<DevicePtr, ShardIndex>> devices_indices(const Sharding& sharding,
                                                              const Shape& shape);

/// True if all devices belong to this process.
bool is_fully_addressable(const Sharding& sharding);
bool is_fully_addressable(const Array& x);  ///< True if its sharding is.
/// True if every device holds the whole array.
bool is_fully_replicated(const Sharding& sharding);
bool is_fully_replicated(const Array& x);  ///< True if its sharding is.

/// Options of make_array_from_callback and make_array_from_fill.
struct PartOptions {
  /// Checks that devices which hold the same part have equal bytes, by digests of 16 bytes for each
  /// device.
  /// This is a collective: all processes of the sharding make the call.
  bool check_same = false;
};

/// An array whose shards a function computes. `callback` is called once for each shard of this
/// process, in the order of the mesh; it returns the elements of that part as an Array. Processes
/// communicate only if `options` ask for a check. A part that already lies on its device is used
/// without a copy. `dtype`: dtype of the parts; required in a process that has no shard.
/// Errors: TraceError for a part of another shape or dtype; in all processes, if a check finds a
/// difference; as check_sharding().
Array make_array_from_callback(const Shape& shape, const Sharding& sharding,
                               const std::function<Array(const ShardIndex&)>& callback,
                               std::optional<DType> dtype = std::nullopt,
                               const PartOptions& options = {}, STOW_AT);
/// make_array_from_callback with parts written in place: `fill(index, out)` fills `out` with the
/// bytes of the part, row-major in `dtype`. A part in disk memory temporarily needs host memory of
/// its size.
Array make_array_from_fill(
    const Shape& shape, DType dtype, const Sharding& sharding,
    const std::function<void(const ShardIndex&, std::span<std::byte> out)>& fill,
    const PartOptions& options = {}, STOW_AT);

/// A type-erased make_array_from_process_local_data, for the library. `n`: elements of `data`.
Array make_array_from_process_local_bytes(const Sharding& sharding, const void* data, int64_t n,
                                          DType data_dtype, const Shape& local,
                                          const std::optional<Shape>& shape, DType dtype,
                                          SourceLocation at);
/// An array from the data that each process has. Along an axis that is cut between processes,
/// `data` has the parts of this process, concatenated. `local`: the shape of `data`. `shape`: the
/// shape of the whole array. By default, each extent is the local extent times the number of
/// different parts that processes hold along that axis. With `shape`, an axis of `data` may have
/// the whole extent; each shard then takes its part.
/// Errors: TraceError if the size of `data` differs from `local`; if a local extent is neither that
/// of the process's parts nor the whole; if processes hold unequal parts of an axis and no shape is
/// given.
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

/// An array whose shards are `arrays`: one on each device of the sharding in this process, in any
/// order, in the sharding's memory kind. No copy is made; the result shares their memory.
/// Errors: TraceError for another number of arrays, for two on one device, for one on a device
/// outside the sharding, and for one of another dtype, shape or memory kind. Each message gives
/// expected and got.
Array make_array_from_single_device_arrays(const Shape& shape, const Sharding& sharding,
                                           const std::vector<Array>& arrays, STOW_AT);

}  // namespace stow
