// Random packing problems of many kinds and any size, as allocators meet them.
// Not measured traces, and no solver; the optimal height is known only for some.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stowage/pack/problem.h"

namespace stow::pack {

/// A kind of problem: a way to draw lifetimes and sizes.
struct Nature {
  std::string_view name;
  Problem (*make)(int n_buffers, uint64_t seed);
};

/// Returns all kinds. Each makes about `n_buffers` plain buffers with alignment 1, none empty, the
/// same for a seed on every machine.
std::span<const Nature> all_natures();

/// Returns a problem made by cutting a rectangle of `capacity` bytes into about `n_buffers`
/// buffers: its optimal height is `capacity`. `windmills`: some cuts are into five pieces that no
/// straight cut separates.
Problem cut_rectangle(int n_buffers, int64_t capacity, bool windmills, uint64_t seed);

}  // namespace stow::pack
