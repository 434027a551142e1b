// Packing problems of many natures and any size, drawn from a seed: what allocators meet.
// Not measured traces, and no solver: only some know their least height.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stowage/pack/problem.h"

namespace stow::pack {

/// One way of drawing lifetimes and sizes.
struct Nature {
  std::string_view name;
  Problem (*make)(int n_buffers, uint64_t seed);
};

/// All natures. Each gives about `n_buffers` plain buffers of alignment 1, none empty, the same for
/// the same seed on every machine.
std::span<const Nature> all_natures();

/// A rectangle of `capacity` bytes cut into about `n_buffers` that fill it: its least height is
/// `capacity`. With `windmills`, some cuts are into five pieces, which no straight cut parts.
Problem cut_rectangle(int n_buffers, int64_t capacity, bool windmills, uint64_t seed);

}  // namespace stow::pack
