// Random deep nets with residual connections and gates, unrolled and scanned, plain and
// checkpointed: what they keep is what they list, and a checkpoint saves memory.
//
// STOW_FUZZ_NETS nets (24) from STOW_FUZZ_SEED (1) on.
#include <gtest/gtest.h>

#include <random>

#include "stowage/stowage.h"
#include "tests/fuzz/apart.h"

namespace stow {
namespace {

using testing::environment;
using Weights = std::vector<Array>;

// One layer of a net: f(h W) or f(h W) V, with a gate by the layer's input, a residual connection,
// both or neither.
struct Layer {
  int before, after, gate;  // functions; gate 0: none
  bool second_product, residual, normalized;

  static Array function(int number, const Array& x) {
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
  Array operator()(const Array& h, const Array& w) const {
    Array t = matmul(function(before, normalized ? standardize(h) : h), w);
    if (gate > 0) t = t * function(gate, h);
    t = function(after, t);
    if (second_product) t = matmul(t, w);
    return residual ? h + t : t;
  }
};

struct Net {
  std::vector<Layer> layers;
  int64_t rows, width;
  bool scanned = false;  // the first layer, over and over

  explicit Net(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
    const int n = 3 + below(14);
    const bool same = below(3) > 0;
    for (int i = 0; i < n; ++i) {
      if (i > 0 && same) {
        layers.push_back(layers[0]);
        continue;
      }
      // A function before a product is no function of a product: no chain of layers is elementwise.
      layers.push_back({below(3) ? 0 : below(7), below(7), below(2) ? 0 : 1 + below(6),
                        below(4) == 0, below(3) > 0, below(5) == 0});
    }
    rows = int64_t{4096} << below(2);
    width = int64_t{64} << below(2);
  }
  Array operator()(const Weights& w, Array h) const {
    if (scanned)
      return scan([&](const Array& c, const Array& x) { return layers[0](c, x); }, h, w[0]);
    for (size_t i = 0; i < layers.size(); ++i) h = layers[i](h, w[i]);
    return h;
  }
  int64_t activation_bytes() const { return rows * width * 4; }
  Array input() const { return Array::abstract({rows, width}); }
  Weights weights() const {
    const auto n = static_cast<int64_t>(layers.size());
    if (scanned) return {Array::abstract({n, width, width})};
    return Weights(layers.size(), Array::abstract({width, width}));
  }
};

template <typename F>
int64_t temp_bytes(F loss, const Net& net) {
  return jit(grad(loss))
      .lower(net.weights(), net.input())
      .compile()
      .memory_analysis()
      .device()
      .temp_bytes;
}
template <typename F>
auto loss_of(F f) {
  return [f](const Weights& w, const Array& x) { return sum(square(f(w, x))); };
}
// What the gradients of two layers of the net take alone, for the most expensive of its layers:
// work on one, and what the other keeps.
int64_t work_bytes(const Net& net) {
  int64_t most = 0;
  for (const Layer& layer : net.layers) {
    const auto both = jit(grad<0, 1>([&](const Array& h, const Weights& w) {
      return sum(square(layer(layer(h, w[0]), w[1])));
    }));
    const Weights w(2, Array::abstract({net.width, net.width}));
    const auto m = both.lower(net.input(), w).compile();
    most = std::max(most, m.memory_analysis().device().temp_bytes);
  }
  return most;
}
template <typename F>
int64_t listed_bytes(F loss, const Net& net) {
  int64_t bytes = 0;
  for (const SavedResidual& r : saved_residuals(loss, net.weights(), net.input()))
    if (r.source != SavedResidual::Source::kArgument) bytes += r.type.bytes();
  return bytes;
}

int64_t room(const Net& net) {
  const int64_t work = work_bytes(net);
  return work + std::max(work, 3 * net.activation_bytes());
}
std::string describe(const Net& net, int64_t temp, int64_t than) {
  const auto activations = [&](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(net.activation_bytes());
  };
  return fmt::format(
      "{:.2f} activations where {:.2f} and room for {:.2f} were expected; {} layers{}",
      activations(temp), activations(than), activations(room(net)), net.layers.size(),
      net.scanned ? ", scanned" : "");
}

class NetFuzz : public ::testing::Test {
 protected:
  template <typename Check>
  void for_each_net(Check check) {
    const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                   count = environment("STOW_FUZZ_NETS", 24);
    for (uint64_t seed = first; seed < first + count; ++seed) {
      SCOPED_TRACE(fmt::format("seed {}", seed));
      Net net(seed);
      check(net);
      net.scanned = true;
      check(net);
    }
  }
};

// Work on a layer comes on top of what is listed; values that are needed again soon may wait beside
// it.
TEST_F(NetFuzz, KeepsWhatItLists) {
  for_each_net([](const Net& net) {
    const auto loss = loss_of(net);
    const int64_t temp = temp_bytes(loss, net), listed = listed_bytes(loss, net);
    EXPECT_LE(temp, listed + room(net)) << describe(net, temp, listed);
  });
}

// The recomputation begins beside the gradient of the region's result, and a policy may forbid to
// keep what a net keeps plain.
TEST_F(NetFuzz, ACheckpointAroundANetCostsItsBarrierAtMost) {
  for_each_net([](const Net& net) {
    const int64_t plain = temp_bytes(loss_of(net), net);
    for (const PolicyPtr& policy : {nothing_saveable(), dots_saveable(), everything_saveable()}) {
      const int64_t temp = temp_bytes(loss_of(checkpoint(net, policy)), net);
      EXPECT_LE(temp, plain + room(net)) << policy->name << ": " << describe(net, temp, plain);
    }
  });
}

TEST_F(NetFuzz, BitsAreThoseOfTheNetAsWritten) {
  for_each_net([](Net net) {
    net.rows = 6, net.width = 8;
    Array key = random::key(net.layers.size());
    Weights w;
    for (const Array& a : net.weights()) w.push_back(random::normal(key, a.shape()) * 0.2);
    if (net.layers.size() > 8) return;  // to save time
    const Array x = random::normal(key, {net.rows, net.width});
    const auto bits = [&](auto loss, const CompileOptions& options) {
      std::vector<float> all;
      for (const Array& g : jit(grad(loss), {.compile = options})(w, x))
        for (float v : g.template to_vector<float>()) all.push_back(v);
      return all;
    };
    const std::vector<float> want = bits(loss_of(net), {.fuse = false, .reuse = false});
    EXPECT_EQ(bits(loss_of(net), {}), want);
    EXPECT_EQ(bits(loss_of(checkpoint(net, nothing_saveable())), {}), want);
    EXPECT_EQ(bits(loss_of(checkpoint(net, dots_saveable())), {}), want);
  });
}

}  // namespace
}  // namespace stow
