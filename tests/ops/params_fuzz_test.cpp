// Parameters and operands from hostile files: a type rule refuses them or gives types that can be.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/ops/samples.h"

namespace stow::testing {
namespace {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : rng_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }

  int64_t number() {
    static constexpr int64_t kNumbers[] = {
        0,  1,  2,  3,         4,         5,         7,         64,
        -1, -2, -9, INT64_MAX, INT64_MIN, 1ll << 31, 1ll << 61, (1ll << 62) + 1};
    return kNumbers[below(std::size(kNumbers))];
  }
  DType dtype() { return static_cast<DType>(below(kNumDTypes)); }

  void change(Dims& list) {
    const size_t what = below(4);
    if (what == 0) list.push_back(number());
    if (what == 1 && !list.empty()) list.pop_back();
    if (what >= 2 && !list.empty()) list[below(list.size())] = number();
  }
  void change(Shape& shape) {
    Dims dims = shape.dims();
    change(dims);
    shape = Shape(std::move(dims));
  }
  void change(ArrayType& type) {
    if (below(3) == 0)
      type.dtype = dtype();
    else
      change(type.shape);
  }

  void change(NoParams&) {}
  void change(NameParams&) {}
  void change(CheckpointParams&) {}
  void change(CustomVjpParams& p) {
    (below(2) == 0 ? p.n_args : p.n_residuals) += static_cast<int>(below(5)) - 2;
  }
  void change(AttentionParams& p) {
    if (below(2) == 0) return void(p.causal = !p.causal);
    change(p.offset);
  }
  void change(TopKParams& p) { change(below(2) == 0 ? p.axis : p.k); }
  void change(WindowParams& p) {
    any({&p.sizes, &p.strides, &p.low, &p.high, &p.base_dilation, &p.window_dilation});
  }
  void change(ConvParams& p) {
    if (below(4) == 0) return change(below(2) == 0 ? p.feature_groups : p.batch_groups);
    any({&p.strides, &p.low, &p.high, &p.lhs_dilation, &p.rhs_dilation});
  }
  void change(ConstantParams& p) {
    if (below(2) == 0) return change(p.type);
    p.data.resize(below(20));
  }
  void change(IotaParams& p) { below(2) == 0 ? change(p.type) : change(p.axis); }
  void change(ShapeParams& p) { change(p.shape); }
  void change(DTypeParams& p) { p.dtype = dtype(); }
  void change(DevicePutParams& p) { p.kind = static_cast<MemoryKind>(below(kNumMemoryKinds)); }
  void change(BroadcastParams& p) { below(2) == 0 ? change(p.axes) : change(p.shape); }
  void change(AxesParams& p) { change(p.axes); }
  void change(SliceParams& p) { any({&p.start, &p.limit, &p.stride}); }
  void change(PadParams& p) { any({&p.low, &p.high, &p.interior}); }
  void change(AxisParams& p) { change(p.axis); }
  void change(ArgReduceParams& p) {
    below(2) == 0 ? change(p.axis) : void(p.index_dtype = dtype());
  }
  void change(GatherParams& p) {
    any({&p.offset_axes, &p.collapsed_axes, &p.start_index_map, &p.slice_sizes, &p.batch_axes,
         &p.index_batch_axes});
  }
  void change(DotParams& p) {
    if (below(5) == 0) p.out = dtype();
    any({&p.lhs_contract, &p.rhs_contract, &p.lhs_batch, &p.rhs_batch});
  }
  void change(ScanParams& p) {
    switch (below(7)) {
      case 6: return change(p.unroll);
      case 0: return change(p.length);
      case 1: return void(p.n_consts = static_cast<int>(number()));
      case 2: return void(p.n_carries = static_cast<int>(number()));
      case 3: return void(p.n_residuals = static_cast<int>(number()));
      default: return any({&p.in_axes, &p.out_axes});
    }
  }
  void change(MeshAxes& axes) {
    if (below(2) == 0 || axes.empty()) return void(axes.push_back(static_cast<int>(number())));
    axes[below(axes.size())] = static_cast<int>(number());
  }
  void change(MeshShape& mesh) {
    if (below(3) == 0) mesh.names.push_back(below(2) ? "x" : "z");
    change(mesh.extents);
  }
  void change(CollectiveParams& p) {
    switch (below(8)) {
      case 0: return change(p.mesh);
      case 1: return change(p.axes);
      case 2: return change(p.axis);
      case 3: return change(p.concat_axis);
      case 5: return change(p.groups);
      case 6: return change(p.n_groups);
      case 4: return void(p.kind = static_cast<ReduceKind>(below(5)));
      default: return change(p.pairs);
    }
  }
  void change(ReshardParams& p) {
    if (below(2) == 0) return change(p.mesh);
    if (below(4) == 0) return change(p.automatic);
    if (below(3) == 0 || p.sharding.axes.empty()) return void(p.sharding.axes.emplace_back());
    change(p.sharding.axes[below(p.sharding.axes.size())]);
  }
  void change(CondParams& p) { p.n_residuals = static_cast<int>(number()); }
  void change(WhileParams& p) {
    (below(2) ? p.n_cond_consts : p.n_body_consts) = static_cast<int>(number());
  }

 private:
  void change(int64_t& x) { x = number(); }
  void any(std::initializer_list<Dims*> lists) { change(**(lists.begin() + below(lists.size()))); }

  std::mt19937_64 rng_;
};

TEST(TypeRules, SurviveAnyParameters) {
  Mutator mutator(1);
  int accepted = 0, refused = 0;
  for (const Sample& s : samples()) {
    SCOPED_TRACE(to_string(s));
    for (int round = 0; round < 300; ++round) {
      Sample m = s;
      for (size_t n = 1 + mutator.below(3); n-- > 0;) {
        if (!m.operands.empty() && mutator.below(2) == 0)
          mutator.change(m.operands[mutator.below(m.operands.size())]);
        else
          std::visit([&](auto& p) { mutator.change(p); }, m.params);
      }
      const InferContext c{m.op, m.operands, m.params, m.graphs};
      std::vector<ArrayType> results;
      try {
        results = infer_types(c);
      } catch (const TraceError&) {
        ++refused;
        continue;
      }
      ++accepted;
      for (const ArrayType& t : results) {
        ASSERT_GE(t.bytes(), 0);
        ASSERT_LE(t.bytes(), int64_t{1} << 62);
      }
      // A letter an axis, of what there is.
      const ShardingFactors f = op_def(m.op).shard.function(c, results);
      ASSERT_EQ(f.operands.size(), m.operands.size());
      ASSERT_EQ(f.results.size(), results.size());
      for (size_t i = 0; i < results.size(); ++i)
        ASSERT_EQ(f.results[i].size(), static_cast<size_t>(results[i].shape.rank()));
      for (size_t i = 0; i < m.operands.size(); ++i)
        ASSERT_EQ(f.operands[i].size(), static_cast<size_t>(m.operands[i].shape.rank()));
      const Cost cost = op_def(m.op).cost.function(c, results);
      ASSERT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0);
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace stow::testing
