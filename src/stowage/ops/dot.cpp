// DotGeneral.
#include <algorithm>

#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

// A letter an axis, as in an einsum; result axes are batch, free of lhs, free of rhs.
struct Labels {
  std::vector<int> lhs, rhs, out;
};

Labels labels_of(const DotParams& p, int lhs_rank, int rhs_rank) {
  Labels l{letters(lhs_rank), letters(rhs_rank, lhs_rank), {}};
  const auto tie = [&](const Dims& lhs, const Dims& rhs) {
    for (size_t i = 0; i < lhs.size(); ++i)
      l.rhs[static_cast<size_t>(rhs[i])] = l.lhs[static_cast<size_t>(lhs[i])];
  };
  tie(p.lhs_batch, p.rhs_batch);
  tie(p.lhs_contract, p.rhs_contract);
  for (int64_t axis : p.lhs_batch) l.out.push_back(static_cast<int>(axis));
  for (int i = 0; i < lhs_rank; ++i)
    if (!contains(p.lhs_batch, i) && !contains(p.lhs_contract, i)) l.out.push_back(i);
  for (int letter : l.rhs)
    if (letter >= lhs_rank) l.out.push_back(letter);
  return l;
}

int64_t find(const std::vector<int>& list, int letter) {
  const auto it = std::find(list.begin(), list.end(), letter);
  return it == list.end() ? -1 : it - list.begin();
}

// The parameters of a product of a and b by their letters, and the letters of its result. Letters
// of both are batch where `target` has them and contracted otherwise.
DotParams params_for(const std::vector<int>& a, const std::vector<int>& b,
                     const std::vector<int>& target, DType out, std::vector<int>& result) {
  DotParams p{.out = out};
  result.clear();
  for (int letter : target)
    if (find(a, letter) >= 0 && find(b, letter) >= 0) {
      p.lhs_batch.push_back(find(a, letter));
      p.rhs_batch.push_back(find(b, letter));
      result.push_back(letter);
    }
  for (size_t i = 0; i < a.size(); ++i) {
    if (find(b, a[i]) < 0) {
      result.push_back(a[i]);
    } else if (find(target, a[i]) < 0) {
      p.lhs_contract.push_back(static_cast<int64_t>(i));
      p.rhs_contract.push_back(find(b, a[i]));
    }
  }
  for (int letter : b)
    if (find(a, letter) < 0) result.push_back(letter);
  return p;
}

// The product of ct and the other operand with axes as in `target`. Of the two orders of the
// factors, the one that needs no transpose is taken: dL/dW of y = x W is x^T ct, laid out as W.
Val product(const Val& ct, const std::vector<int>& ct_letters, const Val& other,
            const std::vector<int>& other_letters, const std::vector<int>& target, DType dtype) {
  const DType wide = promote({ct.dtype()}, {other.dtype()}).dtype;
  const Val a = convert(ct, wide), b = convert(other, wide);
  std::vector<int> result;
  const DotParams swapped = params_for(other_letters, ct_letters, target, dtype, result);
  if (result == target) return dot_general(b, a, swapped);
  const DotParams p = params_for(ct_letters, other_letters, target, dtype, result);
  Dims order;
  for (int letter : target) order.push_back(find(result, letter));
  return transpose(dot_general(a, b, p), order);
}

