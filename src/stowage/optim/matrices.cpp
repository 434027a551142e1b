// The transformations that look at a leaf as a matrix: factored second moments and Muon.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "stowage/api/linalg.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/trace.h"
#include "stowage/optim/internal.h"
#include "stowage/optim/moments.h"
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
    trace_error_here(
        "[{}] expected a matrix, got {} for '{}'; leave it to another optimizer with a mask", what,
        to_string(leaf.value.type()), leaf.path);
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

// f(g, kept) of the matrices of stacks [..., m, n], one after another: what it takes for one of
// them is there once, and a stack that lies elsewhere comes and goes matrix by matrix. What is kept
// may have fewer axes of a matrix. Results have those of a matrix, of what is kept, and none, in
// this order.
template <typename F>
std::vector<Array> of_each_matrix(const F& f, const Array& g, const Moment::Parts& kept) {
  if (g.rank() == 2) return f(g, kept);
  const int lead = g.rank() - 2;
  const auto as_stack = [&](const Array& a) {
    Dims dims = a.shape().dims();
    dims.erase(dims.begin(), dims.begin() + lead);
    dims.insert(dims.begin(), -1);
    return a.reshape(dims);
  };
  std::vector<Array> stacks;
  for (const Array& a : kept) stacks.push_back(as_stack(a));
  const auto body = [&](None, const std::pair<Array, Moment::Parts>& one) {
    return std::pair(None{}, f(one.first, one.second));
  };
  std::vector<Array> made = scan(body, None{}, std::pair(as_stack(g), stacks)).second;
  for (size_t i = 0; i <= kept.size(); ++i)
    made[i] = made[i].reshape((i == 0 ? g : kept[i - 1]).shape().dims());
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
    trace_error(
        "[muon] expected one set of Newton-Schulz coefficients, or one for each of {} steps, got "
        "{}",
        o.ns_steps, o.ns_coeffs.size());
  const Moment mu("mu", Moment::Range::kSigned, o.moments, o.mu_dtype);
  const auto init = [=](const Leaves& params) {
    OptState state = {{"count", zero_count()}};
    for (const Leaf& leaf : params) {
      check_matrix("muon", leaf);
      mu.init(state, leaf);
    }
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves&) {
    const Array count = state["count"] = increment(state["count"]);
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      const Array salt = mu.is_compact() ? rounding_salt(count, leaf.path) : Array();
      // The update of one matrix, its moment and, where that is asked for, their dual norm.
      const auto step = [&](const Array& gradient, const Moment::Parts& kept) {
        const Array g = mu.is_compact() ? gradient.astype(DType::kF32) : gradient;
        const Array m = update_moment(g, mu.read(kept), o.beta);
        const Array m_hat =
            o.nesterov ? look_ahead(m, g, o.beta, count) : bias_correction(m, o.beta, count);
        const Array x = newton_schulz(m_hat, o);
        std::vector<Array> made = {x};
        for (const Array& part :
             mu.write(m, kept, mu.is_compact() ? rounding_bits(salt, m) : Array()))
          made.push_back(part);
        if (o.adaptive) made.push_back(sum(m_hat * x));
        return made;
      };
      const std::vector<Array> made = of_each_matrix(step, leaf.value, mu.parts(state, leaf.path));
      leaf.value = o.adaptive ? made[0] * sum(made.back()) : made[0];
      mu.set_parts(state, leaf.path,
                   {made.begin() + 1, made.end() - (o.adaptive ? 1 : 0)});
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
