// The table of checkpoint policies: one word each, in the order in which they are tried.
#include <gtest/gtest.h>

#include "stowage/train/config.h"
#include "stowage/train/policies.h"

namespace stow {
namespace {

TEST(StepPolicies, AreTheWordsOfTheConfigurationFromTheCheapestInTime) {
  const std::span<const StepPolicyTraits> policies = step_policies();
  std::vector<std::string> words = {"auto"};
  for (size_t i = 0; i < policies.size(); ++i) {
    const StepPolicyTraits& t = policies[i];
    words.emplace_back(t.name);
    EXPECT_EQ(&traits_of(t.policy), &t);
    EXPECT_EQ(policy_name(t.policy), t.name);
    EXPECT_EQ(parse_policy(t.name), t.policy);
    if (i > 0) {
      EXPECT_GT(t.cost, policies[i - 1].cost) << t.name;
    }
  }
  EXPECT_EQ(words, memory_policies());
  EXPECT_EQ(parse_policy("auto"), std::nullopt);
  EXPECT_EQ(parse_policy("save"), std::nullopt);
}

TEST(StepPolicies, SayWhatTheirWordsDo) {
  for (const StepPolicyTraits& t : step_policies()) {
    EXPECT_EQ(t.offloads, t.name.starts_with("offload_")) << t.name;
    EXPECT_EQ(t.nests, t.name.ends_with("nested")) << t.name;
  }
}

}  // namespace
}  // namespace stow
