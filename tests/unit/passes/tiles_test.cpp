// Work over arrays on the host or disk tile by tile, and over stacks slice by slice: same bits,
// little memory, in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/autodiff/flatten.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/passes/sink_moves.h"
#include "stowage/passes/slice_work.h"
#include "stowage/passes/tiles.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

constexpr MemoryKind kHost = MemoryKind::kPinnedHost, kDevice = MemoryKind::kDevice;
constexpr int64_t kMiB = 1 << 20;

using State = std::map<std::string, Array>;

class Tiles : public ::testing::Test {
 protected:
  DevicePtr device_ = Device::virtual_device({256 * kMiB, 512 * kMiB, 64 * kMiB}, 2);
  DefaultDevice guard_{device_};

  static Array noise(uint64_t seed, const Shape& shape) {
    return random::normal(random::key(seed), shape);
  }
  static JitOptions tiled(int64_t tile_bytes, std::vector<int> donated = {}) {
    JitOptions options;
    options.donate_argnums = std::move(donated);
    options.compile.tile_bytes = tile_bytes;
    return options;
  }
  template <Tree T>
  static std::vector<std::vector<float>> bits(const T& tree) {
    std::vector<std::vector<float>> all;
    for (const Array& a : tree_leaves(tree))
      all.push_back(device_put(a, kDevice).to_vector<float>());
    return all;
  }
  // The same results whole and in tiles of a few sizes.
  template <typename F, typename... Args>
  static void expect_same_bits(F f, const Args&... args) {
    const auto whole = bits(jit(f, tiled(0))(args...));
    for (int64_t tile : {256, 1000, 4096, 1 << 14}) {
      SCOPED_TRACE(tile);
      EXPECT_EQ(bits(jit(f, tiled(tile))(args...)), whole);
    }
  }
  template <typename F, typename... Args>
  static Graph streamed(F f, int64_t tile, const Args&... args) {
    return stream_tiles(remove_dead_code(simplify(jit(f).lower(args...).graph())), {.bytes = tile});
  }
};

// One step of Adam as a user writes it, the moments elsewhere.
State adam_step(const State& s) {
  const Array g = s.at("g"), w = device_put(s.at("w"), kDevice);
  const Array m = device_put(s.at("m"), kDevice) * 0.9 + g * 0.1;
  const Array v = device_put(s.at("v"), kDevice) * 0.999 + g * g * 0.001;
  const MemoryKind kind = sharding_of(s.at("w")).memory_kind();
  return {{"w", device_put(w - 0.1 * (m / (sqrt(v) + 1e-8)), kind)},
          {"m", device_put(m, kHost)},
          {"v", device_put(v, kHost)}};
}
State adam_state(const Shape& shape, MemoryKind weights) {
  const auto at = [&](uint64_t seed, MemoryKind kind) {
    return device_put(square(random::normal(random::key(seed), shape)), kind);
  };
  return {{"g", at(1, kDevice)}, {"m", at(2, kHost)}, {"v", at(3, kHost)}, {"w", at(4, weights)}};
}

TEST_F(Tiles, AdamHasTheSameBitsInTilesOfAnySizeAndShape) {
  for (const Shape& shape : {Shape{64, 48}, Shape{3, 5, 700}, Shape{1021, 7}, Shape{5003},
                             Shape{1, 4096}, Shape{2, 2, 2, 600}})
    for (MemoryKind weights : {kDevice, kHost}) {
      SCOPED_TRACE(to_string(shape));
      expect_same_bits(adam_step, adam_state(shape, weights));
    }
}

TEST_F(Tiles, AnUpdateTakesAFewTilesWhateverTheSizeOfTheLeaf) {
  std::vector<int64_t> temporaries;
  // The last are two primes: tiles of one size do not fit.
  for (int64_t rows : {1024, 4096, 1021, 4093}) {
    SCOPED_TRACE(rows);
    const State s = adam_state({rows, 1024}, kHost);
    const auto step = jit(adam_step, tiled(kTileBytes, {0})).lower(s).compile();
    const MemoryAnalysis& a = step.memory_analysis();
    EXPECT_EQ(a.device().argument_bytes, rows * 1024 * 4);
    temporaries.push_back(a.device().temp_bytes);
    EXPECT_LE(a.device().temp_bytes, 6 * kTileBytes);
    // Weights and moments lie over the old ones.
    EXPECT_EQ(a.host().alias_bytes, 3 * rows * 1024 * 4);
    EXPECT_EQ(a.host().temp_bytes, 0);
    EXPECT_EQ(a.host().total_bytes, 3 * rows * 1024 * 4);
  }
  EXPECT_EQ(temporaries[0], temporaries[1]);
}

