// ArenaGuard: what a checking build does to arena bytes that no running instruction may touch.
// Nothing in a release build, and no part of what is predicted or measured. For sources of the runtime
// alone: tests put a checked runtime beside what is compiled without checks.
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

/// Under the address sanitizer, everything in the arenas but the operands and results of the running
/// instruction is poisoned.
inline constexpr bool kPoisonsArena = STOW_POISONS != 0;
/// In builds with assertions, sanitizers or not, bytes are filled with a NaN of every float type when
/// their life ends.
#ifdef NDEBUG
inline constexpr bool kFillsDeadBytes = false;
#else
inline constexpr bool kFillsDeadBytes = true;
#endif

inline void poison([[maybe_unused]] const std::byte* data, [[maybe_unused]] int64_t bytes) {
#if STOW_POISONS
  __asan_poison_memory_region(data, static_cast<size_t>(bytes));
#endif
}
inline void unpoison([[maybe_unused]] const std::byte* data, [[maybe_unused]] int64_t bytes) {
#if STOW_POISONS
  __asan_unpoison_memory_region(data, static_cast<size_t>(bytes));
#endif
}

/// 0x7ff4 in every two bytes, which stay poisoned where dead bytes are.
inline void fill_dead(std::byte* data, int64_t bytes) {
  constexpr unsigned char kPattern[2] = {0xf4, 0x7f};
  unpoison(data, bytes);
  for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(kPattern[i % 2]);
  poison(data, bytes);
}

}  // namespace stow
