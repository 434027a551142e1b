// with_sharding_constraint and reshard: prescribe the sharding of a value in a program.
// Not device_put, which also moves between memory kinds and single devices (memory.h).
#pragma once

#include "stowage/api/collectives.h"
#include "stowage/api/sharding.h"

namespace stow {

/// For the library: with_sharding_constraint of the leaves of a tree. `what`: the function that
/// errors name.
std::vector<Array> constrain_leaves(const char* what, const TreeRef& tree, const Sharding& to,
                                    SourceLocation at);

/// Returns x with the given sharding; outside of a trace, x is moved. The cotangent has the same
/// sharding.
/// Errors: TraceError for a sharding without a mesh; for a specification with more entries than the
///         array has axes, or an extent that the mesh axes do not divide (JAX pads such arrays); in
///         the body of shard_map, whose arrays are parts already; for a second mesh in a program.
/// Source: jax.lax.with_sharding_constraint.
Array with_sharding_constraint(const Operand& x, const Sharding& to);
/// with_sharding_constraint for every leaf of a tree.
template <concepts::ArrayTree T>
T with_sharding_constraint(const T& tree, const Sharding& to, STOW_AT) {
  return tree_unflatten(tree, constrain_leaves("with_sharding_constraint", tree_ref(tree), to, at));
}

namespace sharding {
/// with_sharding_constraint under the name of jax.sharding.
Array reshard(const Operand& x, const Sharding& to);
/// reshard for every leaf of a tree.
template <concepts::ArrayTree T>
T reshard(const T& tree, const Sharding& to, STOW_AT) {
  return tree_unflatten(tree, constrain_leaves("reshard", tree_ref(tree), to, at));
}
}  // namespace sharding

}  // namespace stow
