// The exact messages of the type rules. One row, one test.
#include <gtest/gtest.h>

#include "stowage/core/scalar.h"
#include "stowage/ops/build.h"
#include "tests/ops/sample_bodies.h"
#include "tests/ops/samples.h"

namespace stow::testing {
namespace {

struct Row {
  OpKind op;
  std::vector<ArrayType> operands;
  Params params;
  std::string message;
  std::vector<GraphPtr> graphs = {};
};
using K = OpKind;
using Types = std::initializer_list<std::string_view>;

Row row(K op, Types operands, Params params, std::string message) {
  return {op, parse_types(operands), std::move(params), std::move(message)};
}

ConstantParams bytes(std::string_view type, std::vector<int> data) {
  ConstantParams p{parse_type(type), {}};
  for (int b : data) p.data.push_back(static_cast<std::byte>(b));
  return p;
}

std::vector<Row> leaves_and_elementwise() {
  const NoParams none;
  return {
      row(K::kAdd, {"f32[4]", "f32[5]"}, none, "[add] operands differ in shape: f32[4] and f32[5]"),
      row(K::kAdd, {"f32[4]", "bf16[4]"}, none,
          "[add] operands differ in dtype: f32[4] and bf16[4]"),
      row(K::kAdd, {"f32[4]", "f32<pinned_host>[4]"}, none,
          "[add] operand 1 is on pinned_host and operand 0 on device: f32<pinned_host>[4] and "
          "f32[4]; move them to one memory with device_put first"),
      row(K::kAdd, {"f32[4]"}, none, "[add] takes 2 operands, got 1"),
      row(K::kAdd, {"f32[4]", "f32[4]"}, AxesParams{}, "[add] has the parameters of another op"),
      row(K::kAdd, {"bool[4]", "bool[4]"}, none, "[add] needs a numeric dtype, got bool[4]"),
      row(K::kAdd, {"f32[-1]", "f32[-1]"}, none, "[add] operand 0 f32[-1] has a negative extent"),
      row(K::kExp, {"i32[4]"}, none, "[exp] needs a float dtype, got i32[4]"),
      row(K::kExp, {}, none, "[exp] takes 1 operand, got 0"),
      row(K::kAbs, {"u8[4]"}, none, "[abs] needs a signed dtype, got u8[4]"),
      row(K::kAnd, {"f32[4]", "f32[4]"}, none, "[and] needs a bool or integer dtype, got f32[4]"),
      row(K::kShiftLeft, {"bool[4]", "bool[4]"}, none,
          "[shift_left] needs an integer dtype, got bool[4]"),
      row(K::kPow, {"bool[4]", "bool[4]"}, none, "[pow] needs a numeric dtype, got bool[4]"),
      row(K::kSelect, {"f32[4]", "f32[4]", "f32[4]"}, none,
          "[select] the condition must be bool, got f32[4]"),
      row(K::kSelect, {"bool[]", "f32[4]", "f32[4]"}, none,
          "[select] the condition bool[] differs in shape from f32[4]"),
      row(K::kBitcast, {"f32[4]"}, DTypeParams{DType::kF64},
          "[bitcast] expected a dtype of the width of f32[4], got f64"),
      row(K::kBitcast, {"bool[4]"}, DTypeParams{DType::kU8},
          "[bitcast] expected both dtypes to be bool or neither, got bool[4] to u8"),
      row(K::kConstant, {}, bytes("f32[2]", {0, 0}),
          "[constant] f32[2] has 2 bytes of data; 4 or 8 are needed"),
      row(K::kConstant, {}, bytes("bool[2]", {0, 7}),
          "[constant] a bool is stored as 0 or 1, got 7"),
      row(K::kConstant, {}, bytes("f32<disk>[]", {0, 0, 0, 0}),
          "[constant] makes its result on the device, not on disk: f32<disk>[]"),
      row(K::kIota, {}, IotaParams{parse_type("i32[4]"), 1},
          "[iota] axis 1 is out of range for i32[4]"),
      row(K::kIota, {}, IotaParams{parse_type("bool[4]"), 0},
          "[iota] needs a numeric dtype, got bool[4]"),
      row(K::kRandomBits, {"u32[3]"}, ShapeParams{{4}},
          "[random_bits] the key must be u32[2], got u32[3]"),
      row(K::kRandomBits, {"u32[2]", "i32[]"}, ShapeParams{{4}},
          "[random_bits] the first count must be i64[], got i32[]"),
      row(K::kRandomBits, {"u32[2]"}, ShapeParams{{int64_t{1} << 40, int64_t{1} << 40, 0}},
          "[random_bits] result u32[1099511627776,1099511627776,0] is larger than 2^62 bytes"),
  };
}

std::vector<Row> views_and_movement() {
  return {
      row(K::kBroadcast, {"f32[3]"}, BroadcastParams{{2, 4}, {1}},
          "[broadcast] axis 0 of f32[3] is neither 1 nor 4, the extent in f32[2,4]"),
      row(K::kBroadcast, {"f32[2,3]"}, BroadcastParams{{3, 2}, {1, 0}},
          "[broadcast] axis 0 follows 1; they must increase"),
      row(K::kBroadcast, {"f32[3]"}, BroadcastParams{{2, 3}, {}},
          "[broadcast] axes has 0 entries, one an axis of f32[3] is needed"),
      row(K::kReshape, {"f32[3,4]"}, ShapeParams{{5}},
          "[reshape] f32[3,4] has 12 elements, f32[5] has 5"),
      row(K::kReshape, {"f32[4]"}, ShapeParams{{-2, -2}},
          "[reshape] result f32[-2,-2] has a negative extent"),
      row(K::kTranspose, {"f32[3,4]"}, AxesParams{{0, 0}}, "[transpose] axis 0 is named twice"),
      row(K::kTranspose, {"f32[3,4]"}, AxesParams{{0, 2}},
          "[transpose] axis 2 is out of range for rank 2"),
      row(K::kSlice, {"f32[3,4]"}, SliceParams{{0, 2}, {3, 5}, {1, 1}},
          "[slice] range [2, 5) of axis 1 does not lie in f32[3,4]"),
      row(K::kSlice, {"f32[4]"}, SliceParams{{0}, {4}, {0}},
          "[slice] stride 0 of axis 0 is not positive"),
      row(K::kReverse, {"f32[4]"}, AxesParams{{-1}},
          "[reverse] axis -1 is out of range for rank 1"),
      row(K::kPad, {"f32[4]", "i32[]"}, PadParams{{0}, {0}, {0}},
          "[pad] the value must be f32[], got i32[]"),
      row(K::kPad, {"f32[4]", "f32[]"}, PadParams{{-3}, {-2}, {0}},
          "[pad] low -3, high -2, interior 0 leave no extent for axis 0 of f32[4]"),
      row(K::kPad, {"f32[4]", "f32[]"}, PadParams{{INT64_MAX}, {1}, {0}},
          "[pad] low 9223372036854775807, high 1, interior 0 leave no extent for axis 0 of f32[4]"),
      row(K::kPad, {"f32[4]", "f32[]"}, PadParams{{0}, {0}, {-1}},
          "[pad] interior -1 of axis 0 is negative"),
      row(K::kConcatenate, {"f32[2,3]", "f32[3,3]"}, AxisParams{1, false},
          "[concatenate] operands differ off axis 1: f32[2,3] and f32[3,3]"),
      row(K::kConcatenate, {}, AxisParams{}, "[concatenate] takes at least 1 operand, got 0"),
      row(K::kDynamicSlice, {"f32[5,4]", "i32[]"}, ShapeParams{{2, 2}},
          "[dynamic_slice] takes 2 starts, one an axis of f32[5,4], got 1"),
      row(K::kDynamicSlice, {"f32[5]", "f32[]"}, ShapeParams{{2}},
          "[dynamic_slice] start 0 must be an integer scalar, got f32[]"),
      row(K::kDynamicSlice, {"f32[5]", "i32[]"}, ShapeParams{{6}},
          "[dynamic_slice] size 6 of axis 0 does not fit f32[5]"),
      row(K::kDynamicUpdateSlice, {"f32[5]", "f32[2,2]", "i32[]"}, NoParams{},
          "[dynamic_update_slice] a window of rank 2 does not fit f32[5]"),
      row(K::kGather, {"f32[6,3]", "f32[4,1]"}, GatherParams{{1}, {0}, {0}, {1, 3}},
          "[gather] indices must be integers with a last axis of index vectors, got f32[4,1]"),
      row(K::kGather, {"f32[6,3]", "i32[4,2]"}, GatherParams{{1}, {0}, {0}, {1, 3}},
          "[gather] start_index_map has 1 entries, the index vectors of i32[4,2] have 2"),
      row(K::kGather, {"f32[6,3]", "i32[4,1]"}, GatherParams{{1}, {0}, {0}, {2, 3}},
          "[gather] collapsed axis 0 has slice size 2, not 1"),
      row(K::kGather, {"f32[6,3]", "i32[4,1]"}, GatherParams{{1}, {0}, {0}, {1, 4}},
          "[gather] slice size 4 of axis 1 does not fit f32[6,3]"),
      row(K::kGather, {"f32[6,3]", "i32[4,1]"}, GatherParams{{}, {0}, {0}, {1, 3}},
          "[gather] offset_axes has 0 entries, 1 axes of f32[6,3] are not collapsed"),
      row(K::kGather, {"f32[6,3]", "i32[4,1]", "f32[1]"}, GatherParams{{1}, {0}, {0}, {1, 3}},
          "[gather] what fills must be f32[], got f32[1]"),
      row(K::kGather, {"f32[6,3]", "i32[6,4,1]"}, GatherParams{{}, {0, 1}, {1}, {1, 1}, {0}, {}},
          "[gather] batch_axes has 1 entries, index_batch_axes 0"),
      row(K::kGather, {"f32[6,3]", "i32[5,4,1]"}, GatherParams{{}, {0, 1}, {1}, {1, 1}, {0}, {0}},
          "[gather] batch axis 0 of f32[6,3] goes along with axis 0 of i32[5,4,1], which differs in "
          "extent"),
      row(K::kGather, {"f32[6,3]", "i32[6,4,1]"}, GatherParams{{}, {0, 1}, {0}, {1, 1}, {0}, {0}},
          "[gather] batch axis 0 must be collapsed and have no start index"),
      row(K::kScatter, {"bf16[6,3]", "i32[4,1]", "f32[4,3]"}, GatherParams{{1}, {0}, {0}, {1, 3}},
          "[scatter] updates must be bf16[4,3], got f32[4,3]"),
      row(K::kScatterMax, {"bool[6]", "i32[4,1]", "bool[4]"}, GatherParams{{}, {0}, {0}, {1}},
          "[scatter_max] needs a numeric dtype, got bool[6]"),
      row(K::kScatterAdd, {"f32[6,3]", "i32[4,1]", "f32[3,4]"}, GatherParams{{1}, {0}, {0}, {1, 3}},
          "[scatter_add] updates must be f32[4,3], got f32[3,4]"),
  };
}

std::vector<Row> reductions_and_products() {
  const std::string q = "f32[2,3,4,5]", kv = "f32[2,6,2,5]";
  return {
      row(K::kReduceSum, {"f32[4]"}, AxesParams{{1}},
          "[reduce_sum] axis 1 is out of range for rank 1"),
      row(K::kReduceSum, {"bool[4]"}, AxesParams{{0}},
          "[reduce_sum] needs a numeric dtype, got bool[4]"),
      row(K::kReduceAnd, {"f32[4]"}, AxesParams{{0}},
          "[reduce_and] needs a bool or integer dtype, got f32[4]"),
      row(K::kArgMax, {"f32[0]"}, ArgReduceParams{0, DType::kI32},
          "[argmax] axis 0 of f32[0] is empty"),
      row(K::kArgMax, {"f32[300]"}, ArgReduceParams{0, DType::kU8},
          "[argmax] u8 cannot count axis 0 of f32[300]"),
      row(K::kArgMin, {"f32[3]"}, ArgReduceParams{0, DType::kF32},
          "[argmin] the index dtype must be an integer, got f32"),
      row(K::kCumSum, {"f32[3]"}, AxisParams{2, false},
          "[cumsum] axis 2 is out of range for f32[3]"),
      row(K::kCumProd, {"bool[3]"}, AxisParams{}, "[cumprod] needs a numeric dtype, got bool[3]"),
      row(K::kCumLogSumExp, {"i32[3]"}, AxisParams{},
          "[cumlogsumexp] needs a float dtype, got i32[3]"),
      row(K::kLinearScan, {"f32[3]", "f32[2]"}, AxisParams{},
          "[linear_scan] operands differ in shape: f32[3] and f32[2]"),
      row(K::kTopK, {"f32[3]"}, TopKParams{0, 4},
          "[top_k] the 4 largest are asked for of 3 on axis 0 of f32[3]"),
      row(K::kTopK, {"f32[]"}, TopKParams{0, 1}, "[top_k] axis 0 is out of range for f32[]"),
      row(K::kSort, {"f32[3]", "i32[4]"}, AxisParams{},
          "[sort] operands differ in shape: f32[3] and i32[4]"),
      row(K::kDotGeneral, {"f32[8,64]", "f32[32,16]"}, DotParams{{1}, {0}, {}, {}, DType::kF32},
          "[dot_general] contracting size 64 of lhs f32[8,64] differs from 32 of rhs f32[32,16]"),
      row(K::kDotGeneral, {"f32[2,8,4]", "f32[3,4,8]"}, DotParams{{2}, {1}, {0}, {0}, DType::kF32},
          "[dot_general] batch size 2 of lhs f32[2,8,4] differs from 3 of rhs f32[3,4,8]"),
      row(K::kDotGeneral, {"f32[8,4]", "bf16[4,2]"}, DotParams{{1}, {0}, {}, {}, DType::kF32},
          "[dot_general] operands differ in dtype: f32[8,4] and bf16[4,2]"),
      row(K::kDotGeneral, {"f32[8,4]", "f32[4,2]"}, DotParams{{1}, {}, {}, {}, DType::kF32},
          "[dot_general] 1 contracting axes of lhs and 0 of rhs"),
      row(K::kDotGeneral, {"f32[4,4]", "f32[4,4]"}, DotParams{{1}, {0}, {1}, {0}, DType::kF32},
          "[dot_general] lhs axis 1 is named twice"),
      row(K::kDotGeneral, {"i8[8,4]", "i8[4,2]"}, DotParams{{1}, {0}, {}, {}, DType::kF32},
          "[dot_general] a product of i8[8,4] and i8[4,2] cannot be of f32"),
      row(K::kAttention, {"f32[2,3,4]", kv, kv}, AttentionParams{},
          "[attention] q must be [B,T,H,D], got f32[2,3,4]"),
      row(K::kAttention, {"f64[2,3,4,5]", kv, kv}, AttentionParams{},
          "[attention] f64 is not supported, got f64[2,3,4,5]"),
      row(K::kAttention, {q, "f32[2,6,3,5]", "f32[2,6,3,5]"}, AttentionParams{},
          "[attention] expected a multiple of the 3 heads of k f32[2,6,3,5], got 4 of q f32[2,3,4,5]"),
      row(K::kAttention, {q, "f32[2,6,2,7]", "f32[2,6,2,7]"}, AttentionParams{},
          "[attention] head size 5 of q f32[2,3,4,5] differs from 7 of k f32[2,6,2,7]"),
      row(K::kAttention, {q, kv, kv, "i32[2,3]"}, AttentionParams{},
          "[attention] takes 3 operands, or 5 with lo and hi, got 4"),
      row(K::kAttention, {q, kv, kv, "i32[2,3]", "i64[2,3]"}, AttentionParams{},
          "[attention] hi must be i32[2,3], got i64[2,3]"),
      row(K::kAttentionGrad, {q, kv, kv, q, "f32[2,4,3]", q, "i32[3]", "i32[2,3]"},
          AttentionParams{}, "[attention_grad] lo must be i32[2,3], got i32[3]"),
      row(K::kAttentionGrad, {q, kv, kv, q, "f32[2,3,4]", q}, AttentionParams{},
          "[attention_grad] lse must be f32[2,4,3], got f32[2,3,4]"),
      row(K::kName, {"f32[3]"}, NameParams{}, "[name] the name is empty"),
      row(K::kOptimizationBarrier, {}, NoParams{},
          "[optimization_barrier] takes at least 1 operand, got 0"),
      row(K::kDebugPrint, {}, NameParams{"x"},
          "[debug_print] operand 0 must be the token bool[0], there is none"),
      row(K::kDebugPrint, {"f32[]"}, NameParams{"x"},
          "[debug_print] operand 0 must be the token bool[0], got f32[]"),
      row(K::kDebugPrint, {"bool[0]", "f32[]"}, NameParams{"x"},
          "[debug_print] the format 'x' has no place for array 0"),
      row(K::kDebugPrint, {"bool[0]", "bool[2]"}, NameParams{"{:.3f}"},
          "[debug_print] '{:.3f}' does not format bool"),
  };
}

std::vector<Row> windows() {
  const auto window = [](Dims sizes, Dims strides, Dims dilation) {
    const Dims none(sizes.size(), 0), ones(sizes.size(), 1);
    return WindowParams{sizes, strides, none, none, dilation, ones};
  };
  const auto conv = [](int64_t feature_groups, int64_t batch_groups, Dims strides) {
    return ConvParams{strides, {0}, {0}, {1}, {1}, feature_groups, batch_groups};
  };
  const std::string x = "f32[4,6,9]";
  return {
      row(K::kWindowSum, {"bool[4]"}, window({2}, {1}, {1}),
          "[reduce_window_sum] needs a numeric dtype, got bool[4]"),
      row(K::kWindowMax, {"f32[4,3]"}, window({2}, {1}, {1}),
          "[reduce_window_max] sizes has 1 entries, one an axis of f32[4,3] is needed"),
      row(K::kWindowMin, {"f32[4]"}, window({0}, {1}, {1}),
          "[reduce_window_min] window size 0 of axis 0"),
      row(K::kWindowArgMax, {"f32[4]"}, window({2}, {0}, {1}),
          "[window_argmax] stride 0 of axis 0"),
      row(K::kWindowSum, {"f32[4]"}, window({2}, {1}, {-1}),
          "[reduce_window_sum] base dilation -1 of axis 0"),
      row(K::kConvolution, {x, "f32[5,6]"}, conv(1, 1, {1}),
          "[conv_general_dilated] lhs [N,C,S...] and rhs [O,C/groups,K...] are of one rank of at "
          "least 2, got f32[4,6,9] and f32[5,6]"),
      row(K::kConvolution, {x, "f32[5,6,3]"}, conv(1, 1, {1, 1}),
          "[conv_general_dilated] strides has 2 entries for the 1 spatial axes of f32[4,6,9]"),
      row(K::kConvolution, {x, "f32[5,3,3]"}, conv(1, 1, {1}),
          "[conv_general_dilated] 6 channels of lhs f32[4,6,9] in 1 groups differ from 3 of rhs "
          "f32[5,3,3]"),
      row(K::kConvolution, {x, "f32[5,3,3]"}, conv(2, 1, {1}),
          "[conv_general_dilated] 5 features of rhs f32[5,3,3] do not divide into 2 groups"),
      row(K::kConvolution, {x, "f32[6,6,3]"}, conv(1, 3, {1}),
          "[conv_general_dilated] batch size 4 of lhs f32[4,6,9] does not divide into 3 groups"),
      row(K::kConvolution, {x, "f32[6,6,3]"}, conv(2, 2, {1}),
          "[conv_general_dilated] 2 feature groups and 2 batch groups; both are at least 1 and one "
          "of them is 1"),
      row(K::kConvolution, {x, "f32[6,6,0]"}, conv(1, 1, {1}),
          "[conv_general_dilated] window size 0 of axis 0"),
      row(K::kAttention, {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]"},
          AttentionParams{1, true, 7}, "[attention] offset 7 with 3 queries and 6 keys"),
      row(K::kAttention, {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]"},
          AttentionParams{1, false, 3},
          "[attention] offset 3 with 3 queries and 6 keys, not causal"),
  };
}

std::vector<Row> structure() {
  const ScanParams p{
      .length = 5, .n_consts = 1, .n_carries = 1, .in_axes = {2, 0}, .out_axes = {1}};
  const auto scan = [&](Types operands, ScanParams params, std::string message) {
    Row r = row(K::kScan, operands, std::move(params), std::move(message));
    r.graphs = {scan_body()};
    return r;
  };
  const Types good = {"f32[2,3]", "f32[4]", "f32[4,4,5]", "f32[5,3]"};
  ScanParams negative = p, far = p, residuals = p, no_output = p, longer = p;
  negative.n_carries = -1;
  far.out_axes = {3};
  residuals.n_residuals = 2;
  no_output.out_axes = {};
  longer.length = 6;

  auto drifting = std::make_shared<Graph>();
  GraphBuilder b(*drifting);
  const Val carry(b, drifting->add_input(parse_type("f32[4]")));
  drifting->set_outputs({convert(carry, DType::kBF16).id()});
  Row drift = row(K::kScan, {"f32[4]"}, ScanParams{.length = 2, .n_carries = 1},
                  "[scan] carry 0 is f32[4] going into the body and bf16[4] coming out");
  drift.graphs = {drifting};
  Row wrong = row(K::kCheckpoint, {"f32[3,4]", "f32[5,4]"}, CheckpointParams{},
                  "[checkpoint] operand 1 is f32[5,4], the body takes f32[4,4]");
  wrong.graphs = {checkpoint_body()};
  return {
      row(K::kScan, good, p, "[scan] takes 1 nested graph, got 0"),
      scan(good, negative, "[scan] length 5, 1 consts and -1 carries cannot be"),
      scan(good, residuals, "[scan] 2 residuals of 1 stacked results"),
      scan(good, no_output, "[scan] the body gives 2 outputs, 1 carries and 0 slices are needed"),
      scan(good, longer, "[scan] axis 2 of scanned 0, f32[4,4,5], is not of length 6"),
      scan(good, far, "[scan] axis 3 of stacked 0 is out of range for slices f32[2,3]"),
      scan({"f32[2,4]", "f32[4]", "f32[4,4,5]", "f32[5,3]"}, p,
           "[scan] const 0 is f32[2,4], the body takes f32[2,3]"),
      scan({"f32[2,3]", "bf16[4]", "f32[4,4,5]", "f32[5,3]"}, p,
           "[scan] carry 0 is bf16[4], the body takes f32[4]"),
      scan({"f32[2,3]", "f32[4]", "f32[4,4,5]", "f32<pinned_host>[5,3]"}, p,
           "[scan] slice of scanned 1 is f32<pinned_host>[3], the body takes f32[3]"),
      std::move(drift),
      std::move(wrong),
  };
}

std::vector<Row> control() {
  const auto cond = [&](Types operands, size_t n_branches, CondParams params, std::string message) {
    Row r = row(OpKind::kCond, operands, params, std::move(message));
    r.graphs = cond_branches(n_branches);
    return r;
  };
  const auto loop = [&](Types operands, WhileParams params, std::string message) {
    Row r = row(OpKind::kWhile, operands, params, std::move(message));
    r.graphs = while_graphs();
    return r;
  };
  Row unlike = row(OpKind::kCond, {"i32[]", "f32[3,4]", "f32[4,4]"}, CondParams{},
                   "[cond] branch 1 gives 1 outputs, branch 0 gives 2");
  unlike.graphs = {cond_branches(1)[0], checkpoint_body()};
  auto sums = std::make_shared<Graph>(*checkpoint_body());
  sums->set_outputs({sums->inputs()[1]});
  Row types = row(OpKind::kCond, {"bool[]", "f32[3,4]", "f32[4,4]"}, CondParams{},
                  "[cond] output 0 is f32[3,4] in branch 0 and f32[4,4] in branch 1");
  types.graphs = {checkpoint_body(), sums};
  const Types good = {"i32[]", "f32[4]", "i32[]", "f32[4]", "f32[4]"};
  const WhileParams p{.n_cond_consts = 1, .n_body_consts = 1};
  Row truth = row(OpKind::kWhile, good, p, "[while] the condition must give a bool[], got i32[]");
  truth.graphs = while_graphs();
  auto counting = std::make_shared<Graph>(*truth.graphs[0]);
  counting->set_outputs({counting->inputs()[0]});
  truth.graphs[0] = counting;
  Row drift = row(OpKind::kWhile, good, p,
                  "[while] carry 1 is f32[4] going into the body and i32[] coming out");
  drift.graphs = while_graphs();
  auto drifting = std::make_shared<Graph>(*drift.graphs[1]);
  drifting->set_outputs({drifting->inputs()[1], drifting->inputs()[1], drifting->inputs()[2]});
  drift.graphs[1] = drifting;
  return {
      row(OpKind::kCond, {"i32[]"}, CondParams{}, "[cond] takes at least 1 branch, got 0"),
      cond({}, 2, {}, "[cond] takes an index and the operands of its branches, got nothing"),
      cond({"f32[]", "f32[3,4]", "f32[4,4]"}, 2, {},
           "[cond] the index must be i32[] or bool[], got f32[]"),
      cond({"i32[1]", "f32[3,4]", "f32[4,4]"}, 2, {},
           "[cond] the index must be i32[] or bool[], got i32[1]"),
      cond({"bool[]", "f32[3,4]", "f32[4,4]"}, 3, {},
           "[cond] a bool index chooses between 2 branches, got 3"),
      cond({"i32[]", "f32[3,4]"}, 2, {}, "[cond] branch 0 takes 2 inputs, the operands are 1"),
      cond({"i32[]", "f32[3,4]", "f32[4,5]"}, 2, {},
           "[cond] operand 1 is f32[4,5], the branch 0 takes f32[4,4]"),
      cond({"i32[]", "f32[3,4]", "f32[4,4]"}, 2, {3}, "[cond] 3 residuals of 2 results"),
      std::move(unlike),
      std::move(types),
      row(OpKind::kWhile, good, p, "[while] takes 2 nested graphs, got 0"),
      loop(good, {1, 7}, "[while] 1 and 7 consts of 5 operands cannot be"),
      loop(good, {0, 1}, "[while] the body takes 4 inputs, its consts and the carries are 5"),
      loop({"f32[]", "f32[4]", "i32[]", "f32[4]", "f32[4]"}, p,
           "[while] const 0 is f32[], the condition takes i32[]"),
      loop({"i32[]", "f32[4]", "i32[]", "f32[4]", "f32[5]"}, p,
           "[while] carry 2 is f32[5], the condition takes f32[4]"),
      std::move(truth),
      std::move(drift),
  };
}

void check(const std::vector<Row>& rows) {
  for (const Row& r : rows) {
    try {
      infer_types({r.op, r.operands, r.params, r.graphs});
      ADD_FAILURE() << "no error, wanted: " << r.message;
    } catch (const TraceError& error) {
      EXPECT_EQ(error.what(), r.message);
    }
  }
}

TEST(TypeErrors, LeavesAndElementwise) { check(leaves_and_elementwise()); }
TEST(TypeErrors, ViewsAndMovement) { check(views_and_movement()); }
TEST(TypeErrors, ReductionsAndProducts) { check(reductions_and_products()); }
TEST(TypeErrors, Windows) { check(windows()); }
TEST(TypeErrors, Structure) { check(structure()); }
TEST(TypeErrors, Control) { check(control()); }

TEST(TypeErrors, EndWithTheProvenance) {
  Graph graph;
  GraphBuilder b(graph);
  b.provenance =
      std::make_shared<Provenance>(Provenance{"layers/mlp/up", {"examples/mlp.cpp", 41}});
  const Val x(b, graph.add_input(parse_type("f32[8,64]")));
  const Val w(b, graph.add_input(parse_type("f32[32,16]")));
  try {
    matmul(x, w);
    ADD_FAILURE();
  } catch (const TraceError& error) {
    EXPECT_STREQ(error.what(),
                 "[dot_general] contracting size 64 of lhs f32[8,64] differs from 32 of rhs "
                 "f32[32,16]\n  at layers/mlp/up (mlp.cpp:41)");
  }
  EXPECT_EQ(graph.n_nodes(), 0u);
}

TEST(TypeErrors, ValuesOfAnotherGraph) {
  Graph one, two;
  GraphBuilder a(one), b(two);
  const Val x(a, one.add_input(parse_type("f32[]"))), y(b, two.add_input(parse_type("f32[]")));
  EXPECT_THROW(x + y, TraceError);
}

}  // namespace
}  // namespace stow::testing
