#include "stowage/nn/loss.h"

#include <algorithm>
#include <limits>

#include "stowage/api/checkpoint.h"
#include "stowage/api/custom_vjp.h"
#include "stowage/api/grad.h"
#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/nn.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"
#include "stowage/api/vmap.h"
#include "stowage/core/sums.h"
#include "stowage/nn/lora_slots.h"
#include "stowage/nn/parts.h"

namespace stow::nn {
namespace {

DType loss_dtype(const Array& hidden) {
  return hidden.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
}

struct Tokens {
  Array hidden, targets;  // [c, d], [c]; or stacked [n, c, d], [n, c]
  std::optional<Array> weights = {};  // as targets
};
STOW_TREE(Tokens, hidden, targets, weights);

struct Parts {
  Array losses, d_hidden;  // [c], [c, d]; or stacked
};
STOW_TREE(Parts, losses, d_hidden);

}  // namespace

Array wide_logits(const Array& hidden, const Array& head) {
  if (hidden.dtype() == loss_dtype(hidden)) return matmul(hidden, head);
  const auto product = [](const Array& h, const Array& w) { return matmul(h, w, loss_dtype(h)); };
  const auto forward = [=](const Array& h, const Array& w) {
    return std::pair(product(h, w), std::pair(h, w));
  };
  const auto backward = [](const std::pair<Array, Array>& read, const Array& ct) {
    const auto& [h, w] = read;
    const int64_t n = h.size() / h.dim(-1);
    const Array g = ct.astype(h.dtype());
    const Array dw = matmul(swapaxes(h.reshape({n, h.dim(-1)}), 0, 1), g.reshape({n, g.dim(-1)}));
    return std::tuple(matmul(g, swapaxes(w, 0, 1)), dw);
  };
  return custom_vjp(product, forward, backward)(hidden, head);
}

namespace {

// The losses of all tokens [N] and both gradients, one chunk of tokens after another; a shorter
// last one stands behind the loop. h [N, d], w [d, V], t [...] of N elements. What is
// differentiated is the sum of `weights` [N] times the losses, whose logits are wide then; without
// weights the mean of the losses. As if all were one: the gradient of w adds up in the order of a
// product's blocks, and a short rest is filled up so that its products are computed as those of all
// tokens are. These may be a share of a batch of `total` tokens, over which the mean is.
std::pair<Array, std::pair<Array, Array>> losses_of_share(const Array& h, const Array& w,
                                                         const Array& t,
                                                         const std::optional<Array>& weights,
                                                         int64_t chunk, int64_t total) {
  const int64_t n = t.size(), whole = n / chunk * chunk, d = h.dim(1);
  const Array targets = t.reshape({n}), rounded = w.astype(h.dtype());
  // `share`: what each token's loss counts for.
  const auto step = [&](const Array& d_head, const Tokens& x, const Array& share) {
    const auto losses_of = [&](const Array& hidden, const Array& head) {
      return cross_entropy(weights ? wide_logits(hidden, head) : matmul(hidden, head), x.targets);
    };
    const auto [losses, pullback] = vjp(losses_of, x.hidden, rounded);
    const auto [dh, dw] = pullback(share);
    return std::pair(d_head + dw.astype(w.dtype()), Parts{losses, dh});
  };
  const auto equal_share = [&](int64_t tokens) {
    return full({tokens}, 1.0 / static_cast<double>(total), loss_dtype(h));
  };
  Array d_head = zeros_like(w);
  std::vector<Array> losses, d_hidden;
  if (whole > 0) {
    Tokens chunks = {h.slice(0, 0, whole).reshape({whole / chunk, chunk, d}),
                     targets.slice(0, 0, whole).reshape({whole / chunk, chunk})};
    if (weights) chunks.weights = weights->slice(0, 0, whole).reshape({whole / chunk, chunk});
    const auto [after, parts] = scan(
        [&](const Array& sum, const Tokens& x) {
          return step(sum, x, x.weights ? *x.weights : equal_share(chunk));
        },
        d_head, chunks);
    d_head = after;
    losses.push_back(parts.losses.reshape({whole}));
    d_hidden.push_back(parts.d_hidden.reshape({whole, d}));
  }
  if (const int64_t rest = n - whole; rest > 0) {
    const PadWidth more = {0, rows_to_fill(n, chunk)};
    // The last token again, whose loss is finite where all are, and counts for nothing more.
    const Tokens last = {pad(h.slice(0, whole, n), {more, {}}, PadMode::kEdge),
                         pad(targets.slice(0, whole, n), {more}, PadMode::kEdge)};
    const Array share = weights ? weights->slice(0, whole, n) : equal_share(rest);
    const auto [after, parts] = step(d_head, last, pad(share, {more}));
    d_head = after;
    losses.push_back(parts.losses.slice(0, 0, rest));
    d_hidden.push_back(parts.d_hidden.slice(0, 0, rest));
  }
  return {concatenate(losses), {concatenate(d_hidden), d_head}};
}

// The same of all shares of a batch.
std::pair<Array, std::pair<Array, Array>> losses_and_gradients(const Array& h, const Array& w,
                                                              const Array& t,
                                                              const std::optional<Array>& weights,
                                                              int64_t chunk, int64_t parts) {
  const int64_t n = t.size(), d = h.dim(1);
  if (parts == 1) return losses_of_share(h, w, t, weights, chunk, n);
  Tokens all = {in_parts(h, parts), in_parts(t.reshape({n}), parts)};
  if (weights) all.weights = in_parts(*weights, parts);
  const auto [losses, gradients] = vmap([&](const Array& head, const Tokens& x) {
    return losses_of_share(x.hidden, head, x.targets, x.weights, chunk, n);
  })(repeat_for_parts(w, parts), all);
  return {losses.reshape({n}), {gradients.first.reshape({n, d}), sum(gradients.second, 0)}};
}

// Some columns of the head, [d, words] or [words, d], and the number of the first.
struct Columns {
  Array head, first;
};
STOW_TREE(Columns, head, first);

// A head of [d, V], or [V, d] where `axis` is 0, wherever it lies, gone through `block` columns at
// a time.
struct Vocabulary {
  Array head;
  int axis;
  int64_t block;

