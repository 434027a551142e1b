// Attention and AttentionGrad.
#include <limits>

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
    c.error("expected a multiple of the {} heads of k {}, got {} of q {}", k.shape[2], to_string(k),
            q.shape[2], to_string(q));
}

// An op of so many operands, which lo and hi may follow.
void expect_operands(const InferContext& c, size_t n) {
  if (c.operands.size() != n && c.operands.size() != n + 2)
    c.error("takes {} operands, or {} with lo and hi, got {}", n, n + 2, c.operands.size());
  expect_any_count<AttentionParams>(c);
}

// lo, hi i32 [B,T] behind the first n operands, or nothing.
void check_intervals(const InferContext& c, size_t n) {
  const Shape& q = c.operand(0).shape;
  const ArrayType want{DType::kI32, {q[0], q[1]}};
  for (size_t i = n; i < c.operands.size(); ++i)
    if (c.operand(i).dtype != want.dtype || !(c.operand(i).shape == want.shape))
      c.error("{} must be {}, got {}", i == n ? "lo" : "hi", to_string(want),
              to_string(c.operand(i)));
}

ArrayType lse_type(const InferContext& c) {
  const Shape& q = c.operand(0).shape;
  return strong_result_type(c, DType::kF32, {q[0], q[2], q[1]});
}

std::vector<ArrayType> infer_attention(const InferContext& c) {
  expect_operands(c, 3);
  check_qkv(c);
  check_intervals(c, 3);
  return {strong_result_type(c, c.operand(0).dtype, c.operand(0).shape), lse_type(c)};
}

void add_to(std::optional<Val>& sum, const Val& x) {
  sum = sum ? *sum + x : x;
}

// Attention written out in f32, with scores [B,G,T,R,S] in memory, where R = H / G: for gradients
// that the kernel does not have.
class WrittenOut {
 public:
  // Operands as of the ops; `intervals` are lo and hi, or nothing.
  WrittenOut(const AttentionParams& p, const Val& q, const Val& k, const Val& lse,
             std::span<const Val> intervals)
      : heads_(q.shape()), groups_(k.shape()[2]), probabilities_(weigh(p, q, k, lse, intervals)) {}

  const Val& probabilities() const { return probabilities_; }

  // [B,T,H,D] as [B,T,G,R,D], and [B,S,G,D] as it is.
  Val queries(const Val& x) const {
    return convert(reshape(x, {heads_[0], heads_[1], groups_, heads_[2] / groups_, heads_[3]}),
                   DType::kF32);
  }
  static Val keys(const Val& x) { return convert(x, DType::kF32); }
  // [B,H,T] as [B,G,T,R], and back.
  Val rows(const Val& x) const {
    return transpose(reshape(x, {heads_[0], groups_, heads_[2] / groups_, heads_[1]}),
                     {0, 1, 3, 2});
  }
  Val per_head(const Val& rows) const {
    return reshape(transpose(rows, {0, 1, 3, 2}), {heads_[0], heads_[2], heads_[1]});
  }
  // One value a row [B,G,T,R], spread over the keys, or over what queries have.
  static Val spread(const Val& rows, const Shape& scores) {
    return broadcast(rows, scores, {0, 1, 2, 3});
  }
  static Val over_queries(const Val& rows, const Val& queries) {
    return broadcast(transpose(rows, {0, 2, 1, 3}), queries.shape(), {0, 1, 2, 3});
  }
  // Products of queries and keys: all pairs, [B,G,T,R,S], and one a row, [B,G,T,R].
  static Val products(const Val& queries, const Val& keys) {
    return dot_general(queries, keys, {{4}, {3}, {0, 2}, {0, 2}, DType::kF32});
  }
  static Val row_products(const Val& a, const Val& b) {
    return transpose(reduce_sum(a * b, {4}), {0, 2, 1, 3});
  }
  // Keys summed by their weights, and queries: as queries and keys are.
  static Val sum_keys(const Val& weights, const Val& keys) {
    const Val sum = dot_general(weights, keys, {{4}, {1}, {0, 1}, {0, 2}, DType::kF32});
    return transpose(sum, {0, 2, 1, 3, 4});
  }
  static Val sum_queries(const Val& weights, const Val& queries) {
    const Val sum = dot_general(weights, queries, {{2, 3}, {1, 3}, {0, 1}, {0, 2}, DType::kF32});
    return transpose(sum, {0, 2, 1, 3});
  }

