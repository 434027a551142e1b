#include "stowage/api/memory.h"

#include <algorithm>
#include <functional>

#include "stowage/api/element_reader.h"
#include "stowage/api/elements.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/mesh_program.h"
#include "stowage/api/placement.h"
#include "stowage/api/shards.h"
#include "stowage/api/trace.h"

namespace stow {
namespace {

// The same handle under another sharding; nothing is copied.
Array with_sharding(const Array& x, const Sharding& sharding) {
  const auto& known = x.impl()->sharding;
  if (known && *known == sharding) return x;
  auto impl = std::make_shared<ArrayImpl>(*x.impl());
  impl->sharding = std::make_shared<const Sharding>(sharding);
  return Array(std::move(impl));
}

Array in_kind(const Array& x, MemoryKind kind) {
  if (x.type().kind == kind) return x;
  return record1(OpKind::kDevicePut, DevicePutParams{kind}, {x});
}

// The device of a concrete array; null if it has no buffer yet.
DevicePtr device_of(const Array& x) {
  const DeviceBufferPtr& buffer = x.impl()->storage->buffer;
  return buffer ? buffer->device() : nullptr;
}

// A copy on another device; of an array in shards, all of it.
Array copied_to(const Array& x, const DevicePtr& device, MemoryKind kind) {
  ArrayType type = x.type();
  type.kind = kind;
  const ElementReader reader(x);
  check_complete("device_put", x, reader);
  const int64_t width = dtype_bytes(type.dtype);
  return make_concrete(type, write_buffer(device, type.bytes(), kind,
                                          [&](int64_t offset, std::span<std::byte> out) {
                                            reader.read(offset / width, out);
                                          }));
}

// True if each process of the sharding places its own copy of x: a value that none has placed by
// name.
bool is_placed_from_copies(const Array& x, const NamedSharding* mesh) {
  return mesh && x.is_concrete() && !is_sharded(x) && !is_fully_addressable(Sharding(*mesh));
}

void check_unplaced(const Array& x, const NamedSharding& to) {
  const auto& known = x.impl()->sharding;
  if (known && known->device())
    trace_error_here(
        "[device_put] expected a value that every process has, got {} on {}, asked for on {}; use "
        "make_array_from_process_local_data or make_array_from_single_device_arrays",
        describe(x),
        to_string(*known), to_string(Sharding(to)));
}

Array put_over_mesh(const Array& x, const NamedSharding& to) {
  if (is_sharded(x)) {
    const NamedSharding& from = mesh_sharding_of(x);
    if (from == to) return x;
    return reshard_over_mesh(x, to);
  }
  if (is_placed_from_copies(x, &to)) check_unplaced(x, to);
  ArrayType type = x.type();
  type.kind = to.memory_kind();
  const ElementReader reader(x);
  return put_in_shards(type, to,
                       [&](int64_t first, std::span<std::byte> out) { reader.read(first, out); });
}

}  // namespace

PlacedLeaf placed_leaf_of(const Array& x, const NamedSharding& to, std::string path) {
  check_unplaced(x, to);
  const ElementReader reader(x);
  ArrayType type = x.type();
  type.kind = to.memory_kind();
  return {
      std::move(path), type,
      fingerprint_of(type, type.dtype, type.elems(),
                     [&](int64_t first, std::span<std::byte> out) { reader.read(first, out); })};
}

Array device_put(const Operand& x, const Sharding& to, const PlacementOptions& options) {
  const CallSiteScope site(x.at);
  const Array array = to_array(x);
  check_sharding("device_put", to, array.type());
  if (const NamedSharding* mesh = sharding_over_mesh(to)) {
    if (array.is_abstract()) return with_sharding(in_kind(array, to.memory_kind()), to);
    if (array.is_traced() || current_trace()) {
      record_mesh(*mesh);
      const Result<AxisSharding> axes =
          axis_sharding_of(mesh->spec(), array.type(), mesh->mesh().mesh_shape());
      if (!axes) trace_error_here("[device_put] {}", axes.error());
      const Array lies = record1(OpKind::kReshard, ReshardParams{mesh->mesh().mesh_shape(), *axes},
                                 {in_kind(array, to.memory_kind())});
      return with_sharding(lies, to);
    }
    if (options.check_same && is_placed_from_copies(array, mesh))
      check_same_on_processes(*mesh, std::vector<PlacedLeaf>{placed_leaf_of(array, *mesh, "")});
    return put_over_mesh(array, *mesh);
  }
  const DevicePtr device = to.device();
  if (device && !is_fully_addressable(to))
    trace_error_here("[device_put] {} is asked for on {} of another process; put it over a mesh",
                     describe(array), device->name());
  if (is_sharded(array)) {
    if (current_trace()) {
      if (device) refuse_over_mesh("device_put", mesh_sharding_of(array).mesh());
      return in_kind(array, to.memory_kind());
    }
    // A kind alone: each part stays on its device.
    if (!device)
      return put_over_mesh(array, mesh_sharding_of(array).with_memory_kind(
                                      memory_kind_name(to.memory_kind())));
    return with_sharding(copied_to(array, device, to.memory_kind()), to);
  }
  if (!array.is_concrete()) {
    if (device && device != default_device())
      trace_error_here(
          "[device_put] expected the device that the program runs on, {}, got {} for {}",
          distinguishing_name(*default_device(), *device),
          distinguishing_name(*device, *default_device()), describe(array));
  } else if (const DevicePtr its = device_of(array); device && its != device) {
    if (current_trace())
      trace_error_here(
          "[device_put] {} is captured by a program and asked for on another device, {}; "
          "move it before the call",
          describe(array), its ? distinguishing_name(*device, *its) : device->name());
    return with_sharding(copied_to(array, device, to.memory_kind()), to);
  }
  return with_sharding(in_kind(array, to.memory_kind()), to);
}

std::vector<Array> device_put_leaves(const TreeRef& tree, const Sharding& to,
                                     const PlacementOptions& options, SourceLocation at) {
  const CallSiteScope site(at);
  std::vector<Array> leaves = leaves_of(tree);
  const NamedSharding* mesh = current_trace() ? nullptr : sharding_over_mesh(to);
  if (mesh && options.check_same) {
    const std::vector<std::string> paths = paths_of(tree);
    std::vector<PlacedLeaf> placed;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].empty()) continue;
      check_sharding("device_put", to, leaves[i].type());
      if (is_placed_from_copies(leaves[i], mesh))
        placed.push_back(placed_leaf_of(leaves[i], *mesh, paths[i]));
    }
    check_same_on_processes(*mesh, placed);
  }
  for (Array& leaf : leaves)
    leaf = device_put(Operand(leaf, at.file, at.line), to, {.check_same = false});
  return leaves;
}

