// The checkpoint policies that a run may take, as a table: what each keeps, moves and costs.
// Not the decisions value by value; step.h has those.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace stow {

/// The words of `memory.policy` but "auto", from the cheapest in time to the cheapest in memory.
enum class StepPolicy {
  kSaveAll,
  kSaveDots,
  kSaveGate,
  kSaveNamed,
  kOffloadNamed,
  kRecompute,
  kOffloadCarries,
  kOffloadAll,
  kNested,
  kOffloadNested,
};

struct StepPolicyTraits {
  StepPolicy policy;
  std::string_view name;  ///< The word.
  bool offloads;          ///< It moves values off the device.
  bool nests;             ///< It is for layers in nested blocks.
  /// The backward pass of a feed-forward block finds what it needs kept, so that chunks of the block would
  /// save nothing.
  bool keeps_feed_forward;
  /// The policy whose computation a step under this one contains; of the first that policy itself.
  StepPolicy computes_no_less_than;
  /// How much of a step's time it may cost beside the others, roughly: the order in which policies are tried
  /// where no device is known.
  double cost;
};

/// Every policy, in the order of the enumeration.
std::span<const StepPolicyTraits> step_policies();
const StepPolicyTraits& traits_of(StepPolicy policy);
/// Its word: "offload_named".
std::string_view policy_name(StepPolicy policy);
/// The policy of a word; none for "auto" and for what is no word.
std::optional<StepPolicy> parse_policy(std::string_view word);

}  // namespace stow
