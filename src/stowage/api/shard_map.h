// shard_map: a function written for one position of a mesh, as a function of whole arrays.
// Not the partitioner, which finds the program of one position by itself (passes/partition.h).
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

/// How the leaves of a tree are cut: one specification for all, one an argument (or element of the
/// result's tuple), or one for each leaf below a path: P("x"), {P("x"), P()},
/// {{"0/w", P("x")}, {"0", P()}}. The longest path that fits counts, as in ShardingsByPath.
class SpecsByPath {
 public:
  SpecsByPath(PartitionSpec all) { by_path_.emplace_back("", std::move(all)); }  // NOLINT
  SpecsByPath(std::initializer_list<PartitionSpec> by_number);                   ///< "0", "1", ….
  SpecsByPath(std::initializer_list<std::pair<std::string, PartitionSpec>> by_path)
      : by_path_(by_path) {}  ///< One a path.

  /// The one for a leaf, or null.
  const PartitionSpec* find(std::string_view path) const;
  /// In the order given.
  const std::vector<std::pair<std::string, PartitionSpec>>& all() const { return by_path_; }

 private:
  std::vector<std::pair<std::string, PartitionSpec>> by_path_;
};

struct ShardMapOptions {
  /// The mesh axes that the body is written for one position of; empty: all. Along the others the body sees
  /// whole arrays, and the partitioner cuts them as outside. Specifications and collectives name none of
  /// those.
  std::vector<std::string> axis_names = {};
};

/// The arguments of a call of shard_map().
struct ShardMapCall {
  /// Errors: TraceError for a specification that names an axis that the mesh has not, one twice, or one
  /// that axis_names leaves out; for axis_names that name such axes.
  ShardMapCall(sharding::Mesh over, SpecsByPath in, SpecsByPath out, ShardMapOptions options,
               SourceLocation from);

  sharding::Mesh mesh;
  SpecsByPath in_specs, out_specs;
  std::vector<int> automatic;  ///< The numbers of the axes that axis_names leaves out.
  SourceLocation at;
};
/// A type-erased call in a trace.
struct ShardMapResult {
  std::vector<Array> outputs;
  OwnedTree result;  ///< Its leaves are of the body's trace.
};
ShardMapResult run_shard_map(const ShardMapCall& call, const TreeRef& arguments,
                             const LeafFunction& function);

/// A function of whole arrays that runs `function` on the parts of each position of the mesh.
/// Shapes:  an argument's part is the argument cut as `in_specs` says; a result is its parts put
///          together as `out_specs` says. Every leaf needs a specification.
/// Body:    trees in, trees out, with the collectives of collectives.h. Arrays that it captures are
///          whole at every position, and their cotangents are summed over the mesh.
/// Where:   in jit, scan, checkpoint, vmap and under gradients; outside of a trace it is a jitted
///          function. Arguments that lie otherwise are moved as by a sharding constraint.
/// Errors:  TraceError for a specification with more entries than an array has axes, an extent that
///          the mesh axes do not divide (names the nearest that they do), a leaf without one, a
///          path that is no part; a call in the body of another shard_map; an effect in the body;
///          when compiled, for a result that may differ along a mesh axis that its specification
///          leaves out.
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
