// The table of checkpoint policies: one word each, in the order of the configuration's list.
#include <gtest/gtest.h>

#include "stowage/train/config.h"
#include "stowage/train/policies.h"

namespace stow {
namespace {

TEST(StepPolicies, AreTheWordsOfTheConfiguration) {
  std::vector<std::string> words = {"auto"};
  for (const StepPolicyTraits& t : step_policies()) {
    words.emplace_back(t.name);
    EXPECT_EQ(&traits_of(t.policy), &t);
    EXPECT_EQ(policy_name(t.policy), t.name);
    EXPECT_EQ(parse_policy(t.name), t.policy);
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