TEST_F(Tiles, UnevenTilesAreWrittenOverWhatTheyWereMadeOf) {
  for (const Shape& shape : {Shape{1021, 24}, Shape{10007}, Shape{3, 1, 7919}})
    for (MemoryKind weights : {kDevice, kHost, MemoryKind::kDisk}) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(shape), memory_kind_name(weights)));
      const auto whole = bits(jit(adam_step, tiled(0))(adam_state(shape, weights)));
      for (int64_t tile : {4096, 1 << 14}) {
        const State s = adam_state(shape, weights);
        const auto step = jit(adam_step, tiled(tile, {0})).lower(s).compile();
        const MemoryAnalysis& a = step.memory_analysis();
        EXPECT_EQ(a.host().output_bytes, a.host().alias_bytes);
        EXPECT_EQ(a.disk().output_bytes, a.disk().alias_bytes);
        device_->drop_arenas();
        const int64_t before = device_->in_use_bytes(kDevice) + device_->in_use_bytes(kHost);
        device_->reset_high_water();
        const State next = step(s);
        EXPECT_EQ(device_->high_water_bytes(kDevice) + device_->high_water_bytes(kHost) - before,
                  a.device().temp_bytes + a.host().temp_bytes);
        EXPECT_EQ(bits(next), whole);
      }
    }
}

TEST_F(Tiles, WeightsOnTheDeviceAreUpdatedInPlaceSliceBySlice) {
  const State s = adam_state({2048, 1024}, kDevice);
  const auto step = jit(adam_step, tiled(kTileBytes, {0})).lower(s).compile();
  const MemoryAnalysis& a = step.memory_analysis();
  EXPECT_EQ(a.device().alias_bytes, 2048 * 1024 * 4);
  EXPECT_LE(a.device().temp_bytes, 6 * kTileBytes);
  EXPECT_EQ(a.host().alias_bytes, 2 * 2048 * 1024 * 4);
  EXPECT_EQ(a.host().temp_bytes, 0);
  // What was predicted is what is metered, and the bits are those of the whole.
  const auto whole = bits(jit(adam_step, tiled(0))(s));
  device_->drop_arenas();
  const int64_t before = device_->in_use_bytes(kDevice);
  device_->reset_high_water();
  const State next = step(s);
  EXPECT_EQ(device_->high_water_bytes(kDevice) - before,
            a.device().total_bytes - a.device().argument_bytes);
  EXPECT_EQ(bits(next), whole);
}

// An embedding and a step down its gradient, clipped by its norm.
State embedding_step(const State& s) {
  const Array g = grad([&](const Array& table) {
    return sum(take(table, s.at("tokens"), 0, IndexMode::kFill) * s.at("weight"));
  })(s.at("table"));
  const Array scale = minimum(1.0 / sqrt(sum(g * g)), 1.0);
  const Array m = s.at("m") * 0.9 + g * scale;
  return {{"table", s.at("table") - 0.1 * m - 0.01 * s.at("table")}, {"m", m}};
}
State embedding_state(int64_t rows, int64_t width, DType index) {
  const auto at = [&](uint64_t seed, const Shape& shape) {
    return random::normal(random::key(seed), shape);
  };
  // Some twice, some out of range.
  const Array tokens = random::randint(random::key(9), {40}, -3, rows + 3).astype(index);
  return {{"table", at(1, {rows, width})},
          {"m", at(2, {rows, width})},
          {"tokens", concatenate({tokens, tokens.slice(0, 0, 9)})},
          {"weight", at(3, {49, width})}};
}

TEST_F(Tiles, TheGradientOfAnEmbeddingHasTheSameBitsInTiles) {
  for (DType index : {DType::kI32, DType::kI64, DType::kI8, DType::kU32})
    for (int64_t rows : {64, 120, 127}) {
      SCOPED_TRACE(fmt::format("{} rows, {}", rows, dtype_name(index)));
      expect_same_bits(embedding_step, embedding_state(rows, 640, index));
    }
}

// Moved away and back before it is used, as gradients of what lies elsewhere are.
TEST_F(Tiles, TheGradientOfAnEmbeddingElsewhereHasTheSameBitsInTiles) {
  const auto step = [](const State& s) {
    const Array g = grad([&](const Array& table) {
      return sum(take(device_put(table, kDevice), s.at("tokens"), 0, IndexMode::kFill) *
                 s.at("weight"));
    })(s.at("table"));
    const Array away = device_put(device_put(g, kDevice) + s.at("m"), kHost);
    return State{{"table", away}, {"m", device_put(device_put(away, kDevice) * 0.5, kHost)}};
  };
  for (int64_t rows : {64, 127}) {
    State s = embedding_state(rows, 640, DType::kI32);
    s.at("table") = device_put(s.at("table"), kHost);
    expect_same_bits(step, s);
  }
}

