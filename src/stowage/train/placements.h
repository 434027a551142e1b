// Placement: what a run keeps for its backward pass and where its parts lie, and those worth a try.
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

/// The checkpoint policy of a run, and the memory of each of its parts.
struct Placement {
  StepPolicy policy = StepPolicy::kSaveAll;
  MemoryKind activations = MemoryKind::kPinnedHost;  ///< Memory to which offloading policies move.
  MemoryKind optimizer = MemoryKind::kDevice;  ///< Memory of the optimizer's state but scalars.
  MemoryKind parameters = MemoryKind::kDevice;
  MemoryKind gradients = MemoryKind::kDevice;
  MemoryKind frozen = MemoryKind::kDevice;  ///< Memory of weights that are not trained.
  bool chunked = false;       ///< The feed-forward blocks, of f32: chunk by chunk.
  bool chunked_loss = false;  ///< So the loss.
  friend bool operator==(const Placement&, const Placement&) = default;
};
/// The form of a step that a placement asks for.
StepForm step_form(const Placement& placement);
/// True if the loss may be computed in chunks without a change of its numbers.
bool can_chunk_loss(const TrainConfig& config, const ModelSizes& sizes);
/// True if nothing of a run leaves the device.
bool is_all_on_device(const Placement& placement);
/// "recompute", "offload_named to disk, optimizer on pinned_host". Gradients are named where they do
/// not lie beside their parameters.
std::string to_string(const Placement& placement);

/// Policies that move nothing, from the cheapest in time to the cheapest in memory.
std::vector<StepPolicy> policy_ladder();
/// All that a configuration leaves open, from the cheapest in time to the cheapest in memory.
std::vector<Placement> placement_ladder(const TrainConfig& config, const ModelSizes& sizes);
/// Returns the forms of the feed-forward blocks that are worth a try under a policy, in the order
/// to try: false is whole, true in chunks. Chunks are worth a try if the backward pass computes the
/// blocks again, and there is more than one chunk.
std::vector<bool> chunked_forms(const TrainConfig& config, const ModelSizes& sizes,
                                StepPolicy policy);
/// The same of the loss, `p` being the rest of the placement.
std::vector<bool> chunked_loss_forms(const TrainConfig& config, const ModelSizes& sizes,
                                     const Placement& p);
/// A placement in every form worth a try.
std::vector<Placement> chunk_forms_of(const TrainConfig& config, const ModelSizes& sizes, Placement p);

}  // namespace stow
