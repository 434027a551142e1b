// Random nets, plain and checkpointed: deep ones with residual connections and gates, unrolled and
// scanned, U-Nets and mixtures of experts. What they keep is what they list, and a checkpoint costs
// its barrier at most.
//
// STOW_FUZZ_NETS nets (24, and half as many of the other kinds) from STOW_FUZZ_SEED (1) on.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>

#include "stowage/base/bytes.h"
#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/session/compile.h"
#include "stowage/stowage.h"
#include "tests/fuzz/child_process.h"
#include "tests/fuzz/random_net.h"

namespace stow {
namespace {

using testing::elementwise_function;
using testing::environment;
using testing::RandomNet;
using Weights = std::vector<Array>;

// One layer of a net: f(h W) or f(h W) V, with a gate by the layer's input, a residual connection,
// both or neither.
struct Layer {
  int before, after, gate;  // functions; gate 0: none
  bool second_product, residual, normalized;

  Array operator()(const Array& h, const Array& w) const {
    Array t = matmul(elementwise_function(before, normalized ? standardize(h) : h), w);
    if (gate > 0) t = t * elementwise_function(gate, h);
    t = elementwise_function(after, t);
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
  template <typename Check>
  void for_each_other_net(Check check, bool small = false) {
    const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                   count = environment("STOW_FUZZ_NETS", 24) / 2;
    for (uint64_t seed = first; seed < first + count; ++seed)
      for (const auto& make : {testing::random_unet, testing::random_mixture}) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        check(make(seed, small));
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

// ---- the barrier ----

// What stays for the sake of the checkpoints of a function: what enters them, until the
// recomputation, and the gradients of their results while that goes on. Arguments are there anyway.
int64_t boundary_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::kCheckpoint) continue;
    for (ValueId v : node.operands)
      if (!graph.is_input(v)) bytes += graph.type(v).bytes();
    for (int i = 0; i < node.n_results; ++i) bytes += graph.type(node.result(i)).bytes();
  }
  return bytes;
}
// The most bytes that one kernel of the forward part, and one of the gradient, reads, makes and
// works in, arguments aside.
struct MostWork {
  int64_t forward = 0, backward = 0;

  explicit MostWork(const ir::Schedule& schedule) {
    for_each_kernel(schedule.instructions, [&](const Kernel& kernel) {
      std::map<BufferId, int64_t> stored;
      for (const auto* views : {&kernel.inputs, &kernel.outputs})
        for (const View& view : *views) {
          if (schedule.buffers[view.buffer.index()].role == BufferRole::kInput) continue;
          int64_t& bytes = stored[view.buffer];
          bytes = std::max(bytes, view.elems() * dtype_bytes(view.dtype));
        }
      int64_t sum = kernel.scratch_bytes;
      for (const auto& [buffer, bytes] : stored)
        // Broadcast views are larger than their buffers.
        sum += std::min(bytes, schedule.buffers[buffer.index()].bytes);
      int64_t& most = pass_of(kernel.provenance) == Pass::kVjp ? backward : forward;
      most = std::max(most, sum);
    });
  }
};

// What a checkpoint forces a program to hold beyond its plain plan: what stays for its sake, and,
// where the recomputation meets the gradient, a kernel of either beside what is kept. Anything that
// waits longer is a fault.
int64_t barrier_bytes(const Graph& marked, const ir::Schedule& plain) {
  const MostWork work(plain);
  return boundary_bytes(marked) + work.forward + work.backward;
}

int64_t temp_of(const ExecutablePtr& program) {
  return program->memory_analysis().device().temp_bytes;
}

// A policy may forbid to keep what a net keeps plain; that is what it asks for.
template <typename Net>
void check_barrier(const Net& net, const Weights& w, const Array& x, const std::string& what) {
  const auto planned = [&](const auto& loss) {
    return compile(jit(grad(loss)).lower(w, x).graph(), {}, 1);
  };
  const auto loss_of_net = [net](const Weights& w, const Array& x) {
    return sum(square(net(w, x)));
  };
  const ExecutablePtr plain = planned(loss_of_net);
  const auto check = [&](const auto& loss, const char* where, const PolicyPtr& policy) {
    const ExecutablePtr program = planned(loss);
    const int64_t barrier = barrier_bytes(jit(loss).lower(w, x).graph(), plain->schedule());
    EXPECT_LE(temp_of(program), temp_of(plain) + barrier) << fmt::format(
        "{} around the {} of a {}: {} where the plain plan takes {} and the barrier {}",
        policy->name, where, what, format_bytes(temp_of(program)), format_bytes(temp_of(plain)),
        format_bytes(barrier));
  };
  for (const PolicyPtr& policy : {nothing_saveable(), dots_saveable(), everything_saveable()})
    check(loss_of(checkpoint(net, policy)), "net", policy);
  check(checkpoint(loss_of_net, nothing_saveable()), "loss", nothing_saveable());
}

TEST_F(NetFuzz, ACheckpointCostsItsBarrierAtMost) {
  for_each_net([](const Net& net) {
    check_barrier(
        net, net.weights(), net.input(),
        fmt::format("net of {} layers{}", net.layers.size(), net.scanned ? ", scanned" : ""));
  });
}
TEST_F(NetFuzz, ACheckpointOfAUNetOrAMixtureCostsItsBarrierAtMost) {
  for_each_other_net([](const RandomNet& net) {
    check_barrier(net.apply, net.weights, net.input, net.what);
  });
}

// Gradients as bits, with every policy as of the net as written.
template <typename Net>
void check_bits(const Net& net, const Weights& types, const Array& input) {
  Array key = random::key(types.size());
  Weights w;
  for (const Array& a : types) w.push_back(random::normal(key, a.shape()) * 0.2);
  const Array x = random::normal(key, input.shape());
  const auto bits = [&](auto loss, const CompileOptions& options) {
    std::vector<uint32_t> all;
    for (const Array& g : jit(grad(loss), {.compile = options})(w, x))
      for (float v : g.template to_vector<float>())  // NaNs of a net that overflows are alike
        all.push_back(
            std::bit_cast<uint32_t>(std::isnan(v) ? std::numeric_limits<float>::quiet_NaN() : v));
    return all;
  };
  const std::vector<uint32_t> want = bits(loss_of(net), {.fuse = false, .reuse = false});
  EXPECT_EQ(bits(loss_of(net), {}), want);
  EXPECT_EQ(bits(loss_of(checkpoint(net, nothing_saveable())), {}), want);
  EXPECT_EQ(bits(loss_of(checkpoint(net, dots_saveable())), {}), want);
}

TEST_F(NetFuzz, BitsAreThoseOfTheNetAsWritten) {
  for_each_net([](Net net) {
    net.rows = 6, net.width = 8;
    if (net.layers.size() > 8) return;  // to save time
    check_bits(net, net.weights(), net.input());
  });
  for_each_other_net(
      [](const RandomNet& net) {
        SCOPED_TRACE(net.what);
        check_bits(net.apply, net.weights, net.input);
      },
      true);
}

}  // namespace
}  // namespace stow