TEST_F(Tiles, TheGradientOfAnEmbeddingIsNeverDense) {
  for (int64_t rows : {8192, 8191}) {  // a prime too
    const int64_t table = rows * 512 * 4;
    const State s = embedding_state(rows, 512, DType::kI32);
    const auto temporary = [&](int64_t tile) {
      const auto step = jit(embedding_step, tiled(tile, {0})).lower(s).compile();
      EXPECT_EQ(step.memory_analysis().device().alias_bytes, 2 * table);
      return step.memory_analysis().device().temp_bytes;
    };
    EXPECT_GE(temporary(0), table);
    EXPECT_LE(temporary(kTileBytes), 4 * kTileBytes);
  }
}

// Kept on the host between the backward pass and the update.
TEST_F(Tiles, TheGradientOfAnEmbeddingOnTheHostIsNeverDense) {
  const auto step = [](const State& s) {
    const auto loss = [&](const Array& table) {
      return sum(take(table, s.at("tokens"), 0, IndexMode::kFill) * s.at("weight"));
    };
    const Array kept =
        device_put(grad(loss, {.on_device = true})(device_put(s.at("table"), kDevice)), kHost);
    const Array g = device_put(kept, kDevice);
    const Array scale = minimum(1.0 / sqrt(sum(sum(g * g, -1))), 1.0);
    return State{{"table", device_put(device_put(s.at("table"), kDevice) - scale * g, kHost)}};
  };
  State s;
  for (int64_t rows : {8192, 8191}) {
    const int64_t table = rows * 512 * 4;
    s = embedding_state(rows, 512, DType::kI32);
    s.at("table") = device_put(s.at("table"), kHost);
    const auto lowered = jit(step, tiled(kTileBytes)).lower(s);
    EXPECT_LE(lowered.compile().memory_analysis().host().total_bytes, 2 * table + 4096);
  }
  s = embedding_state(64, 640, DType::kI32);
  s.at("table") = device_put(s.at("table"), kHost);
  expect_same_bits(step, s);
}

TEST_F(Tiles, TheOptimizersOfTheLibraryStream) {
  const optim::GradientTransformation optimizer =
      optim::chain(optim::clip_by_global_norm(0.5), optim::adamw(0.01));
  const auto step = [&](const State& params, const optim::OptState& state, const State& gradients) {
    const State p = device_put(params, kDevice);
    const auto [updates, next] =
        optimizer.update(device_put(gradients, kDevice), device_put(state, kDevice), p);
    return std::pair(device_put(optim::apply_updates(p, updates), kHost), device_put(next, kHost));
  };
  const auto arguments = [&](int64_t rows) {
    const State params = {{"a", noise(1, {rows, 512})}, {"b", noise(2, {7})}};
    const State gradients = {{"a", noise(3, {rows, 512})}, {"b", noise(4, {7})}};
    return std::tuple(device_put(params, kHost), device_put(optimizer.init(params), kHost),
                      device_put(gradients, kHost));
  };
  const auto [params, state, gradients] = arguments(64);
  expect_same_bits(step, params, state, gradients);
  int64_t before = 0;
  for (int64_t rows : {2048, 8192}) {
    const auto [p, s, g] = arguments(rows);
    const auto compiled = jit(step, tiled(kTileBytes, {0, 1})).lower(p, s, g).compile();
    const MemoryAnalysis& a = compiled.memory_analysis();
    EXPECT_LE(a.device().total_bytes, 8 * kTileBytes);
    EXPECT_EQ(a.host().alias_bytes, a.host().output_bytes);
    // Norms are of rows first, and there are more of these.
    if (before > 0) {
      EXPECT_LE(a.device().total_bytes, before + 8192 * 4);
    }
    before = a.device().total_bytes;
  }
}

TEST_F(Tiles, ANormHasTheSameBitsWhereverTheArrayLies) {
  const auto norm = [](const Array& x) { return sqrt(sum(square(device_put(x, kDevice)))); };
  for (const Shape& shape : {Shape{512, 700}, Shape{3, 129, 300}, Shape{40000, 3}, Shape{300000}}) {
    SCOPED_TRACE(to_string(shape));
    const Array x = noise(5, shape);
    const float on_device = norm(x).item<float>();
    EXPECT_EQ(jit(norm)(x).item<float>(), on_device);
    for (int64_t tile : {0, 4096, 1 << 16})
      EXPECT_EQ(jit(norm, tiled(tile))(device_put(x, kHost)).item<float>(), on_device);
  }
  const auto compiled =
      jit(norm).lower(Array::abstract({DType::kF32, Shape{16384, 1024}, kHost})).compile();
  EXPECT_LE(compiled.memory_analysis().device().total_bytes, 3 * kTileBytes);
}

