#include "tests/fuzz/random_step.h"

#include <algorithm>
#include <random>
#include <tuple>
#include <utility>

#include "stowage/stowage.h"

namespace stow::testing {
namespace {

using Arrays = std::vector<Array>;

// What a seed draws.
struct Form {
  explicit Form(uint64_t seed) : random(seed) {
    n_layers = pick({1, 2, 3, 5, 8});
    width = pick({32, 48, 64, 96, 128});
    hidden = width * pick({1, 2, 4});
    rows = pick({8, 32, 64, 200});
    words = pick({0, 0, 500, 2048, 6000});
    scanned = coin();
    residual = coin();
    clipped = pick({0, 0, 1}) > 0;
    momentum = pick({0, 1, 2});
    weights = place();
    state = place();
    activations = place();
    checkpointed = coin();
  }
  int64_t pick(std::initializer_list<int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  }
  bool coin() { return random() % 2 == 0; }
  MemoryKind place() {
    constexpr MemoryKind kPlaces[] = {MemoryKind::kPinnedHost, MemoryKind::kPinnedHost,
                                      MemoryKind::kDisk, MemoryKind::kDevice};
    return kPlaces[random() % std::size(kPlaces)];
  }

  std::mt19937_64 random;
  int64_t n_layers, width, hidden, rows, words, momentum;
  bool scanned, residual, clipped, checkpointed;
  MemoryKind weights, state, activations;
};

Array here(const Array& x) {
  return device_put(x, MemoryKind::kDevice);
}

Array layer(const Form& f, const Array& x, const Array& up, const Array& down) {
  const Array h = matmul(gelu(matmul(checkpoint_name(x, "x"), here(up))), here(down));
  return f.residual ? x + h : tanh(h);
}

// Weights: both matrices of every layer (stacked where scanned), then the embedding and the head.
Array loss(const Form& f, const Arrays& w, const Array& x, const Array& tokens) {
  PolicyPtr policy;
  if (f.checkpointed)
    policy = f.activations == MemoryKind::kDevice
                 ? save_only_these_names({"x"})
                 : save_and_offload_only_these_names({}, {"x"}, f.activations);
  const auto body = [&](const Array& x, const Arrays& w) { return layer(f, x, w[0], w[1]); };
  const auto block = [&](const Array& x, const Arrays& w) {
    return policy ? checkpoint(body, policy)(x, w) : body(x, w);
  };
  Array h = x;
  size_t rest = 2;
  if (f.words > 0) h = h + take(here(w[w.size() - 2]), tokens, 0);
  if (f.scanned) {
    const Arrays stacks = {w[0], w[1]};
    h = policy ? scan(checkpoint(body, policy), h, stacks) : scan(body, h, stacks);
  } else {
    rest = static_cast<size_t>(2 * f.n_layers);
    for (size_t i = 0; i < rest; i += 2) h = block(h, {w[i], w[i + 1]});
  }
  return f.words > 0 ? sum(logsumexp(matmul(h, here(w[rest + 1])), -1)) : sum(square(h));
}

}  // namespace

RandomProgram random_step(uint64_t seed) {
  const Form f(seed);
  const auto abstract = [](Dims dims, MemoryKind kind, DType dtype = DType::kF32) {
    return Array::abstract(ArrayType{dtype, Shape(std::move(dims)), kind});
  };
  const auto weights_in = [&](MemoryKind kind) {
    Arrays w;
    if (f.scanned) {
      w = {abstract({f.n_layers, f.width, f.hidden}, kind),
           abstract({f.n_layers, f.hidden, f.width}, kind)};
    } else {
      for (int64_t i = 0; i < f.n_layers; ++i) {
        w.push_back(abstract({f.width, f.hidden}, kind));
        w.push_back(abstract({f.hidden, f.width}, kind));
      }
    }
    if (f.words > 0) {
      w.push_back(abstract({f.words, f.width}, kind));
      w.push_back(abstract({f.width, f.words}, kind));
    }
    return w;
  };
  std::vector<Arrays> state;
  for (int64_t i = 0; i < f.momentum; ++i) state.push_back(weights_in(f.state));
  const auto step = [&](const Arrays& w, const std::vector<Arrays>& state, const Array& x,
                        const Array& tokens) {
    Arrays g = grad([&](const Arrays& p) { return loss(f, p, x, tokens); })(w);
    for (Array& a : g) a = here(a);
    if (f.clipped) {
      Array squares = sum(square(g[0]));
      for (size_t i = 1; i < g.size(); ++i) squares = squares + sum(square(g[i]));
      for (Array& a : g) a = a * minimum(1.0 / sqrt(squares + 1e-6), 1.0);
    }
    Arrays next;
    std::vector<Arrays> moments = state;
    for (size_t i = 0; i < w.size(); ++i) {
      Array update = g[i];
      if (f.momentum > 0) {
        const Array first = 0.9 * here(state[0][i]) + 0.1 * g[i];
        moments[0][i] = device_put(first, f.state);
        update = first;
      }
      if (f.momentum > 1) {
        const Array second = 0.99 * here(state[1][i]) + 0.01 * square(g[i]);
        moments[1][i] = device_put(second, f.state);
        update = update / (sqrt(second) + 1e-8);
      }
      next.push_back(device_put(here(w[i]) - 1e-3 * update, f.weights));
    }
    return std::pair(next, moments);
  };
  RandomProgram program;
  program.graph =
      jit(step)
          .lower(weights_in(f.weights), state, abstract({f.rows, f.width}, MemoryKind::kDevice),
                 abstract({f.rows}, MemoryKind::kDevice, DType::kI32))
          .graph();
  program.differentiated = true;
  const size_t n = program.graph.inputs().size();
  program.inputs.resize(n);
  program.donated.assign(n, true);
  // Not the rows and the tokens.
  for (size_t i = n; i-- > 0;)
    program.donated[i] =
        program.graph.type(program.graph.inputs()[i]).shape.dims() != Dims{f.rows, f.width} &&
        program.graph.type(program.graph.inputs()[i]).dtype == DType::kF32;
  return program;
}

}  // namespace stow::testing
