// Placement: the checkpoint policy and the memory kinds of a run, and the placements to try.
// Not their plans; job.h has those.
#pragma once

#include <string>
#include <vector>

#include "stowage/core/array_type.h"
#include "stowage/train/config.h"
#include "stowage/train/model.h"
#include "stowage/train/policies.h"

namespace stow {

struct StepForm;  // step.h

/// The checkpoint policy of a run, the memory kind of each part of its state, and its chunks.
struct Placement {
  StepPolicy policy = StepPolicy::kSaveAll;
  MemoryKind activations = MemoryKind::kPinnedHost;  ///< Memory to which offloading policies move.
  MemoryKind optimizer = MemoryKind::kDevice;  ///< Memory of the optimizer's state without scalars.
  MemoryKind parameters = MemoryKind::kDevice;
  MemoryKind gradients = MemoryKind::kDevice;
  MemoryKind frozen = MemoryKind::kDevice;  ///< Memory of weights that are not trained.
  bool chunked = false;       ///< True: feed-forward blocks are computed in chunks of tokens.
  bool chunked_loss = false;  ///< True: the loss is computed in chunks of tokens.
  friend bool operator==(const Placement&, const Placement&) = default;
};
/// Returns the form of a placement's step.
StepForm step_form(const Placement& placement);
/// True if the loss can be computed in chunks with the same results.
bool can_chunk_loss(const TrainConfig& config, const ModelSizes& sizes);
/// True if state and activations of a run stay on the device.
bool is_all_on_device(const Placement& placement);
/// Returns "recompute", "offload_named to disk, optimizer on pinned_host". Gradients are named if
/// they are not in the memory kind of the parameters.
std::string to_string(const Placement& placement);

/// Returns the policies that move nothing, in the order of StepPolicy: those that keep more first.
std::vector<StepPolicy> policies_on_device();

/// Returns all placements that a configuration leaves open: those that keep more of the state on
/// the device first, and then in the order of StepPolicy.
std::vector<Placement> open_placements(const TrainConfig& config, const ModelSizes& sizes);

/// Returns the values of Placement::chunked that are worth a try under a policy, in the order to
/// try them. Chunks are worth a try if the backward pass recomputes the feed-forward blocks and
/// there is more than one chunk.
std::vector<bool> chunked_forms(const TrainConfig& config, const ModelSizes& sizes,
                                StepPolicy policy);

/// Returns the values of Placement::chunked_loss that are worth a try for a placement that is
/// otherwise `p`.
std::vector<bool> chunked_loss_forms(const TrainConfig& config, const ModelSizes& sizes,
                                     const Placement& p);

/// Returns one placement for each combination of `chunked` and `chunked_loss` that is worth a try.
std::vector<Placement> chunk_forms_of(const TrainConfig& config, const ModelSizes& sizes,
                                      Placement p);

}  // namespace stow
