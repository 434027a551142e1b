// Checkpoint policies: which values of a checkpointed region are kept, recomputed or offloaded.
// Not their realisation; that is passes/residuals.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/ir/graph.h"

namespace stow {

// The parts that policies of one's own are made of.
using ir::Mark;
using ir::OpKind;
using ir::PolicyAnswer;
using ir::PolicyPtr;
using ir::PolicyQuery;

// Names and meaning are JAX's (jax.checkpoint_policies). No policy (null) is nothing_saveable.

/// Keeps everything.
ir::PolicyPtr everything_saveable();
/// Keeps nothing but the region's inputs.
ir::PolicyPtr nothing_saveable();
/// Keeps every product.
ir::PolicyPtr dots_saveable();
/// Keeps products whose dot_general has no batch axes.
ir::PolicyPtr dots_with_no_batch_dims_saveable();
/// The same products, moved to `destination`; the rest is recomputed.
ir::PolicyPtr offload_dot_with_no_batch_dims(MemoryKind destination = MemoryKind::kPinnedHost);
/// Keeps the values that checkpoint_name gave one of these names.
ir::PolicyPtr save_only_these_names(std::vector<std::string> names);
/// Keeps named values with any other name.
ir::PolicyPtr save_any_names_but_these(std::vector<std::string> names);
/// Keeps everything but the values of these names and arrays of the same data: the value named, and
/// its reshapes, transposes and reversals.
ir::PolicyPtr save_anything_except_these_names(std::vector<std::string> names);
/// Keeps the values named in `saved`, moves those named in `offloaded` to `destination`.
/// Errors: TraceError for a name in both.
ir::PolicyPtr save_and_offload_only_these_names(std::vector<std::string> saved,
                                            std::vector<std::string> offloaded,
                                            MemoryKind destination = MemoryKind::kPinnedHost,
                                            SourceLocation at = {__builtin_FILE(),
                                                                 __builtin_LINE()});
/// Keeps what either keeps, offloads what one offloads and the other would recompute.
ir::PolicyPtr save_from_both_policies(ir::PolicyPtr a, ir::PolicyPtr b);
/// A policy of one's own: asked of each value, it answers keep, recompute or offload.
/// Errors: TraceError where `decide` is empty.
ir::PolicyPtr custom_policy(std::string name, std::function<ir::PolicyAnswer(const ir::PolicyQuery&)> decide,
                        SourceLocation at = {__builtin_FILE(), __builtin_LINE()});

/// The policy of a name as a printed graph has it: "dots_saveable", "save_only_these_names(a, b)".
/// Null for any other: what one's own policy decides is not in its name.
ir::PolicyPtr policy_by_name(std::string_view name);

}  // namespace stow
