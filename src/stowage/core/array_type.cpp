#include "stowage/core/array_type.h"

#include <fmt/core.h>

namespace stow {

std::string_view memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice: return "device";
    case MemoryKind::kPinnedHost: return "pinned_host";
    case MemoryKind::kDisk: return "disk";
  }
  return "?";
}

std::optional<MemoryKind> parse_memory_kind(std::string_view name) {
  for (int i = 0; i < kNumMemoryKinds; ++i)
    if (memory_kind_name(static_cast<MemoryKind>(i)) == name) return static_cast<MemoryKind>(i);
  return std::nullopt;
}

std::string to_string(const ArrayType& type) {
  const std::string kind = type.kind == MemoryKind::kDevice
                               ? std::string()
                               : fmt::format("<{}>", memory_kind_name(type.kind));
  return fmt::format("{}{}[{}]", dtype_name(type.dtype), kind, to_string(type.shape));
}

}  // namespace stow
