#include "stowage/api/memory.h"

#include <cstring>

#include "stowage/api/elements.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/trace.h"

namespace stow {
namespace {

bool is_mapped(MemoryKind kind) {
  return kind != MemoryKind::kDisk;
}

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

// A copy on another device. What the processor cannot address passes through its memory.
Array copied_to(const Array& x, const DevicePtr& device, MemoryKind kind) {
  const Array from = is_mapped(x.type().kind) ? x : in_kind(x, MemoryKind::kPinnedHost);
  ArrayType type = from.type();
  type.kind = is_mapped(kind) ? kind : MemoryKind::kPinnedHost;
  const DeviceBufferPtr source = buffer_of(from, device_of(from) ? device_of(from) : device);
  DeviceBufferPtr buffer = device->allocate(type.bytes(), type.kind);
  if (type.bytes() > 0)
    std::memcpy(buffer->data(), source->data(), static_cast<size_t>(type.bytes()));
  return in_kind(make_concrete(type, std::move(buffer)), kind);
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
                describe(array), device->name(), default_device()->name());
  } else if (device && device_of(array) != device) {
    if (current_trace())
      fail_here("[device_put] {} is captured by a program and asked for on another device, {}; "
                "move it before",
                describe(array), device->name());
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
  const MemoryKind kind = to.memory_kind();
  const ArrayType type{dtype, std::move(shape), is_mapped(kind) ? kind : MemoryKind::kPinnedHost};
  check_sharding("device_put", to, type);
  for (int64_t d : type.shape)
    if (d < 0) fail_here("[device_put] negative extent in {}", to_string(type));
  if (type.elems() != n)
    fail_here("[device_put] {} holds {} elements, the data has {}", to_string(type), type.elems(),
              n);
  const DevicePtr device = to.device() ? to.device() : default_device();
  DeviceBufferPtr buffer = device->allocate(type.bytes(), type.kind);
  convert_elements(data, data_dtype, buffer->data(), dtype, n);
  return with_sharding(in_kind(make_concrete(type, std::move(buffer)), kind), to);
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