TEST_F(Tiles, WhatTheHostHasTwiceIsReadTwiceAndWhatIsReadLaterStays) {
  // The weights are multiplied whole, and updated in tiles with what comes of that.
  const auto f = [](const Array& w, const Array& x) {
    const Array here = device_put(w, kDevice);
    const Array y = matmul(x, here);
    const Array g = matmul(transpose(x), y);
    return std::pair(device_put(here - 0.01 * g, kHost), sum(here * 2.0, {1}) + sum(y));
  };
  const Array w = device_put(noise(1, {96, 64}), kHost), x = noise(2, {32, 96});
  expect_same_bits(f, w, x);
  const Graph graph = streamed(f, 1024, w, x);
  EXPECT_EQ(count_ops(graph, OpKind::kScan, false), 2);
}

TEST_F(Tiles, WorkThatWaitsForItsOwnNormIsCutInTwo) {
  const auto f = [](const Array& g, const Array& m) {
    const Array here = device_put(g, kDevice) * 2.0;
    const Array clipped = here / maximum(sqrt(sum(square(here))), 1.0);
    return device_put(device_put(m, kDevice) * 0.9 + clipped, kHost);
  };
  const Array g = device_put(noise(1, {512, 256}), kHost),
              m = device_put(noise(2, {512, 256}), kHost);
  expect_same_bits(f, g, m);
}

// The norm of the old array is of other tiles than the update, and must be there before it: bytes
// of the device that the other order spares are no reason to hold the array twice.
TEST_F(Tiles, AnUpdateBesideANormOfTheOldIsInPlace) {
  const auto f = [](const Array& w) {
    const Array here = device_put(w, kDevice);
    return std::pair(device_put(here * 0.5, kHost), sum(square(here)));
  };
  const Array w = Array::abstract({DType::kF32, Shape{4096, 1024}, kHost});
  const auto compiled = jit(f, {.donate_argnums = {0}}).lower(w).compile();
  EXPECT_EQ(compiled.memory_analysis().host().total_bytes, 16 * kMiB);
  EXPECT_EQ(compiled.memory_analysis().host().alias_bytes, 16 * kMiB);
  EXPECT_LE(compiled.memory_analysis().device().total_bytes, 2 * kTileBytes);
  expect_same_bits(f, device_put(noise(1, {512, 256}), kHost));
}

TEST_F(Tiles, AGradientMovedAwayAndBackIsReadWhereItIsMade) {
  const auto f = [](const Array& w, const Array& x) {
    const Array g = device_put(matmul(transpose(x), x), kHost);
    const Array decay = device_put(device_put(w, kDevice) * 0.1, kHost);
    return device_put(device_put(g, kDevice) + device_put(decay, kDevice), kHost);
  };
  const Array w = device_put(noise(1, {64, 64}), kHost), x = noise(2, {32, 64});
  expect_same_bits(f, w, x);
  const Graph graph = streamed(f, 1024, w, x);
  EXPECT_EQ(count_ops(graph, OpKind::kScan, false), 1);
  EXPECT_EQ(count_ops(graph, OpKind::kDevicePut, false), 0);  // all moves are of tiles
}

TEST_F(Tiles, WhatIsStreamedAwayIsReadFromThere) {
  const auto f = [](const Array& a, const Array& b) {
    const Array there = device_put(a + b, kHost);
    return device_put(a * device_put(there, kDevice), kHost);
  };
  expect_same_bits(f, noise(1, {64, 64}), noise(2, {64, 64}));
}

// Layers whose gradients go to the host slice by slice, and the squares' sum of all of them.
std::pair<Array, Array> stacked_with_norm(const Array& ws, const Array& x, MemoryKind at) {
  const auto layer = [&](const Array& carry, const Array& w) {
    return std::pair(tanh(matmul(carry, w)), matmul(transpose(carry), carry) * 0.5);
  };
  const Array stack = device_put(scan(layer, x, ws).second, at);
  const Array here = device_put(stack, kDevice);
  const Array halves = device_put(stack, kDevice) / 2.0;
  return {stack, sum(sum(square(here), {-1})) + sum(max(halves, {1, 2}))};
}

TEST_F(Tiles, ASumOverAStackThatLeavesIsMadeOfItsSlicesBeforeTheyLeave) {
  const Array ws = noise(1, {5, 48, 48}), x = noise(2, {16, 48});
  const auto f = [](MemoryKind at) {
    return [at](const Array& w, const Array& in) { return stacked_with_norm(w, in, at); };
  };
  expect_same_bits(f(kHost), ws, x);
  EXPECT_EQ(bits(jit(f(kHost), tiled(1000))(ws, x)), bits(jit(f(kDevice), tiled(1000))(ws, x)));
  const Graph before = sink_moves(remove_dead_code(simplify(jit(f(kHost)).lower(ws, x).graph())));
  EXPECT_GT(count_ops(before, OpKind::kDevicePut, false), 0);
  const Graph after = sum_slices(before);
  EXPECT_EQ(count_ops(after, OpKind::kDevicePut, false), 0);  // nothing comes back
  EXPECT_EQ(count_ops(after, OpKind::kScan, false), 1);
}

