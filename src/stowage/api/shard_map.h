// shard_map: turns a function for one position of a mesh into a function of whole arrays.
// Not the partitioner, which derives the program of one position (passes/partition.h).
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stowage/api/collectives.h"
#include "stowage/api/jit.h"

namespace stow {

/// Specifications of the leaves of a tree: one for all leaves; one for each argument, or element of
/// the result's tuple; or one for each path: P("x"), {P("x"), P()}, {{"0/w", P("x")}, {"0", P()}}.
/// A path stands for the leaves at it and below. The longest path that matches a leaf decides.
class SpecsByPath {
 public:
  SpecsByPath(PartitionSpec all) { by_path_.emplace_back("", std::move(all)); }  // NOLINT
  SpecsByPath(std::initializer_list<PartitionSpec> by_number);  ///< By the paths "0", "1", ….
  SpecsByPath(std::initializer_list<std::pair<std::string, PartitionSpec>> by_path)
      : by_path_(by_path) {}  ///< One for each path.

  /// The specification of the leaf at `path`; null if no path matches.
  const PartitionSpec* find(std::string_view path) const;
  /// Paths and specifications, in the order given.
  const std::vector<std::pair<std::string, PartitionSpec>>& all() const { return by_path_; }

 private:
  std::vector<std::pair<std::string, PartitionSpec>> by_path_;
};

struct ShardMapOptions {
  /// The manual mesh axes: the body sees the part of one position along them. Empty: all axes.
  /// Along other (automatic) axes the body sees whole arrays, which the partitioner cuts.
  /// Specifications and collectives name manual axes only.
  std::vector<std::string> axis_names = {};
};

/// The checked arguments of a call of shard_map().
struct ShardMapCall {
  /// Errors: TraceError for a specification that names an automatic axis, an axis that the mesh
  /// lacks, or one twice; for axis_names that the mesh lacks or that repeat.
  ShardMapCall(sharding::Mesh over, SpecsByPath in, SpecsByPath out, ShardMapOptions options,
               SourceLocation from);

  sharding::Mesh mesh;
  SpecsByPath in_specs, out_specs;
  std::vector<int> automatic;  ///< Numbers of the automatic axes.
  SourceLocation at;
};
/// A type-erased call in a trace.
struct ShardMapResult {
  std::vector<Array> outputs;  ///< Leaves of the result, as whole arrays.
  OwnedTree result;  ///< The result's tree; its leaves belong to the body's trace.
};
ShardMapResult run_shard_map(const ShardMapCall& call, const TreeRef& arguments,
                             const LeafFunction& function);

/// Returns a function of whole arrays that runs `function` on the parts of each mesh position.
/// Shapes:  `in_specs` cuts the arguments into parts; `out_specs` joins the parts of the results.
///          Every leaf needs a specification.
/// Body:    takes and returns trees, and may call the functions of collectives.h. Captured arrays
///          are whole at every position; their cotangents are summed over the mesh.
/// Calls:   in jit, scan, checkpoint and vmap, and with gradients. Outside of a trace it is a
///          jitted function. Arguments with another sharding are moved as by
///          with_sharding_constraint.
/// Errors:  TraceError for a specification with more entries than an array has axes; an extent that
///          the mesh axes do not divide (the message gives the nearest sizes that they divide); a
///          leaf without a specification; a path that is no part of the tree; a call in the body of
///          another shard_map; an effect in the body. When compiled, TraceError for a result that
///          may differ along a mesh axis that its specification omits.
/// Source:  jax.shard_map.
template <typename F>
auto shard_map(F function, sharding::Mesh mesh, SpecsByPath in_specs, SpecsByPath out_specs,
               ShardMapOptions options = {}, STOW_AT) {
  return jit(
      [function = std::make_shared<F>(std::move(function)),
       call = std::make_shared<const ShardMapCall>(std::move(mesh), std::move(in_specs),
                                                   std::move(out_specs), std::move(options),
                                                   at)](const auto&... args) {
        check_function<F, std::remove_cvref_t<decltype(args)>...>();
        const std::tuple<std::remove_cvref_t<decltype(args)>...> arguments(args...);
        using R = std::remove_cvref_t<decltype(std::apply(
            *function, std::declval<std::tuple<std::remove_cvref_t<decltype(args)>...>&>()))>;
        const ShardMapResult result =
            run_shard_map(*call, tree_ref(arguments), leaf_function(*function, arguments));
        return R(tree_unflatten(*static_cast<const R*>(result.result.ref.tree), result.outputs));
      },
      {.name = "shard_map"}, at);
}

}  // namespace stow