  // step(carry, Columns) gives the carry, and None or an array with an axis of as many words as the
  // columns have, `out_axis`; fewer of them at last, behind the loop. Returns the carry, and those
  // of all columns as one.
  template <typename Carry, typename Step>
  auto go_through(const Carry& carry, const Step& step, int out_axis = 0) const {
    const int64_t size = head.dim(axis), words = std::min(block, size),
                  whole = size / words * words;
    Dims dims = head.shape().dims();
    dims[static_cast<size_t>(axis)] = words;
    dims.insert(dims.begin() + axis, whole / words);
    const Columns blocks = {head.slice(axis, 0, whole).reshape(dims),
                            arange(0, whole, words, DType::kI64)};
    auto result = scan(step, carry, blocks, {.axes = {axis, 0}, .out_axes = {out_axis}});
    constexpr bool stacks = std::same_as<decltype(result.second), Array>;
    if constexpr (stacks) {
      dims = result.second.shape().dims();
      dims.erase(dims.begin() + out_axis);
      dims[static_cast<size_t>(out_axis)] = whole;
      result.second = result.second.reshape(dims);
    }
    if (whole == size) return result;
    const Columns rest = {head.slice(axis, whole, size),
                          full({}, static_cast<double>(whole), DType::kI64)};
    auto last = step(result.first, rest);
    if constexpr (stacks) last.second = concatenate({result.second, last.second}, out_axis);
    return last;
  }

  // The head's columns for a product with hidden states of that type, [d, words].
  Array matrix(const Columns& columns, DType compute) const {
    const Array w = device_put(columns.head, MemoryKind::kDevice).astype(compute);
    return axis == 1 ? w : swapaxes(w, 0, 1);
  }
};

// Whose column is among these: [N, words].
Array hits(const Array& targets, const Columns& columns, int64_t words) {
  return expand_dims(targets - columns.first, 1) == iota({words}, 0, DType::kI64);
}

struct Seen {
  Array logsumexp, picked;  // [N]: of the columns so far, and the target's logit if among them
};
STOW_TREE(Seen, logsumexp, picked);

// The loss of linear_cross_entropy_in_blocks, and its gradients, for h [N, d] and t [N].
class LossInBlocks {
 public:
  LossInBlocks(const Array& h, const Vocabulary& vocabulary, const Array& t)
      : h_(h), vocabulary_(vocabulary), t_(t.astype(DType::kI64)) {}

  // The loss, and the logsumexp of each token's logits.
  std::pair<Array, Array> loss() const {
    const Array nothing = full({n()}, -std::numeric_limits<double>::infinity(), wide());
    const auto step = [&](const Seen& seen, const Columns& columns) {
      const Array w = vocabulary_.matrix(columns, h_.dtype());
      const Array logits = matmul(h_, w).astype(wide());
      const Array own = where(hits(t_, columns, w.dim(1)), logits, 0.0);
      return std::pair(Seen{logaddexp(seen.logsumexp, logsumexp(logits, -1)),
                            seen.picked + sum(own, -1)},
                       None{});
    };
    const Seen all = vocabulary_.go_through(Seen{nothing, zeros({n()}, wide())}, step).first;
    return {mean(all.logsumexp - all.picked), all.logsumexp};
  }

