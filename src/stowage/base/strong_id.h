// StrongId: an index whose type prevents confusion with indices into other containers.
// Not a handle: it owns nothing and is meaningful only with its container.
#pragma once

#include <cstdint>
#include <functional>

namespace stow {

/// An index of 32 bits. Each `Tag` makes a type of its own. A default-constructed id is invalid.
template <typename Tag>
struct StrongId {
  static constexpr uint32_t kInvalid = ~uint32_t{0};
  uint32_t value = kInvalid;

  constexpr StrongId() = default;
  constexpr explicit StrongId(size_t v) : value(static_cast<uint32_t>(v)) {}
  constexpr bool valid() const { return value != kInvalid; }
  constexpr size_t index() const { return value; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

}  // namespace stow

template <typename Tag>
struct std::hash<stow::StrongId<Tag>> {
  size_t operator()(stow::StrongId<Tag> id) const noexcept { return id.value; }
};
