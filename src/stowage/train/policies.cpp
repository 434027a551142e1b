#include "stowage/train/policies.h"

#include <algorithm>
#include <array>

namespace stow {
namespace {

using enum StepPolicy;
constexpr auto kPolicies = std::to_array<StepPolicyTraits>({
    // From the left: name; offloads; is nested; keeps what feed-forward blocks need; the policy
    // that it computes at least as much as.
    {kSaveAll,        "save_all",        false,    false, true,  kSaveAll},
    {kSaveDots,       "save_dots",       false,    false, true,  kSaveAll},
    {kSaveGate,       "save_gate",       false,    false, true,  kSaveDots},
    {kSaveNamed,      "save_named",      false,    false, false, kSaveGate},
    {kOffloadNamed,   "offload_named",   true,     false, false, kSaveNamed},
    {kRecompute,      "recompute",       false,    false, false, kSaveNamed},
    {kOffloadCarries, "offload_carries", true,     false, false, kRecompute},
    {kOffloadAll,     "offload_all",     true,     false, true,  kSaveAll},
    {kNested,         "nested",          false,    true,  false, kRecompute},
    {kOffloadNested,  "offload_nested",  true,     true,  false, kRecompute},
});
constexpr bool is_in_order() {
  for (size_t i = 0; i < kPolicies.size(); ++i)
    if (kPolicies[i].policy != static_cast<StepPolicy>(i)) return false;
  return true;
}
static_assert(is_in_order());

}  // namespace

std::span<const StepPolicyTraits> step_policies() { return kPolicies; }

const StepPolicyTraits& traits_of(StepPolicy policy) {
  return kPolicies[static_cast<size_t>(policy)];
}

std::string_view policy_name(StepPolicy policy) { return traits_of(policy).name; }

std::optional<StepPolicy> parse_policy(std::string_view word) {
  const auto at = std::find_if(kPolicies.begin(), kPolicies.end(),
                               [&](const StepPolicyTraits& t) { return t.name == word; });
  return at == kPolicies.end() ? std::nullopt : std::optional(at->policy);
}

}  // namespace stow
