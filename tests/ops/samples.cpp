#include "tests/ops/samples.h"

#include <algorithm>
#include <charconv>

#include "stowage/core/scalar.h"
#include "stowage/ops/build.h"
#include "tests/ops/sample_bodies.h"

namespace stow::testing {
namespace {

using Types = std::initializer_list<std::string_view>;
const Range kPositive{0.1, 3}, kAwayFromZero{0.5, 2};

// Appends samples; the fluent setters change the last one.
class Table {
 public:
  std::vector<Sample> rows;

  Table& add(OpKind op, std::string name, Types operands, Params params, Types results) {
    rows.push_back({.name = std::move(name),
                    .op = op,
                    .operands = parse_types(operands),
                    .params = std::move(params),
                    .results = parse_types(results)});
    return *this;
  }
  Table& ranges(std::vector<Range> ranges) {
    rows.back().ranges = std::move(ranges);
    return *this;
  }
  Table& grad() {
    rows.back().differentiable = true;
    return *this;
  }
  Table& distinct() {
    rows.back().distinct = true;
    return *this;
  }
  Table& graph(GraphPtr graph) {
    rows.back().graphs = {std::move(graph)};
    return *this;
  }
  Table& graphs(std::vector<GraphPtr> graphs) {
    rows.back().graphs = std::move(graphs);
    return *this;
  }
};

ConstantParams constant_params(std::string_view type, std::initializer_list<double> values) {
  ConstantParams p{parse_type(type), {}};
  for (double value : values) {
    const auto bytes = encode_scalar(p.type.dtype, value);
    p.data.insert(p.data.end(), bytes->begin(), bytes->end());
  }
  return p;
}

void add_leaves(Table& t) {
  t.add(OpKind::kConstant, "scalar", {}, constant_params("f32[]", {1.5}), {"f32[]"});
  t.add(OpKind::kConstant, "splat", {}, constant_params("bf16[2,3]", {0.1}), {"bf16[2,3]"});
  t.add(OpKind::kConstant, "dense", {}, constant_params("i32[3]", {1, -2, 3}), {"i32[3]"});
  t.add(OpKind::kConstant, "empty", {}, constant_params("f32[0]", {}), {"f32[0]"});
  t.add(OpKind::kConstant, "bools", {}, constant_params("bool[2]", {0, 1}), {"bool[2]"});
  t.add(OpKind::kIota, "rows", {}, IotaParams{parse_type("i32[3,4]"), 0}, {"i32[3,4]"});
  t.add(OpKind::kIota, "columns", {}, IotaParams{parse_type("f32[3,4]"), 1}, {"f32[3,4]"});
  t.add(OpKind::kRandomBits, "matrix", {"u32[2]"}, ShapeParams{{3, 5}}, {"u32[3,5]"})
      .ranges({{0, 1000}});
  t.add(OpKind::kRandomBits, "scalar", {"u32[2]"}, ShapeParams{}, {"u32[]"}).ranges({{0, 1000}});
  t.add(OpKind::kRandomBits, "further", {"u32[2]", "i64[]"}, ShapeParams{{3, 5}}, {"u32[3,5]"})
      .ranges({{0, 1000}, {0, 1000}});
  t.add(OpKind::kRandomBits, "three axes", {"u32[2]", "i64[]"}, ShapeParams{{2, 6, 4}},
        {"u32[2,6,4]"})
      .ranges({{0, 1000}, {0, 1000}});
  t.add(OpKind::kIota, "small", {}, IotaParams{parse_type("i8[6]"), 0}, {"i8[6]"});
}

void add_unary(Table& t) {
  using K = OpKind;
  for (K op : {K::kNeg, K::kAbs, K::kSign, K::kFloor, K::kCeil, K::kRound, K::kExp, K::kExpm1,
               K::kTanh, K::kSin, K::kCos, K::kLogistic, K::kErf, K::kAtan, K::kSinh, K::kCosh,
               K::kAsinh, K::kErfc})
    t.add(op, "f32", {"f32[3,4]"}, NoParams{}, {"f32[3,4]"}).grad();
  for (K op : {K::kLog, K::kSqrt, K::kRsqrt})
    t.add(op, "f32", {"f32[3,4]"}, NoParams{}, {"f32[3,4]"}).ranges({kPositive}).grad();
  t.add(K::kLog1p, "f32", {"f32[3,4]"}, NoParams{}, {"f32[3,4]"}).ranges({{-0.8, 3}}).grad();
  t.add(K::kErfInv, "f32", {"f32[3,4]"}, NoParams{}, {"f32[3,4]"}).ranges({{-0.9, 0.9}}).grad();
  for (K op : {K::kTan, K::kAsin, K::kAcos, K::kAtanh})
    t.add(op, "f32", {"f32[3,4]"}, NoParams{}, {"f32[3,4]"}).ranges({{-0.9, 0.9}}).grad();
  t.add(K::kAcosh, "f32", {"f32[3,4]"}, NoParams{}, {"f32[3,4]"}).ranges({{1.2, 3}}).grad();
  t.add(K::kCbrt, "f32", {"f32[3,4]"}, NoParams{}, {"f32[3,4]"}).ranges({{-3, -0.2}}).grad();
  t.add(K::kErfc, "far out", {"f32[9]"}, NoParams{}, {"f32[9]"}).ranges({{2, 9}});
  t.add(K::kSinh, "bf16", {"bf16[5]"}, NoParams{}, {"bf16[5]"});
  for (K op : {K::kPopulationCount, K::kCountLeadingZeros})
    for (std::string_view type : {"i8[9]", "u32[9]", "i64[9]"})
      t.add(op, std::string(type.substr(0, type.find('['))), {type}, NoParams{}, {type})
          .ranges({{type[0] == 'i' ? -100.0 : 0.0, 100}});
  t.add(K::kExp, "bf16", {"bf16[5]"}, NoParams{}, {"bf16[5]"});
  t.add(K::kTanh, "scalar f16", {"f16[]"}, NoParams{}, {"f16[]"});
  t.add(K::kLogistic, "wide", {"f32[2]"}, NoParams{}, {"f32[2]"}).ranges({{-40, 40}}).grad();
  t.add(K::kNeg, "i32", {"i32[4]"}, NoParams{}, {"i32[4]"}).ranges({{-9, 9}});
  t.add(K::kNeg, "u8", {"u8[4]"}, NoParams{}, {"u8[4]"}).ranges({{0, 9}});
  t.add(K::kAbs, "i64", {"i64[4]"}, NoParams{}, {"i64[4]"}).ranges({{-9, 9}});
  t.add(K::kSign, "i8", {"i8[4]"}, NoParams{}, {"i8[4]"}).ranges({{-9, 9}});
  t.add(K::kIsFinite, "f32", {"f32[4]"}, NoParams{}, {"bool[4]"});
  t.add(K::kNot, "bool", {"bool[4]"}, NoParams{}, {"bool[4]"});
  t.add(K::kNot, "u32", {"u32[4]"}, NoParams{}, {"u32[4]"}).ranges({{0, 9}});
}

void add_binary(Table& t) {
  using K = OpKind;
  for (K op : {K::kAdd, K::kSub, K::kMul})
    t.add(op, "f32", {"f32[3,4]", "f32[3,4]"}, NoParams{}, {"f32[3,4]"}).grad();
  for (K op : {K::kDiv, K::kRem})
    t.add(op, "f32", {"f32[3,4]", "f32[3,4]"}, NoParams{}, {"f32[3,4]"})
        .ranges({{-3, 3}, kAwayFromZero})
        .grad();
  t.add(K::kPow, "f32", {"f32[3,4]", "f32[3,4]"}, NoParams{}, {"f32[3,4]"})
      .ranges({kPositive, {-2, 2}})
      .grad();
  t.add(K::kPow, "i32", {"i32[9]", "i32[9]"}, NoParams{}, {"i32[9]"}).ranges({{-9, 9}, {-2, 40}});
  t.add(K::kAtan2, "f32", {"f32[3,4]", "f32[3,4]"}, NoParams{}, {"f32[3,4]"})
      .ranges({{-2, 2}, kAwayFromZero})
      .grad();
  t.add(K::kAtan2, "f16", {"f16[5]", "f16[5]"}, NoParams{}, {"f16[5]"});
  for (K op : {K::kMax, K::kMin}) {
    t.add(op, "f32", {"f32[3,4]", "f32[3,4]"}, NoParams{}, {"f32[3,4]"}).grad().distinct();
    t.add(op, "i32", {"i32[5]", "i32[5]"}, NoParams{}, {"i32[5]"}).ranges({{-3, 3}, {-3, 3}});
    t.add(op, "bool", {"bool[5]", "bool[5]"}, NoParams{}, {"bool[5]"});
  }
  t.add(K::kAdd, "bf16", {"bf16[7]", "bf16[7]"}, NoParams{}, {"bf16[7]"});
  t.add(K::kMul, "scalars", {"f32[]", "f32[]"}, NoParams{}, {"f32[]"}).grad();
  t.add(K::kMul, "empty", {"f32[0,3]", "f32[0,3]"}, NoParams{}, {"f32[0,3]"});
  for (K op : {K::kAdd, K::kSub, K::kMul})
    t.add(op, "i32", {"i32[5]", "i32[5]"}, NoParams{}, {"i32[5]"}).ranges({{-9, 9}, {-9, 9}});
  for (K op : {K::kDiv, K::kRem})
    t.add(op, "i32", {"i32[5]", "i32[5]"}, NoParams{}, {"i32[5]"}).ranges({{-9, 9}, {1, 5}});
  for (K op : {K::kAnd, K::kOr, K::kXor}) {
    t.add(op, "bool", {"bool[5]", "bool[5]"}, NoParams{}, {"bool[5]"});
    t.add(op, "u32", {"u32[5]", "u32[5]"}, NoParams{}, {"u32[5]"}).ranges({{0, 99}, {0, 99}});
  }
  for (K op : {K::kShiftLeft, K::kShiftRight})
    for (std::string_view type : {"u32[5]", "i32[5]"})
      t.add(op, std::string(type.substr(0, 3)), {type, type}, NoParams{}, {type})
          .ranges({{0, 99}, {0, 8}});
  t.rows.back().ranges[0] = {-99, 99};  // a sign to keep
  for (K op : {K::kEq, K::kNe, K::kLt, K::kLe, K::kGt, K::kGe}) {
    t.add(op, "f32", {"f32[3,4]", "f32[3,4]"}, NoParams{}, {"bool[3,4]"});
    t.add(op, "i32", {"i32[9]", "i32[9]"}, NoParams{}, {"bool[9]"}).ranges({{0, 3}, {0, 3}});
  }
}

void add_other_elementwise(Table& t) {
  using K = OpKind;
  t.add(K::kSelect, "f32", {"bool[3,4]", "f32[3,4]", "f32[3,4]"}, NoParams{}, {"f32[3,4]"}).grad();
  t.add(K::kSelect, "i32", {"bool[3]", "i32[3]", "i32[3]"}, NoParams{}, {"i32[3]"});
  t.add(K::kConvert, "f32 to f64", {"f32[3]"}, DTypeParams{DType::kF64}, {"f64[3]"}).grad();
  t.add(K::kConvert, "f32 to bf16", {"f32[3]"}, DTypeParams{DType::kBF16}, {"bf16[3]"});
  t.add(K::kConvert, "f32 to i32", {"f32[3]"}, DTypeParams{DType::kI32}, {"i32[3]"})
      .ranges({{-9, 9}});
  t.add(K::kConvert, "bool to f32", {"bool[3]"}, DTypeParams{DType::kF32}, {"f32[3]"});
  t.add(K::kBitcast, "u32 to f32", {"u32[3]"}, DTypeParams{DType::kF32}, {"f32[3]"})
      .ranges({{1065353216, 1073741824}});
  t.add(K::kBitcast, "bf16 to f16", {"bf16[3]"}, DTypeParams{DType::kF16}, {"f16[3]"});
}

void add_views(Table& t) {
  using K = OpKind;
  t.add(K::kBroadcast, "scalar", {"f32[]"}, BroadcastParams{{2, 3}, {}}, {"f32[2,3]"}).grad();
  t.add(K::kBroadcast, "row", {"f32[3]"}, BroadcastParams{{2, 3}, {1}}, {"f32[2,3]"}).grad();
  t.add(K::kBroadcast, "stretched", {"f32[2,1]"}, BroadcastParams{{4, 2, 3}, {1, 2}},
        {"f32[4,2,3]"})
      .grad();
  t.add(K::kReshape, "merge", {"f32[2,3,4]"}, ShapeParams{{6, 4}}, {"f32[6,4]"}).grad();
  t.add(K::kReshape, "regroup", {"f32[2,6]"}, ShapeParams{{4, 3}}, {"f32[4,3]"}).grad();
  t.add(K::kReshape, "to scalar", {"i32[1,1]"}, ShapeParams{}, {"i32[]"});
  t.add(K::kTranspose, "matrix", {"f32[2,3]"}, AxesParams{{1, 0}}, {"f32[3,2]"}).grad();
  t.add(K::kTranspose, "cycle", {"f32[2,3,4]"}, AxesParams{{1, 2, 0}}, {"f32[3,4,2]"}).grad();
  t.add(K::kSlice, "unit", {"f32[5,4]"}, SliceParams{{1, 0}, {4, 2}, {1, 1}}, {"f32[3,2]"}).grad();
  t.add(K::kSlice, "strided", {"f32[9,4]"}, SliceParams{{1, 0}, {9, 4}, {3, 2}}, {"f32[3,2]"})
      .grad();
  t.add(K::kSlice, "empty", {"f32[5]"}, SliceParams{{2}, {2}, {7}}, {"f32[0]"}).grad();
  t.add(K::kReverse, "both axes", {"f32[2,3]"}, AxesParams{{0, 1}}, {"f32[2,3]"}).grad();
  t.add(K::kReverse, "last", {"i32[2,3]"}, AxesParams{{1}}, {"i32[2,3]"});
}

void add_movement(Table& t) {
  using K = OpKind;
  t.add(K::kPad, "edges", {"f32[2,3]", "f32[]"}, PadParams{{1, 0}, {0, 2}, {0, 0}}, {"f32[3,5]"})
      .grad();
  t.add(K::kPad, "interior and negative", {"f32[3,4]", "f32[]"},
        PadParams{{-1, 1}, {1, -2}, {2, 1}}, {"f32[7,6]"})
      .grad();
  t.add(K::kPad, "of nothing", {"f32[0]", "f32[]"}, PadParams{{2}, {1}, {3}}, {"f32[3]"}).grad();
  t.add(K::kConcatenate, "three", {"f32[2,1]", "f32[2,3]", "f32[2,0]"}, AxisParams{1, false},
        {"f32[2,4]"})
      .grad();
  t.add(K::kConcatenate, "one", {"i32[2]"}, AxisParams{0, false}, {"i32[2]"});
  t.add(K::kDynamicSlice, "clamped", {"f32[5,4]", "i32[]", "i32[]"}, ShapeParams{{2, 4}},
        {"f32[2,4]"})
      .ranges({{}, {-2, 8}, {-2, 8}})
      .grad();
  t.add(K::kDynamicSlice, "unsigned start", {"f32[5]", "u32[]"}, ShapeParams{{3}}, {"f32[3]"})
      .ranges({{}, {0, 8}})
      .grad();
  t.add(K::kDynamicUpdateSlice, "clamped", {"f32[5,4]", "f32[2,3]", "i32[]", "i32[]"}, NoParams{},
        {"f32[5,4]"})
      .ranges({{}, {}, {-2, 8}, {-2, 8}})
      .grad();
  const GatherParams rows{{1}, {0}, {0}, {1, 3}};
  t.add(K::kGather, "rows", {"f32[6,3]", "i32[4,1]"}, rows, {"f32[4,3]"})
      .ranges({{}, {-2, 8}})
      .grad();
  const GatherParams windows{{0, 2}, {1}, {2, 0}, {2, 1, 3}};
  t.add(K::kGather, "windows", {"f32[4,1,5]", "i32[6,2]"}, windows, {"f32[2,6,3]"})
      .ranges({{}, {-1, 5}})
      .grad();
  const GatherParams element{{}, {0}, {0}, {1}};
  t.add(K::kGather, "narrow index", {"f32[300]", "u8[5,1]"}, element, {"f32[5]"})
      .ranges({{}, {0, 255}})
      .grad();
  // Axes that go along: all but the indexed one; two, crossed, beside a window; one of two indexed.
  const GatherParams along{{}, {0, 1}, {1}, {1, 1}, {0}, {0}};
  const GatherParams crossed{{1}, {0, 1, 2}, {2}, {1, 1, 1, 3}, {0, 1}, {1, 0}};
  const GatherParams columns{{0}, {1, 2}, {1}, {2, 1, 1}, {2}, {1}};
  t.add(K::kGather, "along", {"f32[4,5]", "i32[4,3,1]"}, along, {"f32[4,3]"})
      .ranges({{}, {-2, 7}})
      .grad();
  for (const auto& [params, indices, result] :
       {std::tuple{rows, "i32[4,1]", "f32[4,3]"}, std::tuple{along, "i64[6,3,1]", "f32[6,3]"}})
    t.add(K::kGather, std::string("filled by ") + indices, {"f32[6,3]", indices, "f32[]"}, params,
          {result})
        .ranges({{}, {-2, 8}, {}})
        .grad();
  t.add(K::kGather, "crossed", {"f32[4,2,5,3]", "i32[2,4,1]"}, crossed, {"f32[2,3,4]"})
      .ranges({{}, {-2, 7}})
      .grad();
  t.add(K::kGather, "columns", {"bf16[2,5,3]", "u8[9,3,1]"}, columns, {"bf16[2,9,3]"})
      .ranges({{}, {0, 7}});
  for (K op : {K::kScatter, K::kScatterAdd, K::kScatterMul, K::kScatterMin, K::kScatterMax}) {
    t.add(op, "along", {"f32[4,5]", "i32[4,3,1]", "f32[4,3]"}, along, {"f32[4,5]"})
        .ranges({{0.5, 3}, {-2, 7}, {0.5, 3}})
        .grad()
        .distinct();
    t.add(op, "crossed", {"f32[4,2,5,3]", "i32[2,4,1]", "f32[2,3,4]"}, crossed, {"f32[4,2,5,3]"})
        .ranges({{0.5, 3}, {-2, 7}, {0.5, 3}})
        .grad()
        .distinct();
    t.add(op, "columns", {"bf16[2,5,3]", "u8[9,3,1]", "bf16[2,9,3]"}, columns, {"bf16[2,5,3]"})
        .ranges({{1, 2}, {0, 7}, {1, 2}});
  }
  t.add(K::kScatterAdd, "rows", {"f32[6,3]", "i32[4,1]", "f32[4,3]"}, rows, {"f32[6,3]"})
      .ranges({{}, {-2, 8}, {}})
      .grad();
  t.add(K::kScatterAdd, "windows", {"f32[4,1,5]", "i32[6,2]", "f32[2,6,3]"}, windows,
        {"f32[4,1,5]"})
      .ranges({{}, {-1, 5}, {}})
      .grad();
  // Elements far apart, so that no update equals another or the operand: ties are kinks.
  for (K op : {K::kScatter, K::kScatterMul, K::kScatterMin, K::kScatterMax}) {
    t.add(op, "rows", {"f32[6,3]", "i32[9,1]", "f32[9,3]"}, rows, {"f32[6,3]"})
        .ranges({{0.5, 3}, {-2, 8}, {0.5, 3}})
        .grad()
        .distinct();
    t.add(op, "windows", {"f32[4,1,5]", "i32[6,2]", "f32[2,6,3]"}, windows, {"f32[4,1,5]"})
        .ranges({{0.5, 3}, {-1, 5}, {0.5, 3}})
        .grad()
        .distinct();
    t.add(op, "i32", {"i32[6]", "i64[9,1]", "i32[9]"}, element, {"i32[6]"})
        .ranges({{0, 9}, {-1, 7}, {0, 9}});
    t.add(op, "bf16", {"bf16[6]", "u8[3,1]", "bf16[3]"}, element, {"bf16[6]"})
        .ranges({{1, 2}, {0, 8}, {1, 2}});
  }
  t.add(K::kScatter, "bool", {"bool[6]", "i32[4,1]", "bool[4]"}, element, {"bool[6]"})
      .ranges({{}, {0, 6}});
  t.add(K::kScatterMul, "by zero", {"f32[3]", "i32[4,1]", "f32[4]"}, element, {"f32[3]"})
      .ranges({{1, 2}, {0, 3}, {0, 0}});
  t.add(K::kScatterAdd, "i32", {"i32[6]", "i64[4,1]", "i32[4]"}, element, {"i32[6]"})
      .ranges({{0, 9}, {0, 6}, {0, 9}});
}

void add_reductions(Table& t) {
  using K = OpKind;
  for (K op : {K::kReduceSum, K::kReduceProd, K::kReduceMax, K::kReduceMin}) {
    t.add(op, "rows", {"f32[3,5]"}, AxesParams{{1}}, {"f32[3]"}).grad().distinct();
    t.add(op, "outer and inner", {"f32[2,3,4]"}, AxesParams{{0, 2}}, {"f32[3]"}).grad().distinct();
    t.add(op, "all", {"f32[6]"}, AxesParams{{0}}, {"f32[]"}).grad().distinct();
    t.add(op, "i32", {"i32[3,4]"}, AxesParams{{0}}, {"i32[4]"}).ranges({{-3, 3}});
    t.add(op, "bf16", {"bf16[3,4]"}, AxesParams{{1}}, {"bf16[3]"});
  }
  t.add(K::kReduceSum, "of nothing", {"f32[0,3]"}, AxesParams{{0}}, {"f32[3]"});
  for (K op : {K::kReduceAnd, K::kReduceOr}) {
    t.add(op, "bool", {"bool[3,4]"}, AxesParams{{1}}, {"bool[3]"});
    t.add(op, "u32", {"u32[3,4]"}, AxesParams{{0}}, {"u32[4]"}).ranges({{0, 99}});
  }
  for (K op : {K::kArgMax, K::kArgMin}) {
    t.add(op, "f32", {"f32[3,4]"}, ArgReduceParams{1, DType::kI32}, {"i32[3]"});
    t.add(op, "ties", {"i32[9,2]"}, ArgReduceParams{0, DType::kU8}, {"u8[2]"}).ranges({{0, 3}});
  }
  t.add(K::kCumSum, "forward", {"f32[3,4]"}, AxisParams{0, false}, {"f32[3,4]"}).grad();
  t.add(K::kCumSum, "reverse", {"f32[3,4]"}, AxisParams{1, true}, {"f32[3,4]"}).grad();
  for (K op : {K::kCumProd, K::kCumMax, K::kCumMin, K::kCumLogSumExp}) {
    t.add(op, "forward", {"f32[5,3]"}, AxisParams{0, false}, {"f32[5,3]"}).grad().distinct();
    t.add(op, "reverse", {"f32[2,5,3]"}, AxisParams{1, true}, {"f32[2,5,3]"}).grad().distinct();
    t.add(op, "one", {"f32[3,1]"}, AxisParams{1, false}, {"f32[3,1]"}).grad();
    t.add(op, "of nothing", {"f32[3,0]"}, AxisParams{1, true}, {"f32[3,0]"});
    t.add(op, "bf16", {"bf16[7]"}, AxisParams{0, false}, {"bf16[7]"}).ranges({{0.5, 1.5}});
    if (op != K::kCumLogSumExp)
      t.add(op, "i32", {"i32[4,3]"}, AxisParams{0, true}, {"i32[4,3]"}).ranges({{-3, 3}});
  }
  t.add(K::kLinearScan, "forward", {"f32[5,3]", "f32[5,3]"}, AxisParams{0, false}, {"f32[5,3]"})
      .grad();
  t.add(K::kLinearScan, "reverse", {"f32[3,70]", "f32[3,70]"}, AxisParams{1, true}, {"f32[3,70]"})
      .ranges({{-1, 1}})
      .grad();
  t.add(K::kLinearScan, "i32", {"i32[5]", "i32[5]"}, AxisParams{0, false}, {"i32[5]"})
      .ranges({{-9, 9}, {-9, 9}});
  t.add(K::kTopK, "last axis", {"f32[3,7]"}, TopKParams{1, 3}, {"f32[3,3]", "i32[3,3]"})
      .grad()
      .distinct();
  t.add(K::kTopK, "middle axis", {"f32[2,5,3]"}, TopKParams{1, 2}, {"f32[2,2,3]", "i32[2,2,3]"})
      .grad()
      .distinct();
  t.add(K::kTopK, "ties", {"i32[9]"}, TopKParams{0, 9}, {"i32[9]", "i32[9]"}).ranges({{0, 3}});
  t.add(K::kTopK, "none", {"f32[3]"}, TopKParams{0, 0}, {"f32[0]", "i32[0]"}).grad();
  t.add(K::kSort, "one", {"f32[3,5]"}, AxisParams{1, false}, {"f32[3,5]"}).grad().distinct();
  t.add(K::kSort, "key and payloads", {"f32[5,2]", "f32[5,2]", "i32[5,2]"}, AxisParams{0, true},
        {"f32[5,2]", "f32[5,2]", "i32[5,2]"})
      .ranges({{}, {}, {0, 9}})
      .grad()
      .distinct();
  t.add(K::kSort, "stable", {"i32[9]", "f32[9]"}, AxisParams{0, true}, {"i32[9]", "f32[9]"})
      .ranges({{0, 3}, {}})
      .grad();
}

void add_windows(Table& t) {
  using K = OpKind;
  const WindowParams pool{{1, 2, 2, 1}, {1, 2, 2, 1}, {0, 0, 1, 0},
                          {0, 0, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1}};
  const WindowParams odd{{3, 2}, {2, 1}, {-1, 3}, {2, -1}, {2, 3}, {2, 1}};
  const WindowParams beyond{{2}, {3}, {4}, {5}, {1}, {1}};
  for (K op : {K::kWindowSum, K::kWindowMax, K::kWindowMin}) {
    t.add(op, "pool", {"f32[2,4,5,3]"}, pool, {"f32[2,2,3,3]"}).grad().distinct();
    t.add(op, "dilated and cut", {"f32[4,3]"}, odd, {"f32[2,8]"}).distinct();
    if (op == K::kWindowSum) t.grad();
    t.add(op, "beyond the edge", {"f32[3]"}, beyond, {"f32[4]"});
    if (op == K::kWindowSum) t.grad();
    t.add(op, "of nothing", {"f32[0]"}, beyond, {"f32[3]"});
    t.add(op, "wide", {"f32[3,90]"}, WindowParams{{2, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}},
          {"f32[2,90]"})
        .grad()
        .distinct();
    t.add(op, "i32", {"i32[9]"}, WindowParams{{3}, {2}, {1}, {1}, {1}, {1}}, {"i32[5]"})
        .ranges({{-9, 9}});
    t.add(op, "bf16", {"bf16[9]"}, WindowParams{{3}, {2}, {1}, {1}, {1}, {1}}, {"bf16[5]"});
  }
  for (K op : {K::kWindowArgMax, K::kWindowArgMin}) {
    t.add(op, "pool", {"f32[2,4,5,3]"}, pool, {"i32[2,2,3,3]"}).distinct();
    t.add(op, "dilated and cut", {"f32[4,3]"}, odd, {"i32[2,8]"}).distinct();
    t.add(op, "ties", {"i32[9]"}, WindowParams{{4}, {1}, {0}, {0}, {1}, {1}}, {"i32[6]"})
        .ranges({{0, 3}});
  }
}

void add_convolutions(Table& t) {
  using K = OpKind;
  t.add(K::kConvolution, "plain", {"f32[2,3,5,6]", "f32[4,3,2,3]"},
        ConvParams{{1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}}, {"f32[2,4,4,4]"})
      .grad();
  t.add(K::kConvolution, "strided and padded", {"f32[2,3,5,6]", "f32[4,3,3,3]"},
        ConvParams{{2, 3}, {1, 2}, {1, 0}, {1, 1}, {1, 1}}, {"f32[2,4,3,2]"})
      .grad();
  t.add(K::kConvolution, "dilated both ways", {"f32[1,2,4]", "f32[3,2,3]"},
        ConvParams{{2}, {2}, {-1}, {3}, {2}}, {"f32[1,3,4]"})
      .grad();
  t.add(K::kConvolution, "cut off", {"f32[2,2,7]", "f32[3,2,2]"},
        ConvParams{{2}, {-1}, {-2}, {1}, {1}}, {"f32[2,3,2]"})
      .grad();
  t.add(K::kConvolution, "feature groups", {"f32[2,4,5]", "f32[6,2,3]"},
        ConvParams{{1}, {1}, {1}, {1}, {1}, 2, 1}, {"f32[2,6,5]"})
      .grad();
  t.add(K::kConvolution, "depthwise", {"f32[1,3,4,4]", "f32[3,1,2,2]"},
        ConvParams{{2, 2}, {0, 0}, {0, 0}, {1, 1}, {1, 1}, 3, 1}, {"f32[1,3,2,2]"})
      .grad();
  t.add(K::kConvolution, "batch groups", {"f32[6,2,5]", "f32[4,2,3]"},
        ConvParams{{2}, {1}, {1}, {1}, {1}, 1, 2}, {"f32[3,4,3]"})
      .grad();
  t.add(K::kConvolution, "no spatial axes", {"f32[3,4]", "f32[5,4]"}, ConvParams{}, {"f32[3,5]"})
      .grad();
  t.add(K::kConvolution, "window too wide", {"f32[1,2,2]", "f32[3,2,4]"},
        ConvParams{{1}, {0}, {0}, {1}, {1}}, {"f32[1,3,0]"})
      .grad();
  t.add(K::kConvolution, "nothing but padding", {"f32[1,2,0]", "f32[3,2,2]"},
        ConvParams{{1}, {2}, {1}, {1}, {1}}, {"f32[1,3,2]"})
      .grad();
  t.add(K::kConvolution, "bf16", {"bf16[1,2,6]", "bf16[3,2,3]"},
        ConvParams{{1}, {1}, {1}, {1}, {1}}, {"bf16[1,3,6]"});
  t.add(K::kConvolution, "i32", {"i32[1,2,6]", "i32[3,2,3]"},
        ConvParams{{1}, {1}, {1}, {1}, {1}}, {"i32[1,3,6]"})
      .ranges({{-9, 9}, {-9, 9}});
}

void add_products(Table& t) {
  using K = OpKind;
  const DType f32 = DType::kF32;
  t.add(K::kDotGeneral, "matrices", {"f32[3,4]", "f32[4,5]"}, DotParams{{1}, {0}, {}, {}, f32},
        {"f32[3,5]"})
      .grad();
  t.add(K::kDotGeneral, "dense layer", {"f32[2,3,4]", "f32[4,5]"}, DotParams{{2}, {0}, {}, {}, f32},
        {"f32[2,3,5]"})
      .grad();
  t.add(K::kDotGeneral, "rhs transposed", {"f32[3,4]", "f32[5,4]"},
        DotParams{{1}, {1}, {}, {}, f32}, {"f32[3,5]"})
      .grad();
  t.add(K::kDotGeneral, "lhs transposed", {"f32[4,3]", "f32[4,5]"},
        DotParams{{0}, {0}, {}, {}, f32}, {"f32[3,5]"})
      .grad();
  t.add(K::kDotGeneral, "batched heads", {"f32[2,3,4,5]", "f32[2,6,4,5]"},
        DotParams{{3}, {3}, {0, 2}, {0, 2}, f32}, {"f32[2,4,3,6]"})
      .grad();
  t.add(K::kDotGeneral, "two contracted, batch last", {"f32[3,4,5,2]", "f32[2,5,3,6]"},
        DotParams{{2, 0}, {1, 2}, {3}, {0}, f32}, {"f32[2,4,6]"})
      .grad();
  t.add(K::kDotGeneral, "vectors", {"f32[4]", "f32[4]"}, DotParams{{0}, {0}, {}, {}, f32},
        {"f32[]"})
      .grad();
  t.add(K::kDotGeneral, "outer", {"f32[3]", "f32[4]"}, DotParams{{}, {}, {}, {}, f32}, {"f32[3,4]"})
      .grad();
  t.add(K::kDotGeneral, "bf16 to f32", {"bf16[3,4]", "bf16[4,5]"}, DotParams{{1}, {0}, {}, {}, f32},
        {"f32[3,5]"});
  t.add(K::kDotGeneral, "i8 to i32", {"i8[3,4]", "i8[4,5]"},
        DotParams{{1}, {0}, {}, {}, DType::kI32}, {"i32[3,5]"})
      .ranges({{-9, 9}, {-9, 9}});
  for (const bool causal : {false, true}) {
    const std::string name = causal ? "causal" : "full";
    const AttentionParams p{0.5f, causal, causal ? 2 : 0};
    t.add(K::kAttention, name, {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]"}, p,
          {"f32[2,3,4,5]", "f32[2,4,3]"})
        .grad();
    t.add(K::kAttentionGrad, name,
          {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]", "f32[2,3,4,5]", "f32[2,4,3]",
           "f32[2,3,4,5]"},
          p, {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]"})
        .ranges({{}, {}, {}, {}, {3, 5}, {}})
        .grad();
    // Bounds beyond the keys; of nothing, where the lse that is -inf need not have a gradient.
    t.add(K::kAttention, name + ", intervals",
          {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]", "i32[2,3]", "i32[2,3]"}, p,
          {"f32[2,3,4,5]", "f32[2,4,3]"})
        .ranges({{}, {}, {}, {-1, 3}, {3, 8}})
        .grad();
    t.add(K::kAttention, name + ", intervals of nothing",
          {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]", "i32[2,3]", "i32[2,3]"}, p,
          {"f32[2,3,4,5]", "f32[2,4,3]"})
        .ranges({{}, {}, {}, {2, 6}, {0, 5}});
    t.add(K::kAttentionGrad, name + ", intervals",
          {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]", "f32[2,3,4,5]", "f32[2,4,3]",
           "f32[2,3,4,5]", "i32[2,3]", "i32[2,3]"},
          p, {"f32[2,3,4,5]", "f32[2,6,2,5]", "f32[2,6,2,5]"})
        .ranges({{}, {}, {}, {}, {3, 5}, {}, {-1, 3}, {2, 8}})
        .grad();
  }
}

void add_structure(Table& t) {
  using K = OpKind;
  t.add(K::kScan, "layers", {"f32[2,3]", "f32[4]", "f32[4,4,5]", "f32[5,3]"},
        ScanParams{.length = 5, .n_consts = 1, .n_carries = 1, .in_axes = {2, 0}, .out_axes = {1}},
        {"f32[4]", "f32[2,5,3]"})
      .graph(scan_body())
      .grad();
  t.add(K::kScan, "no iterations", {"f32[2,3]", "f32[4]", "f32[4,4,0]", "f32[0,3]"},
        ScanParams{.length = 0, .n_consts = 1, .n_carries = 1, .in_axes = {2, 0}, .out_axes = {1}},
        {"f32[4]", "f32[2,0,3]"})
      .graph(scan_body());
  t.add(K::kCond, "three branches", {"i32[]", "f32[3,4]", "f32[4,4]"}, CondParams{},
        {"f32[3,4]", "f32[]"})
      .graphs(cond_branches(3))
      .ranges({{0, 1}})
      .grad();
  t.add(K::kCond, "clamped", {"i32[]", "f32[3,4]", "f32[4,4]"}, CondParams{},
        {"f32[3,4]", "f32[]"})
      .graphs(cond_branches(2))
      .ranges({{7, 9}})
      .grad();
  t.add(K::kCond, "bool", {"bool[]", "f32[3,4]", "f32[4,4]"}, CondParams{}, {"f32[3,4]", "f32[]"})
      .graphs(cond_branches(2))
      .grad();
  t.add(K::kWhile, "swap", {"i32[]", "f32[4]", "i32[]", "f32[4]", "f32[4]"},
        WhileParams{.n_cond_consts = 1, .n_body_consts = 1}, {"i32[]", "f32[4]", "f32[4]"})
      .graphs(while_graphs())
      .ranges({{5, 6}, {}, {0, 1}});
  t.add(K::kWhile, "no trip", {"i32[]", "f32[4]", "i32[]", "f32[4]", "f32[4]"},
        WhileParams{.n_cond_consts = 1, .n_body_consts = 1}, {"i32[]", "f32[4]", "f32[4]"})
      .graphs(while_graphs())
      .ranges({{0, 1}, {}, {3, 4}});
  t.add(K::kCheckpoint, "block", {"f32[3,4]", "f32[4,4]"}, CheckpointParams{}, {"f32[3,4]"})
      .graph(checkpoint_body())
      .grad();
  t.add(K::kCustomVjp, "product", {"f32[3,4]", "f32[4]", "i32[]"}, CustomVjpParams{2, 3},
        {"f32[3,4]"})
      .grad();
  t.rows.back().graphs = custom_vjp_graphs();
  t.add(K::kName, "f32", {"f32[3]"}, NameParams{"x"}, {"f32[3]"}).grad();
  t.add(K::kName, "on the host", {"f32<pinned_host>[3]"}, NameParams{"x"}, {"f32<pinned_host>[3]"});
  t.add(K::kStopGradient, "f32", {"f32[3]"}, NoParams{}, {"f32[3]"});
  t.add(K::kDevicePut, "to the host", {"f32[3,2]"}, DevicePutParams{MemoryKind::kPinnedHost},
        {"f32<pinned_host>[3,2]"});
  t.add(K::kDevicePut, "back", {"f32<pinned_host>[3,2]"}, DevicePutParams{MemoryKind::kDevice},
        {"f32[3,2]"});
  t.add(K::kOptimizationBarrier, "two", {"f32[3]", "f32[2,2]"}, NoParams{}, {"f32[3]", "f32[2,2]"})
      .grad();
  t.add(K::kDebugPrint, "two", {"bool[0]", "f32[3]", "i32[]"}, NameParams{"{1} {0:.2f}"},
        {"bool[0]"});
}

// Over meshes of one position: what several do is tests/unit/api/collectives_test.cpp's.
void add_collectives(Table& t) {
  using K = OpKind;
  const MeshShape mesh{{"x", "y"}, {1, 1}};
  const CollectiveParams along{.mesh = mesh, .axes = {1}, .axis = 1};
  t.add(K::kAxisIndex, "of one", {}, CollectiveParams{.mesh = mesh, .axes = {0, 1}}, {"i32[]"});
  t.add(K::kAllGather, "of one", {"f32[3,4]"}, along, {"f32[3,4]"}).grad();
  t.add(K::kReduceScatter, "of one", {"f32[3,4]"}, along, {"f32[3,4]"}).grad();
  for (ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kMin})
    t.add(K::kAllReduce, std::string(reduce_kind_name(kind)), {"f32[3,4]"},
          CollectiveParams{.mesh = mesh, .axes = {0, 1}, .kind = kind}, {"f32[3,4]"})
        .grad();
  t.add(K::kAllReduce, "or", {"bool[3]"},
        CollectiveParams{.mesh = mesh, .axes = {0}, .kind = ReduceKind::kOr}, {"bool[3]"});
  t.add(K::kAllToAll, "of one", {"f32[3,4]"},
        CollectiveParams{.mesh = mesh, .axes = {0}, .axis = 0, .concat_axis = 1}, {"f32[3,4]"})
      .grad();
  t.add(K::kPermute, "to itself", {"f32[3,4]"},
        CollectiveParams{.mesh = mesh, .axes = {0}, .pairs = {0, 0}}, {"f32[3,4]"})
      .grad();
  t.add(K::kPermute, "from nobody", {"f32[3,4]"}, CollectiveParams{.mesh = mesh, .axes = {0}},
        {"f32[3,4]"})
      .grad();
  const ReshardParams sharding{mesh, {.axes = {{1}, {}}}};
  for (K op : {K::kReshard, K::kFullToShard, K::kShardToFull})
    t.add(op, "of one", {"f32[3,4]"}, sharding, {"f32[3,4]"}).grad();
}

}  // namespace

