// vmap: a function of one example as a function of a batch of them.
// Not a loop; the ops themselves are widened by an axis, each by its batching rule.
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>

#include "stowage/api/jit.h"

namespace stow {

/// The batch axis of the leaves of one tree: an int for all of them, negative ones counting from
/// the end, std::nullopt where they are the same for all examples; or axes by path, each for the
/// leaves at that path and below: {{"w", 0}, {"b", std::nullopt}}, "" being all, the longest path
/// counting.
class TreeAxes {
 public:
  using Axis = std::optional<int>;  ///< Or none.
  TreeAxes(int axis) : by_path_{{"", axis}} {}                // NOLINT: converts by design
  TreeAxes(std::nullopt_t) : by_path_{{"", std::nullopt}} {}  // NOLINT: converts by design
  TreeAxes(std::initializer_list<std::pair<const char*, Axis>> by_path)
      : by_path_(by_path.begin(), by_path.end()) {}
  const std::vector<std::pair<std::string, Axis>>& by_path() const { return by_path_; }  ///< As given.

 private:
  std::vector<std::pair<std::string, Axis>> by_path_;
};

/// The batch axes of all arguments, or of the result: one TreeAxes for all of it, or a list with
/// one an argument (an element of the tuple, pair or vector that is returned).
class VmapAxes {
 public:
  VmapAxes(int axis) : all_(TreeAxes(axis)) {}             // NOLINT: converts by design
  VmapAxes(std::nullopt_t none) : all_(TreeAxes(none)) {}  // NOLINT: converts by design
  VmapAxes(TreeAxes axes) : all_(std::move(axes)) {}       // NOLINT: converts by design
  VmapAxes(std::initializer_list<TreeAxes> each) : each_(each) {}
  const std::optional<TreeAxes>& all() const { return all_; }  ///< If it is one for all.
  const std::vector<TreeAxes>& each() const { return each_; }  ///< One an argument.

 private:
  std::optional<TreeAxes> all_;
  std::vector<TreeAxes> each_;
};

/// A type-erased vmap. `arguments` is the tuple of them.
struct VmapRequest {
  VmapAxes in_axes, out_axes;
  int64_t axis_size = -1;
  SourceLocation at;
};
struct VmapResult {
  std::vector<Array> outputs;
  OwnedTree result;  ///< Its leaves are of the inner trace.
};
VmapResult run_vmap(const VmapRequest& request, const TreeRef& arguments,
                    const LeafFunction& function);

/// A function over a batch: example i of its result is `function` of example i of its arguments.
/// Shapes:  `in_axes` says which axis of each leaf counts the examples, and `function` sees the
///          leaves without it; leaves without such an axis are the same for all examples, as are
///          arrays that the function captures. `out_axes` says where the results get it.
/// Nests, and works with every other transform, on either side; names, checkpoints and rules of
/// custom_vjp stay. Random bits of a batch of keys are those that each key gives alone.
/// `axis_size` is needed only where no leaf has an axis.
/// Errors:  TraceError naming the leaves whose sizes differ, or whose axis does not exist; an axis
///          of an argument, result or path that there is not; a result that differs between examples
///          whose out_axes is none.
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