 private:
  Val weigh(const AttentionParams& p, const Val& q, const Val& k, const Val& lse,
            std::span<const Val> intervals) const {
    const Val scores = products(queries(q), keys(k)) * p.scale;
    Val shifted = scores - spread(rows(lse), scores.shape());
    GraphBuilder& b = q.builder();
    const ArrayType counter{DType::kI32, scores.shape()};
    const Val nothing = full_like(scores, -std::numeric_limits<double>::infinity());
    if (p.causal) {
      const Val last = iota(b, counter, 2) + full(b, counter, static_cast<double>(p.offset));
      shifted = select(le(iota(b, counter, 4), last), shifted, nothing);
    }
    if (!intervals.empty()) {
      const Val key = iota(b, counter, 4);
      const auto per_score = [&](const Val& x) { return broadcast(x, scores.shape(), {0, 2}); };
      shifted = select(le(per_score(intervals[0]), key), shifted, nothing);
      shifted = select(lt(key, per_score(intervals[1])), shifted, nothing);
    }
    return exp(shifted);
  }

  Shape heads_;  // of q
  int64_t groups_;
  Val probabilities_;
};

// A gradient as its operand is.
Val like(const Val& gradient, const Val& operand) {
  return convert(reshape(gradient, operand.shape()), operand.dtype());
}

