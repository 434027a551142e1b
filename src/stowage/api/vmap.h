// vmap: turns a function of one example into a function of a batch of examples.
// Not a loop; each op's batching rule adds an axis to the op.
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>

#include "stowage/api/jit.h"

namespace stow {

/// The batch axis of the leaves of one tree: one int for all leaves (a negative one counts from the
/// end), std::nullopt if the leaves are the same for all examples, or axes by path: {{"w", 0},
/// {"b", std::nullopt}}. A path stands for the leaves at it and below; "" stands for all. The
/// longest path that matches a leaf decides.
class TreeAxes {
 public:
  using Axis = std::optional<int>;  ///< None: the leaf has no batch axis.
  TreeAxes(int axis) : by_path_{{"", axis}} {}                // NOLINT: converts by design
  TreeAxes(std::nullopt_t) : by_path_{{"", std::nullopt}} {}  // NOLINT: converts by design
  TreeAxes(std::initializer_list<std::pair<const char*, Axis>> by_path)
      : by_path_(by_path.begin(), by_path.end()) {}
  /// The axes by path, as given.
  const std::vector<std::pair<std::string, Axis>>& by_path() const { return by_path_; }

 private:
  std::vector<std::pair<std::string, Axis>> by_path_;
};

/// The batch axes of the arguments or of the result: one TreeAxes for all, or a list with one
/// TreeAxes for each argument (for the result: for each element of the tuple, pair or vector).
class VmapAxes {
 public:
  VmapAxes(int axis) : all_(TreeAxes(axis)) {}             // NOLINT: converts by design
  VmapAxes(std::nullopt_t none) : all_(TreeAxes(none)) {}  // NOLINT: converts by design
  VmapAxes(TreeAxes axes) : all_(std::move(axes)) {}       // NOLINT: converts by design
  VmapAxes(std::initializer_list<TreeAxes> each) : each_(each) {}
  const std::optional<TreeAxes>& all() const { return all_; }  ///< None if given as a list.
  const std::vector<TreeAxes>& each() const { return each_; }  ///< By argument, if given as a list.

 private:
  std::optional<TreeAxes> all_;
  std::vector<TreeAxes> each_;
};

/// The options of a vmap.
struct VmapRequest {
  VmapAxes in_axes, out_axes;
  int64_t axis_size = -1;  ///< Number of examples; -1: the extent of the batch axes.
  SourceLocation at;       ///< The place of the vmap call.
};
struct VmapResult {
  std::vector<Array> outputs;  ///< Leaves of the result, over the batch.
  OwnedTree result;  ///< The result's structure; its leaves belong to the inner trace.
};
/// A type-erased vmap. `arguments`: the tuple of arguments. Errors: as vmap.
VmapResult run_vmap(const VmapRequest& request, const TreeRef& arguments,
                    const LeafFunction& function);

/// Returns a function over a batch: example i of its result is `function` of example i of its
/// arguments.
/// Shapes:  `in_axes` gives the batch axis of each leaf; `function` sees the leaves without it.
///          Leaves without a batch axis, and captured arrays, are the same for all examples.
///          `out_axes` gives the place of the batch axis in each result.
/// It nests, and composes with every other transform on either side. Names, checkpoints and the
/// rules of custom_vjp are preserved. A batch of random keys gives the bits that each key gives
/// alone. `axis_size` is needed only if no leaf has a batch axis.
/// Errors:  TraceError naming the leaves whose batch sizes differ, or whose axis does not exist;
///          for axes of an argument, result or path that does not exist; for a result that differs
///          between examples although its out_axes is none.
/// Source:  JAX's jax.vmap.
template <typename F>
auto vmap(F function, VmapAxes in_axes = 0, VmapAxes out_axes = 0, int64_t axis_size = -1,
          STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)),
          request = VmapRequest{std::move(in_axes), std::move(out_axes), axis_size, at}](
             const auto&... args) {
    check_function<F, AsTree<std::remove_cvref_t<decltype(args)>>...>();
    const std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> arguments(args...);
    using R = std::remove_cvref_t<decltype(std::apply(
        *function, std::declval<std::remove_const_t<decltype(arguments)>&>()))>;
    const VmapResult result =
        run_vmap(request, tree_ref(arguments), leaf_function(*function, arguments));
    return tree_unflatten(*static_cast<const R*>(result.result.ref.tree), result.outputs);
  };
}

}  // namespace stow
