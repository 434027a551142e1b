// Checks of arena bytes that the running instruction must not touch, in checking builds only.
// Not for files outside of the runtime, which tests compile without checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#define STOW_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STOW_POISONS 1
#endif
#endif
#ifndef STOW_POISONS
#define STOW_POISONS 0
#endif
#if STOW_POISONS
#include <sanitizer/asan_interface.h>
#endif

namespace stow {

/// True in builds with the address sanitizer: all bytes of the arenas are poisoned, except the
/// operands and results of the running instruction.
inline constexpr bool kPoisonsArena = STOW_POISONS != 0;
/// True in builds with assertions, with or without sanitizers: bytes are filled with a NaN of every
/// float type when their lifetime ends.
#ifdef NDEBUG
inline constexpr bool kFillsDeadBytes = false;
#else
inline constexpr bool kFillsDeadBytes = true;
#endif

/// Makes the address sanitizer report any access to these bytes; does nothing without it.
inline void poison([[maybe_unused]] const std::byte* data, [[maybe_unused]] int64_t bytes) {
#if STOW_POISONS
  __asan_poison_memory_region(data, static_cast<size_t>(bytes));
#endif
}
/// Undoes poison().
inline void unpoison([[maybe_unused]] const std::byte* data, [[maybe_unused]] int64_t bytes) {
#if STOW_POISONS
  __asan_unpoison_memory_region(data, static_cast<size_t>(bytes));
#endif
}

/// Fills dead bytes with the 16-bit pattern 0x7ff4, and poisons them again.
inline void fill_dead(std::byte* data, int64_t bytes) {
  constexpr unsigned char kPattern[2] = {0xf4, 0x7f};
  unpoison(data, bytes);
  for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(kPattern[i % 2]);
  poison(data, bytes);
}

}  // namespace stow
