#include "tests/fuzz/random_net.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>

namespace stow::testing {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int below(uint64_t n) { return static_cast<int>(random_() % n); }
  bool coin() { return below(2) > 0; }
  int64_t power(int64_t least, uint64_t n) { return least << below(n); }

 private:
  std::mt19937_64 random_;
};

Array convolve_nhwc(const Array& x, const Array& w, int64_t stride = 1) {
  return conv_general_dilated(x, w, {.strides = {stride, stride},
                                     .padding = "SAME",
                                     .lhs_axes = "NHWC",
                                     .rhs_axes = "HWIO",
                                     .out_axes = "NHWC"});
}
Array twice_as_large(const Array& x) {
  const Dims d = x.shape().dims();
  return broadcast_to(x.reshape({d[0], d[1], 1, d[2], 1, d[3]}), {d[0], d[1], 2, d[2], 2, d[3]})
      .reshape({d[0], 2 * d[1], 2 * d[2], d[3]});
}

struct UNet {
  enum Down { kMaxPool, kAveragePool, kStride, kNumDowns };
  int depth, function, down;
  bool transposed, added, two_convolutions, normalized;
  int64_t channels, size, batch;

  UNet(Draw draw, bool small) {
    depth = 1 + draw.below(3);
    function = 1 + draw.below(6);
    down = draw.below(kNumDowns);
    transposed = draw.coin();
    added = draw.coin();
    two_convolutions = draw.coin();
    normalized = draw.below(4) == 0;
    channels = draw.power(small ? 1 : 4, 2);
    size = small ? 8 : draw.power(32, 2);
    batch = draw.power(1, small ? 1 : 3);
  }

  std::vector<Array> weights() const {
    std::vector<Array> w;
    const auto add = [&](int64_t from, int64_t to, int64_t extent = 3) {
      w.push_back(Array::abstract({extent, extent, from, to}));
    };
    int64_t from = 3;
    for (int d = 0; d <= depth; ++d) {
      const int64_t to = channels << d;
      add(from, to);
      if (two_convolutions) add(to, to);
      if (d < depth && down == kStride) add(to, to);
      from = to;
    }
    for (int d = depth; d-- > 0; from /= 2) {
      const int64_t to = channels << d;
      add(from, to, transposed ? 2 : 1);
      add(added ? to : 2 * to, to);
      if (two_convolutions) add(to, to);
    }
    return w;
  }

  Array operator()(const std::vector<Array>& w, const Array& x) const {
    size_t next = 0;
    const auto block = [&](const Array& x) {
      Array t = convolve_nhwc(x, w[next++]);
      if (normalized) t = standardize(t);
      t = elementwise_function(function, t);
      if (two_convolutions) t = elementwise_function(function, convolve_nhwc(t, w[next++]));
      return t;
    };
    std::vector<Array> skips;
    Array h = block(x);
    for (int d = 0; d < depth; ++d) {
      skips.push_back(h);
      if (down == kMaxPool) h = max_pool(h, {2, 2}, {2, 2});
      if (down == kAveragePool) h = avg_pool(h, {2, 2}, {2, 2});
      if (down == kStride) h = convolve_nhwc(h, w[next++], 2);
      h = block(h);
    }
    for (; !skips.empty(); skips.pop_back()) {
      if (transposed) {
        h = conv_transpose(h, w[next++], {2, 2},
                           {.lhs_axes = "NHWC", .rhs_axes = "HWIO", .out_axes = "NHWC"});
      } else {
        h = convolve_nhwc(twice_as_large(h), w[next++]);
      }
      h = block(added ? h + skips.back() : concatenate({h, skips.back()}, 3));
    }
    return h;
  }
};

struct Mixture {
  int n_layers, n_chosen, function;
  bool dispatched, residual, normalized;
  int64_t tokens, width, experts, hidden;

