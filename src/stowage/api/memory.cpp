#include "stowage/api/memory.h"

#include "stowage/api/math_internal.h"
#include "stowage/api/trace.h"

namespace stow {

SingleDeviceSharding::SingleDeviceSharding(std::string_view memory_kind)
    : kind_(MemoryKind::kDevice) {
  if (memory_kind.empty()) return;
  const std::optional<MemoryKind> kind = parse_memory_kind(memory_kind);
  if (!kind)
    fail_here("[sharding] there is no memory kind '{}'; the kinds are device, pinned_host and disk",
              memory_kind);
  kind_ = *kind;
}

Array device_put(const Operand& x, SingleDeviceSharding to) {
  const Site site(x.at);
  const Array array = to_array(x);
  if (array.type().kind == to.memory_kind()) return array;
  return record1(OpKind::kDevicePut, DevicePutParams{to.memory_kind()}, {array});
}

SingleDeviceSharding sharding_of(const Array& x) { return x.type().kind; }

}  // namespace stow