TEST_F(Tiles, AReductionOverTheStackItselfReadsItBack) {
  const auto f = [](const Array& ws, const Array& x) {
    const Array stack = stacked_with_norm(ws, x, kHost).first;
    return std::pair(stack, sum(device_put(stack, kDevice), {0}));
  };
  const Array ws = noise(1, {5, 48, 48}), x = noise(2, {16, 48});
  expect_same_bits(f, ws, x);
  const Graph before = sink_moves(remove_dead_code(simplify(jit(f).lower(ws, x).graph())));
  EXPECT_TRUE(equal(sum_slices(before), before));
}

// A step of Adam over scanned layers, no norm in between; weights, moments and activations apart.
struct Learner {
  MemoryKind weights = kDevice, moments = kDevice;
  bool clips = false;
  int64_t layers = 6;

  State operator()(const State& s, const Array& x) const {
    const auto layer = checkpoint(
        [](const Array& carry, const Array& w) {
          return tanh(matmul(carry, device_put(w, kDevice))) + carry;
        },
        nothing_saveable());
    const auto loss = [&](const Array& w) { return sum(square(scan(layer, x, w))); };
    const Array w = s.at("w");
    Array g = device_put(grad(loss)(w), kDevice);
    const Array norm = sqrt(sum(sum(square(g), {-1})));
    if (clips) g = g / maximum(norm, 1.0);
    const Array m = device_put(s.at("m"), kDevice) * 0.9 + g * 0.1;
    const Array v = device_put(s.at("v"), kDevice) * 0.999 + g * g * 0.001;
    const Array next = device_put(w, kDevice) - s.at("rate") * (m / (sqrt(v) + 1e-8));
    return {{"w", device_put(next, weights)},
            {"m", device_put(m, moments)},
            {"v", device_put(v, moments)},
            {"norm", norm},
            {"rate", s.at("rate") * 0.5}};
  }
  State state() const {
    const auto at = [&](uint64_t seed, MemoryKind kind) {
      return device_put(square(noise(seed, {layers, 64, 64})) * 0.05, kind);
    };
    return {{"w", at(1, weights)},
            {"m", at(2, moments)},
            {"v", at(3, moments)},
            {"rate", Array(0.01f)}};
  }
  static Array noise(uint64_t seed, const Shape& shape) {
    return random::normal(random::key(seed), shape);
  }
  Graph graph(const Array& x) const {
    const Graph flat = simplify(flatten_all(jit(*this).lower(state(), x).graph()));
    return sink_moves(remove_dead_code(realize_residuals(flat, nullptr)));
  }
};

TEST_F(Tiles, AnUpdateThatWaitsForNothingElseHappensInTheBackwardPass) {
  const Array x = noise(9, {32, 64});
  for (const MemoryKind weights : {kDevice, kHost})
    for (const MemoryKind moments : {kDevice, kHost, MemoryKind::kDisk}) {
      const Learner learner{weights, moments};
      const Graph before = learner.graph(x), after = update_slices(before);
      const auto n_big = [](const Graph& g, OpKind op) {
        int64_t n = 0;
        for (const Node& node : g.nodes())
          n += node.op == op && g.type(node.first_result).shape.rank() == 3;
        return n;
      };
      EXPECT_GT(n_big(before, OpKind::kAdd), 0);
      EXPECT_EQ(n_big(after, OpKind::kAdd), 0);
      EXPECT_EQ(n_big(after, OpKind::kDevicePut), 0);
      // The same bits as in a program whose updates stand apart.
      JitOptions together = tiled(1 << 14, {0}), apart = together;
      together.compile.capacities[0] = 64 * kMiB;
      apart.compile.update_in_backward = false;
      EXPECT_EQ(bits(jit(learner, together)(learner.state(), x)),
                bits(jit(learner, apart)(learner.state(), x)));
    }
}

// The same by an optimizer whose moments are codes with a scale of each row: the row's largest is
// found, kept and divided by.
struct CompactLearner {
  MemoryKind moments = kDevice;
  using AllState = std::pair<Array, optim::OptState>;

