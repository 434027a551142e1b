// The table of checkpoint policies of a run: names and traits.
// Not the decisions for single values; named_policy() in step.h makes those.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace stow {

/// The values of `memory.policy` except "auto". Policies that keep more come first. Only
/// kOffloadAll, which moves all that it keeps, stands further down.
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
  std::string_view name;  ///< The value of `memory.policy`.
  bool offloads;          ///< True if the policy moves values off the device.
  bool nests;             ///< True if layers are checkpointed in nested blocks.
  /// True if all residuals of a feed-forward block are kept: computing the block in chunks saves
  /// nothing.
  bool keeps_feed_forward;
  /// A policy whose computation is contained in a step under this policy; kSaveAll has itself.
  StepPolicy computes_no_less_than;
};

/// Returns all policies in the order of the enumeration.
std::span<const StepPolicyTraits> step_policies();
const StepPolicyTraits& traits_of(StepPolicy policy);
/// Returns the value of `memory.policy`: "offload_named".
std::string_view policy_name(StepPolicy policy);
/// Returns the policy of a value of `memory.policy`; none for "auto" and unknown names.
std::optional<StepPolicy> parse_policy(std::string_view word);

}  // namespace stow
