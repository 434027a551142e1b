#include "stowage/nn/loss.h"

#include "stowage/api/custom_vjp.h"
#include "stowage/api/grad.h"
#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/nn.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/trace.h"

namespace stow::nn {
namespace {

struct Tokens {
  Array hidden, targets;  // [c, d], [c]; or stacked [n, c, d], [n, c]
};
STOW_TREE(Tokens, hidden, targets);

struct Sums {
  Array loss, d_head;
};
STOW_TREE(Sums, loss, d_head);

// The loss and both gradients, one chunk of tokens after another; a shorter last one stands behind
// the loop. h [N, d], w [d, V], t [N].
std::pair<Array, std::pair<Array, Array>> loss_and_gradients(const Array& h, const Array& w,
                                                            const Array& t, int64_t chunk) {
  const int64_t n = t.dim(0), whole = n / chunk * chunk, d = h.dim(1);
  const Array rounded = w.astype(h.dtype());
  // A chunk's part of the mean, so that the cotangent of the whole is that of every part.
  const auto part = [=](const Array& x, const Array& y, const Array& targets) {
    return sum(cross_entropy(matmul(x, y), targets)) * (1.0 / static_cast<double>(n));
  };
  const auto step = [=](const Sums& total, const Tokens& x) {
    const auto [loss, gradients] = value_and_grad<0, 1>(part)(x.hidden, rounded, x.targets);
    const auto& [dh, dw] = gradients;
    return std::pair(Sums{total.loss + loss, total.d_head + dw.astype(w.dtype())}, dh);
  };
  Sums sums = {zeros({}, DType::kF32), zeros_like(w)};
  std::vector<Array> d_hidden;
  if (whole > 0) {
    const Tokens chunks = {h.slice(0, 0, whole).reshape({whole / chunk, chunk, d}),
                           t.slice(0, 0, whole).reshape({whole / chunk, chunk})};
    const auto [after, stacked] = scan(step, sums, chunks);
    sums = after;
    d_hidden.push_back(stacked.reshape({whole, d}));
  }
  if (whole < n) {
    const auto [after, last] = step(sums, {h.slice(0, whole, n), t.slice(0, whole, n)});
    sums = after;
    d_hidden.push_back(last);
  }
  return {sums.loss, {d_hidden.size() == 1 ? d_hidden[0] : concatenate(d_hidden), sums.d_head}};
}

}  // namespace

Array linear_cross_entropy(const Array& hidden, const Array& head, const Array& targets,
                           int64_t chunk) {
  if (chunk <= 0) fail_here("[linear_cross_entropy] a chunk of {} tokens", chunk);
  if (hidden.rank() < 1 || head.rank() != 2 || hidden.dim(-1) != head.dim(0) ||
      !is_float(hidden.dtype()) || !is_float(head.dtype()))
    fail_here("[linear_cross_entropy] hidden {} and head {}: floats [..., d] and [d, V] are needed",
              to_string(hidden.type()), to_string(head.type()));
  const Dims lead(hidden.shape().begin(), hidden.shape().end() - 1);
  if (targets.shape().dims() != lead)
    fail_here("[linear_cross_entropy] targets for hidden {} must be of shape ({}), got {}",
              to_string(hidden.type()), to_string(Shape(lead)), to_string(targets.type()));
  if (targets.size() == 0) fail_here("[linear_cross_entropy] no tokens: {}", to_string(targets.type()));
  const auto forward = [=](const Array& h, const Array& w, const Array& t) {
    return loss_and_gradients(h, w, t, chunk);
  };
  // Without a derivative the gradients are dead code.
  const auto value = [=](const Array& h, const Array& w, const Array& t) {
    return loss_and_gradients(h, w, t, chunk).first;
  };
  const auto backward = [](const std::pair<Array, Array>& gradients, const Array& ct) {
    const auto& [dh, dw] = gradients;
    return std::tuple(dh * ct.astype(dh.dtype()), dw * ct.astype(dw.dtype()), Array());
  };
  return custom_vjp(value, forward, backward)(hidden.reshape({targets.size(), head.dim(0)}), head,
                                              targets.reshape({targets.size()}));
}

}  // namespace stow::nn
