#include "tests/fuzz/random_state.h"

#include <algorithm>
#include <random>

#include "stowage/stowage.h"

namespace stow::testing {
namespace {

using Arrays = std::vector<Array>;

struct Form {
  bool clipped;
  int n_moments;
  MemoryKind weights, moments;

  explicit Form(std::mt19937_64& random) {
    const auto place = [&] { return static_cast<MemoryKind>(random() % kNumMemoryKinds); };
    clipped = random() % 2 == 0;
    n_moments = static_cast<int>(random() % 3);
    weights = place();
    moments = place();
  }
};

Array here(const Array& x) {
  return device_put(x, MemoryKind::kDevice);
}

// Every array is read by the next one's work: gradients come in the reverse order.
Array loss(const Arrays& w) {
  Array s = Array::scalar(0.5, DType::kF32);
  for (const Array& v : w) s = 0.5 * s + mean(tanh(here(v) * s));
  return s;
}

std::pair<Arrays, std::vector<Arrays>> step(const Form& f, const Arrays& w,
                                            const std::vector<Arrays>& moments) {
  Arrays g = grad(loss)(w);
  for (Array& a : g) a = here(a);
  if (f.clipped) {
    Array squares = sum(square(g[0]));
    for (size_t i = 1; i < g.size(); ++i) squares = squares + sum(square(g[i]));
    for (Array& a : g) a = a * minimum(1.0 / sqrt(squares + 1e-6), 1.0);
  }
  Arrays next;
  std::vector<Arrays> after = moments;
  for (size_t i = 0; i < w.size(); ++i) {
    Array update = g[i];
    for (size_t m = 0; m < moments.size(); ++m) {
      const Array moment = 0.9 * here(moments[m][i]) + 0.1 * (m == 0 ? g[i] : square(g[i]));
      after[m][i] = device_put(moment, f.moments);
      update = m == 0 ? moment : update / (sqrt(moment) + 1e-3);
    }
    next.push_back(device_put(here(w[i]) - 1e-2 * update, f.weights));
  }
  return {next, after};
}

}  // namespace

RandomState random_state(uint64_t seed, int n_arrays, bool small) {
  std::mt19937_64 random(seed);
  const Form f(random);
  RandomState state;
  state.clipped = f.clipped;
  state.weights = f.weights;
  Arrays w;
  for (int i = 0; i < n_arrays; ++i) {
    const int64_t elems = 1 + static_cast<int64_t>(random() % (small ? 256 : 8192));
    w.push_back(Array::abstract(ArrayType{DType::kF32, Shape{elems}, f.weights}));
    state.array_bytes += 4 * elems;
    state.largest_bytes = std::max(state.largest_bytes, 4 * elems);
  }
  std::vector<Arrays> moments(static_cast<size_t>(f.n_moments));
  for (Arrays& m : moments)
    for (const Array& v : w)
      m.push_back(Array::abstract(ArrayType{DType::kF32, v.shape(), f.moments}));
  RandomProgram& program = state.program;
  program.graph = jit([&](const Arrays& w, const std::vector<Arrays>& m) { return step(f, w, m); })
                      .lower(w, moments)
                      .graph();
  program.differentiated = true;
  for (ValueId v : program.graph.inputs())
    program.inputs.push_back(small ? random_values(v.value + 5, program.graph.type(v)) : Bytes());
  program.donated.assign(program.inputs.size(), true);
  state.what = fmt::format("seed {}: {} arrays on {}, {} moments on {}{}", seed, n_arrays,
                           memory_kind_name(f.weights), f.n_moments, memory_kind_name(f.moments),
                           f.clipped ? ", clipped" : "");
  return state;
}

}  // namespace stow::testing
