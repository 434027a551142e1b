// Loops over a few numbers: the time of an iteration. bench/loops.py has the same in JAX.
// Not a test: it reads the clock. One thread.
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "stowage/stowage.h"

namespace {

using namespace stow;
using Arrays = std::vector<Array>;
using Function = std::function<Arrays(const Arrays&)>;

struct Case {
  std::string name;
  Function (*loop)(int steps);
  Arrays init;
};

Array f32(double value) { return Array::scalar(value, DType::kF32); }
Array i32(double value) { return Array::scalar(value, DType::kI32); }

/// while_loop over a counter and `body`'s carries.
template <class Body>
Function open(int steps, Body body) {
  return [=](const Arrays& init) {
    return while_loop([=](const Arrays& c) { return c[0] < steps; },
                      [=](const Arrays& c) {
                        Arrays next = body(Arrays(c.begin() + 1, c.end()));
                        next.insert(next.begin(), c[0] + 1);
                        return next;
                      },
                      init);
  };
}
template <class Body>
Function counted(int steps, Body body) {
  return [=](const Arrays& init) {
    return fori_loop(
        0, steps, [=](const Array& i, const Arrays& c) { return body(i, c); }, init);
  };
}
template <class Body>
Function scanned(int steps, Body body) {
  return [=](const Arrays& init) {
    const Array xs = arange(steps).astype(DType::kF32) * 0.001;
    auto [last, stacked] = scan(
        [=](const Arrays& c, const Array& x) {
          Arrays next = body(c, x);
          return std::pair(next, next[0]);
        },
        init, xs);
    last.push_back(stacked);
    return last;
  };
}

Array affine(const Array& x) { return x * 0.99 + 0.1; }
Arrays chains(const Arrays& c) {
  Arrays next;
  for (size_t k = 0; k < c.size(); ++k) next.push_back(c[k] * (0.99 - 0.2 * double(k)) + 0.1);
  return next;
}
Arrays turns(const Arrays& c) {
  Arrays next;
  for (size_t k = 0; k + 1 < c.size(); ++k) next.push_back(c[k] * 0.9 + c[k + 1] * 0.1);
  next.push_back(c.back() * 0.9 - c[0] * 0.1);
  return next;
}

std::vector<Case> cases() {
  return {
      {"open, 1 value", [](int n) { return open(n, chains); }, {i32(0), f32(1)}},
      {"open, 2 values", [](int n) { return open(n, chains); }, {i32(0), f32(1), f32(2)}},
      {"open, 4 values",
       [](int n) { return open(n, chains); },
       {i32(0), f32(1), f32(2), f32(3), f32(4)}},
      {"open, 2 dependent", [](int n) { return open(n, turns); }, {i32(0), f32(1), f32(2)}},
      {"open, 4 dependent",
       [](int n) { return open(n, turns); },
       {i32(0), f32(1), f32(2), f32(3), f32(4)}},
      {"counted, 1 value",
       [](int n) { return counted(n, [](const Array&, const Arrays& c) { return chains(c); }); },
       {f32(1)}},
      {"counted, 4 dependent",
       [](int n) { return counted(n, [](const Array&, const Arrays& c) { return turns(c); }); },
       {f32(1), f32(2), f32(3), f32(4)}},
      {"scan, 1 value",
       [](int n) {
         return scanned(n,
                        [](const Arrays& c, const Array& x) { return Arrays{c[0] * 0.9 + x}; });
       },
       {f32(1)}},
      {"scan, 2 values",
       [](int n) {
         return scanned(n, [](const Arrays& c, const Array& x) {
           return Arrays{c[0] * 0.9 + x, c[1] * 0.5 + c[0]};
         });
       },
       {f32(1), f32(2)}},
      {"chains of several dtypes",
       [](int n) {
         return open(n, [](const Arrays& c) {
           return Arrays{affine(c[0]), maximum(minimum(c[1] + 0.3, 10.0), -5.0), c[2] + 3};
         });
       },
       {i32(0), f32(1), f32(2), i32(3)}},
      {"bool and choice",
       [](int n) {
         return open(n, [](const Arrays& c) {
           return Arrays{where(c[1], c[0] * 0.5 + 0.1, c[0] * 1.25), logical_not(c[1])};
         });
       },
       {i32(0), f32(1), Array::scalar(1, DType::kBool)}},
      {"number beside 8",
       [](int n) {
         return open(n,
                     [](const Arrays& c) { return Arrays{affine(c[0]), c[1] * 0.99 + c[0]}; });
       },
       {i32(0), f32(1), full({8}, 1.5)}},
      {"8 numbers",
       [](int n) {
         return counted(n, [](const Array&, const Arrays& c) { return Arrays{affine(c[0])}; });
       },
       {full({8}, 1.5)}},
      {"choice",
       [](int n) {
         return counted(n, [](const Array& i, const Arrays& c) {
           const Array y = c[0] * 1.5 + 0.1;
           return Arrays{where(y > 2.0, y - 1.3, y * abs(y)) + i.astype(DType::kF32) * 1e-6};
         });
       },
       {f32(0.5)}},
      {"cond",
       [](int n) {
         return counted(n, [](const Array&, const Arrays& c) {
           return cond(
               c[0] > 2.0, [](const Arrays& c) { return Arrays{c[0] - 1.3}; },
               [](const Arrays& c) { return Arrays{c[0] * 1.5 + 0.1}; }, c);
         });
       },
       {f32(2)}},
      {"Newton",
       [](int n) {
         return counted(n, [](const Array&, const Arrays& c) {
           const Array& x = c[0];
           return Arrays{x - (x * x * x - 2.0 * x - 5.0) / (3.0 * x * x - 2.0)};
         });
       },
       {f32(2)}},
      {"bisection",
       [](int n) {
         return counted(n, [](const Array&, const Arrays& c) {
           const Array m = (c[0] + c[1]) * 0.5;
           const Array above = m * m * m - m * 2.0 - 5.0 > 0.0;
           return Arrays{where(above, c[0], m), where(above, m, c[1])};
         });
       },
       {f32(0), f32(5)}},
      {"Collatz",
       [](int n) {
         return open(n, [](const Arrays& c) {
           return Arrays{where(c[0] % 2 == 0, floor_divide(c[0], 2), c[0] * 3 + 1)};
         });
       },
       {i32(0), i32(77031)}},
      {"linear congruence",
       [](int n) {
         return counted(
             n, [](const Array&, const Arrays& c) { return Arrays{c[0] * 1664525 + 1013904223}; });
       },
       {i32(1)}},
      {"Runge-Kutta",
       [](int n) {
         return counted(n, [](const Array&, const Arrays& c) {
           const auto f = [](const Array& y) { return y * (1.0 - y) * 0.5; };
           const Array &y = c[0], k1 = f(y), k2 = f(y + k1 * 0.05), k3 = f(y + k2 * 0.05),
                       k4 = f(y + k3 * 0.1);
           return Arrays{y + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (0.1 / 6)};
         });
       },
       {f32(0.1)}},
      {"oscillator",
       [](int n) {
         return counted(n, [](const Array&, const Arrays& c) {
           const Array x = c[0] + c[1] * 0.005, v = c[1] - c[0] * 0.005;
           return Arrays{c[0] + v * 0.01, c[1] - x * 0.01};
         });
       },
       {f32(1), f32(0)}},
      {"pendulum, a sine",
       [](int n) {
         return counted(n, [](const Array&, const Arrays& c) {
           const Array v = c[1] + 0.01 * (-9.8 * sin(c[0]) - 0.1 * c[1]);
           return Arrays{c[0] + 0.01 * v, v};
         });
       },
       {f32(1), f32(1)}},
      {"loop of 10 in a loop",
       [](int n) {
         return counted(n / 10, [](const Array&, const Arrays& c) {
           return fori_loop(
               0, 10, [](const Array&, const Arrays& c) { return chains(c); }, c);
         });
       },
       {f32(1)}},
      {"loop of 3 in a loop",
       [](int n) {
         return counted(n, [](const Array&, const Arrays& c) {
           return fori_loop(
               0, 3, [](const Array&, const Arrays& c) { return turns(c); }, c);
         });
       },
       {f32(1), f32(2)}},
  };
}

double least_s(const Case& one, int steps) {
  constexpr int kRuns = 300;
  const auto compiled = jit(one.loop(steps)).lower(one.init).compile();
  double least = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Arrays results = compiled(one.init);
    least = std::min(
        least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

}  // namespace

int main() {
  constexpr int kFew = 1000, kMany = 5000;
  const DefaultDevice device(Device::cpu_with_capacity(int64_t{1} << 30, 1));
  for (const Case& one : cases())
    fmt::print("{}|{:.9f}|{:.9f}\n", one.name, least_s(one, kFew), least_s(one, kMany));
}
