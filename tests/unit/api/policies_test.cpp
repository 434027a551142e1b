#include "stowage/api/policies.h"

#include <gtest/gtest.h>

#include "stowage/base/error.h"
#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {
namespace {

enum class Answer { kKeep, kRecompute, kOffload };

Answer ask(const PolicyPtr& policy, const Node& node, std::string_view name = {}) {
  switch (policy->decide({node.op, &node, name}).mark) {
    case Mark::kKeep:
      return Answer::kKeep;
    case Mark::kOffload:
      return Answer::kOffload;
    default:
      return Answer::kRecompute;
  }
}

const Node kExp{.op = OpKind::kExp};
const Node kDot{.op = OpKind::kDotGeneral, .params = DotParams{{1}, {0}, {}, {}}};
const Node kBatchedDot{.op = OpKind::kDotGeneral, .params = DotParams{{2}, {1}, {0}, {0}}};
const Node kNamed{.op = OpKind::kName, .params = NameParams{"x"}};

struct Row {
  const char* what;
  PolicyPtr policy;
  Answer exp, dot, batched_dot, named_x, named_y;
};

constexpr Answer K = Answer::kKeep, R = Answer::kRecompute, O = Answer::kOffload;
const Row kTable[] = {
    {"everything", everything_saveable(), K, K, K, K, K},
    {"nothing", nothing_saveable(), R, R, R, R, R},
    {"dots", dots_saveable(), R, K, K, R, R},
    {"dots_no_batch", dots_with_no_batch_dims_saveable(), R, K, R, R, R},
    {"offload_dots", offload_dot_with_no_batch_dims(), R, O, R, R, R},
    {"only_x", save_only_these_names({"x"}), R, R, R, K, R},
    {"names_but_x", save_any_names_but_these({"x"}), R, R, R, R, K},
    {"all_but_x", save_anything_except_these_names({"x"}), K, K, K, R, K},
    {"save_y_offload_x", save_and_offload_only_these_names({"y"}, {"x"}), R, R, R, O, K},
    {"both",
     save_from_both_policies(dots_with_no_batch_dims_saveable(),
                             save_and_offload_only_these_names({}, {"x"})),
     R, K, R, O, R},
    {"keep_wins_over_offload",
     save_from_both_policies(offload_dot_with_no_batch_dims(), dots_saveable()), R, K, K, R, R},
    {"both_of_none", save_from_both_policies(nullptr, nullptr), R, R, R, R, R},
    {"custom",
     custom_policy("exps",
                   [](const PolicyQuery& q) {
                     return PolicyAnswer{q.op == OpKind::kExp ? Mark::kKeep : Mark::kRecompute};
                   }),
     K, R, R, R, R},
};

TEST(Policies, AnswerAsJaxDoes) {
  for (const Row& row : kTable) {
    EXPECT_EQ(ask(row.policy, kExp), row.exp) << row.what;
    EXPECT_EQ(ask(row.policy, kDot), row.dot) << row.what;
    EXPECT_EQ(ask(row.policy, kBatchedDot), row.batched_dot) << row.what;
    EXPECT_EQ(ask(row.policy, kNamed, "x"), row.named_x) << row.what;
    EXPECT_EQ(ask(row.policy, kNamed, "y"), row.named_y) << row.what;
  }
}

TEST(Policies, KnowTheNamesTheyActOn) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(save_only_these_names({"a", "b"})->wanted_names, (Names{"a", "b"}));
  EXPECT_EQ(save_and_offload_only_these_names({"a"}, {"b"})->wanted_names, (Names{"a", "b"}));
  EXPECT_EQ(save_from_both_policies(save_only_these_names({"a"}), dots_saveable())->wanted_names,
            (Names{"a"}));
  EXPECT_TRUE(dots_saveable()->wanted_names.empty());
  EXPECT_EQ(save_only_these_names({"a", "b"})->name, "save_only_these_names(a, b)");
}

TEST(Policies, AreFoundByTheNamesThatPrintedGraphsHold) {
  const PolicyPtr offload = save_and_offload_only_these_names({"a", "b"}, {"c"}, MemoryKind::kDisk);
  for (const PolicyPtr& policy :
       {dots_saveable(), save_only_these_names({}), save_any_names_but_these({"a", "b"}), offload,
        save_and_offload_only_these_names({}, {"block_in"}),
        offload_dot_with_no_batch_dims(MemoryKind::kDisk),
        save_from_both_policies(save_from_both_policies(offload, dots_saveable()),
                                save_only_these_names({"d", "e"}))}) {
    const PolicyPtr found = policy_by_name(policy->name);
    ASSERT_TRUE(found) << policy->name;
    EXPECT_EQ(found->name, policy->name);
    EXPECT_EQ(found->wanted_names, policy->wanted_names) << policy->name;
  }
  const PolicyAnswer moved = policy_by_name(offload->name)->decide({OpKind::kName, &kNamed, "c"});
  EXPECT_EQ(moved.mark, Mark::kOffload);
  EXPECT_EQ(moved.destination, MemoryKind::kDisk);
  for (const char* name :
       {"mine", "mine(a)", "save_from_both_policies(mine, dots_saveable)", "dots_saveable()",
        "offload_dot_with_no_batch_dims(moon)", "save_and_offload_only_these_names([a], [a], disk)",
        "save_and_offload_only_these_names([a, [b], disk)"})
    EXPECT_EQ(policy_by_name(name), nullptr) << name;
}

TEST(Policies, OffloadGoesWhereItIsTold) {
  const PolicyPtr policy = save_and_offload_only_these_names({}, {"x"}, MemoryKind::kDisk);
  EXPECT_EQ(policy->decide({OpKind::kName, &kNamed, "x"}).destination, MemoryKind::kDisk);
  EXPECT_THROW(save_and_offload_only_these_names({"x"}, {"x"}), TraceError);
}

}  // namespace
}  // namespace stow