std::vector<ArrayType> infer_dot(const InferContext& c) {
  const auto& p = expect<DotParams>(c, 2);
  const ArrayType &lhs = c.operand(0), &rhs = c.operand(1);
  check_same_dtypes(c);
  check_kinds(c, 0, Kinds::kNumeric);
  if (p.out == DType::kBool || is_float(p.out) != is_float(lhs.dtype))
    c.error("a product of {} and {} cannot be of {}", to_string(lhs), to_string(rhs),
            dtype_name(p.out));
  const auto check_pairs = [&](const Dims& l, const Dims& r, std::string_view what) {
    if (l.size() != r.size()) c.error("{} {} axes of lhs and {} of rhs", l.size(), what, r.size());
    for (size_t i = 0; i < l.size(); ++i) {
      const int64_t x = lhs.shape[static_cast<int>(l[i])], y = rhs.shape[static_cast<int>(r[i])];
      if (x != y)
        c.error("{} size {} of lhs {} differs from {} of rhs {}", what, x, to_string(lhs), y,
                to_string(rhs));
    }
  };
  const auto check_side = [&](Dims contract, const Dims& batch, int rank, std::string_view what) {
    contract.insert(contract.end(), batch.begin(), batch.end());
    check_axes(c, contract, rank, what);
  };
  check_side(p.lhs_contract, p.lhs_batch, lhs.shape.rank(), "lhs axis");
  check_side(p.rhs_contract, p.rhs_batch, rhs.shape.rank(), "rhs axis");
  check_pairs(p.lhs_contract, p.rhs_contract, "contracting");
  check_pairs(p.lhs_batch, p.rhs_batch, "batch");
  Dims dims;
  for (int letter : labels_of(p, lhs.shape.rank(), rhs.shape.rank()).out) {
    const int r = lhs.shape.rank();
    dims.push_back(letter < r ? lhs.shape[letter] : rhs.shape[letter - r]);
  }
  return {strong_result_type(c, p.out, Shape(std::move(dims)))};
}

Cotangents vjp_dot(const VjpContext& c) {
  const Val &lhs = c.operands[0], &rhs = c.operands[1];
  const Labels l = labels_of(c.node.as<DotParams>(), lhs.rank(), rhs.rank());
  return cotangents(
      c, [&] { return product(c.ct(), l.out, rhs, l.rhs, l.lhs, lhs.dtype()); },
      [&] { return product(c.ct(), l.out, lhs, l.lhs, l.rhs, rhs.dtype()); });
}

// A batch of both operands is a batch axis, that of one a free axis of it: nothing is copied.
Batched batch_dot(const BatchContext& c) {
  DotParams p = c.node.as<DotParams>();
  const auto widen = [&](size_t i, Dims& contract, Dims& batch) {
    if (!c.batched(i)) return;
    contract = shifted_for_batch(contract, c.axes[i]);
    batch = shifted_for_batch(batch, c.axes[i]);
  };
  widen(0, p.lhs_contract, p.lhs_batch);
  widen(1, p.rhs_contract, p.rhs_batch);
  if (c.batched(0) && c.batched(1)) {
    p.lhs_batch.insert(p.lhs_batch.begin(), c.axes[0]);
    p.rhs_batch.insert(p.rhs_batch.begin(), c.axes[1]);
    return rebuilt(c, p, c.operands, 0);
  }
  // The letter of the batch, a free axis now, says where it is in the result.
  const int lhs_rank = c.operands[0].rank();
  const Labels l = labels_of(p, lhs_rank, c.operands[1].rank());
  const int64_t letter = c.batched(0) ? c.axes[0] : lhs_rank + c.axes[1];
  return rebuilt(c, p, c.operands, find(l.out, static_cast<int>(letter)));
}

ShardingFactors shard_dot(const InferContext& c, std::span<const ArrayType>) {
  const Labels l =
      labels_of(c.as<DotParams>(), c.operand(0).shape.rank(), c.operand(1).shape.rank());
  return {{l.lhs, l.rhs}, {l.out}};
}

Cost cost_dot(const InferContext& c, std::span<const ArrayType> results) {
  double flops = 2.0 * static_cast<double>(results[0].elems());
  for (int64_t axis : c.as<DotParams>().lhs_contract)
    flops *= static_cast<double>(c.operand(0).shape[static_cast<int>(axis)]);
  return {flops, traffic(c, results)};
}

}  // namespace

constinit const OpDef kDotGeneral = {.op = OpKind::kDotGeneral,
                                     .infer = infer_dot,
                                     .vjp = vjp_dot,
                                     .batch = batch_dot,
                                     .shard = shard_dot,
                                     .local = local_same,
                                     .cost = cost_dot};

}  // namespace stow::ops
