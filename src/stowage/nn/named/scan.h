// scan, fold, map and vmap over an axis by name, for trees with NamedArrays.
// Not new kinds of loops: they find the axis in each leaf and call api/scan.h and api/vmap.h.
#pragma once

#include <map>

#include "stowage/api/vmap.h"
#include "stowage/nn/named/named_array.h"
#include "stowage/nn/named/scan_policy.h"

namespace stow::named {

struct NamedScanOptions {
  ScanCheckpoint checkpoint = {};  ///< Residuals that are kept for the backward pass; default: all.
  bool reverse = false;            ///< True to go from the last slice to the first.
  int64_t unroll = 1;              ///< As ScanOptions; not with nested blocks.
};

namespace scan_detail {

/// The scanned leaves, by path, and the place of the scanned axis in each, in the order of the
/// paths.
struct Scanned {
  std::map<std::string, Array> leaves;
  Dims places;
  Axis axis;
};
/// Finds the scanned leaves: NamedArrays that have the axis, along it; and arrays of rank 1 or
/// more, along their first axis.
Scanned find_scanned(const char* what, const TreeRef& xs, const AxisSelector& axis);
/// Replaces the leaves at these paths by slices; NamedArrays lose `axis`.
void put_slices(const TreeRef& x, const std::map<std::string, Array>& slices, const Axis& axis);
/// Adds `axis` in front of the axes of every NamedArray; its array already has it. It is an error
/// if there is a NamedArray and `axis` has no name.
void prepend_axis(const char* what, const TreeRef& ys, const Axis& axis);
/// Names all leaves for a policy.
void name_carry(const TreeRef& carry);
/// Moves the scanned axis of each leaf to the front.
void to_the_front(Scanned& scanned);
/// Throws TraceError if options exclude each other.
void check_options(const NamedScanOptions& options);

}  // namespace scan_detail

/// carry = init; for each slice x of xs: (carry, y) = body(carry, x); returns (carry, y stacked).
/// Shapes:  NamedArrays of xs that have `axis` are scanned along it, wherever it stands, and slices
///          lack it; there is no transposed copy, except for nested blocks. NamedArrays without it,
///          and arrays of rank 0, are the same in each iteration. Other arrays are scanned along
///          their first axis. Stacked results get the axis in front. `axis` needs a size only if
///          nothing is scanned.
/// Forms:   as stow::scan: body returns pair(carry, y), or only the carry.
/// Errors:  TraceError naming a leaf whose size differs; for a body that changes the axes of the
///          carry or their order; for a result that already has the axis.
/// Source:  Haliax's scan.
template <typename Body, typename Init, typename Xs = None>
auto scan(Body body, const AxisSelector& axis, const Init& init, const Xs& xs = {},
          const NamedScanOptions& options = {}, STOW_AT) {
  using Carry = AsTree<Init>;
  static_assert(is_tree<Carry>() && is_tree<Xs>(),
                "stowage: the carry and what is scanned must be trees of arrays");
  using R = BodyResult<Body, Carry, Xs>;
  if constexpr (check_scan_body<R, Carry>()) {
    scan_detail::check_options(options);
    const Carry carry(init);
    Xs whole = xs;
    scan_detail::Scanned scanned = scan_detail::find_scanned("scan", tree_ref(whole), axis);
    const ScanCheckpointPolicy& policy = options.checkpoint.policy();
    using Slices = std::map<std::string, Array>;
    auto inner = [&](const Carry& c, const Slices& slices) -> R {
      Carry entering = c;
      if (policy.offload_carries && !policy.nested && !policy.disable)
        scan_detail::name_carry(tree_ref(entering));
      Xs x = whole;
      scan_detail::put_slices(tree_ref(x), slices, scanned.axis);
      R result = body(entering, x);
      // Checked before shapes are compared, since a different order of axes also changes the shape.
      const auto check = [&](const Carry& returned) {
        check_same_structure(tree_ref(carry), tree_ref(returned),
                             "[scan] the carry and what the body returns for it:", at);
      };
      if constexpr (std::same_as<R, Carry>)
        check(result);
      else
        check(result.first);
      return result;
    };
    const CheckpointOptions checkpoint_options{.prevent_cse = policy.prevent_cse};
    ScanOptions plain{.length = scanned.axis.size,
                      .reverse = options.reverse,
                      .axes = scanned.places,
                      .unroll = options.unroll};
    if (scanned.leaves.empty()) plain.axes = {0};
    R result = [&] {
      if (policy.disable) return stow::scan(inner, carry, scanned.leaves, plain, at);
      if (policy.nested) {
        scan_detail::to_the_front(scanned);
        NestedScanOptions nested = nested_options(policy, scanned.axis.size);
        nested.reverse = options.reverse;
        return nested_scan(inner, carry, scanned.leaves, nested, at);
      }
      return stow::scan(checkpoint(inner, iteration_policy(policy), checkpoint_options), carry,
                        scanned.leaves, plain, at);
    }();
    if constexpr (!std::same_as<R, Carry>)
      scan_detail::prepend_axis("scan", tree_ref(result.second), scanned.axis);
    return result;
  }
}

/// carry = init; for each slice x of xs: carry = body(carry, x); returns the carry. As scan.
/// Source:  Haliax's fold.
template <typename Body, typename Init, typename Xs>
auto fold(Body body, const AxisSelector& axis, const Init& init, const Xs& xs,
          const NamedScanOptions& options = {}, STOW_AT) {
  using Carry = AsTree<Init>;
  static_assert(std::same_as<BodyResult<Body, Carry, Xs>, Carry>,
                "stowage: the body of fold must return the carry, of the type that it is given");
  return named::scan(std::move(body), axis, init, xs, options, at);
}

/// Returns the stacked results of function(x) for each slice x of xs, one after another. As scan.
/// Source:  Haliax's map.
template <typename F, typename Xs>
auto map(F function, const AxisSelector& axis, const Xs& xs, const NamedScanOptions& options = {},
         STOW_AT) {
  auto body = [&](const None& none, Xs& x) { return std::pair(none, function(x)); };
  return named::scan(body, axis, None{}, xs, options, at).second;
}

/// Returns a function that applies `function` to all slices of its arguments at once. Leaves are
/// sliced, and results get the axis, as in scan.
/// Errors:  as scan and stow::vmap.
/// Source:  Haliax's vmap.
template <typename F>
auto vmap(F function, AxisSelector axis, STOW_AT) {
  return [function = std::make_shared<F>(std::move(function)), axis = std::move(axis),
          at](const auto&... args) {
    check_function<F, AsTree<std::remove_cvref_t<decltype(args)>>...>();
    std::tuple<AsTree<std::remove_cvref_t<decltype(args)>>...> whole(args...);
    using R = std::remove_cvref_t<decltype(std::apply(*function, whole))>;
    scan_detail::Scanned batched = scan_detail::find_scanned("vmap", tree_ref(whole), axis);
    scan_detail::to_the_front(batched);
    auto inner = [&](const std::map<std::string, Array>& slices) -> R {
      auto x = whole;
      scan_detail::put_slices(tree_ref(x), slices, batched.axis);
      return std::apply(*function, x);
    };
    R result = stow::vmap(inner, 0, 0, batched.axis.size, at)(batched.leaves);
    scan_detail::prepend_axis("vmap", tree_ref(result), batched.axis);
    return result;
  };
}

}  // namespace stow::named
