// The optimizer of a training run, from its configuration.
// Not the update rules; those are in optim/.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/optim/optimizers.h"
#include "stowage/train/config.h"

namespace stow {

struct Optimizer {
  optim::GradientTransformation transformation;  ///< Clipping and freezing included.
  optim::Schedule schedule;
  optim::Mask frozen;  ///< Not given where nothing is.

  /// The rate that the update of this state takes.
  Array learning_rate(const optim::OptState& state) const;
  /// The leaves of a tree that are not frozen.
  template <Tree P>
  optim::Leaves trained(const P& tree) const {
    optim::Leaves leaves = optim::GradientTransformation::leaves_by_path(tree);
    if (frozen.given()) std::erase_if(leaves, frozen);
    return leaves;
  }
};

/// The leaves of the model that Muon takes, the layers' matrices; AdamW takes the others.
optim::Mask muon_matrices();

/// The words of `optimizer.name`.
const std::vector<std::string>& optimizer_names();

/// Linear warm-up, then a cosine to a tenth of the rate or the rate itself; it begins at count 1: the
/// first step does something. `optimizer.freeze` lists patterns of paths in the model, as optim::Mask takes them.
Optimizer optimizer_of(const TrainConfig::Optimizer& config);

}  // namespace stow
