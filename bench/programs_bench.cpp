// Ordinary training programs: the time of a step, and its loss. bench/programs.py has the same in
// JAX. Not a test: it reads the clock. One thread.
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "stowage/stowage.h"

namespace {

using namespace stow;
using Arrays = std::vector<Array>;
using Loss = std::function<Array(const Arrays& weights, const Arrays& data)>;

struct Program {
  std::string name;
  Loss loss;
  Arrays weights, data;
};

Array normal(int seed, const Shape& shape, double scale = 1) {
  return scale * random::normal(random::key(seed), shape);
}
Array integers(int seed, const Shape& shape, int64_t n) {
  return random::randint(random::key(seed), shape, 0, n);
}

/// Two towers and the loss of matching pairs, both ways.
Array contrastive(const Arrays& w, const Arrays& d) {
  const auto tower = [](const Array& x, const Array& up, const Array& down) {
    const Array h = matmul(relu(matmul(x, up)), down);
    return h / sqrt(sum(square(h), -1, {.keepdims = true}) + 1e-6);
  };
  const Array logits =
      matmul(tower(d[0], w[0], w[1]), transpose(tower(d[1], w[2], w[3]), {1, 0})) / 0.1;
  return -mean(diagonal(log_softmax(logits, 1))) - mean(diagonal(log_softmax(logits, 0)));
}

/// The forward recursion of CTC over 41 labels, blanks between them.
Array ctc(const Arrays& w, const Arrays& d) {
  constexpr double kNever = -1e30;
  const int64_t batch = 16, states = 41;
  const auto pick = [](const Array& scores, const Array& labels) { return take(scores, labels); };
  const Array emit = vmap(vmap(pick), {0, std::nullopt})(log_softmax(matmul(d[0], w[0]), -1), d[1]);
  const auto shifted = [&](const Array& a, int64_t by) {
    return concatenate({full({batch, by}, kNever), a.slice(1, 0, states - by)}, 1);
  };
  const Array first = emit.slice(0, 0, 1).reshape({batch, states}).slice(1, 0, 2);
  const Array last = scan(
      [&](const Array& a, const Array& e) {
        const Array two = where(d[2] > 0.5, shifted(a, 2), kNever);
        return e + logaddexp(logaddexp(a, shifted(a, 1)), two);
      },
      concatenate({first, full({batch, states - 2}, kNever)}, 1), emit.slice(0, 1, 100));
  return -mean(logaddexp(last.slice(1, 40, 41), last.slice(1, 39, 40)));
}

/// The partition function of a chain of 60 states.
Array crf(const Arrays& w, const Arrays& d) {
  const Array scores = matmul(d[0], w[0]);
  const Array last = scan(
      [&](const Array& a, const Array& e) { return e + logsumexp(expand_dims(a, 2) + w[1], 1); },
      scores.slice(0, 0, 1).reshape({16, 20}), scores.slice(0, 1, 60));
  return mean(logsumexp(last, 1));
}

Array embedding_bag(const Arrays& w, const Arrays& d) {
  const Array bags = sum(take(w[0], d[0]), 1);
  return mean(square(matmul(relu(matmul(bags, w[1])), w[2]) - d[1]));
}

/// A policy of 16 hidden units steers four states over 1000 steps.
Array control(const Arrays& w, const Arrays& d) {
  const auto step = [&](const std::pair<Array, Array>& c, const Array& noise) {
    const Array& x = c.first;
    const Array u = matmul(tanh(matmul(x, w[0]) + w[1]), w[2]);
    const Array next = 0.99 * x + 0.01 * (matmul(tanh(x), d[0]) + matmul(tanh(u), d[1]) + noise);
    return std::pair(next, c.second + sum(square(next)) + 0.1 * sum(square(u)));
  };
  return scan(step, std::pair(d[2], zeros({})), d[3]).second / 1000.0;
}

/// A neural ordinary differential equation: 40 steps of the classical Runge-Kutta method.
Array ode(const Arrays& w, const Arrays& d) {
  const double h = 0.05;
  const auto f = [&](const Array& y) { return matmul(tanh(matmul(y, w[0]) + w[1]), w[2]); };
  const Array end = scan(
      [&](const Array& y, const Array&) {
        const Array a = f(y), b = f(y + h / 2 * a), c = f(y + h / 2 * b), e = f(y + h * c);
        return y + h / 6 * (a + 2.0 * b + 2.0 * c + e);
      },
      d[0], arange(40));
  return mean(square(end - d[1]));
}

Array cnn(const Arrays& w, const Arrays& d) {
  const ConvOptions same{
      .padding = "SAME", .lhs_axes = "NHWC", .rhs_axes = "HWIO", .out_axes = "NHWC"};
  Array h = d[0];
  for (int i : {0, 1})
    h = max_pool(relu(conv_general_dilated(h, w[static_cast<size_t>(i)], same)), {2, 2}, {2, 2});
  const Array log_p = log_softmax(matmul(h.reshape({32, 7 * 7 * 32}), w[2]), -1);
  return -mean(sum(log_p * one_hot(d[1], 10), -1));
}

/// A gated recurrent unit over 100 steps.
Array gru(const Arrays& w, const Arrays& d) {
  const Array last = scan(
      [&](const Array& h, const Array& x) {
        const Array z = sigmoid(matmul(x, w[0]) + matmul(h, w[1]));
        const Array r = sigmoid(matmul(x, w[2]) + matmul(h, w[3]));
        const Array n = tanh(matmul(x, w[4]) + matmul(r * h, w[5]));
        return z * h + (1.0 - z) * n;
      },
      zeros({32, 64}), d[0]);
  return mean(square(matmul(last, w[6]) - d[1]));
}

/// The clipped policy gradient of PPO, with value and entropy.
Array ppo(const Arrays& w, const Arrays& d) {
  const int64_t n = 2048;
  const Array h = tanh(matmul(tanh(matmul(d[0], w[0])), w[1]));
  const Array log_p = log_softmax(matmul(h, w[2]), -1);
  const Array ratio = exp(take_along_axis(log_p, expand_dims(d[1], 1), 1).reshape({n}) - d[2]);
  const Array gain = mean(minimum(ratio * d[3], clip(ratio, 0.8, 1.2) * d[3]));
  const Array value_loss = mean(square(matmul(h, w[3]).reshape({n}) - d[4]));
  return -gain + 0.5 * value_loss + 0.01 * mean(sum(exp(log_p) * log_p, -1));
}

/// Two of eight experts for each of 512 tokens, all of them computed.
Array experts(const Arrays& w, const Arrays& d) {
  const auto [best, which] = top_k(softmax(matmul(d[0], w[0]), -1), 2);
  const Array gates = sum(one_hot(which, 8) * expand_dims(best, 2), 1);
  const Array h = relu(einsum("td,edf->tef", {d[0], w[1]}));
  const Array y = einsum("tef,efd->ted", {h, w[2]});
  return mean(square(sum(y * expand_dims(gates, 2), 1) - d[0]));
}

std::vector<Program> programs() {
  const Array labels = where(arange(41) % 2 == 0, full({41}, 0, DType::kI32), 1 + arange(41) % 29);
  const Array odd = (arange(41) % 2).astype(DType::kF32);
  return {
      {"contrastive",
       contrastive,
       {normal(1, {128, 256}, .1), normal(2, {256, 64}, .1), normal(3, {128, 256}, .1),
        normal(4, {256, 64}, .1)},
       {normal(5, {512, 128}), normal(6, {512, 128})}},
      {"CTC",
       ctc,
       {normal(1, {64, 30}, .1)},
       {normal(2, {100, 16, 64}), labels + zeros({16, 41}, DType::kI32), odd * ones({16, 41})}},
      {"CRF", crf, {normal(1, {64, 20}, .1), normal(2, {20, 20}, .1)}, {normal(3, {60, 16, 64})}},
      {"embedding bag",
       embedding_bag,
       {normal(1, {20000, 64}, .1), normal(2, {64, 64}, .1), normal(3, {64, 1}, .1)},
       {integers(4, {256, 32}, 20000), normal(5, {256, 1})}},
      {"control",
       control,
       {normal(1, {4, 16}, .3), zeros({16}), normal(2, {16, 2}, .3)},
       {normal(3, {4, 4}, .3), normal(4, {2, 4}, .3), normal(5, {8, 4}), normal(6, {1000, 8, 4})}},
      {"neural ODE",
       ode,
       {normal(1, {16, 64}, .2), zeros({64}), normal(2, {64, 16}, .2)},
       {normal(3, {128, 16}), normal(4, {128, 16})}},
      {"CNN",
       cnn,
       {normal(1, {3, 3, 1, 16}, .2), normal(2, {3, 3, 16, 32}, .1),
        normal(3, {7 * 7 * 32, 10}, .05)},
       {normal(4, {32, 28, 28, 1}), integers(5, {32}, 10)}},
      {"GRU",
       gru,
       {normal(1, {32, 64}, .1), normal(2, {64, 64}, .1), normal(3, {32, 64}, .1),
        normal(4, {64, 64}, .1), normal(5, {32, 64}, .1), normal(6, {64, 64}, .1),
        normal(7, {64, 1}, .1)},
       {normal(8, {100, 32, 32}), normal(9, {32, 1})}},
      {"PPO",
       ppo,
       {normal(1, {32, 64}, .1), normal(2, {64, 64}, .1), normal(3, {64, 6}, .1),
        normal(4, {64, 1}, .1)},
       {normal(5, {2048, 32}), integers(6, {2048}, 6), full({2048}, -1.79), normal(7, {2048}),
        normal(8, {2048})}},
      {"mixture of experts",
       experts,
       {normal(1, {64, 8}, .1), normal(2, {8, 64, 128}, .1), normal(3, {8, 128, 64}, .1)},
       {normal(4, {512, 64})}},
  };
}

void run(Program program) {
  constexpr int kSteps = 200;
  constexpr int kReported =
      20;  // the step whose loss is printed: later ones drift apart by rounding
  const Loss loss = program.loss;
  const auto step = [loss](const Arrays& weights, const Arrays& data) {
    const auto [value, gradients] = value_and_grad(loss)(weights, data);
    return std::pair(
        tree_map([](const Array& w, const Array& g) { return w - 0.001 * g; }, weights, gradients),
        value);
  };
  const auto compiled =
      jit(step, {.donate_argnums = {0}}).lower(program.weights, program.data).compile();
  const int64_t peak = compiled.memory_analysis().device().total_bytes;
  double least_s = 1e9;
  float reported = 0;
  for (int i = 0; i < kSteps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    auto [weights, value] = compiled(program.weights, program.data);
    least_s = std::min(
        least_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    program.weights = std::move(weights);
    if (i == kReported) reported = value.item<float>();
  }
  fmt::print("{}|{:.6f}|{:.7g}|{}\n", program.name, least_s, reported, peak);
}

}  // namespace

int main() {
  const DefaultDevice device(Device::cpu_with_capacity(int64_t{4} << 30, 1));
  for (Program& program : programs()) run(std::move(program));
}