Graph one_op(const Sample& sample) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<Val> operands;
  for (const ArrayType& type : sample.operands) operands.emplace_back(b, graph.add_input(type));
  std::vector<ValueId> outputs;
  for (const Val& v : b.add(sample.op, sample.params, operands, sample.graphs))
    outputs.push_back(v.id());
  graph.set_outputs(outputs);
  return graph;
}

std::string to_string(const Sample& sample) {
  return fmt::format("{}/{}", op_name(sample.op), sample.name);
}

const std::vector<Sample>& samples() {
  static const std::vector<Sample> kSamples = [] {
    Table t;
    add_leaves(t);
    add_unary(t);
    add_binary(t);
    add_other_elementwise(t);
    add_views(t);
    add_movement(t);
    add_collectives(t);
    add_reductions(t);
    add_windows(t);
    add_convolutions(t);
    add_products(t);
    add_structure(t);
    std::stable_sort(t.rows.begin(), t.rows.end(),
                     [](const Sample& a, const Sample& b) { return a.op < b.op; });
    return std::move(t.rows);
  }();
  return kSamples;
}

namespace {

// Each node as if it were a sample.
GraphPtr retyped(const Graph& graph, DType from, DType to) {
  auto result = std::make_shared<Graph>();
  GraphBuilder b(*result);
  ValueMap map(graph);
  const auto type_of = [&](ValueId v) {
    ArrayType type = graph.type(v);
    if (type.dtype == from) type.dtype = to;
    return type;
  };
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    map.set(graph.inputs()[i],
            result->add_input(type_of(graph.inputs()[i]), graph.input_names()[i]));
  for (const Node& node : graph.nodes()) {
    Sample sample{.op = node.op, .params = node.params, .graphs = node.graphs};
    std::vector<Val> operands;
    for (ValueId v : node.operands) operands.emplace_back(b, map[v]);
    sample = retyped(sample, from, to);
    const std::vector<Val> results = b.add(node.op, sample.params, operands, sample.graphs);
    for (int i = 0; i < node.n_results; ++i)
      map.set(node.result(i), results[static_cast<size_t>(i)].id());
  }
  std::vector<ValueId> outputs;
  for (ValueId v : graph.outputs()) outputs.push_back(map[v]);
  result->set_outputs(outputs);
  return result;
}

}  // namespace

