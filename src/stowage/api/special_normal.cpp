// The normal distribution, entropies and Bessel functions: declared in special.h.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "stowage/api/custom_vjp.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/shaping.h"
#include "stowage/api/special_internal.h"

namespace stow {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kRootHalf = std::numbers::sqrt2 / 2;
const double kLogRootTwoPi = 0.5 * std::log(2 * std::numbers::pi);

// The operands in f64, broadcast to each other.
struct Wide {
  Arrays arrays;
  WeakDType dtype;
};
Wide widened(const char* name, std::initializer_list<Operand> operands) {
  WeakDType dtype = operands.begin()->dtype();
  for (const Operand& x : operands) dtype = promote(dtype, x.dtype());
  if (!is_float(dtype.dtype)) dtype.dtype = DType::kF32;
  Arrays arrays;
  for (const Operand& x : operands) arrays.push_back(to_array(x, dtype));
  Shape shape = arrays[0].shape();
  for (const Array& x : arrays) shape = broadcast_shapes(name, {dtype.dtype, shape}, x.type());
  for (Array& x : arrays) x = broadcast_array(x, shape);
  return {arrays, dtype};
}
Arrays converted(Arrays arrays, DType dtype) {
  for (Array& x : arrays) x = convert_to(x, dtype);
  return arrays;
}

// Below this, where erfc is too small, ndtr(x) is the density over -x times an asymptotic series.
constexpr double kFar = -20;
Array far_series(const Array& x) {
  const Array r = 1.0 / square(x);
  Array series = ones_like(x);
  for (const double odd : {17, 15, 13, 11, 9, 7, 5, 3, 1}) series = 1.0 - odd * r * series;
  return series;
}
Array log_density(const Array& x) {
  return -0.5 * square(x) - kLogRootTwoPi;
}

Array log_ndtr_value(const Array& x) {
  const Array below = x <= kFar, y = where(below, x, kFar);
  const Array tail = log_density(y) - log(-y) + log(far_series(y));
  const Array near = where(below, kFar, x), above = near > 0.0;
  const Array rest = 0.5 * erfc(where(above, near, -near) * kRootHalf);
  return where(below, tail, where(above, log1p(-rest), log(where(above, 1.0, rest))));
}

Array log_ndtr_slope(const Array& x) {
  const Array below = x <= kFar, y = where(below, x, kFar), near = where(below, kFar, x);
  return where(below, -y / far_series(y), exp(log_density(near) - log_ndtr_value(near)));
}

// Chebyshev coefficients in x / 2 - 2 of exp(-x) I0(x) and exp(-x) I1(x) / x for x up to 8, and in
// 32 / x - 2 of both times sqrt(x) beyond.
constexpr std::array<double, 27> kI0Near = {0.67679527440947607, -0.30468267234319835,
    0.17162090152220869, -0.094901097048047528, 0.049305284239670545, -0.02373741480589928,
    0.010546460394594807, -0.0043243099950504302, 0.0016394756169411616, -0.00057637557453843068,
    0.00018850288509562416, -5.7541950100551758e-05, 1.6448448070389357e-05,
    -4.4167383581858975e-06, 1.1173875387771747e-06, -2.6707938503596939e-07,
    6.0469949769613923e-08, -1.3000249621269609e-08, 2.6598232122175935e-09,
    -5.1897916338819898e-10, 9.6757700681108453e-11, -1.7267906491638327e-11,
    2.9546268120387956e-12, -4.8527734944608243e-13, 7.6292302553584994e-14,
    -1.1311189615156869e-14, 1.1773465232248203e-15};
constexpr std::array<double, 22> kI0Far = {0.80449041101410879, 0.0033691164782557108,
    6.8897583469140815e-05, 2.8913705208571255e-06, 2.0489185886514081e-07,
    2.2666690007965006e-08, 3.396231916482674e-09, 4.9406024646859311e-10, 1.1889059711223983e-11,
    -3.1499167946289624e-11, -1.3215899895713951e-11, -1.7940704477581448e-12,
    7.1778465766600412e-13, 3.8529720538214853e-13, 1.5239869912905822e-14,
    -4.1417802347509801e-14, -9.7878671313778031e-15, 4.0156766800691914e-15,
    1.4653772986705781e-15, -2.5803686444503258e-16, -4.3208383919413062e-16,
    1.0822397665533057e-16};
constexpr std::array<double, 26> kI1Near = {0.25258718644363359, -0.17641651835783403,
    0.10264365868984704, -0.052945981208094926, 0.024726449030626436, -0.010564084894626107,
    0.0041564229443127997, -0.001513572450631176, 0.00051228595616849726, -0.00016176081582581654,
    4.7815651075397909e-05, -1.3273163655910739e-05, 3.4702513079873775e-06,
    -8.5687202632048366e-07, 2.0032947518793591e-07, -4.4450591100751271e-08,
    9.3815371669773657e-09, -1.8872495159667029e-09, 3.6255879111238838e-10,
    -6.6634690458564762e-11, 1.1735994538840166e-11, -1.9837889447468782e-12,
    3.2218078333375252e-13, -5.0225274988795717e-14, 7.3841668253604203e-15,
    -8.8905689451038171e-16};
constexpr std::array<double, 22> kI1Far = {0.77857623501828011, -0.0097610974913614496,
    -0.00011058893876264874, -3.8825648088543828e-06, -2.5122362386870223e-07,
    -2.6314688364274808e-08, -3.8353804911748016e-09, -5.5897433415014881e-10,
    -1.8975044997174459e-11, 3.2526038190941465e-11, 1.4125724765237657e-11,
    2.0357376938687223e-12, -7.2007355373521212e-13, -4.0832858036639332e-13,
    -2.1170539279968815e-14, 4.2818646848671871e-14, 1.0192840495248934e-14,
    -3.6072089325961396e-15, -2.1850544377338687e-15, 4.2255370209798303e-16,
    1.4520231805120744e-16, 4.445987848711308e-17};

template <size_t near, size_t far>
Array bessel(const Array& x, const std::array<double, near>& a, const std::array<double, far>& b) {
  const Array small = x <= 8.0;
  // Each kept within its reach, lest the one that does not count make a derivative NaN.
  const Array at = where(small, 8.0, x), low = where(small, x, 8.0);
  return where(small, chebyshev(a, low * 0.5 - 2.0), chebyshev(b, 32.0 / at - 2.0) / sqrt(at));
}

Array i0e_value(const Array& x) {
  return bessel(abs(x), kI0Near, kI0Far);
}
Array i1e_value(const Array& x) {
  const Array small = abs(x) <= 8.0, part = bessel(abs(x), kI1Near, kI1Far);
  return part * where(small, x, sign(x));
}

Array ndtri_value(const Array& p) {
  const Array lower = p <= 0.5, inside = logical_and(p > 0.0, p < 1.0);
  const Array part = where(inside, where(lower, p, 1.0 - p), 0.5), goal = log(part);
  // log_ndtr rises and is concave, so from below Newton's steps never go too far.
  Array x = -sqrt(-2.0 * goal);
  for (int i = 0; i < 6; ++i) {
    const Array at = log_ndtr_value(x);
    x = x - (at - goal) * exp(at - log_density(x));
  }
  const Array end = where(p == 0.0, -kInf, where(p == 1.0, kInf, std::nan("")));
  return where(inside, where(p == 0.5, 0.0, where(lower, x, -x)), end);
}

}  // namespace