  static optim::GradientTransformation rule() {
    return optim::adamw(0.01, {.weight_decay = 0.1, .moments = optim::Moments::k8Bit});
  }
  AllState operator()(const AllState& s, const Array& x) const {
    const auto layer = checkpoint(
        [](const Array& carry, const Array& w) { return tanh(matmul(carry, w)) + carry; },
        nothing_saveable());
    const auto loss = [&](const std::vector<Array>& w) {
      return sum(square(scan(layer, x, w[0])));
    };
    const std::vector<Array> w = {s.first};
    const auto [updates, next] =
        rule().update(grad(loss)(w), device_put(s.second, kDevice), w);
    optim::OptState placed = next;
    for (auto& [name, a] : placed)
      if (a.rank() > 0) a = device_put(a, moments);
    return {optim::apply_updates(w, updates)[0], placed};
  }
  AllState state() const {
    const Array w = square(Learner::noise(1, {6, 64, 64})) * 0.05;
    optim::OptState placed = rule().init(std::vector<Array>{w});
    for (auto& [name, a] : placed)
      if (a.rank() > 0) a = device_put(a, moments);
    return {w, placed};
  }
};

TEST_F(Tiles, AnUpdateOfMomentsWithScalesHappensInTheBackwardPass) {
  const Array x = Learner::noise(9, {32, 64});
  for (const MemoryKind moments : {kDevice, kHost, MemoryKind::kDisk}) {
    const CompactLearner learner{moments};
    const Graph flat = simplify(flatten_all(jit(learner).lower(learner.state(), x).graph()));
    const Graph before = sink_moves(remove_dead_code(realize_residuals(flat, nullptr)));
    const Graph after = update_slices(before);
    verify(after);
    const auto n_big = [](const Graph& g) {
      int64_t n = 0;
      for (const Node& node : g.nodes())
        n += node.op != OpKind::kScan && g.type(node.first_result).shape == Shape{6, 64, 64};
      return n;
    };
    EXPECT_GT(n_big(before), 20);
    EXPECT_EQ(n_big(after), 0);
    JitOptions together = tiled(1 << 14, {0}), apart = together;
    together.compile.capacities[0] = 64 * kMiB;
    apart.compile.update_in_backward = false;
    const auto bytes_of = [](const CompactLearner::AllState& s) {
      std::vector<std::vector<float>> all;
      for (const Array& a : tree_leaves(s))
        all.push_back(device_put(a, kDevice).astype(DType::kF32).to_vector<float>());
      return all;
    };
    EXPECT_EQ(bytes_of(jit(learner, together)(learner.state(), x)),
              bytes_of(jit(learner, apart)(learner.state(), x)));
  }
}

// The same under a head, whose update need not wait for the layers'.
struct LearnerWithHead {
  int64_t width = 96;
  bool clips = false;
  Learner learner{.weights = kHost, .moments = kHost, .layers = 8};

  State operator()(const State& s, const Array& x) const {
    const auto layer = checkpoint(
        [](const Array& carry, const Array& w) {
          return tanh(matmul(carry, device_put(w, kDevice))) + carry;
        },
        nothing_saveable());
    const auto loss = [&](const std::vector<Array>& w) {
      return sum(square(matmul(scan(layer, x, w[0]), device_put(w[1], kDevice))));
    };
    const std::vector<Array> w = {s.at("w"), s.at("head")};
    std::vector<Array> g = device_put(grad(loss)(w), kDevice);
    if (clips) g[1] = g[1] / sum(g[0]);
    const Array norm = sqrt(sum(sum(square(g[1]), {-1})));
    const Array m = device_put(s.at("m"), kDevice) * 0.9 + g[1] * 0.1;
    const Array head = device_put(w[1], kDevice) - s.at("rate") * m;
    const Array layers = device_put(w[0], kDevice) - s.at("rate") * g[0];
    return {{"w", device_put(layers, kHost)},
            {"head", device_put(head, kHost)},
            {"m", device_put(m, kHost)},
            {"norm", norm},
            {"rate", s.at("rate") * 0.5}};
  }
  State state() const {
    State s = learner.state();
    s.erase("v");
    s["head"] = device_put(Learner::noise(5, {64, width}), kHost);
    s["m"] = device_put(Learner::noise(6, {64, width}), kHost);
    return s;
  }
  Graph graph(const Array& x) const {
    const Graph flat = simplify(flatten_all(jit(*this).lower(state(), x).graph()));
    return update_slices(sink_moves(remove_dead_code(realize_residuals(flat, nullptr))));
  }
};

int64_t n_scans(const Graph& graph) {
  return count_ops(graph, OpKind::kScan, false);
}

