#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "stowage/ops/build.h"
#include "tests/ops/samples.h"

namespace stow::testing {
namespace {

std::vector<ArrayType> infer(const Sample& s) {
  return infer_types({s.op, s.operands, s.params, s.graphs});
}

TEST(TypeRules, SamplesHaveTheExpectedTypes) {
  for (const Sample& s : samples()) {
    SCOPED_TRACE(to_string(s));
    const std::vector<ArrayType> results = infer(s);
    ASSERT_EQ(results.size(), s.results.size());
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(to_string(results[i]), to_string(s.results[i]));
  }
}

TEST(TypeRules, EveryOpHasASample) {
  std::set<OpKind> seen;
  std::set<std::string> names;
  for (const Sample& s : samples()) {
    seen.insert(s.op);
    EXPECT_TRUE(names.insert(to_string(s)).second) << to_string(s) << " stands twice";
  }
  for (int i = 0; i < kNumOps; ++i)
    EXPECT_TRUE(seen.contains(static_cast<OpKind>(i)))
        << op_name(static_cast<OpKind>(i)) << " has no sample in tests/ops/samples.cpp";
}

TEST(TypeRules, TableIsInTheOrderOfTheList) {
  for (int i = 0; i < kNumOps; ++i)
    EXPECT_EQ(op_def(static_cast<OpKind>(i)).op, static_cast<OpKind>(i));
}

TEST(TypeRules, RetypedSamplesAreConsistent) {
  for (const Sample& s : samples()) {
    if (s.op == OpKind::kAttention || s.op == OpKind::kAttentionGrad) continue;  // have no f64
    const Sample wide = retyped(s, DType::kF32, DType::kF64);
    SCOPED_TRACE(to_string(s));
    EXPECT_EQ(infer(wide), wide.results);
  }
}

// Parameters of another op, and none or twice as many operands, are errors and never crashes.
TEST(TypeRules, RefuseForeignParametersAndCounts) {
  for (const Sample& s : samples()) {
    SCOPED_TRACE(to_string(s));
    for (const Sample& other : samples()) {
      if (other.params.index() == s.params.index()) continue;
      Sample wrong = s;
      wrong.params = other.params;
      EXPECT_THROW(infer(wrong), TraceError) << to_string(other);
    }
    Sample wrong = s;
    wrong.operands.clear();
    if (!s.operands.empty()) {
      EXPECT_THROW(infer(wrong), TraceError);
    }
    wrong = s;
    wrong.operands.insert(wrong.operands.end(), 9, parse_type("f32[7]"));
    if (s.op != OpKind::kOptimizationBarrier) {
      EXPECT_THROW(infer(wrong), TraceError);
    }
  }
}

// Ops that compute work on device values alone; others only look at their operands or move them.
bool works_anywhere(OpKind op) {
  return op_class(op) == OpClass::kIdentity || op == OpKind::kReshape || op == OpKind::kTranspose ||
         op == OpKind::kSlice || op == OpKind::kDevicePut || op == OpKind::kFullToShard ||
         op == OpKind::kShardToFull;
}

TEST(TypeRules, RefuseOtherMemoryKinds) {
  for (const Sample& s : samples()) {
    if (works_anywhere(s.op)) continue;
    for (size_t i = 0; i < s.operands.size(); ++i) {
      Sample wrong = s;
      wrong.operands[i].kind = MemoryKind::kPinnedHost;
      if (s.op == OpKind::kConcatenate && s.operands.size() == 1) continue;
      EXPECT_THROW(infer(wrong), TraceError) << to_string(s) << " operand " << i;
    }
  }
}

TEST(TypeRules, WeakOnlyWhereAllOperandsAre) {
  for (const Sample& s : samples()) {
    const OpClass cls = op_class(s.op);
    if (cls != OpClass::kElementwise && cls != OpClass::kView && cls != OpClass::kReduce) continue;
    const bool reduces = cls == OpClass::kReduce;  // never weak, as in jax.numpy
    Sample weak = s;
    for (ArrayType& t : weak.operands) t.weak = true;
    const bool retypes =
        s.op == OpKind::kConvert || s.op == OpKind::kBitcast ||
        (s.results[0].dtype == DType::kBool && s.operands[0].dtype != DType::kBool);
    EXPECT_EQ(infer(weak)[0].weak, !retypes && !reduces) << to_string(s);
    weak.operands.back().weak = false;
    EXPECT_FALSE(infer(weak)[0].weak) << to_string(s);
  }
}

// Factors have the shape of the types, and axes of one letter one extent unless noted.
TEST(ShardingFactors, HaveALetterAnAxis) {
  for (const Sample& s : samples()) {
    SCOPED_TRACE(to_string(s));
    const InferContext c{s.op, s.operands, s.params, s.graphs};
    const ShardingFactors f = op_def(s.op).shard.function(c, s.results);
    ASSERT_EQ(f.operands.size(), s.operands.size());
    ASSERT_EQ(f.results.size(), s.results.size());
    const bool loose =
        s.op == OpKind::kReshape || s.op == OpKind::kAttention || s.op == OpKind::kAttentionGrad;
    std::vector<int64_t> extents(64, -1);
    const auto check = [&](const std::vector<int>& letters, const ArrayType& type) {
      ASSERT_EQ(static_cast<int>(letters.size()), type.shape.rank());
      for (int i = 0; i < type.shape.rank(); ++i) {
        const int letter = letters[static_cast<size_t>(i)];
        if (letter == ShardingFactors::kUnshardable) continue;
        ASSERT_GE(letter, 0);
        int64_t& extent = extents[static_cast<size_t>(letter)];
        if (!loose && extent >= 0) {
          EXPECT_EQ(extent, type.shape[i]);
        }
        extent = type.shape[i];
      }
    };
    for (size_t i = 0; i < s.operands.size(); ++i) check(f.operands[i], s.operands[i]);
    for (size_t i = 0; i < s.results.size(); ++i) check(f.results[i], s.results[i]);
  }
}

TEST(Costs, AreFiniteAndNotNegative) {
  for (const Sample& s : samples()) {
    const Cost cost = op_def(s.op).cost.function({s.op, s.operands, s.params, s.graphs}, s.results);
    for (const double x : {cost.flops, cost.bytes})
      EXPECT_TRUE(std::isfinite(x) && x >= 0) << x << " of " << to_string(s);
  }
  const std::vector<ArrayType> operands = parse_types({"f32[8,64]", "f32[64,16]"});
  const Params params = DotParams{{1}, {0}, {}, {}, DType::kF32};
  const std::vector<ArrayType> results = parse_types({"f32[8,16]"});
  const Cost cost = op_def(OpKind::kDotGeneral)
                        .cost.function({OpKind::kDotGeneral, operands, params, {}}, results);
  EXPECT_EQ(cost.flops, 2.0 * 8 * 64 * 16);
  EXPECT_EQ(cost.bytes, 4.0 * (8 * 64 + 64 * 16 + 8 * 16));
}

}  // namespace
}  // namespace stow::testing
