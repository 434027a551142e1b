// ArrayType: dtype, shape and memory kind of an array, its whole description in a plan.
// Not data; an array's bytes are in a buffer of a device.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stowage/core/dtype.h"
#include "stowage/core/shape.h"

namespace stow {

/// The memory that holds an array. Each kind is a heap with a capacity of its own.
enum class MemoryKind : uint8_t { kDevice, kPinnedHost, kDisk };
inline constexpr int kNumMemoryKinds = 3;

/// "device", "pinned_host", "disk".
std::string_view memory_kind_name(MemoryKind kind);
std::optional<MemoryKind> parse_memory_kind(std::string_view name);  ///< None for no such name.

/// The type of an array: dtype, shape and memory kind.
struct ArrayType {
  DType dtype = DType::kF32;
  Shape shape;
  MemoryKind kind = MemoryKind::kDevice;
  bool weak = false;  ///< True if made from C++ scalars only; promotion prefers other dtypes.

  int64_t elems() const { return shape.elems(); }  ///< Number of all elements.
  int64_t bytes() const { return elems() * dtype_bytes(dtype); }  ///< Without padding.
  /// Ignores `weak`, which affects promotion only.
  friend bool operator==(const ArrayType& a, const ArrayType& b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.kind == b.kind;
  }
};

/// "f32[8,64]", "bf16[]", "f32<pinned_host>[4]".
std::string to_string(const ArrayType& type);

}  // namespace stow
