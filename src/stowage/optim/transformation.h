// GradientTransformation: how gradients become updates of parameters, with state in a tree.
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

/// A transformation, or several in a row. A value; copies share what the functions hold.
///
/// An update that is an empty Array stands for "leave this parameter as it is": freeze() gives such,
/// and later transformations do not see the leaf. Under jit nothing then computes its gradient.
class GradientTransformation {
 public:
  /// The state for these parameters.
  using Init = std::function<OptState(const Leaves& params)>;
  /// Writes the updates over the gradients, leaf by leaf, and the new state over the old.
  using Update = std::function<void(Leaves& updates, OptState& state, const Leaves& params)>;

  /// Changes nothing (optax.identity).
  GradientTransformation() = default;
  /// One of your own. `name` begins the names of its state; those that `init` and `update` see lack
  /// it. In a chain, a name that occurs again gets a number ("adam", "adam_2").
  GradientTransformation(std::string name, Init init, Update update);

  /// The state to begin with. Abstract parameters give an abstract state; nothing is allocated.
  /// Errors: TraceError where a mask's pattern fits no leaf, or a leaf is not what it must be.
  template <concepts::Tree P>
  OptState init(const P& params, STOW_AT) const {
    return init_leaves(leaves_by_path(params), at);
  }
  /// The updates, to be added to the parameters (apply_updates), and the new state. Works inside jit
  /// and outside.
  /// Shapes:  `updates` and `params` are trees of one structure; so is the first result.
  /// Errors:  TraceError where the structures differ, or the state is not one that init() gives for
  ///          these parameters.
  template <concepts::Tree U, concepts::Tree P>
  std::pair<U, OptState> update(const U& updates, OptState state, const P& params, STOW_AT) const {
    static_assert(std::same_as<U, P>, "stowage: the updates must be of the type of the parameters");
    check_same_structure(tree_ref(updates), tree_ref(params), "[update] updates and params:",
                         at);
    const std::vector<Array> leaves =
        update_leaves(leaves_by_path(updates), state, leaves_by_path(params), at);
    return {tree_unflatten(updates, leaves), std::move(state)};
  }

  /// The leaves of a tree with their paths, in order.
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

  friend class Nested;
};

/// Applies the transformations one after another.
/// Source: optax.chain.
GradientTransformation chain(std::vector<GradientTransformation> transformations);
/// The same.
template <typename... T>
requires(std::convertible_to<const T&, GradientTransformation>&&...)
GradientTransformation chain(const GradientTransformation& first, const T&... rest) {
  return chain(std::vector<GradientTransformation>{first, GradientTransformation(rest)...});
}

/// A transformation as a part of another one, which keeps its state among its own.
class Nested {
 public:
  explicit Nested(GradientTransformation inner) : inner_(std::move(inner)) {}
  OptState init(const Leaves& params) const { return inner_.init_leaves(params, {}); }
  void update(Leaves& updates, OptState& state, const Leaves& params) const;

 private:
  GradientTransformation inner_;
};

/// The sum of each parameter and its update, in the parameter's dtype.
/// Errors: TraceError where the structures or shapes differ.
/// Source: optax.apply_updates.
std::vector<Array> apply_updates(const Leaves& params, const Leaves& updates, SourceLocation at);
/// The same for trees.
template <concepts::Tree P>
P apply_updates(const P& params, const P& updates, STOW_AT) {
  check_same_structure(tree_ref(params), tree_ref(updates), "[apply_updates] params and updates:",
                       at);
  return tree_unflatten(params,
                        apply_updates(GradientTransformation::leaves_by_path(params),
                                      GradientTransformation::leaves_by_path(updates), at));
}

/// The l2 norm over all leaves: the root of the sum of their squares; 0 without leaves.
/// Types:  f32, or f64 where all leaves are f64; sums in the same.
/// Source: optax.global_norm.
Array global_norm(const Leaves& leaves);
/// The same for a tree.
template <concepts::Tree P>
Array global_norm(const P& tree) {
  return global_norm(GradientTransformation::leaves_by_path(tree));
}

/// step_size * fresh + (1 - step_size) * old, leaf by leaf: with step_size = 1 - decay, the
/// exponential moving average of parameters.
/// Errors: TraceError where the structures differ.
/// Source: optax.incremental_update.
template <concepts::Tree P>
P incremental_update(const P& fresh, const P& old, double step_size) {
  return tree_map(
      [&](const Array& a, const Array& b) { return a * step_size + b * (1.0 - step_size); }, fresh,
      old);
}

}  // namespace stow::optim