  Mixture(Draw draw, bool small) {
    n_layers = 1 + draw.below(small ? 2 : 4);
    n_chosen = 1 + draw.below(2);
    function = 1 + draw.below(6);
    dispatched = draw.coin();
    residual = draw.below(3) > 0;
    normalized = draw.coin();
    tokens = small ? 16 : draw.power(512, 3);
    width = small ? 8 : draw.power(32, 2);
    experts = draw.power(2, small ? 2 : 3);
    hidden = width * draw.power(1, 3);
  }

  std::vector<Array> weights() const {
    std::vector<Array> w;
    for (int i = 0; i < n_layers; ++i) {
      w.push_back(Array::abstract({width, experts}));
      w.push_back(Array::abstract({experts, width, hidden}));
      w.push_back(Array::abstract({experts, hidden, width}));
    }
    return w;
  }

  Array operator()(const std::vector<Array>& w, const Array& x) const {
    Array h = x;
    for (size_t i = 0; i < w.size(); i += 3) {
      const Array out = layer(normalized ? standardize(h) : h, w[i], w[i + 1], w[i + 2]);
      h = residual ? h + out : out;
    }
    return h;
  }

 private:
  Array layer(const Array& x, const Array& router, const Array& up, const Array& down) const {
    const auto [share, expert] = top_k(softmax(matmul(x, router), -1), n_chosen);  // [T, K]
    const Array chosen = one_hot(expert, experts);                                 // [T, K, E]
    const Array gate = einsum("tk,tke->te", {share, chosen});
    if (!dispatched) {
      const Array hiddens = elementwise_function(function, einsum("td,edf->etf", {x, up}));
      return einsum("te,etd->td", {gate, einsum("etf,efd->etd", {hiddens, down})});
    }
    const int64_t places = std::max<int64_t>(4, tokens * n_chosen * 5 / (4 * experts));
    const Array mask = sum(chosen, 1);                                             // [T, E]
    const Array place = (cumsum(mask, 0) * mask - 1.0).astype(DType::kI32);
    const Array dispatch = one_hot(place, places) * expand_dims(mask, {-1});       // [T, E, C]
    const Array inputs = einsum("tec,td->ecd", {dispatch, x});
    const Array hiddens = elementwise_function(function, einsum("ecd,edf->ecf", {inputs, up}));
    const Array outputs = einsum("ecf,efd->ecd", {hiddens, down});
    return einsum("tec,te,ecd->td", {dispatch, gate, outputs});
  }
};

}  // namespace

Array elementwise_function(int number, const Array& x) {
  switch (number) {
    case 0:
      return x;
    case 1:
      return tanh(x);
    case 2:
      return silu(x);
    case 3:
      return sin(x);
    case 4:
      return sigmoid(x);
    case 5:
      return gelu(x);
    default:
      return x * exp(-square(x));
  }
}

RandomNet random_unet(uint64_t seed, bool small) {
  const UNet net(Draw(seed), small);
  return {fmt::format("U-Net of {} levels, {} x [{}, {}, {}], function {}, down {}{}{}{}{}",
                      net.depth, net.batch, net.size, net.size, net.channels, net.function,
                      net.down, net.transposed ? ", transposed" : "", net.added ? ", added" : "",
                      net.two_convolutions ? ", two convolutions" : "",
                      net.normalized ? ", normalized" : ""),
          net.weights(), Array::abstract({net.batch, net.size, net.size, 3}), net};
}

RandomNet random_mixture(uint64_t seed, bool small) {
  const Mixture net(Draw(seed), small);
  return {fmt::format("mixture of {} layers, {} of {} experts, [{}, {}] to {}, function {}{}{}{}",
                      net.n_layers, net.n_chosen, net.experts, net.tokens, net.width, net.hidden,
                      net.function, net.dispatched ? ", dispatched" : "",
                      net.residual ? ", residual" : "", net.normalized ? ", normalized" : ""),
          net.weights(), Array::abstract({net.tokens, net.width}), net};
}

}  // namespace stow::testing
