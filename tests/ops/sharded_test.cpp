// Sharded = whole: every op whose letters are cut, evaluated part by part and put together, is the
// op.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "stowage/ir/print.h"
#include "stowage/ops/localize.h"
#include "stowage/ops/verify.h"
#include "tests/ops/near.h"
#include "tests/ops/sample_values.h"
#include "tests/support/crash_note.h"
#include "tests/support/evaluate_on_mesh.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::PerPosition;
using testing::Random;
using testing::Sample;

// Ops with graphs and the borders of shard_map are the partitioner's; collectives are local
// already.
bool is_localized_by_rule(const Sample& sample) {
  return op_class(sample.op) != OpClass::kStructure &&
         !std::holds_alternative<ReshardParams>(sample.params) &&
         !std::holds_alternative<CollectiveParams>(sample.params);
}

std::set<int> letters_of(const ShardingFactors& f) {
  std::set<int> letters;
  for (const auto* lists : {&f.operands, &f.results})
    for (const std::vector<int>& list : *lists) letters.insert(list.begin(), list.end());
  letters.erase(ShardingFactors::kUnshardable);
  return letters;
}

Graph local_graph(const Sample& sample, const OpShardings& shardings, const MeshShape& mesh) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<Val> operands;
  for (size_t i = 0; i < sample.operands.size(); ++i)
    operands.emplace_back(
        b, graph.add_input(local_type(sample.operands[i], shardings.operands[i], mesh)));
  const Node node{.op = sample.op, .params = sample.params, .graphs = sample.graphs};
  const auto index = [&](const MeshAxes& axes) {
    return b.add1(OpKind::kAxisIndex, CollectiveParams{.mesh = mesh, .axes = axes}, {});
  };
  std::vector<ValueId> outputs;
  for (const Val& v :
       localize(node, sample.operands, sample.results, shardings, mesh, b, operands, index))
    outputs.push_back(v.id());
  graph.set_outputs(outputs);
  return graph;
}

// A sum of parts is in another order: its terms were rounded apart.
double sum_error(DType dtype) {
  return dtype == DType::kF32 ? 1e-5 : testing::stated_error(dtype);
}

class Sharded {
 public:
  Sharded(const Sample& sample, Random& random) : sample_(sample) {
    inputs_ = testing::encode_all(sample, testing::draw(sample, random));
    want_ = testing::evaluate(one_op(sample), inputs_);
    factors_ = op_def(sample.op).shard.function({sample.op, sample.operands, sample.params, {}},
                                                sample.results);
  }

  const ShardingFactors& factors() const { return factors_; }

  // True if the letters could be cut so; then the parts gave the whole.
  bool check(const LetterAxes& axes, const MeshShape& mesh) {
    if (!can_cut(factors_, axes, mesh, sample_.operands, sample_.results)) return false;
    const OpShardings shardings = shardings_of(factors_, axes);
    const Graph local = local_graph(sample_, shardings, mesh);
    testing::set_crash_note(print(local));
    verify(local);
    PerPosition inputs(static_cast<size_t>(mesh.size()));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto parts = testing::cut(sample_.operands[i], inputs_[i], shardings.operands[i], mesh);
      for (size_t d = 0; d < inputs.size(); ++d) inputs[d].push_back(parts[d]);
    }
    const PerPosition got = testing::evaluate_on_mesh(local, mesh, inputs);
    for (size_t o = 0; o < want_.size(); ++o) compare(got, o, shardings.results[o], mesh);
    return true;
  }

 private:
  void compare(const PerPosition& got, size_t o, const AxisSharding& sharding,
               const MeshShape& mesh) {
    const ArrayType& type = sample_.results[o];
    std::vector<Bytes> parts;
    for (const auto& outputs : got) parts.push_back(outputs[o]);
    const std::optional<Bytes> whole = testing::join(type, parts, sharding, mesh);
    ASSERT_TRUE(whole) << "copies of a part differ";
    if (*whole == want_[o]) return;
    const bool sums =
        !sharding.partial.empty() && sharding.kind == ReduceKind::kSum && is_float(type.dtype);
    ASSERT_TRUE(sums) << "other bits for " << to_string(type) << " under "
                      << to_string(sharding, mesh);
    const auto a = testing::decode(type.dtype, *whole), b = testing::decode(type.dtype, want_[o]);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_LE(std::fabs(a[i] - b[i]), sum_error(type.dtype) * std::max(1.0, std::fabs(b[i])))
          << "element " << i << " of " << to_string(type);
  }

  const Sample& sample_;
  std::vector<Bytes> inputs_, want_;
  ShardingFactors factors_;
};

TEST(Sharded, PartsOfEveryOpGiveTheWhole) {
  Random random(31);
  std::set<OpKind> cut, with_letters;
  int n = 0;
  for (const Sample& sample : testing::samples()) {
    if (!is_localized_by_rule(sample)) continue;
    SCOPED_TRACE(to_string(sample));
    Sharded sharded(sample, random);
    const std::set<int> letters = letters_of(sharded.factors());
    if (!letters.empty()) with_letters.insert(sample.op);
    const auto check = [&](const LetterAxes& axes, const MeshShape& mesh) {
      const bool done = sharded.check(axes, mesh);
      if (done && !letters.empty()) cut.insert(sample.op);
      n += done;
      return !::testing::Test::HasFatalFailure();
    };
    ASSERT_TRUE(check({}, {{"x"}, {2}}));
    for (int a : letters) {
      for (int64_t extent : {2, 3, 4}) ASSERT_TRUE(check({{a, {0}}}, {{"x"}, {extent}})) << a;
      ASSERT_TRUE(check({{a, {1, 0}}}, {{"x", "y"}, {2, 2}})) << a;
      for (int b : letters)
        if (a < b) {
          ASSERT_TRUE(check({{a, {1}}, {b, {0}}}, {{"x", "y"}, {2, 2}})) << a << " and " << b;
          ASSERT_TRUE(check({{a, {1}}, {b, {0}}}, {{"x", "y"}, {2, 3}})) << a << " and " << b;
        }
    }
  }
  for (OpKind op : with_letters) EXPECT_TRUE(cut.contains(op)) << op_name(op) << " was never cut";
  EXPECT_GT(n, 800);
}

}  // namespace
}  // namespace stow
