// Attention and AttentionGrad.
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

// q [B,T,H,D]; k, v [B,S,G,D] with H a multiple of G.
void check_qkv(const InferContext& c) {
  const ArrayType &q = c.operand(0), &k = c.operand(1), &v = c.operand(2);
  check_kinds(c, 0, Kinds::kFloat);
  if (q.dtype == DType::kF64) c.error("f64 is not supported, got {}", to_string(q));
  for (const ArrayType* x : {&k, &v})
    if (x->dtype != q.dtype)
      c.error("operands differ in dtype: {} and {}", to_string(q), to_string(*x));
  if (q.shape.rank() != 4) c.error("q must be [B,T,H,D], got {}", to_string(q));
  if (k.shape.rank() != 4) c.error("k must be [B,S,G,D], got {}", to_string(k));
  if (!(k == v)) c.error("k and v differ: {} and {}", to_string(k), to_string(v));
  if (q.shape[0] != k.shape[0])
    c.error("batch size {} of q {} differs from {} of k {}", q.shape[0], to_string(q), k.shape[0],
            to_string(k));
  if (q.shape[3] != k.shape[3])
    c.error("head size {} of q {} differs from {} of k {}", q.shape[3], to_string(q), k.shape[3],
            to_string(k));
  const auto& p = c.as<AttentionParams>();
  if (p.offset < -q.shape[1] || p.offset > k.shape[1] || (!p.causal && p.offset != 0))
    c.error("offset {} with {} queries and {} keys{}", p.offset, q.shape[1], k.shape[1],
            p.causal ? "" : ", not causal");
  if (k.shape[2] == 0 || q.shape[2] % k.shape[2] != 0)
    c.error("{} heads of q {} are no multiple of {} of k {}", q.shape[2], to_string(q), k.shape[2],
            to_string(k));
}

ArrayType lse_type(const InferContext& c) {
  const Shape& q = c.operand(0).shape;
  return strong(c, DType::kF32, {q[0], q[2], q[1]});
}

std::vector<ArrayType> infer_attention(const InferContext& c) {
  expect<AttentionParams>(c, 3);
  check_qkv(c);
  return {strong(c, c.operand(0).dtype, c.operand(0).shape), lse_type(c)};
}

Cotangents vjp_attention(const VjpContext& c) {
  if (c.cotangents[1])
    trace_error("[attention] the lse result is not differentiable: it is a residual of {}",
                to_string(c.results[1].type()));
  if (!c.cotangents[0]) return no_cotangents(c);
  const Val operands[] = {c.operands[0], c.operands[1], c.operands[2],
                          c.results[0],  c.results[1],  c.ct()};
  const std::vector<Val> grads =
      c.ct().builder().add(OpKind::kAttentionGrad, c.node.as<AttentionParams>(), operands);
  return cotangents(
      c, [&] { return grads[0]; }, [&] { return grads[1]; }, [&] { return grads[2]; });
}

// The batch is folded into the leading axis of all operands, and taken out of the results'.
Batched batch_attention(const BatchContext& c) {
  std::vector<Val> folded;
  for (const Val& x : all_batched_at(c, 0)) {
    Dims dims(x.shape().begin() + 1, x.shape().end());
    dims[0] *= c.size;
    folded.push_back(reshape(x, Shape(std::move(dims))));
  }
  Batched results = rebuilt(c, c.node.params, folded, 0);
  for (Val& y : results.values) {
    Dims dims = inserted(y.shape().dims(), 0, c.size);
    dims[1] /= c.size;
    y = reshape(y, Shape(std::move(dims)));
  }
  return results;
}

// Letters: batch 0, heads 1. Heads of q and of k are cut together, group by group.
const std::vector<int> kSequence = {0, kWhole, 1, kWhole};
const std::vector<int> kLse = {0, 1, kWhole};

ShardingFactors shard_attention(const InferContext&, std::span<const ArrayType>) {
  return {{kSequence, kSequence, kSequence}, {kSequence, kLse}};
}

// Two products, of queries with keys and of probabilities with values.
double forward_flops(const InferContext& c) {
  const double flops =
      4.0 * static_cast<double>(c.operand(0).elems()) * static_cast<double>(c.operand(1).shape[1]);
  return c.as<AttentionParams>().causal ? flops / 2 : flops;
}

Cost cost_attention(const InferContext& c, std::span<const ArrayType> results) {
  return {forward_flops(c), traffic(c, results)};
}

std::vector<ArrayType> infer_attention_grad(const InferContext& c) {
  expect<AttentionParams>(c, 6);
  check_qkv(c);
  const ArrayType& q = c.operand(0);
  const ArrayType lse = lse_type(c);
  if (!(c.operand(3) == q))
    c.error("out must be {}, got {}", to_string(q), to_string(c.operand(3)));
  if (!(c.operand(4) == lse))
    c.error("lse must be {}, got {}", to_string(lse), to_string(c.operand(4)));
  if (!(c.operand(5) == q))
    c.error("d_out must be {}, got {}", to_string(q), to_string(c.operand(5)));
  std::vector<ArrayType> results;
  for (size_t i = 0; i < 3; ++i)
    results.push_back(strong(c, c.operand(i).dtype, c.operand(i).shape));
  return results;
}

Cotangents vjp_attention_grad(const VjpContext&) {
  trace_error("[attention_grad] is not differentiable: attention has no second derivative");
}

ShardingFactors shard_attention_grad(const InferContext&, std::span<const ArrayType>) {
  return {{kSequence, kSequence, kSequence, kSequence, kLse, kSequence},
          {kSequence, kSequence, kSequence}};
}

// Five products: the scores again, dv, dp, dq, dk.
Cost cost_attention_grad(const InferContext& c, std::span<const ArrayType> results) {
  return {2.5 * forward_flops(c), traffic(c, results)};
}

}  // namespace

constinit const OpDef kAttention = {.op = OpKind::kAttention,
                                    .infer = infer_attention,
                                    .vjp = vjp_attention,
                                    .batch = batch_attention,
                                    .shard = shard_attention,
                                    .cost = cost_attention};
constinit const OpDef kAttentionGrad = {.op = OpKind::kAttentionGrad,
                                        .infer = infer_attention_grad,
                                        .vjp = vjp_attention_grad,
                                        .batch = batch_attention,
                                        .shard = shard_attention_grad,
                                        .cost = cost_attention_grad};

}  // namespace stow::ops