Cotangents vjp_attention(const VjpContext& c) {
  const auto& p = c.node.as<AttentionParams>();
  const std::span<const Val> intervals = std::span<const Val>(c.operands).subspan(3);
  Cotangents result(c.operands.size());
  if (c.cotangents[0]) {
    std::vector<Val> operands = {c.operands[0], c.operands[1], c.operands[2],
                                 c.results[0],  c.results[1],  c.ct()};
    operands.insert(operands.end(), intervals.begin(), intervals.end());
    const std::vector<Val> grads = c.ct().builder().add(OpKind::kAttentionGrad, p, operands);
    result = cotangents(
        c, [&] { return grads[0]; }, [&] { return grads[1]; }, [&] { return grads[2]; });
  }
  if (!c.cotangents[1] || (!c.needed[0] && !c.needed[1])) return result;
  // The gradient of lse by the scores is the probabilities.
  const Val &q = c.operands[0], &k = c.operands[1];
  const WrittenOut w(p, q, k, c.results[1], intervals);
  const Val d_scores =
      w.probabilities() * w.spread(w.rows(*c.cotangents[1]), w.probabilities().shape()) * p.scale;
  if (c.needed[0]) add_to(result[0], like(w.sum_keys(d_scores, w.keys(k)), q));
  if (c.needed[1]) add_to(result[1], like(w.sum_queries(d_scores, w.queries(q)), k));
  return result;
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
const std::vector<int> kInterval = {0, kWhole};

// Operands behind the first `n_operands` are intervals.
ShardingFactors with_intervals(const InferContext& c, size_t n_operands, ShardingFactors factors) {
  for (size_t i = n_operands; i < c.operands.size(); ++i) factors.operands.push_back(kInterval);
  return factors;
}

ShardingFactors shard_attention(const InferContext& c, std::span<const ArrayType>) {
  return with_intervals(c, 3, {{kSequence, kSequence, kSequence}, {kSequence, kLse}});
}

// Two products, of queries with keys and of probabilities with values. Intervals are values, so
// that all keys count.
double forward_flops(const InferContext& c) {
  const double flops =
      4.0 * static_cast<double>(c.operand(0).elems()) * static_cast<double>(c.operand(1).shape[1]);
  return c.as<AttentionParams>().causal ? flops / 2 : flops;
}

Cost cost_attention(const InferContext& c, std::span<const ArrayType> results) {
  return {forward_flops(c), traffic(c, results)};
}

std::vector<ArrayType> infer_attention_grad(const InferContext& c) {
  expect_operands(c, 6);
  check_qkv(c);
  const ArrayType& q = c.operand(0);
  const ArrayType lse = lse_type(c);
  if (!(c.operand(3) == q))
    c.error("out must be {}, got {}", to_string(q), to_string(c.operand(3)));
  if (!(c.operand(4) == lse))
    c.error("lse must be {}, got {}", to_string(lse), to_string(c.operand(4)));
  if (!(c.operand(5) == q))
    c.error("d_out must be {}, got {}", to_string(q), to_string(c.operand(5)));
  check_intervals(c, 6);
  std::vector<ArrayType> results;
  for (size_t i = 0; i < 3; ++i)
    results.push_back(strong_result_type(c, c.operand(i).dtype, c.operand(i).shape));
  return results;
}

// With P the probabilities, g = d_out and d = sum(g out), the op is dS = P (g v' - d),
// dq = scale dS k, dk = scale dS' q and dv = P' g. All that reads P follows from that.
Cotangents vjp_attention_grad(const VjpContext& c) {
  const auto& p = c.node.as<AttentionParams>();
  const Val &q = c.operands[0], &k = c.operands[1], &v = c.operands[2];
  const WrittenOut w(p, q, k, c.operands[4], std::span<const Val>(c.operands).subspan(6));
  const Val& probabilities = w.probabilities();
  const Val qs = w.queries(q), ks = w.keys(k), vs = w.keys(v);
  const Val out = w.queries(c.operands[3]), g = w.queries(c.operands[5]);
  const auto spread = [&](const Val& rows) { return w.spread(rows, probabilities.shape()); };

  // Cotangents of dS and P, and the sums that become gradients.
  std::optional<Val> of_ds, of_p, dq, dk, dv, d_g;
  if (c.cotangents[0]) add_to(of_ds, w.products(w.queries(*c.cotangents[0]), ks));
  if (c.cotangents[1]) add_to(of_ds, w.products(qs, w.keys(*c.cotangents[1])));
  std::optional<Val> d_out;
  if (of_ds) {
    of_ds = *of_ds * p.scale;
    const Val centered = w.products(g, vs) - spread(w.row_products(g, out));
    const Val ds = probabilities * centered * p.scale;
    if (c.cotangents[1]) add_to(dq, w.sum_keys(ds, w.keys(*c.cotangents[1])));
    if (c.cotangents[0]) add_to(dk, w.sum_queries(ds, w.queries(*c.cotangents[0])));
    add_to(of_p, *of_ds * centered);
    const Val weights = probabilities * *of_ds;
    const Val of_d = w.over_queries(-reduce_sum(weights, {4}), g);
    dv = w.sum_queries(weights, g);
    add_to(d_g, w.sum_keys(weights, vs) + of_d * out);
    d_out = of_d * g;
  }
  if (c.cotangents[2]) {
    const Val of_dv = w.keys(*c.cotangents[2]);
    add_to(of_p, w.products(g, of_dv));
    add_to(d_g, w.sum_keys(probabilities, of_dv));
  }
  if (!of_p) return no_cotangents(c);
  const Val of_scores = probabilities * *of_p;
  add_to(dq, w.sum_keys(of_scores * p.scale, ks));
  add_to(dk, w.sum_queries(of_scores * p.scale, qs));
  const Val d_lse = w.per_head(-reduce_sum(of_scores, {4}));
  const auto of = [&](size_t operand, const std::optional<Val>& gradient) {
    return [&c, operand, &gradient]() -> std::optional<Val> {
      if (!gradient) return std::nullopt;
      return like(*gradient, c.operands[operand]);
    };
  };
  return cotangents(
      c, of(0, dq), of(1, dk), of(2, dv), of(3, d_out), [&] { return d_lse; }, of(5, d_g));
}

ShardingFactors shard_attention_grad(const InferContext& c, std::span<const ArrayType>) {
  return with_intervals(c, 6,
                        {{kSequence, kSequence, kSequence, kSequence, kLse, kSequence},
                         {kSequence, kSequence, kSequence}});
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
                                    .local = local_same,
                                    .cost = cost_attention};
constinit const OpDef kAttentionGrad = {.op = OpKind::kAttentionGrad,
                                        .infer = infer_attention_grad,
                                        .vjp = vjp_attention_grad,
                                        .batch = batch_attention,
                                        .shard = shard_attention_grad,
                                        .local = local_same,
                                        .cost = cost_attention_grad};

}  // namespace stow::ops
