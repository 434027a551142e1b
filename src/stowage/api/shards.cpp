#include "stowage/api/shards.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "stowage/api/element_reader.h"
#include "stowage/api/elements.h"
#include "stowage/api/memory.h"
#include "stowage/api/placement.h"
#include "stowage/api/processes.h"
#include "stowage/api/trace.h"

namespace stow {
namespace {

ShardIndex whole_index(const Shape& shape) {
  ShardIndex index;
  for (int64_t d : shape) index.push_back({0, d});
  return index;
}

Array shard_of(const Array& x, const DevicePtr& device, const Shape& shape,
               DeviceBufferPtr buffer) {
  Array data = make_concrete(ArrayType{x.dtype(), shape, x.type().kind}, std::move(buffer));
  data.impl()->sharding = std::make_shared<const Sharding>(
      SingleDeviceSharding(device, memory_kind_name(x.type().kind)));
  data.impl()->storage->shares_buffer = x.impl()->storage->shares_buffer = true;
  return data;
}

// One device of this process: the arrays there have one shard, without a list of parts.
DevicePtr only_device(const Sharding& sharding) {
  const DevicePtr device = sharding.device() ? sharding.device() : default_device();
  if (processes()->process_of(device.get()) != processes()->index())
    trace_error_here("[sharding] {} is on a device of another process ({}); use a mesh",
                     to_string(sharding), device->name());
  return device;
}

Array with_place(Array x, const Sharding& sharding) {
  auto impl = std::make_shared<ArrayImpl>(*x.impl());
  impl->sharding = std::make_shared<const Sharding>(sharding);
  return Array(std::move(impl));
}

// Calls `make(position, device, index)` for each device of this process, and joins what it returns.
// Without a list of parts where the sharding is one device here.
Array array_from_parts(
    const ArrayType& type, const Sharding& sharding,
    const std::function<DeviceBufferPtr(const DevicePtr&, const ShardIndex&)>& make) {
  const NamedSharding* named = sharding_over_mesh(sharding);
  if (!named)
    return with_place(
        make_concrete(type, make(only_device(sharding), whole_index(type.shape))), sharding);
  const Tiling tiling = named->tiling(type.shape);
  const auto all = processes();
  std::vector<Shards::Part> parts;
  for (int64_t i = 0; i < named->mesh().size(); ++i)
    if (const DevicePtr& device = named->mesh().devices()[static_cast<size_t>(i)];
        all->process_of(device.get()) == all->index())
      parts.push_back({i, make(device, tiling.index_of(named->tile_at(i)))});
  return array_of_shards(type, *named, std::move(parts));
}

void check_shape(const char* what, const Shape& shape) {
  for (int64_t d : shape)
    if (d < 0) trace_error_here("[{}] negative extent in [{}]", what, to_string(shape));
}

Shape shape_of(const ShardIndex& index) {
  Dims dims;
  for (const AxisRange& r : index) dims.push_back(r.extent());
  return Shape(std::move(dims));
}

}  // namespace

std::vector<sharding::Shard> addressable_shards(const Array& x) {
  const ElementReader readable(x);  // refuses what has no data
  if (!is_sharded(x)) {
    const Storage& storage = *x.impl()->storage;
    const DevicePtr device = storage.buffer ? storage.buffer->device() : default_device();
    return {{device, whole_index(x.shape()), 0,
             shard_of(x, device, x.shape(), buffer_of(x, device))}};
  }
  const NamedSharding& sharding = mesh_sharding_of(x);
  const Tiling& tiling = readable.tiling();
  std::vector<sharding::Shard> shards;
  for (const Shards::Part& part : x.impl()->storage->shards->parts) {
    const DevicePtr& device = sharding.mesh().devices()[static_cast<size_t>(part.position)];
    shards.push_back({device, tiling.index_of(sharding.tile_at(part.position)),
                      sharding.replica_at(part.position),
                      shard_of(x, device, tiling.tile_shape(), part.buffer)});
  }
  return shards;
}

Shape shard_shape(const Sharding& sharding, const Shape& shape) {
  return sharding.named() ? sharding.named()->tiling(shape).tile_shape() : shape;
}

std::vector<std::pair<DevicePtr, ShardIndex>> devices_indices(const Sharding& sharding,
                                                              const Shape& shape) {
  const NamedSharding* named = sharding.named();
  if (!named) return {{sharding.device(), whole_index(shape)}};
  const Tiling tiling = named->tiling(shape);
  std::vector<std::pair<DevicePtr, ShardIndex>> all;
  for (int64_t i = 0; i < named->mesh().size(); ++i)
    all.emplace_back(named->mesh().devices()[static_cast<size_t>(i)],
                     tiling.index_of(named->tile_at(i)));
  return all;
}

bool is_fully_addressable(const Sharding& sharding) {
  const auto all = processes();
  const std::vector<DevicePtr> devices = sharding.devices();
  return std::all_of(devices.begin(), devices.end(), [&](const DevicePtr& device) {
    return all->process_of(device.get()) == all->index();
  });
}

bool is_fully_addressable(const Array& x) { return is_fully_addressable(sharding_of(x)); }

bool is_fully_replicated(const Sharding& sharding) {
  const NamedSharding* named = sharding.named();
  if (!named) return true;
  for (const PartitionSpec::Axes& entry : named->spec().entries())
    for (const std::string& name : entry.names())
      if (named->mesh().extent(name) > 1) return false;
  return true;
}

bool is_fully_replicated(const Array& x) { return is_fully_replicated(sharding_of(x)); }

Array make_array_from_callback(const Shape& shape, const Sharding& sharding,
                               const std::function<Array(const ShardIndex&)>& callback,
                               std::optional<DType> dtype, const PartOptions& options,
                               SourceLocation at) {
  const CallSiteScope site(at);
  constexpr const char* kWhat = "make_array_from_callback";
  check_shape(kWhat, shape);
  ArrayType type{dtype.value_or(DType::kF32), shape, sharding.memory_kind()};
  check_sharding(kWhat, sharding, type);
  Array array = array_from_parts(
      type, sharding, [&](const DevicePtr& device, const ShardIndex& index) {
        const Array part = callback(index);
        if (part.empty() || !part.is_concrete())
          trace_error_here("[{}] the callback returned no data for {}: {}", kWhat, to_string(index),
                           describe(part));
        if (part.shape() != shape_of(index))
          trace_error_here("[{}] expected a part of shape [{}] for {}, the callback returned {}",
                           kWhat, to_string(shape_of(index)), to_string(index), describe(part));
        if (!dtype) dtype = part.dtype();
        if (part.dtype() != *dtype)
          trace_error_here("[{}] expected a part of {} for {}, the callback returned {}", kWhat,
                           dtype_name(*dtype), to_string(index), describe(part));
        const std::shared_ptr<Storage>& storage = part.impl()->storage;
        if (storage->buffer && storage->donated.empty() && storage->buffer->device() == device &&
            part.type().kind == type.kind) {
          storage->shares_buffer = true;
          return storage->buffer;
        }
        const ElementReader reader(part);
        check_complete(kWhat, part, reader);
        return write_part(
            device, ArrayType{*dtype, part.shape(), type.kind}, whole_index(part.shape()),
            [&](int64_t first, std::span<std::byte> out) { reader.read(first, out); });
      });
  if (!dtype)
    trace_error_here(
        "[{}] expected a dtype: this process has no device of {}, so that no part says what "
        "the array of shape [{}] holds",
        kWhat, to_string(sharding), to_string(shape));
  array.impl()->type.dtype = *dtype;
  array.impl()->storage->shares_buffer = true;
  if (options.check_same) check_same_parts(kWhat, array);
  return array;
}

Array make_array_from_fill(
    const Shape& shape, DType dtype, const Sharding& sharding,
    const std::function<void(const ShardIndex&, std::span<std::byte> out)>& fill,
    const PartOptions& options, SourceLocation at) {
  const CallSiteScope site(at);
  check_shape("make_array_from_fill", shape);
  const ArrayType type{dtype, shape, sharding.memory_kind()};
  check_sharding("make_array_from_fill", sharding, type);
  Array array =
      array_from_parts(type, sharding, [&](const DevicePtr& device, const ShardIndex& index) {
        const int64_t bytes = elems_of(index) * dtype_bytes(dtype);
        if (type.kind != MemoryKind::kDisk)
          return write_buffer(device, bytes, type.kind,
                              [&](int64_t, std::span<std::byte> out) { fill(index, out); });
        std::vector<std::byte> part(static_cast<size_t>(bytes));
        fill(index, part);
        return write_buffer(device, bytes, type.kind,
                            [&](int64_t offset, std::span<std::byte> out) {
                              std::memcpy(out.data(), part.data() + offset, out.size());
                            });
      });
  if (options.check_same) check_same_parts("make_array_from_fill", array);
  return array;
}

namespace {

// Along one axis, which parts each process holds, increasing.
using PartsByProcess = std::map<int, std::set<int64_t>>;

PartsByProcess parts_by_process(const NamedSharding& sharding, const Dims& parts, size_t axis) {
  const auto all = processes();
  const Tiling unit(Shape(parts), parts);  // a tile an element: an index is that of parts
  PartsByProcess found;
  for (int64_t i = 0; i < sharding.mesh().size(); ++i) {
    const DevicePtr& device = sharding.mesh().devices()[static_cast<size_t>(i)];
    found[all->process_of(device.get())].insert(
        unit.index_of(sharding.tile_at(i))[axis].begin);
  }
  return found;
}

// True if any two processes hold the same parts, or none in common and as many.
bool is_uniform(const PartsByProcess& held) {
  std::map<int64_t, const std::set<int64_t>*> of_part;
  for (const auto& [process, parts] : held) {
    if (parts.size() != held.begin()->second.size()) return false;
    for (int64_t part : parts) {
      const auto [it, is_new] = of_part.try_emplace(part, &parts);
      if (!is_new && *it->second != parts) return false;
    }
  }
  return true;
}

}  // namespace

Array make_array_from_process_local_bytes(const Sharding& sharding, const void* data, int64_t n,
                                          DType data_dtype, const Shape& local,
                                          const std::optional<Shape>& shape, DType dtype,
                                          SourceLocation at) {
  const CallSiteScope site(at);
  constexpr const char* kWhat = "make_array_from_process_local_data";
  check_shape(kWhat, local);
  if (shape) check_shape(kWhat, *shape);
  if (local.elems() != n)
    trace_error_here("[{}] local data of shape [{}] has {} elements, got {}", kWhat,
                     to_string(local), local.elems(), n);
  if (shape && shape->rank() != local.rank())
    trace_error_here(
        "[{}] expected local data of rank {} for an array of shape [{}], got shape [{}]", kWhat,
        shape->rank(), to_string(*shape), to_string(local));
  if (shape) check_sharding(kWhat, sharding, ArrayType{dtype, *shape, sharding.memory_kind()});
  const NamedSharding* named = sharding.named();
  const int mine = processes()->index();
  Shape global = local;
  // By axis, the place in the local data of each part of the array; none where all of it is there.
  std::vector<std::map<int64_t, int64_t>> place(static_cast<size_t>(local.rank()));
  Dims parts(static_cast<size_t>(local.rank()), 1);
  if (named) parts = named->parts(local.rank());
  for (size_t axis = 0; axis < parts.size(); ++axis) {
    const int i = static_cast<int>(axis);
    PartsByProcess held;
    if (named) held = parts_by_process(*named, parts, axis);
    const int64_t n_held =
        held.contains(mine) ? static_cast<int64_t>(held[mine].size()) : parts[axis];
    if (shape) {
      global[i] = (*shape)[i];
      if (local[i] == global[i]) continue;
    } else if (!is_uniform(held)) {
      trace_error_here(
          "[{}] axis {} is cut unevenly between processes by {}; give the shape of the whole "
          "array",
          kWhat, axis, to_string(sharding));
    } else if (held.empty() || n_held == parts[axis]) {
      continue;
    } else {
      if (local[i] % n_held != 0)
        trace_error_here(
            "[{}] axis {} of the local shape [{}] is not divisible into the {} parts that this "
            "process has of it ({})",
            kWhat, axis, to_string(local), n_held, to_string(sharding));
      global[i] = local[i] / n_held * parts[axis];
    }
    const int64_t expected = global[i] / parts[axis] * n_held;
    if (local[i] != expected)
      trace_error_here(
          "[{}] expected {} or {} elements along axis {} of the local data for an array of shape "
          "[{}] ({}), got {}",
          kWhat, expected, global[i], axis, to_string(global),
          to_string(sharding), local[i]);
    int64_t next = 0;
    for (int64_t part : held[mine]) place[axis].emplace(part, next++);
  }
  const ArrayType type{dtype, global, sharding.memory_kind()};
  check_sharding(kWhat, sharding, type);
  return array_from_parts(type, sharding, [&](const DevicePtr& device, const ShardIndex& index) {
    ShardIndex source = index;
    for (size_t axis = 0; axis < source.size(); ++axis)
      if (!place[axis].empty() && index[axis].extent() > 0) {
        const int64_t extent = index[axis].extent();
        const int64_t begin = place[axis].at(index[axis].begin / extent) * extent;
        source[axis] = {begin, begin + extent};
      }
    return write_part(device, ArrayType{dtype, local, type.kind}, source,
                      [&](int64_t first, std::span<std::byte> out) {
                        convert_elements(
                            static_cast<const std::byte*>(data) + first * dtype_bytes(data_dtype),
                            data_dtype, out.data(), dtype,
                            static_cast<int64_t>(out.size()) / dtype_bytes(dtype));
                      });
  });
}

Array make_array_from_single_device_arrays(const Shape& shape, const Sharding& sharding,
                                           const std::vector<Array>& arrays, SourceLocation at) {
  const CallSiteScope site(at);
  constexpr const char* kWhat = "make_array_from_single_device_arrays";
  check_shape(kWhat, shape);
  ArrayType type{DType::kF32, shape, sharding.memory_kind()};
  check_sharding(kWhat, sharding, type);
  const auto all = processes();
  std::vector<DevicePtr> here;
  for (const DevicePtr& device : sharding.devices())
    if (all->process_of(device.get()) == all->index()) here.push_back(device);
  if (sharding.devices().empty()) here.push_back(default_device());
  if (arrays.size() != here.size())
    trace_error_here("[{}] expected {} arrays, one for each device of {} in this process, got {}",
                     kWhat, here.size(), to_string(sharding), arrays.size());
  if (arrays.empty())
    trace_error_here(
        "[{}] expected one array at least, which says the dtype: this process has no device of "
        "{}; use make_array_from_callback with a dtype",
        kWhat, to_string(sharding));
  const Shape expected = shard_shape(sharding, shape);
  type.dtype = arrays[0].dtype();
  std::map<const Device*, DeviceBufferPtr> buffers;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Array& array = arrays[i];
    if (array.empty() || !array.is_concrete() || is_sharded(array))
      trace_error_here("[{}] expected an array on one device, array {} is {}{}", kWhat, i,
                       describe(array),
                       !array.empty() && is_sharded(array) ? " over a mesh" : " without data");
    const DeviceBufferPtr& own = array.impl()->storage->buffer;
    const DeviceBufferPtr& buffer = buffer_of(array, own ? own->device() : here[i]);
    const DevicePtr& device = buffer->device();
    if (std::find(here.begin(), here.end(), device) == here.end())
      trace_error_here(
          "[{}] array {} lies on the device {}:{}, which is none of {} in this process", kWhat, i,
          device->name(), device->number(), to_string(sharding));
    if (array.dtype() != type.dtype)
      trace_error_here("[{}] expected arrays of one dtype, array 0 is {} and array {} is {}", kWhat,
                       dtype_name(type.dtype), i, dtype_name(array.dtype()));
    if (array.shape() != expected)
      trace_error_here(
          "[{}] expected shards of shape [{}] for an array of shape [{}] ({}), array {} has shape "
          "[{}]",
          kWhat, to_string(expected), to_string(shape), to_string(sharding), i,
          to_string(array.shape()));
    if (array.type().kind != type.kind)
      trace_error_here(
          "[{}] expected shards in {} memory, array {} is in {}; move it with device_put first",
          kWhat, memory_kind_name(type.kind), i, memory_kind_name(array.type().kind));
    if (!buffers.emplace(device.get(), buffer).second)
      trace_error_here("[{}] two arrays lie on the device {}:{}; expected one on each of {}", kWhat,
                       device->name(), device->number(), to_string(sharding));
  }
  for (const Array& array : arrays) array.impl()->storage->shares_buffer = true;
  Array whole = array_from_parts(type, sharding, [&](const DevicePtr& device, const ShardIndex&) {
    return buffers.at(device.get());
  });
  whole.impl()->storage->shares_buffer = true;
  return whole;
}

}  // namespace stow
