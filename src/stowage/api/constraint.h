// with_sharding_constraint and reshard: how a value of a program lies on its mesh.
// Not device_put, which also moves between memories and single devices (memory.h).
#pragma once

#include "stowage/api/collectives.h"
#include "stowage/api/sharding.h"

namespace stow {

/// For the library: what the functions below do.
std::vector<Array> constrain_leaves(const char* what, const TreeRef& tree, const Sharding& to,
                                    SourceLocation at);

/// x, which lies from here on as the sharding says; outside of a trace it is moved there. The
/// cotangent has the sharding too.
/// Errors: TraceError for a sharding without a mesh; where the array cannot be cut so: a specification
///         with more entries than axes, an extent that does not divide (JAX pads; this does not);
///         in the body of shard_map, whose arrays are parts already; for a second mesh in a program.
/// Source: jax.lax.with_sharding_constraint.
Array with_sharding_constraint(const Operand& x, const Sharding& to);
/// The same for every leaf of a tree.
template <concepts::ArrayTree T>
T with_sharding_constraint(const T& tree, const Sharding& to, STOW_AT) {
  return tree_unflatten(tree, constrain_leaves("with_sharding_constraint", tree_ref(tree), to, at));
}

namespace sharding {
/// The same as with_sharding_constraint under the name that jax.sharding has for it.
Array reshard(const Operand& x, const Sharding& to);
/// The same for every leaf of a tree.
template <concepts::ArrayTree T>
T reshard(const T& tree, const Sharding& to, STOW_AT) {
  return tree_unflatten(tree, constrain_leaves("reshard", tree_ref(tree), to, at));
}
}  // namespace sharding

}  // namespace stow
