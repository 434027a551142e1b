// Checkpoint policies: which values of a checkpointed region are kept, recomputed or offloaded.
// Not the pass that applies them; that is passes/residuals.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/ir/graph.h"

namespace stow {

// Types for user-defined policies (custom_policy).
using ir::Mark;
using ir::OpKind;
using ir::PolicyAnswer;
using ir::PolicyPtr;
using ir::PolicyQuery;

// Names and meaning are JAX's (jax.checkpoint_policies). A null policy means nothing_saveable.

/// Keeps everything.
ir::PolicyPtr everything_saveable();
/// Keeps the region's inputs only.
ir::PolicyPtr nothing_saveable();
/// Keeps every product.
ir::PolicyPtr dots_saveable();
/// Keeps products whose dot_general has no batch axes.
ir::PolicyPtr dots_with_no_batch_dims_saveable();
/// Offloads to `destination` the products whose dot_general has no batch axes; recomputes the rest.
ir::PolicyPtr offload_dot_with_no_batch_dims(MemoryKind destination = MemoryKind::kPinnedHost);
/// Keeps the values to which checkpoint_name gave one of these names.
ir::PolicyPtr save_only_these_names(std::vector<std::string> names);
/// Keeps named values with any other name.
ir::PolicyPtr save_any_names_but_these(std::vector<std::string> names);
/// Keeps everything except the values of these names and their reshapes, transposes and reversals,
/// which hold the same data.
ir::PolicyPtr save_anything_except_these_names(std::vector<std::string> names);
/// Keeps the values named in `saved`, moves those named in `offloaded` to `destination`.
/// Errors: TraceError for a name in both.
ir::PolicyPtr save_and_offload_only_these_names(std::vector<std::string> saved,
                                            std::vector<std::string> offloaded,
                                            MemoryKind destination = MemoryKind::kPinnedHost,
                                            SourceLocation at = {__builtin_FILE(),
                                                                 __builtin_LINE()});
/// Keeps the values that either policy keeps; offloads those that one policy offloads and the other
/// recomputes. A value that both offload goes to the destination of `a`.
ir::PolicyPtr save_from_both_policies(ir::PolicyPtr a, ir::PolicyPtr b);
/// A user-defined policy. `decide` is called for each value and returns keep, recompute or offload.
/// Errors: TraceError if `decide` is empty.
ir::PolicyPtr custom_policy(std::string name,
                            std::function<ir::PolicyAnswer(const ir::PolicyQuery&)> decide,
                            SourceLocation at = {__builtin_FILE(), __builtin_LINE()});

/// Returns the policy that a printed graph names: "dots_saveable", "save_only_these_names(a, b)".
/// Null for any other name, such as that of a user-defined policy.
ir::PolicyPtr policy_by_name(std::string_view name);

}  // namespace stow