Array device_put(const Operand& x, MemoryKind kind) {
  const CallSiteScope site(x.at);
  const Array array = to_array(x);
  return device_put(Operand(array, x.at.file, x.at.line),
                    sharding_of(array).with_memory_kind(memory_kind_name(kind)));
}

Array device_put_bytes(const void* data, int64_t n, DType data_dtype, Shape shape, DType dtype,
                       const Sharding& to, SourceLocation at) {
  const CallSiteScope site(at);
  const ArrayType type{dtype, std::move(shape), to.memory_kind()};
  check_sharding("device_put", to, type);
  for (int64_t d : type.shape)
    if (d < 0) trace_error_here("[device_put] negative extent in {}", to_string(type));
  if (type.elems() != n)
    trace_error_here("[device_put] expected {} elements for {}, got {}", type.elems(),
                     to_string(type), n);
  const int64_t width = dtype_bytes(dtype);
  const auto read = [&](int64_t first, std::span<std::byte> out) {
    convert_elements(static_cast<const std::byte*>(data) + first * dtype_bytes(data_dtype),
                     data_dtype, out.data(), dtype, static_cast<int64_t>(out.size()) / width);
  };
  if (const NamedSharding* mesh = sharding_over_mesh(to)) {
    if (!is_fully_addressable(to))
      check_same_on_processes(
          *mesh, std::vector<PlacedLeaf>{
                     {"", type, fingerprint_of(type, dtype, n, read)}});
    return put_in_shards(type, *mesh, read);
  }
  const DevicePtr device = to.device() ? to.device() : default_device();
  const Array array =
      make_concrete(type, write_buffer(device, type.bytes(), type.kind,
                                       [&](int64_t offset, std::span<std::byte> out) {
                                         read(offset / width, out);
                                       }));
  return with_sharding(array, to);
}

Sharding sharding_of(const Array& x) {
  const MemoryKind kind = x.type().kind;
  if (x.impl()->sharding) return *x.impl()->sharding;
  if (x.is_concrete())
    if (const DevicePtr device = device_of(x); device && device != default_device())
      return SingleDeviceSharding(device, memory_kind_name(kind));
  return kind;
}

}  // namespace stow
