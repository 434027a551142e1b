// checkpoint: marks a function whose intermediate values a policy keeps, recomputes or offloads.
// Not a file of saved state (io/checkpoint_file.h). It changes no result, and has no effect without
// differentiation.
#pragma once

#include "stowage/api/jit.h"
#include "stowage/api/policies.h"

namespace stow {

struct CheckpointOptions {
  /// JAX's barrier against merging the recomputation with the forward pass. Here they are never
  /// merged, so it changes nothing; it is kept for the name and printed with the graph.
  bool prevent_cse = true;
};

/// The result of a type-erased checkpointed call.
struct CheckpointResult {
  std::vector<Array> outputs;
  OwnedTree result;  ///< The result's tree; its leaves belong to the inner trace.
};
/// Records a checkpoint node in the current trace.
CheckpointResult run_checkpoint(const TreeRef& arguments, const LeafFunction& function,
                                const ir::PolicyPtr& policy, const CheckpointOptions& options,
                                SourceLocation at);

/// Returns a function with the values of `function`. Its gradient keeps the intermediate values
/// that `policy` names and recomputes the rest; without a policy it keeps only the inputs.
/// Checkpoints nest. Outside a trace a call calls `function`.
/// Source: JAX's jax.checkpoint (remat).
template <typename F>
auto checkpoint(F function, ir::PolicyPtr policy = nullptr, CheckpointOptions options = {},
                STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), policy = std::move(policy), options,
          at](const auto&... args) {
    check_function<F, AsTree<std::remove_cvref_t<decltype(args)>>...>();
    std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    using R = std::remove_cvref_t<decltype(std::apply(*function, arguments))>;
    if (!is_tracing()) return R(std::apply(*function, arguments));
    const CheckpointResult result =
        run_checkpoint(tree_ref(arguments), leaf_function(*function, std::as_const(arguments)),
                       policy, options, at);
    return tree_unflatten(*static_cast<const R*>(result.result.ref.tree), result.outputs);
  };
}

/// Returns x, with a name for checkpoint policies.
Array checkpoint_name(const Operand& x, std::string name);

}  // namespace stow
