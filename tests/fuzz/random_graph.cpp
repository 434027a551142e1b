#include "tests/fuzz/random_graph.h"

#include <algorithm>
#include <limits>

#include "stowage/core/scalar.h"
#include "stowage/ops/build.h"

namespace stow::testing {
namespace {

class Generator {
 public:
  Generator(std::mt19937& random, int depth) : random_(random), depth_(depth), builder_(graph_) {}

  Graph make(const std::vector<ArrayType>& inputs, int n_nodes) {
    for (const ArrayType& type : inputs) add_value(Val(builder_, graph_.add_input(type)));
    graph_.add_region({});
    graph_.add_region({.parent = RegionId(0u)});
    while (static_cast<int>(graph_.n_nodes()) < n_nodes) step();
    return graph_;  // outputs are the caller's
  }
  ValueId any_value() { return pool_[below(pool_.size())].id(); }
  /// A value of that type; input `fallback` where nothing is.
  ValueId any_of(const ArrayType& type, size_t fallback) {
    std::vector<ValueId> found;
    for (const Val& v : pool_)
      if (v.type() == type) found.push_back(v.id());
    return found.empty() ? graph_.inputs()[fallback] : found[below(found.size())];
  }
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

 private:
  void add_value(Val v) { pool_.push_back(v); }
  void emit(OpKind op, Params params, std::initializer_list<Val> operands) {
    add_value(builder_.add1(op, std::move(params), operands));
  }
  Val pick() { return pool_[below(pool_.size())]; }
  // Recent values and constants meet often.
  Val like(const Val& v) {
    std::vector<Val> found;
    for (const Val& other : pool_)
      if (other.type() == v.type()) found.push_back(other);
    return found[below(found.size())];
  }

  void step() {
    builder_.region = below(3) ? RegionId() : RegionId(below(2));
    builder_.backward = below(4) == 0;
    switch (below(depth_ > 0 ? 11 : 10)) {
      case 0:
        return unary();
      case 1:
      case 2:
      case 3:
        return binary();
      case 4:
      case 5:
        return constant_like();
      case 6:
        return conversion();
      case 7:
      case 8:
        return view();
      case 9:
        return selection();
      case 10:
        return below(3) ? scan() : checkpoint();
    }
  }

  void unary() {
    const Val x = pick();
    if (x.dtype() == DType::kBool) return emit(OpKind::kNot, {}, {x});
    if (below(6) == 0) return emit(OpKind::kOptimizationBarrier, {}, {x});
    if (below(6) == 0) return emit(OpKind::kName, NameParams{"n"}, {x});
    if (below(6) == 0) return emit(OpKind::kStopGradient, {}, {x});
    emit(below(2) ? OpKind::kNeg : OpKind::kAbs, {}, {x});
  }

  void binary() {
    const Val a = pick(), b = like(a);
    constexpr OpKind kFloat[] = {OpKind::kAdd, OpKind::kSub, OpKind::kMul,
                                 OpKind::kDiv, OpKind::kMax, OpKind::kLt};
    constexpr OpKind kInt[] = {OpKind::kAdd,       OpKind::kSub,        OpKind::kMul,
                               OpKind::kDiv,       OpKind::kAnd,        OpKind::kOr,
                               OpKind::kShiftLeft, OpKind::kShiftRight, OpKind::kXor};
    constexpr OpKind kBool[] = {OpKind::kAnd, OpKind::kOr, OpKind::kXor};
    const OpKind op = is_float(a.dtype())         ? kFloat[below(std::size(kFloat))]
                      : a.dtype() == DType::kBool ? kBool[below(std::size(kBool))]
                                                  : kInt[below(std::size(kInt))];
    emit(op, {}, {a, b});
  }

  // A constant of the type of some value, mostly a number that does nothing somewhere.
  void constant_like() {
    const ArrayType type = pick().type();
    constexpr double kNumbers[] = {0, -0.0, 1, 1, -1, 2};
    const double number = kNumbers[below(std::size(kNumbers))];
    const auto element = encode_scalar(type.dtype, number);
    if (!element) return;
    ConstantParams params{type, *element};
    if (below(3) == 0)
      for (int64_t i = 1; i < type.elems(); ++i)
        params.data.insert(params.data.end(), element->begin(), element->end());
    if (below(3) == 0) {
      const Val scalar =
          builder_.add1(OpKind::kConstant, ConstantParams{{type.dtype, {}}, *element}, {});
      return emit(OpKind::kBroadcast, BroadcastParams{type.shape, {}}, {scalar});
    }
    emit(OpKind::kConstant, params, {});
  }

  void conversion() {
    constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kI32, DType::kBool, DType::kBF16};
    emit(OpKind::kConvert, DTypeParams{kTypes[below(std::size(kTypes))]}, {pick()});
  }