TEST_F(Tiles, AnUpdateThatNeedNotWaitForTheLayersIsDoneBesideThem) {
  const Array x = noise(9, {32, 64});
  const LearnerWithHead learner;
  const Graph graph = learner.graph(x);
  const Graph apart = stream_tiles(graph, {.bytes = 1 << 10});
  const Graph beside = stream_tiles(graph, {.bytes = 1 << 10, .match_backward_scan = true});
  EXPECT_EQ(n_scans(apart), n_scans(graph) + 2);  // the update and the norm
  EXPECT_EQ(n_scans(beside), n_scans(graph));
  verify(beside);
  JitOptions hidden = tiled(1 << 10, {0}), plain = hidden;
  hidden.compile.capacities[0] = 64 * kMiB;
  plain.compile.update_in_backward = false;
  const auto program = jit(learner, hidden).lower(learner.state(), x).compile();
  EXPECT_EQ(program.memory_analysis().host().alias_bytes, (8 * 64 * 64 + 2 * 64 * 96) * 4);
  EXPECT_EQ(bits(jit(learner, hidden)(learner.state(), x)),
            bits(jit(learner, plain)(learner.state(), x)));
}

TEST_F(Tiles, WhatWaitsForTheLayersOrIsNotCutEvenlyStaysApart) {
  const Array x = noise(9, {32, 64});
  for (const LearnerWithHead& learner :
       {LearnerWithHead{.clips = true},
        LearnerWithHead{.width = 97,
        .learner = {.weights = kHost, .moments = kHost, .layers = 7}}}) {
    const Graph graph = learner.graph(x);
    EXPECT_TRUE(equal(stream_tiles(graph, {.bytes = 1 << 10, .match_backward_scan = true}),
                      stream_tiles(graph, {.bytes = 1 << 10})));
  }
}

TEST_F(Tiles, GradientsOfAllLayersAreNeverThereTogether) {
  const Learner learner{.layers = 16};
  const Array x = noise(9, {8, 64});
  const auto peak = [&](bool in_backward) {
    JitOptions options = tiled(0, {0});
    options.compile.update_in_backward = in_backward;
    return jit(learner, options).lower(learner.state(), x).compile().memory_analysis().device();
  };
  const int64_t gradients = 16 * 64 * 64 * 4;
  EXPECT_LT(peak(true).temp_bytes, gradients / 2);
  EXPECT_GT(peak(false).temp_bytes, gradients);
  EXPECT_EQ(peak(true).alias_bytes, 3 * gradients + 4);  // all in place
}

TEST_F(Tiles, AnUpdateThatWaitsForANormStaysBehindTheBackwardPass) {
  const Graph graph = Learner{.clips = true}.graph(noise(9, {32, 64}));
  EXPECT_TRUE(equal(update_slices(graph), graph));
}

TEST_F(Tiles, SmallArraysStayWhole) {
  const State s = adam_state({16, 16}, kHost);
  EXPECT_EQ(count_ops(streamed(adam_step, 4096, s), OpKind::kScan, true), 0);
  EXPECT_EQ(count_ops(streamed(adam_step, 64, s), OpKind::kScan, true), 1);
}

TEST_F(Tiles, OtherDtypesSelectsAndConvertsStream) {
  const auto f = [](const Array& master, const Array& g) {
    const Array w = device_put(master, kDevice);
    const Array step = where(abs(g) > 1.0, sign(g), g).astype(DType::kF32);
    const Array next = w - 0.1 * step;
    return std::pair(device_put(next, kHost), next.astype(DType::kBF16));
  };
  const Array master = device_put(noise(1, {100, 33}), kHost);
  const Array g = noise(2, {100, 33}).astype(DType::kBF16);
  expect_same_bits(f, master, g);
}

// Means over any axes but the first, as Adafactor's over columns.
TEST_F(Tiles, ReductionsOverInnerAxesHaveTheSameBitsInTiles) {
  const auto f = [](const Array& m) {
    const Array x = device_put(m, kDevice), squares = square(x) * 0.5f;
    return State{{"1", mean(squares, 1)},
                 {"12", sum(squares, {1, 2})},
                 {"2", max(x, -1)},
                 {"x", device_put(x + expand_dims(mean(squares, 1), 1), kHost)}};
  };
  expect_same_bits(f, device_put(noise(1, {24, 150, 33}), kHost));
  const auto peak = [&](const Shape& shape) {
    const auto lowered = jit(f, tiled(1 << 12)).lower(device_put(Array::abstract(shape), kHost));
    return lowered.compile().memory_analysis().device().total_bytes;
  };
  EXPECT_LT(peak({64, 100, 64}), 4 * 64 * 64 * 4 * 2);
}

