#include "stowage/api/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/base/error.h"
#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

// Policies around a scan act on the values of its body, as in JAX: kept, offloaded, and no bit
// changed.
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kSteps = 6, kWidth = 16;

class ScanPolicies : public ::testing::Test {
 protected:
  DevicePtr device_ = Device::virtual_device({64 * kMiB, 64 * kMiB, 0}, 1);
  DefaultDevice guard_{device_};
  Array x_ = random::normal(random::key(1), {8, kWidth});
  Array w_ = random::normal(random::key(2), {kSteps, kWidth, kWidth}) * 0.3;

  // Three named values a step, the last being the carry.
  static Array step(const Array& c, const Array& w) {
    const Array y = checkpoint_name(sin(matmul(c, w)), "y");
    const Array z = checkpoint_name(sin(y), "z");
    return checkpoint_name(sin(z), "w");
  }
  static Array scanned(const Array& x, const Array& w) { return scan(step, x, w); }
  // Two loops, one in the other.
  static Array nested(const Array& x, const Array& w) {
    const auto outer = [](const Array& c, const Array& pair) { return scan(step, c, pair) * 0.5; };
    return scan(outer, x, reshape(w, {kSteps / 2, 2, kWidth, kWidth}));
  }

  template <typename F>
  static auto loss_of(F f) {
    return [f](const Array& x, const Array& w) { return sum(tanh(f(x, w))); };
  }
  template <typename F>
  std::vector<float> gradient(F f) {
    const auto [gx, gw] = jit(grad<0, 1>(loss_of(f)))(x_, w_);
    std::vector<float> all = gx.template to_vector<float>();
    for (float v : gw.template to_vector<float>()) all.push_back(v);
    return all;
  }
  template <typename F>
  std::string saved(F f) {
    return to_string(saved_residuals(loss_of(f), x_, w_));
  }
};

TEST_F(ScanPolicies, NamesInTheBodyAreKeptAndOffloaded) {
  const auto policy = save_and_offload_only_these_names({"y"}, {"z", "w"});
  const std::string listing = saved(checkpoint(scanned, policy));
  EXPECT_THAT(listing, HasSubstr("f32[6,8,16] named 'y'"));
  EXPECT_THAT(listing, HasSubstr("stacked by scan"));
  EXPECT_EQ(gradient(checkpoint(scanned, policy)), gradient(scanned));
  EXPECT_EQ(gradient(checkpoint(scanned, save_only_these_names({"w"}))), gradient(scanned));
  const auto compiled =
      jit(grad<0, 1>(loss_of(checkpoint(scanned, save_and_offload_only_these_names({}, {"y"})))))
          .lower(x_, w_)
          .compile();
  // What is kept waits on the host, whole, and never whole on the device beside the weights.
  EXPECT_EQ(compiled.memory_analysis().host().total_bytes, kSteps * 8 * kWidth * 4);
}

TEST_F(ScanPolicies, ProductsInTheBodyAreKept) {
  const std::string all = saved(checkpoint(scanned, dots_saveable()));
  EXPECT_THAT(all, HasSubstr("f32[6,8,16] output of dot_general"));
  EXPECT_THAT(saved(checkpoint(scanned, nothing_saveable())), Not(HasSubstr("dot_general")));
  EXPECT_EQ(gradient(checkpoint(scanned, dots_saveable())), gradient(scanned));
  EXPECT_EQ(gradient(checkpoint(scanned, offload_dot_with_no_batch_dims())), gradient(scanned));
}

TEST_F(ScanPolicies, ReachIntoScansInScans) {
  const std::string listing = saved(checkpoint(nested, save_only_these_names({"y"})));
  EXPECT_THAT(listing, HasSubstr("f32[3,2,8,16]"));
  const std::vector<float> want = gradient(nested);
  EXPECT_EQ(gradient(checkpoint(nested, save_only_these_names({"y"}))), want);
  EXPECT_EQ(gradient(checkpoint(nested, save_and_offload_only_these_names({"z"}, {"y"}))), want);
  EXPECT_EQ(gradient(checkpoint(nested, dots_saveable())), want);
  EXPECT_EQ(gradient(checkpoint(nested, nothing_saveable())), want);
}

TEST_F(ScanPolicies, StandInCheckpointsInCheckpoints) {
  const auto inner = checkpoint(scanned, save_only_these_names({"y"}));
  const auto outer = [inner](const Array& x, const Array& w) {
    auto f = inner;
    return f(checkpoint_name(cos(x), "x"), w);
  };
  const std::vector<float> want =
      gradient([](const Array& x, const Array& w) { return scanned(cos(x), w); });
  EXPECT_EQ(gradient(checkpoint(outer, save_only_these_names({"x"}))), want);
  EXPECT_EQ(gradient(checkpoint(outer, save_and_offload_only_these_names({}, {"x", "z"}))), want);
}

TEST_F(ScanPolicies, LeaveCheckpointedBodiesToThemselves) {
  const auto own = [](const Array& x, const Array& w) {
    return scan(checkpoint(step, nothing_saveable()), x, w);
  };
  EXPECT_THAT(message_of([&] { saved(checkpoint(own, save_only_these_names({"y"}))); }),
              HasSubstr("a checkpoint with a policy of its own"));
  EXPECT_EQ(gradient(checkpoint(own, dots_saveable())), gradient(scanned));
}

TEST_F(ScanPolicies, RefuseNamesThatNothingDependsOn) {
  const auto useless = [](const Array& x, const Array& w) {
    return scan([](const Array& c, const Array& m) { return checkpoint_name(c + m[0], "h"); }, x,
                w);
  };
  EXPECT_THAT(message_of([&] { saved(checkpoint(useless, save_only_these_names({"h"}))); }),
              HasSubstr("asks for the name 'h', which has no effect"));
}

TEST_F(ScanPolicies, RefuseOffloadsWithoutEffectInABranch) {
  const auto with = [](auto named) {
    return [named](const Array& x, const Array& w) {
      const auto taken = [&](const Array& c) { return named(matmul(c, w[0])); };
      return cond(x[0][0] > 0.0, taken, [](const Array& c) { return c * 2.0; }, x);
    };
  };
  const auto useful = with([](const Array& y) { return sin(checkpoint_name(y, "h")); });
  const auto useless = with([](const Array& y) { return checkpoint_name(y, "h") * 3.0; });
  const auto policy = save_and_offload_only_these_names({}, {"h"});
  EXPECT_EQ(gradient(checkpoint(useful, policy)), gradient(useful));
  EXPECT_THAT(message_of([&] { saved(checkpoint(useless, policy)); }),
              HasSubstr("asks for the name 'h', which has no effect"));
}

}  // namespace
}  // namespace stow
