// The transformations that look at a leaf as a matrix: factored second moments and Muon.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "stowage/api/linalg.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/trace.h"
#include "stowage/optim/internal.h"
#include "stowage/optim/transforms.h"

namespace stow::optim {
namespace {

// The second largest and the largest axis of a shape that is worth factoring.
struct FactoredAxes {
  int rows = 0, cols = 0;
};
std::optional<FactoredAxes> factored_axes(const Shape& shape, const ScaleByFactoredRmsOptions& o) {
  if (!o.factored || shape.rank() < 2) return {};
  std::vector<int> axes(static_cast<size_t>(shape.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return shape[a] < shape[b]; });
  const FactoredAxes largest = {axes[axes.size() - 2], axes[axes.size() - 1]};
  if (shape[largest.rows] < o.min_dim_size_to_factor) return {};
  return largest;
}

Shape without_axis(const Shape& shape, int axis) {
  Dims dims = shape.dims();
  dims.erase(dims.begin() + axis);
  return Shape(dims);
}

void check_matrix(const char* what, const Leaf& leaf) {
  if (leaf.value.rank() < 2)
    fail_here("[{}] '{}' is {}, and no matrix; leave it to another optimizer with a mask", what,
              leaf.path, to_string(leaf.value.type()));
}

// x [m, n] with singular values near one. Source: Jordan et al. 2024.
Array newton_schulz(Array x, const ScaleByMuonOptions& o) {
  const bool tall = x.dim(-2) > x.dim(-1);
  if (tall) x = swapaxes(x, -1, -2);
  x = x / (sqrt(sum(square(x), {-2, -1}, true)) + o.eps);
  for (int i = 0; i < o.ns_steps; ++i) {
    const NsCoeffs& c = o.ns_coeffs[o.ns_coeffs.size() == 1 ? 0 : static_cast<size_t>(i)];
    const Array a = matmul(x, swapaxes(x, -1, -2));
    const Array b = a * c[1] + matmul(a * c[2], a);
    x = x * c[0] + matmul(b, x);
  }
  return tall ? swapaxes(x, -1, -2) : x;
}

// f(g, mu) of the matrices of two stacks [..., m, n], one after another: what it takes for one of
// them is there once, and a stack that lies elsewhere comes and goes matrix by matrix.
template <typename F>
std::vector<Array> of_each_matrix(const F& f, const Array& g, const Array& mu) {
  if (g.rank() == 2) return f(g, mu);
  const Dims stack = {-1, g.dim(-2), g.dim(-1)};
  const auto body = [&](None, const std::pair<Array, Array>& one) {
    return std::pair(None{}, f(one.first, one.second));
  };
  std::vector<Array> made =
      scan(body, None{}, std::pair(g.reshape(stack), mu.reshape(stack))).second;
  for (Array& a : made)
    if (a.rank() == 3) a = a.reshape(g.shape().dims());
  return made;
}

}  // namespace

GradientTransformation scale_by_factored_rms(const ScaleByFactoredRmsOptions& o) {
  const auto init = [=](const Leaves& params) {
    OptState state = {{"count", zero_count()}};
    for (const auto& [path, p] : params) {
      if (const auto axes = factored_axes(p.shape(), o)) {
        state["v_row/" + path] = moment_of(p, without_axis(p.shape(), axes->cols));
        state["v_col/" + path] = moment_of(p, without_axis(p.shape(), axes->rows));
      } else {
        state["v/" + path] = moment_like(p);
      }
    }
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves&) {
    const Array t = (state["count"] - (o.step_offset - 1)).astype(DType::kF32);
    const Array decay = 1.0 - pow(t, Array(-o.decay_rate));
    const auto moved = [&](const Array& moment, const Array& value) {
      return (moment * decay + value * (1.0 - decay)).astype(moment.dtype());
    };
    for (auto& [path, g] : updates) {
      const Scope scope(path);
      const Array squares = square(g) + o.epsilon;
      if (const auto axes = factored_axes(g.shape(), o)) {
        const auto [rows, cols] = *axes;
        Array &v_row = state["v_row/" + path], &v_col = state["v_col/" + path];
        v_row = moved(v_row, mean(squares, cols));
        v_col = moved(v_col, mean(squares, rows));
        const Array scale = mean(v_row, rows > cols ? rows - 1 : rows, true);
        g = g * expand_dims(rsqrt(v_row / scale), cols) * expand_dims(rsqrt(v_col), rows);
      } else {
        Array& v = state["v/" + path];
        v = moved(v, squares);
        g = g * rsqrt(v);
      }
    }
    state["count"] = increment(state["count"]);
  };
  return {"factored_rms", init, update};
}

GradientTransformation scale_by_muon(const ScaleByMuonOptions& o) {
  if (o.ns_coeffs.empty() ||
      (o.ns_coeffs.size() > 1 && o.ns_coeffs.size() != static_cast<size_t>(o.ns_steps)))
    trace_error("[muon] {} sets of Newton-Schulz coefficients for {} steps; give one, or one a step",
                o.ns_coeffs.size(), o.ns_steps);
  const auto init = [=](const Leaves& params) {
    OptState state = {{"count", zero_count()}};
    for (const Leaf& leaf : params) {
      check_matrix("muon", leaf);
      state["mu/" + leaf.path] = moment_like(leaf.value, o.mu_dtype);
    }
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves&) {
    const Array count = state["count"] = increment(state["count"]);
    // The update of one matrix, its moment and, where that is asked for, their dual norm.
    const auto step = [&](const Array& g, const Array& mu) {
      const Array m = update_moment(g, mu, o.beta);
      const Array m_hat =
          o.nesterov ? look_ahead(m, g, o.beta, count) : bias_correction(m, o.beta, count);
      const Array x = newton_schulz(m_hat, o);
      std::vector<Array> made = {x, m.astype(mu.dtype())};
      if (o.adaptive) made.push_back(sum(m_hat * x));
      return made;
    };
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      Array& mu = state["mu/" + leaf.path];
      const std::vector<Array> made = of_each_matrix(step, leaf.value, mu);
      leaf.value = o.adaptive ? made[0] * sum(made[2]) : made[0];
      mu = made[1];
    }
  };
  return {"muon", init, update};
}

GradientTransformation scale_by_shape(std::optional<double> consistent_rms) {
  return stateless("shape", [=](Leaves& updates, const Leaves&) {
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      check_matrix("scale_by_shape", leaf);
      const double in = static_cast<double>(leaf.value.dim(-2));
      const double out = static_cast<double>(leaf.value.dim(-1));
      leaf.value = leaf.value * (consistent_rms ? std::sqrt(std::max(in, out)) * *consistent_rms
                                                : std::sqrt(std::max(1.0, out / in)));
    }
  });
}

}  // namespace stow::optim