  void view() {
    const Val x = pick();
    Dims axes(static_cast<size_t>(x.rank()));
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
    switch (below(6)) {
      case 0: {
        Dims dims = x.shape().dims();
        std::shuffle(dims.begin(), dims.end(), random_);
        if (below(3) == 0) dims = {x.type().elems()};
        return emit(OpKind::kReshape, ShapeParams{Shape(dims)}, {x});
      }
      case 1:
        std::shuffle(axes.begin(), axes.end(), random_);
        return emit(OpKind::kTranspose, AxesParams{axes}, {x});
      case 2: {
        if (x.rank() > 2) return;
        Dims dims = x.shape().dims();
        const size_t at = below(axes.size() + 1);
        if (below(2)) {
          dims.insert(dims.begin() + static_cast<ptrdiff_t>(at), 2);
          for (size_t i = at; i < axes.size(); ++i) ++axes[i];
        }
        return emit(OpKind::kBroadcast, BroadcastParams{Shape(dims), axes}, {x});
      }
      case 3:
        if (below(2)) axes.clear();
        return emit(OpKind::kReverse, AxesParams{axes}, {x});
      case 4: {
        const Dims zeros(axes.size(), 0), ones(axes.size(), 1);
        return emit(OpKind::kSlice, SliceParams{zeros, x.shape().dims(), ones}, {x});
      }
      case 5:
        if (x.rank() == 0 || x.dtype() == DType::kBool) return;
        return emit(OpKind::kReduceMax, AxesParams{{0}}, {x});
    }
  }

  void selection() {
    const Val a = pick(), b = like(a);
    for (int tries = 0; tries < 8; ++tries)
      if (const Val c = pick(); c.dtype() == DType::kBool && c.shape() == a.shape())
        return emit(OpKind::kSelect, {}, {c, a, b});
  }

  void scan() {
    constexpr int64_t kLength = 2;
    ScanParams p{.length = kLength, .reverse = below(2) == 0};
    std::vector<Val> operands;
    std::vector<ArrayType> types;
    const auto take = [&](const Val& v) {
      operands.push_back(v);
      types.push_back(v.type());
    };
    p.n_consts = static_cast<int>(below(3));
    p.n_carries = static_cast<int>(below(4));
    for (int i = 0; i < p.n_consts + p.n_carries; ++i) take(pick());
    for (int tries = 0; tries < 6; ++tries) {
      const Val x = pick();
      if (x.rank() == 0) continue;
      const size_t axis = below(static_cast<size_t>(x.rank()));
      if (x.shape()[static_cast<int>(axis)] != kLength) continue;
      take(x);
      Dims dims = x.shape().dims();
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(axis));
      types.back().shape = Shape(dims);
      p.in_axes.push_back(static_cast<int64_t>(axis));
    }
    if (types.empty()) return;
    Generator inner(random_, depth_ - 1);
    Graph body = inner.make(types, 12);
    std::vector<ValueId> outputs;
    for (int i = 0; i < p.n_carries; ++i) {
      const auto at = static_cast<size_t>(p.n_consts + i);
      outputs.push_back(inner.any_of(types[at], at));
    }
    for (size_t i = below(4); i > 0; --i) {
      const ValueId v = inner.any_value();
      if (body.type(v).shape.rank() > 2) continue;
      outputs.push_back(v);
      p.out_axes.push_back(
          static_cast<int64_t>(below(static_cast<size_t>(body.type(v).shape.rank()) + 1)));
    }
    p.n_residuals = static_cast<int>(below(p.out_axes.size() + 1));
    structure(OpKind::kScan, p, operands, std::move(body), std::move(outputs));
  }

  void checkpoint() {
    std::vector<Val> operands = {pick(), pick(), pick()};
    std::vector<ArrayType> types;
    for (const Val& v : operands) types.push_back(v.type());
    Generator inner(random_, depth_ - 1);
    Graph body = inner.make(types, 12);
    std::vector<ValueId> outputs = {inner.any_value(), inner.any_value()};
    structure(OpKind::kCheckpoint, CheckpointParams{}, operands, std::move(body),
              std::move(outputs));
  }

  void structure(OpKind op, Params params, const std::vector<Val>& operands, Graph body,
                 std::vector<ValueId> outputs) {
    body.set_outputs(std::move(outputs));
    for (const Val& v : builder_.add(op, std::move(params), operands,
                                     {std::make_shared<const Graph>(std::move(body))}))
      add_value(v);
  }

  std::mt19937& random_;
  int depth_;
  Graph graph_;
  GraphBuilder builder_;
  std::vector<Val> pool_;
};

}  // namespace

Graph random_graph(std::mt19937& random, int n_nodes, int depth) {
  Generator generator(random, depth);
  Graph graph = generator.make({{DType::kF32, {2, 3}},
                                {DType::kF32, {2, 3}},
                                {DType::kI32, {2, 3}},
                                {DType::kBool, {2, 3}},
                                {DType::kF32, {}}},
                               n_nodes);
  std::vector<ValueId> outputs;
  for (int i = 0; i < 4; ++i) outputs.push_back(generator.any_value());
  graph.set_outputs(std::move(outputs));
  return graph;
}

std::vector<std::byte> random_array(std::mt19937& random, const ArrayType& type) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kFloats[] = {0,
                                -0.0,
                                1,
                                -1,
                                0.1,
                                -2.5,
                                3e30,
                                1e-40,
                                kInf,
                                -kInf,
                                std::numeric_limits<double>::quiet_NaN()};
  constexpr double kInts[] = {0, 1, -1, 2, 31, 1000000000, -2147483648.0};
  std::vector<std::byte> data;
  for (int64_t i = 0; i < type.elems(); ++i) {
    const double number = is_float(type.dtype) ? kFloats[random() % std::size(kFloats)]
                                               : kInts[random() % std::size(kInts)];
    const auto element = *encode_scalar(type.dtype, number);
    data.insert(data.end(), element.begin(), element.end());
  }
  return data;
}

}  // namespace stow::testing
