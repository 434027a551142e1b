// The optimizer of a training run, from its configuration.
// Not the update rules; those are in optim/.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/optim/optimizers.h"
#include "stowage/train/config.h"
#include "stowage/train/model.h"

namespace stow {

/// The optimizer and its learning rate.
struct Optimizer {
  optim::GradientTransformation transformation;  ///< Includes clipping and freezing.
  optim::Schedule schedule;  ///< Learning rate by number of updates done.
  optim::Mask frozen;        ///< Leaves that are not trained; frozen.given() is false if all are.

  /// Returns the learning rate of the next update from this state, f32[].
  Array learning_rate(const optim::OptState& state) const;
  /// Returns the leaves that are not frozen, of a tree with the structure of the parameters.
  template <Tree P>
  optim::Leaves trained(const P& tree) const {
    optim::Leaves leaves = optim::GradientTransformation::leaves_by_path(tree);
    if (frozen.given()) std::erase_if(leaves, frozen);
    return leaves;
  }
};

/// The values that `optimizer.name` may have.
const std::vector<std::string>& optimizer_names();

/// Makes the optimizer of a configuration. The schedule is a linear warm-up, then a cosine decay to
/// a tenth of `lr`, or, if `schedule` is "constant", `lr`. It is evaluated at count + 1, so that
/// the first step has a rate above 0. `freeze` lists patterns of paths in the model, separated by
/// commas, as optim::Mask takes them. Muon takes TrainModel::muon_matrices().
/// Errors: none here. Aborts if `name` is not one of optimizer_names(). Job's constructor refuses a
/// pattern that matches no parameter.
Optimizer optimizer_of(const TrainConfig::Optimizer& config, const TrainModel& model);

}  // namespace stow
