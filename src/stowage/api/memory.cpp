#include "stowage/api/memory.h"

#include <algorithm>
#include <functional>

#include "stowage/api/elements.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/trace.h"
#include "stowage/core/disk_blocks.h"

namespace stow {
namespace {

// What goes to a disk passes through so much of the host's memory at a time.
constexpr int64_t kPieceBytes = 1 << 20;

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

// Of a concrete array; null where it lies on none yet.
DevicePtr device_of(const Array& x) {
  const DeviceBufferPtr& buffer = x.impl()->storage->buffer;
  return buffer ? buffer->device() : nullptr;
}

// A new array, written by `write(offset, out)`: at once where the processor can address it, else
// piece by piece through memory that the device meters, whatever the size of the array.
Array written(const DevicePtr& device, const ArrayType& type,
              const std::function<void(int64_t offset, std::span<std::byte> out)>& write) {
  const int64_t bytes = type.bytes();
  DeviceBufferPtr buffer = device->allocate(bytes, type.kind);
  const Place place = buffer->place();
  if (bytes > 0 && !place.disk) write(0, {place.memory, static_cast<size_t>(bytes)});
  if (bytes > 0 && place.disk) {
    const int64_t piece_bytes = std::min(kPieceBytes, align_up(bytes, kDiskBlockBytes));
    const int64_t bounce_bytes = disk_bounce_bytes(piece_bytes);
    const DeviceBufferPtr staging =
        device->allocate(piece_bytes + bounce_bytes, MemoryKind::kPinnedHost);
    const std::span<std::byte> piece(staging->data(), static_cast<size_t>(piece_bytes));
    const std::span<std::byte> bounce(staging->data() + piece_bytes,
                                      static_cast<size_t>(bounce_bytes));
    for (int64_t at = 0; at < bytes; at += piece_bytes) {
      const auto part = piece.first(static_cast<size_t>(std::min(piece_bytes, bytes - at)));
      write(at, part);
      place.disk->write(place.offset + at, part, bounce);
    }
  }
  return make_concrete(type, std::move(buffer));
}

// A copy on another device.
Array copied_to(const Array& x, const DevicePtr& device, MemoryKind kind) {
  ArrayType type = x.type();
  type.kind = kind;
  const DeviceBufferPtr source = buffer_of(x, device_of(x) ? device_of(x) : device);
  return written(device, type, [&](int64_t offset, std::span<std::byte> out) {
    source->read(offset, out);
  });
}

}  // namespace

Array device_put(const Operand& x, const Sharding& to) {
  const Site site(x.at);
  const Array array = to_array(x);
  check_sharding("device_put", to, array.type());
  const DevicePtr device = to.device();
  if (!array.is_concrete()) {
    if (device && device != default_device())
      fail_here("[device_put] {} is asked for on the device {}, the program runs on {}",
                describe(array), name_beside(*device, *default_device()),
                name_beside(*default_device(), *device));
  } else if (const DevicePtr its = device_of(array); device && its != device) {
    if (current_trace())
      fail_here(
          "[device_put] {} is captured by a program and asked for on another device, {}; "
          "move it before",
          describe(array), its ? name_beside(*device, *its) : device->name());
    return with_sharding(copied_to(array, device, to.memory_kind()), to);
  }
  return with_sharding(in_kind(array, to.memory_kind()), to);
}

Array device_put(const Operand& x, MemoryKind kind) {
  const Site site(x.at);
  const Array array = to_array(x);
  return device_put(Operand(array, x.at.file, x.at.line),
                    sharding_of(array).with_memory_kind(memory_kind_name(kind)));
}

Array device_put_bytes(const void* data, int64_t n, DType data_dtype, Shape shape, DType dtype,
                       const Sharding& to, SourceLocation at) {
  const Site site(at);
  const ArrayType type{dtype, std::move(shape), to.memory_kind()};
  check_sharding("device_put", to, type);
  for (int64_t d : type.shape)
    if (d < 0) fail_here("[device_put] negative extent in {}", to_string(type));
  if (type.elems() != n)
    fail_here("[device_put] {} holds {} elements, the data has {}", to_string(type), type.elems(),
              n);
  const DevicePtr device = to.device() ? to.device() : default_device();
  // Pieces are of whole blocks, hence of whole elements.
  const Array array = written(device, type, [&](int64_t offset, std::span<std::byte> out) {
    const int64_t width = dtype_bytes(dtype), first = offset / width;
    convert_elements(static_cast<const std::byte*>(data) + first * dtype_bytes(data_dtype),
                     data_dtype, out.data(), dtype, static_cast<int64_t>(out.size()) / width);
  });
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