Sample retyped(const Sample& sample, DType from, DType to) {
  Sample result = sample;
  if (sample.op == OpKind::kBitcast) return result;
  const auto change = [&](DType& dtype) { dtype = dtype == from ? to : dtype; };
  for (ArrayType& t : result.operands) change(t.dtype);
  for (ArrayType& t : result.results) change(t.dtype);
  if (auto* p = std::get_if<DTypeParams>(&result.params)) change(p->dtype);
  if (auto* p = std::get_if<DotParams>(&result.params)) change(p->out);
  if (auto* p = std::get_if<IotaParams>(&result.params)) change(p->type.dtype);
  if (auto* p = std::get_if<ConstantParams>(&result.params); p && p->type.dtype == from) {
    std::vector<std::byte> data;
    const auto width = static_cast<size_t>(dtype_bytes(from));
    for (size_t at = 0; at < p->data.size(); at += width) {
      const auto bytes = encode_scalar(to, decode_scalar(from, std::span(p->data).subspan(at)));
      STOW_CHECK(bytes, "a constant of {} does not fit {}", dtype_name(from), dtype_name(to));
      data.insert(data.end(), bytes->begin(), bytes->end());
    }
    *p = {{to, p->type.shape}, std::move(data)};
  }
  for (GraphPtr& graph : result.graphs) graph = retyped(*graph, from, to);
  if (sample.op == OpKind::kAttention && !result.results.empty())
    result.results[1].dtype = DType::kF32;
  if (sample.op == OpKind::kAttentionGrad && !result.operands.empty())
    result.operands[4].dtype = DType::kF32;
  return result;
}