  // The gradients of h and of the head where that of the loss is `ct`.
  std::pair<Array, Array> gradients(const Array& logsumexp, const Array& ct) const {
    const Array share = ct.astype(wide()) * (1.0 / static_cast<double>(n()));
    const auto step = [&](const Array& sum, const Columns& columns) {
      const Array w = vocabulary_.matrix(columns, h_.dtype());
      const Array p = exp(matmul(h_, w).astype(wide()) - expand_dims(logsumexp, 1));
      const Array one = hits(t_, columns, w.dim(1)).astype(wide());
      const Array g = ((p - one) * share).astype(h_.dtype());
      const Array dw = vocabulary_.axis == 1 ? matmul(swapaxes(h_, 0, 1), g)
                                             : matmul(swapaxes(g, 0, 1), h_);
      return std::pair(sum + matmul(g, swapaxes(w, 0, 1)).astype(wide()),
                       dw.astype(vocabulary_.head.dtype()));
    };
    const auto [dh, dw] =
        vocabulary_.go_through(zeros({n(), h_.dim(1)}, wide()), step, vocabulary_.axis);
    return {dh.astype(h_.dtype()), dw};
  }

 private:
  int64_t n() const { return h_.dim(0); }
  DType wide() const { return loss_dtype(h_); }

  Array h_;
  Vocabulary vocabulary_;
  Array t_;
};

void check_head(const char* name, const Array& hidden, const Array& head, int axis) {
  if (hidden.rank() < 1 || head.rank() != 2 || hidden.dim(-1) != head.dim(1 - axis) ||
      !is_float(hidden.dtype()) || !is_float(head.dtype()))
    trace_error_here("[{}] expected floats [..., d] and {}, got hidden {} and head {}", name,
                     axis == 1 ? "[d, V]" : "[V, d]", to_string(hidden.type()),
                     to_string(head.type()));
}

void check_blocks(const char* name, const Array& hidden, const Array& head, int64_t block,
                  int axis) {
  if (block <= 0) trace_error_here("[{}] expected a block of at least 1 word, got {}", name, block);
  if (axis != 0 && axis != 1)
    trace_error_here("[{}] expected axis 0 or 1 of the head, got {}", name, axis);
  check_head(name, hidden, head, axis);
  if (head.dim(axis) == 0)
    trace_error_here("[{}] expected a head with words, got {}", name, to_string(head.type()));
}

void check_targets(const char* name, const Array& hidden, const Array& targets) {
  const Dims lead(hidden.shape().begin(), hidden.shape().end() - 1);
  if (targets.shape().dims() != lead)
    trace_error_here("[{}] targets for hidden {} must be of shape ({}), got {}", name,
                     to_string(hidden.type()), to_string(Shape(lead)), to_string(targets.type()));
  if (!is_integer(targets.dtype()))
    trace_error_here("[{}] targets must be integers, got {}", name, to_string(targets.type()));
  if (targets.size() == 0)
    trace_error_here("[{}] expected at least one target, got {}", name, to_string(targets.type()));
}

void check_chunk(const char* name, int64_t tokens, int64_t chunk, int64_t parts) {
  if (chunk <= 0) trace_error_here("[{}] expected a positive chunk, got {}", name, chunk);
  if (parts <= 0 || tokens % parts != 0)
    trace_error_here("[{}] expected parts that divide {} tokens, got {}", name, tokens, parts);
}

}  // namespace

Array linear_cross_entropy(const Array& hidden, const Array& head, const Array& targets,
                           int64_t chunk, int64_t parts) {
  const char* const name = "linear_cross_entropy";
  check_head(name, hidden, head, 1);
  check_targets(name, hidden, targets);
  check_chunk(name, targets.size(), chunk, parts);
  const auto forward = [=](const Array& h, const Array& w, const Array& t) {
    const auto [losses, gradients] = losses_and_gradients(h, w, t, {}, chunk, parts);
    return std::pair(mean(losses.reshape(t.shape().dims())), gradients);
  };
  // Without a derivative the gradients are dead code.
  const auto value = [=](const Array& h, const Array& w, const Array& t) {
    return forward(h, w, t).first;
  };
  const auto backward = [](const std::pair<Array, Array>& gradients, const Array& ct) {
    const auto& [dh, dw] = gradients;
    return std::tuple(dh * ct.astype(dh.dtype()), dw * ct.astype(dw.dtype()), Array());
  };
  return custom_vjp(value, forward, backward)(hidden.reshape({targets.size(), head.dim(0)}), head,
                                              targets);
}

Array weighted_linear_cross_entropy(const Array& hidden, const Array& head, const Array& targets,
                                    const Array& weights, int64_t chunk, int64_t parts) {
  const char* const name = "weighted_linear_cross_entropy";
  check_head(name, hidden, head, 1);
  check_targets(name, hidden, targets);
  check_chunk(name, targets.size(), chunk, parts);
  if (weights.shape() != targets.shape() || weights.dtype() != DType::kF32)
    trace_error_here("[{}] expected f32 weights of the shape of targets {}, got {}", name,
                     to_string(targets.type()), to_string(weights.type()));
  const Dims dims = targets.shape().dims();
  // The sum is over the shape that it would have for all logits at once.
  const auto total = [dims](const Array& losses, const Array& shares) {
    return sum(losses.reshape(dims) * shares.reshape(dims));
  };
  const auto forward = [=](const Array& h, const Array& w, const Array& t, const Array& s) {
    const auto [losses, gradients] = losses_and_gradients(h, w, t, s, chunk, parts);
    return std::pair(total(losses, s), gradients);
  };
  const auto value = [=](const Array& h, const Array& w, const Array& t, const Array& s) {
    return forward(h, w, t, s).first;
  };
  const auto backward = [](const std::pair<Array, Array>& gradients, const Array& ct) {
    const auto& [dh, dw] = gradients;
    return std::tuple(dh * ct.astype(dh.dtype()), dw * ct.astype(dw.dtype()), Array(), Array());
  };
  const int64_t n = targets.size();
  return custom_vjp(value, forward, backward)(hidden.reshape({n, head.dim(0)}), head,
                                              targets.reshape({n}), weights.reshape({n}));
}

Array linear_cross_entropy_in_blocks(const Array& hidden, const Array& head, const Array& targets,
                                     int64_t block, int axis) {
  const char* const name = "linear_cross_entropy_in_blocks";
  check_blocks(name, hidden, head, block, axis);
  check_targets(name, hidden, targets);
  using Residuals = std::tuple<Array, Array, Array, Array>;
  const auto loss_of = [=](const Array& h, const Array& w, const Array& t) {
    return LossInBlocks(h, {w, axis, block}, t).loss();
  };
  const auto value = [=](const Array& h, const Array& w, const Array& t) {
    return loss_of(h, w, t).first;
  };
  const auto forward = [=](const Array& h, const Array& w, const Array& t) {
    const auto [loss, logsumexp] = loss_of(h, w, t);
    return std::pair(loss, Residuals(h, w, t, logsumexp));
  };
  const auto backward = [=](const Residuals& residuals, const Array& ct) {
    const auto& [h, w, t, logsumexp] = residuals;
    const auto [dh, dw] = LossInBlocks(h, {w, axis, block}, t).gradients(logsumexp, ct);
    return std::tuple(dh, dw, Array());
  };
  const int64_t n = targets.size();
  return custom_vjp(value, forward, backward)(hidden.reshape({n, hidden.dim(-1)}), head,
                                              targets.reshape({n}));
}

Array linear_in_blocks(const Array& hidden, const Array& head, int64_t block, int axis,
                       std::optional<DType> out) {
  check_blocks("linear_in_blocks", hidden, head, block, axis);
  const Vocabulary vocabulary{head, axis, block};
  const int64_t d = hidden.dim(-1);
  Dims dims = hidden.shape().dims();
  dims.back() = head.dim(axis);
  if (Shape(dims).elems() == 0 || d == 0) return zeros(Shape(dims), out.value_or(hidden.dtype()));
  const Array h = hidden.reshape({hidden.size() / d, d});
  const auto step = [&](const None&, const Columns& columns) {
    return std::pair(None{}, matmul(h, vocabulary.matrix(columns, h.dtype()), out));
  };
  return vocabulary.go_through(None{}, step, 1).second.reshape(dims);
}

namespace {

// Tokens with the product of their hidden states and A, [c, r].
struct AdapterTokens {
  Tokens tokens;
  Array z;
  std::optional<Array> slot;  // [c]
};
STOW_TREE(AdapterTokens, tokens, z, slot);

// x, whose gradient is 0 where it would not be finite.
Array with_finite_gradient(const Array& x) {
  const auto same = [](const Array& a) { return a; };
  const auto forward = [](const Array& a) { return std::pair(a, None{}); };
  const auto backward = [](const None&, const Array& ct) { return where(isfinite(ct), ct, 0.0); };
  return custom_vjp(same, forward, backward)(x);
}

// The log-probability of each target, [c]. Where logits are not finite it is NaN and has no
// gradient; where its own gradient is not finite it has none either: one product sums the gradients
// of all adapters' B over all tokens, and the zeros that a token has in other adapters' columns
// would not stop a NaN.
Array contained_log_probs(const Array& logits, const Array& targets) {
  const Array is_finite = all(isfinite(logits), 1);
  const Array kept = where(expand_dims(is_finite, 1), logits, 0.0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return with_finite_gradient(where(is_finite, -cross_entropy(kept, targets), nan));
}

// one(chunk of tokens) -> [c], over all of them, tree [n, ..] to [n].
template <typename One, typename T>
Array in_chunks(const One& one, const T& all, int64_t n, int64_t chunk) {
  if (n <= chunk) return one(all);
  // Zeros fill up the last chunk.
  const int64_t chunks = (n + chunk - 1) / chunk;
  const PadWidth more = {0, chunks * chunk - n};
  const T cut = tree_map(
      [&](const Array& x) {
        std::vector<PadWidth> widths(static_cast<size_t>(x.rank()));
        widths[0] = more;
        Dims dims = x.shape().dims();
        dims[0] = chunk;
        dims.insert(dims.begin(), chunks);
        return pad(x, widths).reshape(dims);
      },
      all);
  const Array made = scan([&](None, const T& x) { return std::pair(None{}, one(x)); }, None{}, cut)
                         .second;  // [chunks, chunk]
  return made.reshape({chunks * chunk}).slice(0, 0, n);
}

// share(weights, tokens) of each share of a batch, tree [n, ..] to [n].
template <typename Share, typename W, typename T>
Array of_shares(const Share& share, const W& weights, const T& all, int64_t parts) {
  if (parts == 1) return share(weights, all);
  return vmap(share)(repeat_for_parts(weights, parts),
                     tree_map([&](const Array& x) { return in_parts(x, parts); }, all));
}

}  // namespace

Array linear_log_probs(const Array& hidden, const Array& head, const Array& targets, int64_t chunk,
                       const std::optional<HeadAdapter>& adapter, int64_t parts) {
  const int64_t d = hidden.dim(-1), n = hidden.size() / std::max<int64_t>(d, 1);
  check_chunk("log_probs", n, chunk, parts);
  if (targets.size() != n)
    trace_error_here("[log_probs] expected a target for each hidden state, got {} for {}",
                     targets.size(), n);
  const Array rounded = head.astype(hidden.dtype());
  const Tokens all = {hidden.reshape({n, d}), targets.reshape({n})};
  const Dims dims = targets.shape().dims();
  if (!adapter) {
    const auto one = checkpoint(
        [](const Array& w, const Tokens& x) {
          return -cross_entropy(matmul(x.hidden, w, loss_dtype(x.hidden)), x.targets);
        },
        nullptr, {.prevent_cse = false});
    const auto share = [&](const Array& w, const Tokens& x) {
      return in_chunks([&](const Tokens& c) { return one(w, c); }, x, n / parts, chunk);
    };
    return of_shares(share, rounded, all, parts).reshape(dims);
  }
  const auto one = checkpoint(
      [](const Array& w, const Array& b, const AdapterTokens& x) {
        const Array logits = matmul(x.tokens.hidden, w, loss_dtype(x.tokens.hidden));
        const Array z = x.slot ? spread_slots(x.z, *x.slot, b.dim(1) / x.z.dim(1)) : x.z;
        const Array adapted = logits + dot_general(z, b, {1}, {1});
        return x.slot ? contained_log_probs(adapted, x.tokens.targets)
                      : -cross_entropy(adapted, x.tokens.targets);
      },
      nullptr, {.prevent_cse = false});
  AdapterTokens with = {all, adapter->z.reshape({n, adapter->z.dim(-1)}), {}};
  if (adapter->slot) with.slot = adapter->slot->reshape({n});
  using Heads = std::pair<Array, Array>;
  const auto share = [&](const Heads& w, const AdapterTokens& x) {
    return in_chunks([&](const AdapterTokens& c) { return one(w.first, w.second, c); }, x,
                     n / parts, chunk);
  };
  return of_shares(share, Heads(rounded, adapter->b), with, parts).reshape(dims);
}

}  // namespace stow::nn
