// GradientTransformation: turns gradients into updates of parameters, with state in a tree.
// Not the transformations themselves; see transforms.h, optimizers.h and wrappers.h.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stowage/api/math.h"
#include "stowage/api/tree.h"
#include "stowage/optim/mask.h"

namespace stow::optim {

/// The state of a transformation: arrays by name ("adam/mu/layers/w1", "schedule/count"). A tree,
/// so that it can be an argument of jit, be donated, and be saved by path.
using OptState = std::map<std::string, Array>;

/// A transformation or a chain of them. Copies share the objects that their functions capture.
///
/// An update that is an empty Array means that the parameter does not change. freeze() returns
/// empty updates. Later transformations do not see these leaves, and under jit their gradients are
/// dead code.
class GradientTransformation {
 public:
  /// Returns the initial state for these parameters.
  using Init = std::function<OptState(const Leaves& params)>;
  /// Replaces the gradients in `updates` by updates, leaf by leaf, and the state by the new one.
  using Update = std::function<void(Leaves& updates, OptState& state, const Leaves& params)>;

  /// Changes nothing (optax.identity).
  GradientTransformation() = default;
  /// A user-defined transformation. `name` is the prefix of its names in the state; `init` and
  /// `update` see the names without it. In a chain, a repeated name gets a number ("adam",
  /// "adam_2").
  GradientTransformation(std::string name, Init init, Update update);

  /// Returns the initial state. If the parameters are abstract, so is the state, and nothing is
  /// allocated.
  /// Errors: TraceError if a mask's pattern matches no leaf, or a leaf has an unsupported type.
  template <concepts::Tree P>
  OptState init(const P& params, STOW_AT) const {
    return init_leaves(leaves_by_path(params), at);
  }
  /// Returns the updates, which apply_updates adds to the parameters, and the new state. Works
  /// inside and outside of jit.
  /// Shapes:  `updates` (the gradients), `params` and the returned updates have one structure.
  /// Errors:  TraceError if the structures differ, or the state is not of the form that init()
  ///          returns for these parameters.
  template <concepts::Tree U, concepts::Tree P>
  std::pair<U, OptState> update(const U& updates, OptState state, const P& params, STOW_AT) const {
    static_assert(std::same_as<U, P>, "stowage: the updates must be of the type of the parameters");
    check_same_structure(tree_ref(updates), tree_ref(params), "[update] updates and params:",
                         at);
    const std::vector<Array> leaves =
        update_leaves(leaves_by_path(updates), state, leaves_by_path(params), at);
    return {tree_unflatten(updates, leaves), std::move(state)};
  }

  /// Returns the leaves of a tree with their paths, in order.
  template <concepts::Tree P>
  static Leaves leaves_by_path(const P& tree) {
    return leaves_of_ref(tree_ref(tree));
  }

 private:
  struct Part {
    std::string name;
    Init init;
    Update update;
  };
  friend GradientTransformation chain(std::vector<GradientTransformation> transformations);
  friend GradientTransformation masked(const GradientTransformation& inner, Mask mask);

  static Leaves leaves_of_ref(const TreeRef& tree);
  OptState init_leaves(const Leaves& params, SourceLocation at) const;
  std::vector<Array> update_leaves(Leaves updates, OptState& state, const Leaves& params,
                                   SourceLocation at) const;
  void append(const GradientTransformation& other);

  std::vector<Part> parts_;

  friend class NestedTransformation;
};

/// Returns a transformation that applies these transformations one after another.
/// Source: optax.chain.
GradientTransformation chain(std::vector<GradientTransformation> transformations);
/// chain of its arguments.
template <typename... T>
requires(std::convertible_to<const T&, GradientTransformation>&&...)
GradientTransformation chain(const GradientTransformation& first, const T&... rest) {
  return chain(std::vector<GradientTransformation>{first, GradientTransformation(rest)...});
}

/// A transformation inside another one, whose state contains its state.
class NestedTransformation {
 public:
  explicit NestedTransformation(GradientTransformation inner) : inner_(std::move(inner)) {}
  OptState init(const Leaves& params) const { return inner_.init_leaves(params, {}); }
  void update(Leaves& updates, OptState& state, const Leaves& params) const;

 private:
  GradientTransformation inner_;
};

/// Returns the sum of each parameter and its update, in the parameter's dtype.
/// Errors: TraceError if the structures or shapes differ.
/// Source: optax.apply_updates.
std::vector<Array> apply_updates(const Leaves& params, const Leaves& updates, SourceLocation at);
/// apply_updates for trees.
template <concepts::Tree P>
P apply_updates(const P& params, const P& updates, STOW_AT) {
  check_same_structure(tree_ref(params), tree_ref(updates), "[apply_updates] params and updates:",
                       at);
  return tree_unflatten(params,
                        apply_updates(GradientTransformation::leaves_by_path(params),
                                      GradientTransformation::leaves_by_path(updates), at));
}

/// Returns the l2 norm over all leaves: the root of the sum of their squares; 0 without leaves.
/// Types:  f32, or f64 if all leaves are f64; sums are in that dtype.
/// Source: optax.global_norm.
Array global_norm(const Leaves& leaves);
/// global_norm of a tree.
template <concepts::Tree P>
Array global_norm(const P& tree) {
  return global_norm(GradientTransformation::leaves_by_path(tree));
}

/// Returns step_size * fresh + (1 - step_size) * old, leaf by leaf. With step_size = 1 - decay it
/// is the exponential moving average of parameters.
/// Errors: TraceError if the structures differ.
/// Source: optax.incremental_update.
template <concepts::Tree P>
P incremental_update(const P& fresh, const P& old, double step_size) {
  return tree_map(
      [&](const Array& a, const Array& b) { return a * step_size + b * (1.0 - step_size); }, fresh,
      old);
}

}  // namespace stow::optim
