// scan, fold, map and vmap over an axis by name, for trees with NamedArrays.
// Not other loops than those of api/scan.h and api/vmap.h; they find the axis in each leaf.
#pragma once

#include <map>

#include "stowage/api/vmap.h"
#include "stowage/nn/named/named_array.h"
#include "stowage/nn/named/scan_policy.h"

namespace stow::named {

struct NamedScanOptions {
  ScanCheckpoint checkpoint = {};  ///< Residuals that the backward pass finds kept; by default all.
  bool reverse = false;            ///< From the last slice to the first.
  int64_t unroll = 1;              ///< As ScanOptions; not with nested blocks.
};

namespace scan_detail {

/// Leaves that are scanned, by path, and the axis of each, in the order of the paths.
struct Scanned {
  std::map<std::string, Array> leaves;
  Dims places;
  Axis axis;
};
/// Finds them: NamedArrays that have the axis, by it, and arrays with axes, by the first.
Scanned find_scanned(const char* what, const TreeRef& xs, const AxisSelector& axis);
/// Puts slices at their paths; their axes lose `axis`.
void put_slices(const TreeRef& x, const std::map<std::string, Array>& slices, const Axis& axis);
/// Gives `axis`, in front, to the axes of every NamedArray; its array has it. An axis without a
/// name is none that a NamedArray can have, and an error.
void prepend_axis(const char* what, const TreeRef& ys, const Axis& axis);
/// Names all leaves for a policy.
void name_carry(const TreeRef& carry);
/// Moves the axis of each to the front.
void to_the_front(Scanned& scanned);
/// Throws where options do not go together.
void check_options(const NamedScanOptions& options);

}  // namespace scan_detail

/// carry = init; for each slice x of xs: (carry, y) = body(carry, x); returns (carry, y stacked).
/// Shapes:  `axis` is scanned over wherever it stands in a NamedArray of xs, which loses it; there
/// is
///          no transposed copy, but for nested blocks. NamedArrays without it, and arrays of rank
///          0, are the same in each iteration. Other arrays are scanned over their first axis.
///          Stacked results get the axis in front. An Axis with a size is needed only where nothing
///          is scanned.
/// Forms:   as stow::scan: body returns pair(carry, y), or the carry alone.
/// Errors:  TraceError naming the leaf whose size differs; a carry whose axes body changes, in
/// order
///          too; a result that has the axis already.
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
      // Before shapes are compared, for axes in another order have other sizes.
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

/// function(x) for each slice x of xs, one after another; the results are stacked. As scan.
/// Source:  Haliax's map.
template <typename F, typename Xs>
auto map(F function, const AxisSelector& axis, const Xs& xs, const NamedScanOptions& options = {},
         STOW_AT) {
  auto body = [&](const None& none, Xs& x) { return std::pair(none, function(x)); };
  return named::scan(body, axis, None{}, xs, options, at).second;
}

/// A function over a batch: `function` of each slice of its arguments, at once. Which leaves have
/// the axis, and what the results get, is as in scan. Errors:  as scan and stow::vmap. Source:
/// Haliax's vmap.
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