Array with_derivatives(const char* name, std::initializer_list<Operand> operands,
                       std::function<Array(const Arrays&)> value,
                       std::function<Arrays(const Arrays&)> derivatives, size_t n_fixed) {
  const CallSiteScope site(operands.begin()->at);
  const SourceLocation at = context().site;
  const Wide w = widened(name, operands);
  return run_as_one(name, [&] {
    const auto split = w.arrays.begin() + static_cast<ptrdiff_t>(n_fixed);
    const Arrays fixed = converted({w.arrays.begin(), split}, DType::kF64);
    const auto all = [&](const Arrays& rest) {
      Arrays joined = fixed;
      for (const Array& x : rest) joined.push_back(convert_to(x, DType::kF64));
      return joined;
    };
    const auto function = [&](const Arrays& rest) {
      const CallSiteScope here(at);
      return convert_to(value(all(rest)), w.dtype.dtype);
    };
    const auto forward = [&](const Arrays& rest) { return std::pair(function(rest), rest); };
    const auto backward = [&](const Arrays& rest, const Array& ct) {
      const CallSiteScope here(at);
      Arrays cotangents = derivatives(all(rest));
      for (Array& slope : cotangents)
        slope = convert_to(convert_to(ct, DType::kF64) * slope, w.dtype.dtype);
      return cotangents;
    };
    const Arrays rest = converted({split, w.arrays.end()}, w.dtype.dtype);
    return with_weak(custom_vjp(function, forward, backward, at)(rest), w.dtype.weak);
  });
}

Array compute_in_f64(const char* name, std::initializer_list<Operand> operands,
                     const std::function<Array(const Arrays&)>& value) {
  const CallSiteScope site(operands.begin()->at);
  const Wide w = widened(name, operands);
  return run_as_one(name, [&] {
    return with_weak(convert_to(value(converted(w.arrays, DType::kF64)), w.dtype.dtype),
                     w.dtype.weak);
  });
}