Sample widest(const Sample& sample) {
  const bool narrow = sample.op == OpKind::kAttention || sample.op == OpKind::kAttentionGrad;
  return narrow ? sample : retyped(sample, DType::kF32, DType::kF64);
}

ArrayType parse_type(std::string_view text) {
  ArrayType type;
  const size_t open = text.find('[');
  STOW_CHECK(open != text.npos && text.back() == ']', "'{}' is no type", text);
  std::string_view head = text.substr(0, open);
  if (const size_t angle = head.find('<'); angle != head.npos) {
    const auto kind = parse_memory_kind(head.substr(angle + 1, head.size() - angle - 2));
    STOW_CHECK(kind, "'{}' has no memory kind", text);
    type.kind = *kind;
    head = head.substr(0, angle);
  }
  const auto dtype = parse_dtype(head);
  STOW_CHECK(dtype, "'{}' has no dtype", text);
  type.dtype = *dtype;
  Dims dims;
  const char *at = text.data() + open + 1, *end = text.data() + text.size() - 1;
  while (at < end) {
    int64_t extent = 0;
    const auto parsed = std::from_chars(at, end, extent);
    STOW_CHECK(parsed.ec == std::errc(), "'{}' is no type", text);
    dims.push_back(extent);
    at = parsed.ptr + (parsed.ptr < end ? 1 : 0);
  }
  type.shape = Shape(std::move(dims));
  return type;
}

std::vector<ArrayType> parse_types(std::initializer_list<std::string_view> texts) {
  std::vector<ArrayType> types;
  for (std::string_view text : texts) types.push_back(parse_type(text));
  return types;
}

}  // namespace stow::testing
