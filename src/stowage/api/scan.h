// scan: a loop with a carry over the slices of arrays, as one node of the graph.
// Not a C++ loop; the body is traced once.
#pragma once

#include "stowage/api/jit.h"

namespace stow {

/// Value of ScanOptions::unroll that replaces the whole loop by its iterations.
inline constexpr int64_t kUnrollFully = 0;

struct ScanOptions {
  /// The number of iterations. Required if nothing is scanned; else checked, if given.
  int64_t length = -1;
  /// True: runs from the last slice to the first. Stacked results keep the order of the slices.
  bool reverse = false;
  /// The axis that is scanned: one for all leaves, or one for each leaf. A negative one counts from
  /// the end.
  Dims axes = {0};
  /// The axis of the stacked results: one for all leaves, or one for each leaf. A negative one
  /// counts from the end of the result.
  Dims out_axes = {0};
  /// Number of iterations in one iteration of the unrolled loop; kUnrollFully unrolls the whole
  /// loop. Results and gradients have the same bits for every value.
  int64_t unroll = 1;
};

/// A type-erased scan. The body takes the leaves of the carry, then those of the slice. Its result
/// has the leaves of the new carry, then those to be stacked.
struct ScanRequest {
  TreeRef init, xs;
  ScanOptions options;
  LeafFunction body;
  SourceLocation at;
};
struct ScanResult {
  std::vector<Array> carry, ys;  ///< Leaves of the final carry, and stacked results.
  OwnedTree result;              ///< Result of the body; its leaves belong to the body's trace.
};
/// Runs or records a scan. Errors: as scan.
ScanResult run_scan(const ScanRequest& request);

/// Builds the result of scan for a body that returns R.
/// Errors: TraceError if the body returned a carry of another structure.
template <typename R, typename Carry>
auto scan_results(const Carry& carry, const ScanResult& result, SourceLocation at) {
  const char* const what = "[scan] the carry and what the body returns for it:";
  if constexpr (std::same_as<R, Carry>) {
    check_same_structure(tree_ref(carry), result.result.ref, what, at);
    return tree_unflatten(carry, result.carry);
  } else {
    const R& prototype = *static_cast<const R*>(result.result.ref.tree);
    check_same_structure(tree_ref(carry), tree_ref(prototype.first), what, at);
    return std::pair(tree_unflatten(carry, result.carry),
                     tree_unflatten(prototype.second, result.ys));
  }
}

/// True if a body returns the carry, or a pair whose first part is the carry; else compilation
/// fails with a message.
template <typename R, typename Carry>
constexpr bool check_scan_body() {
  constexpr bool is_carry = std::same_as<R, Carry>;
  constexpr bool is_with_slices = [] {
    if constexpr (tree_detail::is_pair<R>)
      return std::same_as<typename R::first_type, Carry>;
    else
      return false;
  }();
  static_assert(is_carry || is_with_slices || std::same_as<R, void>,
                "stowage: the body must return the carry, of the type that it is given, or "
                "std::pair(carry, what is stacked); several arrays to stack are a tree of their "
                "own: std::pair(carry, std::tuple(a, b))");
  return is_carry || is_with_slices;
}

/// carry = init; for each i: (carry, y[i]) = body(carry, xs[i]); returns (carry, y stacked).
/// Shapes:  leaves of xs [length, …]; slices lack the axis 0, and stacked results have it. `axes`
///          and `out_axes` choose other axes.
/// Forms:   body returns pair(carry, y), and scan returns pair(carry, ys); or body returns the
///          carry only, and scan returns the carry. Without xs, pass None{} and `length`.
/// Types:   body returns a carry of the type of its argument; a weak scalar in `init` takes the
///          type that body returns.
/// Errors:  TraceError naming the leaf whose length differs, whose axis does not exist, or that
///          body returns with another type.
/// Source:  JAX's lax.scan.
template <typename Body, typename Init, typename Xs = None>
auto scan(Body body, const Init& init, const Xs& xs = {}, ScanOptions options = {}, STOW_AT) {
  using Carry = AsTree<Init>;
  static_assert(is_tree<Carry>() && is_tree<Xs>(),
                "stowage: the carry and what is scanned must be trees of arrays");
  using R = BodyResult<Body, Carry, Xs>;
  if constexpr (check_scan_body<R, Carry>()) {
    const std::tuple<Carry, Xs> arguments(init, xs);
    const auto& [carry, scanned] = arguments;
    ScanResult result =
        run_scan({tree_ref(carry), tree_ref(scanned), options, leaf_function(body, arguments), at});
    return scan_results<R>(carry, result, at);
  }
}

}  // namespace stow