Array chebyshev(std::span<const double> c, const Array& t) {
  Array b0 = zeros_like(t), b1 = b0, b2 = b0;
  for (size_t i = c.size(); i-- > 0;) {
    b2 = b1;
    b1 = b0;
    b0 = t * b1 - b2 + c[i];
  }
  return 0.5 * (b0 - b2);
}

Array ndtr(const Operand& x) {
  return compute_in_f64("ndtr", {x}, [](const Arrays& v) { return 0.5 * erfc(v[0] * -kRootHalf); });
}

Array log_ndtr(const Operand& x) {
  return with_derivatives(
      "log_ndtr", {x}, [](const Arrays& v) { return log_ndtr_value(v[0]); },
      [](const Arrays& v) { return Arrays{log_ndtr_slope(v[0])}; });
}

Array ndtri(const Operand& p) {
  return with_derivatives(
      "ndtri", {p}, [](const Arrays& v) { return ndtri_value(v[0]); },
      [](const Arrays& v) { return Arrays{exp(-log_density(ndtri_value(v[0])))}; });
}

Array logit(const Operand& x) {
  return with_derivatives(
      "logit", {x}, [](const Arrays& v) { return log(v[0] / (1.0 - v[0])); },
      [](const Arrays& v) { return Arrays{1.0 / (v[0] * (1.0 - v[0]))}; });
}

namespace {

Array times_log(const Array& x, const Array& y, const Array& log_y) {
  return where(logical_and(x == 0.0, ~isnan(y)), 0.0, x * log_y);
}

}  // namespace

Array xlogy(const Operand& x, const Operand& y) {
  return with_derivatives(
      "xlogy", {x, y}, [](const Arrays& v) { return times_log(v[0], v[1], log(v[1])); },
      [](const Arrays& v) {
        return Arrays{log(v[1]), v[0] / v[1]};
      });
}

Array xlog1py(const Operand& x, const Operand& y) {
  return with_derivatives(
      "xlog1py", {x, y}, [](const Arrays& v) { return times_log(v[0], v[1], log1p(v[1])); },
      [](const Arrays& v) {
        return Arrays{log1p(v[1]), v[0] / (1.0 + v[1])};
      });
}

Array entr(const Operand& x) {
  const auto value = [](const Arrays& v) {
    return where(v[0] < 0.0, -kInf, where(v[0] == 0.0, 0.0, -(v[0] * log(v[0]))));
  };
  return with_derivatives("entr", {x}, value,
                          [](const Arrays& v) { return Arrays{-(log(v[0]) + 1.0)}; });
}

Array rel_entr(const Operand& p, const Operand& q) {
  const auto positive = [](const Arrays& v) { return logical_and(v[0] > 0.0, v[1] > 0.0); };
  const auto value = [=](const Arrays& v) {
    const Array none = logical_and(v[0] == 0.0, v[1] >= 0.0);
    const Array terms = v[0] * log(v[0]) - v[0] * log(v[1]);
    return where(positive(v), terms, where(none, 0.0, kInf));
  };
  const auto slopes = [=](const Arrays& v) {
    const Array inside = positive(v);
    return Arrays{where(inside, log(v[0]) + 1.0 - log(v[1]), 0.0),
                  where(inside, -(v[0] / v[1]), 0.0)};
  };
  return with_derivatives("rel_entr", {p, q}, value, slopes);
}

Array kl_div(const Operand& p, const Operand& q) {
  const CallSiteScope site(p.at);
  return run_as_one("kl_div", [&] { return rel_entr(p, q) - p + q; });
}

Array bessel_i0e(const Operand& x) {
  const auto slopes = [](const Arrays& v) {
    return Arrays{i1e_value(v[0]) - sign(v[0]) * i0e_value(v[0])};
  };
  return with_derivatives(
      "bessel_i0e", {x}, [](const Arrays& v) { return i0e_value(v[0]); }, slopes);
}

Array bessel_i1e(const Operand& x) {
  const auto slopes = [](const Arrays& v) {
    const Array tiny = abs(v[0]) < 1e-8, at = where(tiny, 1.0, v[0]);
    const Array slope = i0e_value(at) - i1e_value(at) * (sign(at) + 1.0 / at);
    return Arrays{where(tiny, 0.5, slope)};
  };
  return with_derivatives(
      "bessel_i1e", {x}, [](const Arrays& v) { return i1e_value(v[0]); }, slopes);
}

}  // namespace stow