// An update that is scaled by its own norm, and again: whole under no budget, made again under one.
TEST_F(Tiles, WhatWaitsForItsOwnNormIsMadeAgainWhereItIsTooMuch) {
  const auto f = [](const Array& gs, const Array& ps) {
    const Array g = device_put(gs, kDevice) * 0.5f, p = device_put(ps, kDevice);
    const Array rows = expand_dims(rsqrt(mean(square(g), -1) + 1e-3f), -1);
    const Array scaled = g * rows;
    const Array clipped = scaled / maximum(1.0f, sqrt(mean(square(scaled))));
    return State{{"p", device_put(p - clipped * sqrt(mean(square(p))), kHost)}};
  };
  const Array g = device_put(noise(1, {64, 32, 96}), kHost),
              p = device_put(noise(2, {64, 32, 96}), kHost);
  expect_same_bits(f, g, p);
  const auto with = [&](int64_t capacity) {
    JitOptions options = tiled(1 << 14);
    options.compile.capacities[0] = capacity;
    return jit(f, options);
  };
  const auto peak = [&](int64_t capacity) {
    return with(capacity).lower(g, p).compile().memory_analysis().device().total_bytes;
  };
  const int64_t whole = g.type().bytes();
  EXPECT_GE(peak(Device::unlimited_bytes()), whole);
  EXPECT_LE(peak(whole / 4), whole / 4);
  EXPECT_EQ(bits(with(whole / 4)(g, p)), bits(jit(f, tiled(0))(g, p)));
}

// A parameter that is moved for an update that leaves it as it is; away and back is another thing.
TEST_F(Tiles, WhatComesToTheDeviceAndGoesBackUnchangedStaysWhereItIs) {
  const auto f = [](const Array& frozen, const Array& x) {
    const Array here = device_put(frozen, kDevice);
    return std::pair(device_put(here, kHost), device_put(device_put(x, kHost), kDevice));
  };
  const auto lowered = jit(f, tiled(0, {0})).lower(
      device_put(Array::abstract({1 << 18}), kHost), noise(1, {64}));
  const MemoryAnalysis a = lowered.compile().memory_analysis();
  EXPECT_EQ(a.host().alias_bytes, kMiB);
  EXPECT_LT(a.device().total_bytes, 1 << 10);
  EXPECT_EQ(count_ops(simplify(lowered.graph()), OpKind::kDevicePut, true), 2);
}

// Random numbers are drawn a tile at a time where they go to the host or disk: a tile has the
// counts that it would have in the whole.
TEST_F(Tiles, RandomNumbersHaveTheSameBitsInTiles) {
  for (const Shape& shape : {Shape{64, 96}, Shape{7, 9, 101}, Shape{10007}}) {
    SCOPED_TRACE(to_string(shape));
    const auto draw = [&](const Array& key, const Array& scale) {
      const std::vector<Array> keys = random::split(key, 4);
      const Array half = random::uniform(keys[2], shape, DType::kBF16);
      const Array mask = random::bernoulli(keys[3], 0.3f, shape);
      return State{{"0", device_put(random::normal(keys[0], shape) * scale, kHost)},
                   {"1", device_put(random::truncated_normal(keys[1], -2, 2, shape), kHost)},
                   {"2", device_put(half.astype(DType::kF32), MemoryKind::kDisk)},
                   {"3", device_put(where(mask, random::normal(keys[3], shape), 0), kHost)}};
    };
    expect_same_bits(draw, random::key(7), Array(0.02f));
  }
}

TEST_F(Tiles, RandomNumbersForTheHostAreNeverWhole) {
  const auto peak = [&](const Shape& shape) {
    const auto draw = [&](const Array& key) {
      return std::pair(device_put(random::normal(key, shape) * 0.02f, kHost),
                       device_put(random::uniform(key, shape, DType::kBF16), kHost));
    };
    const auto step = jit(draw, tiled(1 << 12));
    return step.lower(random::key(0)).compile().memory_analysis().device().total_bytes;
  };
  // Tiles are of four times the bytes asked for where there are many.
  for (const Shape& shape :
       {Shape{1 << 18}, Shape{1 << 20}, Shape{3, 127, 1 << 10}, Shape{1'000'003}})
    EXPECT_LE(peak(shape), 4 * (16 << 10)) << to_string(shape);
}

// Zeros and what a scalar fills come to the host, or the disk, a tile at a time.
TEST_F(Tiles, WhatIsAlikeEverywhereIsNeverWhole) {
  const auto f = [](const Array& x) {
    const Array filled = broadcast_to(x * 2, {1 << 8, 1 << 10});
    return State{{"0", device_put(zeros({1 << 18}), kHost)},
                 {"x", device_put(filled, MemoryKind::kDisk)},
                 {"y", device_put(reshape(filled, {1 << 18}), kHost)}};
  };
  expect_same_bits(f, Array(3.0));
  const auto compiled = jit(f, tiled(16 << 10)).lower(Array(3.0)).compile();
  EXPECT_LT(compiled.memory_analysis().device().total_bytes, 80 << 10);
  EXPECT_GT(jit(f, tiled(0)).lower(Array(3.0)).compile().memory_analysis().device().total_bytes,
            kMiB);
}

}  // namespace
}  // namespace stow
