// DebugPrint(token, arrays…) -> token.
#include "stowage/ops/effects.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "stowage/core/print_format.h"
#include "stowage/ops/batch.h"
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

std::vector<ArrayType> infer_print(const InferContext& c) {
  const auto& p = expect_any_count<NameParams>(c);
  if (c.operands.empty() || !(c.operand(0) == effect_token_type()))
    c.error("operand 0 must be the token {}, {}", to_string(effect_token_type()),
            c.operands.empty() ? "there is none" : "got " + to_string(c.operand(0)));
  std::vector<DType> dtypes;
  for (const ArrayType& type : c.operands.subspan(1)) dtypes.push_back(type.dtype);
  if (const Result<void> fits = check_print_format(p.name, dtypes); !fits)
    c.error("{}", fits.error());
  return {effect_token_type()};
}

// One line an example, in their order: the token is a carry of a loop over them.
Batched batch_print(const BatchContext& c) {
  Val token = c.operands[0];
  // It is one an example behind a loop over examples; a view of all of them waits for all.
  if (c.batched(0)) token = reshape(token, effect_token_type().shape);
  std::vector<Val> operands = c.operands;
  operands[0] = token;
  const bool differs = std::any_of(c.axes.begin() + 1, c.axes.end(),
                                   [](int64_t axis) { return axis != kUnbatched; });
  if (!differs)
    return {c.builder.add(OpKind::kDebugPrint, c.node.params, operands), {kUnbatched}};
  auto body = std::make_shared<Graph>();
  GraphBuilder b(*body);
  b.provenance = c.node.provenance;
  b.pass = Pass::kVmap;
  ScanParams p{.length = c.size, .n_carries = 1};
  std::vector<Val> given, inside(operands.size(), Val(b, ValueId()));
  const auto enter = [&](size_t i) {
    ArrayType type = operands[i].type();
    if (i > 0 && c.batched(i)) {
      Dims dims = type.shape.dims();
      dims.erase(dims.begin() + c.axes[i]);
      type.shape = Shape(std::move(dims));
      p.in_axes.push_back(c.axes[i]);
    }
    inside[i] = Val(b, body->add_input(type));
    given.push_back(operands[i]);
  };
  for (size_t i = 1; i < operands.size(); ++i)
    if (!c.batched(i)) enter(i);
  p.n_consts = static_cast<int>(given.size());
  enter(0);
  for (size_t i = 1; i < operands.size(); ++i)
    if (c.batched(i)) enter(i);
  body->set_outputs({b.add(OpKind::kDebugPrint, c.node.params, inside)[0].id()});
  return {c.builder.add(OpKind::kScan, p, given, {body}), {kUnbatched}};
}

// Every position has the whole arrays; the first one of the mesh prints them.
std::vector<Val> local_print(const LocalContext& c) {
  if (c.mesh.size() == 1) return local_same(c);
  MeshAxes all(static_cast<size_t>(c.mesh.rank()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<GraphPtr> branches;
  for (const bool prints : {true, false}) {
    auto body = std::make_shared<Graph>();
    GraphBuilder b(*body);
    b.provenance = c.node.provenance;
    std::vector<Val> inputs;
    for (const Val& operand : c.operands) inputs.emplace_back(b, body->add_input(operand.type()));
    const Val token = prints ? b.add(OpKind::kDebugPrint, c.node.params, inputs)[0] : inputs[0];
    body->set_outputs({token.id()});
    branches.push_back(std::move(body));
  }
  std::vector<Val> operands = {c.index(all)};  // 0: the first branch; more: the last
  operands.insert(operands.end(), c.operands.begin(), c.operands.end());
  return c.builder.add(OpKind::kCond, CondParams{}, operands, std::move(branches));
}

}  // namespace

constinit const OpDef kDebugPrint = {.op = OpKind::kDebugPrint,
                                     .infer = infer_print,
                                     .vjp = no_cotangents,
                                     .batch = batch_print,
                                     .shard = shard_whole,
                                     .local = local_print,
                                     .cost = cost_free};

}  // namespace stow::ops
