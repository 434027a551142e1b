// shard_map and its collectives: parts and results, gradients, where it may stand, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "stowage/stowage.h"
#include "tests/support/message_of.h"
#include "tests/support/shard_map_kit.h"

namespace stow {
namespace {

using sharding::Mesh;
using sharding::P;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Weights {
  Array up, down;
};
STOW_TREE(Weights, up, down);

// ---- Parts and results ----

TEST(ShardMap, ABodySeesPartsAndResultsAreTheirWhole) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  Shape seen;
  const auto f = shard_map(
      [&](const Array& a) {
        seen = a.shape();
        return a * 2.0f;
      },
      mesh, P("x", "y"), P("x", "y"));
  const Array x = ramp({4, 6});
  expect_near(f(x), x * 2.0f, 0);
  EXPECT_EQ(seen, (Shape{2, 3}));
  const Array y = f(device_put(x, NamedSharding(mesh, P("x", "y"))));
  EXPECT_EQ(addressable_shards(y)[3].data.shape(), (Shape{2, 3}));
  expect_near(y, x * 2.0f, 0);
}

TEST(ShardMap, PositionsAreNumberedMajorFirst) {
  const Mesh mesh = mesh_of({2, 3}, {"x", "y"});
  const auto index = [&](const AxisNames& axes, const P& out) {
    const auto f = shard_map([&] { return reshape(axis_index(axes), {1}); }, mesh, P(), out);
    return f().to_vector<int32_t>();
  };
  EXPECT_THAT(index("x", P("x")), ElementsAre(0, 1));
  EXPECT_THAT(index("y", P("y")), ElementsAre(0, 1, 2));
  EXPECT_THAT(index({"x", "y"}, P(P::Axes{"x", "y"})), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(index({"y", "x"}, P(P::Axes{"x", "y"})), ElementsAre(0, 2, 4, 1, 3, 5));
  int64_t size = 0;
  shard_map(
      [&](const Array& a) {
        return size = axis_size({"x", "y"}), a;
      },
      mesh, P(), P())(ramp({2}));
  EXPECT_EQ(size, 6);
}

TEST(ShardMap, SpecificationsAreGivenByArgumentAndByPath) {
  const Mesh mesh = mesh_of({2}, {"x"});
  const Weights w{ramp({4, 3}), ramp({3, 4})};
  const Array b = ramp({4});
  const auto body = [](const Weights& v, const Array& c) {
    return std::pair(Weights{v.up * 2.0f, v.down + 1.0f}, c);
  };
  const auto f = shard_map(body, mesh, {{"0/up", P("x")}, {"0/down", P(nullptr, "x")}, {"1", P()}},
                           {{"0/up", P("x")}, {"0/down", P(nullptr, "x")}, {"1", P()}});
  const auto [v, c] = f(w, b);
  expect_near(v.up, w.up * 2.0f, 0);
  expect_near(v.down, w.down + 1.0f, 0);
  expect_near(c, b, 0);
  const auto g = shard_map([](const Array& p, const Array& q) { return std::tuple(p, q); }, mesh,
                           {P("x"), P()}, {P("x"), P()});
  expect_near(std::get<1>(g(b, w.up)), w.up, 0);
}

// A product whose contracted axis is cut: partial products are summed and shared out.
TEST(ShardMap, AProductIsReducedAndScattered) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array a = ramp({8, 16}), b = ramp({16, 12});
  const auto f =
      shard_map([](const Array& p,
                   const Array& q) { return psum_scatter(matmul(p, q), "x", {.tiled = true}); },
                mesh, {P(nullptr, "x"), P("x")}, P("x"));
  expect_near(f(a, b), matmul(a, b));
  expect_near(jit(f)(device_put(a, NamedSharding(mesh, P(nullptr, "x"))), b), matmul(a, b));
}

TEST(ShardMap, UntiledFormsAddAndRemoveAnAxis) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array x = ramp({8, 3});
  // [2, 3] -> [2, 4, 3]: part i at index i of axis 1.
  const Array gathered = shard_map([](const Array& a) { return all_gather(a, "x", {.axis = 1}); },
                                   mesh, P("x"), P())(x);
  expect_near(gathered, transpose(reshape(x, {4, 2, 3}), {1, 0, 2}), 0);
  // [4, 3] summed over 4 positions, row i to position i.
  const Array rows = ramp({16, 3});
  const Array scattered =
      shard_map([](const Array& a) { return psum_scatter(a, "x"); }, mesh, P("x"), P("x"))(rows);
  expect_near(scattered, reshape(sum(reshape(rows, {4, 4, 3}), 0), {12}));
  // Each position has row p of a [4, 4, 3] array; afterwards column p.
  const Array cube = ramp({4, 4, 3});
  for (int concat : {0, 1}) {
    const Array columns = shard_map(
        [&](const Array& a) {
          return expand_dims(all_to_all(squeeze(a, {0}), "x", 0, concat), {0});
        },
        mesh, P("x"), P("x"))(cube);
    const Array swapped = transpose(cube, {1, 0, 2});
    expect_near(columns, concat == 0 ? swapped : transpose(swapped, {0, 2, 1}), 0);
  }
  // The split axis before the place of the new one, and behind it.
  const Array four = ramp({4, 2, 4, 3});
  const Array moved = shard_map(
      [](const Array& a) { return expand_dims(all_to_all(squeeze(a, {0}), "x", 1, 2), {0}); }, mesh,
      P("x"), P("x"))(four);
  expect_near(moved, transpose(four, {2, 1, 3, 0}), 0);
  const Array front = shard_map(
      [](const Array& a) { return expand_dims(all_to_all(squeeze(a, {0}), "x", 1, 0), {0}); }, mesh,
      P("x"), P("x"))(four);
  expect_near(front, transpose(four, {2, 0, 1, 3}), 0);
}

TEST(ShardMap, ReductionsGoOverNamedAxesAndTrees) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const Array x = ramp({4, 4});
  const Weights sums = shard_map(
      [](const Array& a) {
        return psum(Weights{sum(a), a}, {"x", "y"});
      },
      mesh, P("x", "y"), P())(x);
  expect_near(sums.up, sum(x));
  expect_near(sums.down, sum(transpose(reshape(x, {2, 2, 2, 2}), {0, 2, 1, 3}), Axes{0, 1}));
  const auto over_y = [&](auto reduce) {
    return shard_map([&](const Array& a) { return reduce(a); }, mesh, P("x", "y"), P("x"))(x);
  };
  const Array halves = reshape(x, {4, 2, 2});
  expect_near(over_y([](const Array& a) { return pmax(a, "y"); }), max(halves, 1), 0);
  expect_near(over_y([](const Array& a) { return pmin(a, "y"); }), min(halves, 1), 0);
  expect_near(over_y([](const Array& a) { return pmean(a, "y"); }), mean(halves, 1));
  // A bool counts.
  const Array count = shard_map(
      [](const Array& a) {
        return psum(sum(a) > 0.0f, {"x", "y"});
      },
      mesh, P("x", "y"), P())(full({4, 4}, 1.0f));
  EXPECT_EQ(count.item<int32_t>(), 4);
}

TEST(ShardMap, ARingOfPermutesPassesEveryPart) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array x = ramp({8, 2});
  const auto f = shard_map(
      [](const Array& a) {
        Array total = a, next = a;
        for (int i = 1; i < 4; ++i) {
          next = ppermute(next, "x", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
          total = total + next;
        }
        return total;
      },
      mesh, P("x"), P("x"));
  const Array want = sum(reshape(x, {4, 2, 2}), 0);
  expect_near(f(x), concatenate({want, want, want, want}, 0));
  // Positions that get nothing have zeros; pshuffle takes from anywhere.
  const Array shifted = shard_map(
      [](const Array& a) {
        return ppermute(a, "x", {{0, 1}});
      },
      mesh, P("x"), P("x"))(full({4}, 3.0f));
  EXPECT_THAT(shifted.to_vector<float>(), ElementsAre(0, 3, 0, 0));
  const Array shuffled = shard_map(
      [](const Array& a) {
        return pshuffle(a, "x", {3, 0, 2, 1});
      },
      mesh, P("x"), P("x"))(Array::from(std::vector<float>{0, 1, 2, 3}, {4}));
  EXPECT_THAT(shuffled.to_vector<float>(), ElementsAre(3, 0, 2, 1));
}

// ---- Where it stands ----

TEST(ShardMap, StandsInScansCheckpointsAndHoldsScans) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array w = ramp({3, 8, 8}), x = ramp({4, 8});
  const auto layer = shard_map(
      [](const Array& h, const Array& part) {
        return h + tanh(psum(matmul(h.slice(1, 0, 2) * 0.0f + sum(h), part), "x"));
      },
      mesh, {P(), P("x")}, P());
  const auto plain = [](const Array& h, const Array& whole) {
    return h + tanh(matmul(zeros({4, 8}) + sum(h), whole));
  };
  const auto net = [&](auto block) {
    return [&w, &x, block](const Array& scale) {
      return sum(square(scan(
          checkpoint([&](const Array& h, const Array& v) { return block(h, v * scale); }), x, w)));
    };
  };
  const Array scale = Array(1.5f);
  const auto [got, g] = jit(value_and_grad(net(layer)))(scale);
  const auto [want, want_g] = value_and_grad(net(plain))(scale);
  expect_near(got, want);
  expect_near(g, want_g, 1e-4);
  // A sum over the mesh in a scan of the body, whose carry begins as a constant.
  const auto inner = shard_map(
      [](const Array& rows) {
        return scan([](const Array& carry, const Array& row) { return carry + psum(row, "x"); },
                    zeros({2}), rows);
      },
      mesh, P(nullptr, "x"), P());
  expect_near(inner(ramp({5, 8})), sum(sum(reshape(ramp({5, 8}), {5, 4, 2}), 1), 0));
}

TEST(ShardMap, CapturedArraysAreWholeAtEveryPosition) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array x = ramp({8, 3}), w = ramp({3, 5});
  const auto loss = [&](const Array& weight) {
    return sum(square(
        shard_map([&](const Array& a) { return matmul(a, weight); }, mesh, P("x"), P("x"))(x)));
  };
  const auto plain = [&](const Array& weight) { return sum(square(matmul(x, weight))); };
  expect_near(jit(loss)(w), plain(w));
  expect_near(jit(grad(loss))(w), grad(plain)(w));
  expect_near(grad(loss)(w), grad(plain)(w));  // outside of jit too
}

TEST(ShardMap, StandsUnderVmapVjpAndJvp) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const auto f = shard_map(
      [](const Array& a, const Array& b) {
        const Array rows = all_gather(b, {"x", "y"}, {.tiled = true});
        return sin(psum(matmul(a, rows), "y"));
      },
      mesh, {P("x"), P(P::Axes{"x", "y"})}, P("x"));
  const auto plain = [](const Array& a, const Array& b) { return sin(2.0 * matmul(a, b)); };
  const Array a = ramp({4, 8}), b = ramp({8, 6}), stack = ramp({3, 4, 8});
  expect_near(f(a, b), plain(a, b));
  const Array by_row = jit([&](const Array& s) {
    return vmap([&](const Array& one) { return f(one, b); })(s);
  })(stack);
  for (int64_t i = 0; i < 3; ++i)
    expect_near(squeeze(by_row.slice(0, i, i + 1), {0}),
                plain(squeeze(stack.slice(0, i, i + 1), {0}), b));
  const Array ct = ramp({4, 6}, DType::kF32, 0.02);
  const auto [ga, gb] = jit([&](const Array& p, const Array& q) {
    return std::get<1>(vjp(f, p, q))(ct);
  })(a, b);
  const auto [want_a, want_b] = std::get<1>(vjp(plain, a, b))(ct);
  expect_near(ga, want_a);
  expect_near(gb, want_b);
}

// Parameters wait on the host in parts; the body moves its part, and the gradient goes back there.
TEST(ShardMap, PartsWaitInOtherMemories) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array w = ramp({8, 8}), x = ramp({4, 8});
  const auto [want, want_g] = value_and_grad([](const Array& v, const Array& rows) {
    return sum(square(matmul(rows, v)));
  })(w, x);
  for (const bool cut : {true, false}) {
    SCOPED_TRACE(cut);
    const P spec = cut ? P("x") : P();
    const auto f = shard_map(
        [&](const Array& part, const Array& rows) {
          Array whole = device_put(part, MemoryKind::kDevice);
          if (cut) whole = all_gather(whole, "x", {.tiled = true});
          return psum(sum(square(matmul(rows, whole))), "x");
        },
        mesh, {spec, P("x")}, P());
    const NamedSharding host(mesh, spec, "pinned_host");
    const auto [value, g] = jit(value_and_grad(f))(device_put(w, host), x);
    expect_near(value, want);
    EXPECT_EQ(g.type().kind, MemoryKind::kPinnedHost);
    expect_near(device_put(g, MemoryKind::kDevice), want_g);
  }
  // A result in another memory, from where a gradient comes back.
  const auto stored = shard_map(
      [](const Array& a) { return device_put(psum(a, "x"), MemoryKind::kPinnedHost); }, mesh,
      P("x"), P());
  const auto loss = [&](const Array& a) {
    return sum(square(device_put(stored(a), MemoryKind::kDevice)));
  };
  expect_near(jit(grad(loss))(w),
              grad([](const Array& a) { return sum(square(sum(reshape(a, {4, 2, 8}), 0))); })(w));
}

TEST(ShardMap, ConstantsOfTheBodyAreResults) {
  const Mesh mesh = mesh_of({2}, {"x"});
  const auto [a, b] = shard_map([](const Array& x) { return std::pair(full({3}, 2.0f), x); }, mesh,
                                P("x"), P("x"))(ramp({4}));
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(2, 2, 2, 2, 2, 2));
  expect_near(b, ramp({4}), 0);
}

TEST(ShardMap, AMeshOfOneDeviceRunsTheBody) {
  const Mesh mesh = mesh_of({1, 1}, {"x", "y"});
  const auto f = shard_map(
      [](const Array& a) {
        const Array s = psum_scatter(all_gather(psum(a, "x"), {"x", "y"}, {.tiled = true}), "y",
                                     {.tiled = true});
        return ppermute(all_to_all(s, "x", 0, 1, {.tiled = true}), "x", {{0, 0}}) +
               astype(axis_index("y"), DType::kF32);
      },
      mesh, P("x", "y"), P("x", "y"));
  expect_near(f(ramp({4, 4})), ramp({4, 4}), 0);
}

// ---- Gradients ----

struct Case {
  const char* name;
  std::function<Array(const Array&)> body;
  P out;
};

// Every collective by finite differences, on groups of 2 and 4, of one axis and of two.
TEST(ShardMap, GradientsAreThoseOfFiniteDifferences) {
  const std::vector<std::pair<int64_t, AxisNames>> groups = {{2, "x"}, {4, {"x", "y"}}, {4, "x"}};
  for (const auto& [n, names] : groups) {
    const AxisNames axes = names;
    const bool two = names.names().size() == 2;
    const Mesh mesh = two ? mesh_of({2, 2}, {"x", "y"}) : mesh_of({n}, {"x"});
    const P cut{std::vector<P::Axes>{axes}};
    std::vector<std::pair<int64_t, int64_t>> ring;
    for (int64_t i = 0; i + 1 < n; ++i) ring.emplace_back(i, i + 1);
    const auto weighted = [axes](const Array& y) {  // differs between positions
      return y * (astype(axis_index(axes), DType::kF64) + 1.0);
    };
    const std::vector<Case> cases = {
        {"psum", [&](const Array& a) { return psum(sin(a), axes); }, P()},
        {"psum of weighted", [&](const Array& a) { return psum(weighted(sin(a)), axes); }, P()},
        {"weighted psum", [&](const Array& a) { return weighted(psum(sin(a), axes)); }, cut},
        {"pmean", [&](const Array& a) { return weighted(pmean(sin(a), axes)); }, cut},
        {"pmax", [&](const Array& a) { return weighted(pmax(sin(a), axes)); }, cut},
        {"pmin", [&](const Array& a) { return weighted(pmin(sin(a), axes)); }, cut},
        {"all_gather", [&](const Array& a) { return weighted(all_gather(sin(a), axes)); }, cut},
        {"all_gather tiled",
         [&](const Array& a) { return all_gather(weighted(a), axes, {.axis = 1, .tiled = true}); },
         P()},
        {"psum_scatter",
         [&](const Array& a) { return expand_dims(weighted(psum_scatter(sin(a), axes)), {0}); },
         cut},
        {"psum_scatter tiled",
         [&](const Array& a) {
           return weighted(psum_scatter(sin(a), axes, {.scatter_dimension = -1, .tiled = true}));
         },
         cut},
        {"all_to_all", [&](const Array& a) { return weighted(all_to_all(sin(a), axes, 0, 1)); },
         cut},
        {"all_to_all tiled",
         [&](const Array& a) { return weighted(all_to_all(sin(a), axes, 1, 0, {.tiled = true})); },
         cut},
        {"ppermute", [&](const Array& a) { return weighted(ppermute(sin(a), axes, ring)); }, cut},
    };
    const Array x = ramp({n * n, 4}, DType::kF64, 0.013);
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{} over {}{}", c.name, n, two ? " by two axes" : ""));
      const auto mapped = shard_map(c.body, mesh, cut, c.out);
      const auto loss = [&](const Array& a) {
        const Array y = mapped(a);
        const Array weights = cos(reshape(arange(0, static_cast<int64_t>(y.size()), 1, DType::kF64),
                                          Dims(y.shape().begin(), y.shape().end())));
        return sum(y * y * weights);
      };
      const auto value = jit(loss);
      const std::vector<double> g = values(jit(grad(loss))(x));
      std::vector<double> at = values(x);
      for (size_t i = 0; i < at.size(); i += 7) {
        const double before = at[i], h = 1e-5;
        at[i] = before + h;
        const double up = value(Array::from(at, x.shape(), DType::kF64)).item<double>();
        at[i] = before - h;
        const double down = value(Array::from(at, x.shape(), DType::kF64)).item<double>();
        at[i] = before;
        ASSERT_NEAR(g[i], (up - down) / (2 * h), 1e-6 * (1 + std::abs(g[i]))) << "element " << i;
      }
    }
  }
}

// ---- A layer whose parameters are cut, by hand ----

TEST(ShardMap, AFullyShardedLayerByHandIsThePartitionersAndTheWhole) {
  const Mesh mesh = mesh_of({4}, {"data"});
  const Weights w{ramp({16, 32}), ramp({32, 8})};
  const Array x = ramp({24, 16}, DType::kF32, 0.003);
  const auto loss = [](const Weights& v, const Array& batch) {
    return mean(square(matmul(tanh(matmul(batch, v.up)), v.down)));
  };
  const auto by_hand = shard_map(
      [&](const Weights& v, const Array& batch) {
        return pmean(loss(all_gather(v, "data", {.tiled = true}), batch), "data");
      },
      mesh, P("data"), P());
  const NamedSharding rows(mesh, P("data"));
  const Weights cut = device_put(w, rows);
  const Array batch = device_put(x, rows);
  const Weights want = grad(loss)(w, x);
  const Weights hand = jit(grad(by_hand))(cut, batch);
  const Weights found = jit(grad(loss), {.out_shardings = rows})(cut, batch);
  expect_near(hand.up, want.up);
  expect_near(hand.down, want.down);
  expect_near(found.up, hand.up);
  expect_near(found.down, hand.down);
  EXPECT_EQ(addressable_shards(hand.up)[0].data.shape(), (Shape{4, 32}));
  // Parameters are gathered, gradients scattered.
  const auto compiled = jit(grad(by_hand)).lower(cut, batch).compile();
  const ShardingReport report = compiled.sharding_report();
  std::vector<OpKind> ops;
  for (const CollectiveCount& c : report.collectives) ops.push_back(c.op);
  EXPECT_THAT(ops, ::testing::IsSupersetOf({OpKind::kAllGather, OpKind::kReduceScatter}));
  EXPECT_THAT(to_string(report), HasSubstr("reduce_scatter"));
}

// Without a policy nothing is kept, so that the gather is made again; a policy keeps its result by
// name.
TEST(ShardMap, PoliciesDecideWhetherAGatheredValueIsKept) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array w = ramp({8, 8}), x = ramp({4, 8});
  const auto gathers = [&](ir::PolicyPtr policy) {
    const auto f = shard_map(checkpoint(
                                 [](const Array& a, const Array& part) {
                                   const Array whole = checkpoint_name(
                                       all_gather(part, "x", {.tiled = true}), "gathered");
                                   return sin(matmul(sin(a), whole));
                                 },
                                 policy),
                             mesh, {P("x"), P("x")}, P("x"));
    const auto loss = [&](const Array& a, const Array& v) { return sum(sin(f(a, v))); };
    const auto g = jit(grad<0, 1>(loss));
    const auto [ga, gw] = g(x, w);
    const auto [want_a, want_w] = grad<0, 1>(
        [](const Array& a, const Array& v) { return sum(sin(sin(matmul(sin(a), v)))); })(x, w);
    expect_near(ga, want_a);
    expect_near(gw, want_w);
    int64_t count = 0;
    for (const CollectiveCount& c : g.lower(x, w).compile().sharding_report().collectives)
      if (c.op == OpKind::kAllGather) count += c.count;
    return count;
  };
  EXPECT_EQ(gathers(nullptr), 2);
  EXPECT_EQ(gathers(save_only_these_names({"gathered"})), 1);
}

// ---- Constraints and reports ----

TEST(Constraint, LiesAsAskedInsideAndOutsideOfJit) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const NamedSharding rows(mesh, P("x"));
  const Array x = ramp({8, 4});
  const Array outside = with_sharding_constraint(x, rows);
  EXPECT_EQ(addressable_shards(outside)[0].data.shape(), (Shape{2, 4}));
  EXPECT_EQ(addressable_shards(sharding::reshard(outside, NamedSharding(mesh, P(nullptr, "x"))))[0]
                .data.shape(),
            (Shape{8, 1}));
  const auto f =
      jit([&](const Array& a) { return with_sharding_constraint(a * 2.0f, rows) + 1.0f; });
  const Array y = f(x);
  EXPECT_EQ(addressable_shards(y)[0].data.shape(), (Shape{2, 4}));
  expect_near(y, x * 2.0f + 1.0f, 0);
  const Weights w =
      jit([&](const Weights& v) { return sharding::reshard(v, rows); })(Weights{x, x});
  EXPECT_EQ(addressable_shards(w.down)[0].data.shape(), (Shape{2, 4}));
  // The cotangent lies as the operand does.
  const Array g =
      jit(grad([&](const Array& a) { return sum(square(with_sharding_constraint(a, rows))); }))(x);
  EXPECT_EQ(addressable_shards(g)[0].data.shape(), (Shape{2, 4}));
  expect_near(g, x * 2.0f);
}

TEST(Constraint, StrictShardingRefusesWhatStaysWhole) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array w = device_put(ramp({256, 256}), NamedSharding(mesh, P()));
  const Array x = device_put(ramp({8, 256}), NamedSharding(mesh, P("x")));
  const auto f = [](const Array& a, const Array& v) { return matmul(a, v); };
  const ShardingReport report = jit(f).lower(x, w).compile().sharding_report();
  ASSERT_FALSE(report.notes.empty());
  EXPECT_EQ(report.notes[0].bytes, 256 * 256 * 4);
  EXPECT_EQ(report.notes[0].source, "1");
  EXPECT_THAT(to_string(report), HasSubstr("f32[256,256] takes 256.00 KiB a position at 1"));
  EXPECT_THAT(message_of([&] { jit(f, {.strict_sharding = true}).lower(x, w).compile(); }),
              HasSubstr("f32[256,256] takes 256.00 KiB a position"));
  const auto plain = jit(f).lower(ramp({2, 2}), ramp({2, 2})).compile();
  EXPECT_TRUE(plain.sharding_report().notes.empty() && plain.sharding_report().collectives.empty());
}

// ---- Errors ----

TEST(ShardMap, RefusesWhatDoesNotFit) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const auto same = [](const Array& a) { return a; };
  const auto error = [&](const P& in, const P& out, const Shape& shape) {
    return message_of([&] { shard_map(same, mesh, in, out)(ramp(shape)); });
  };
  EXPECT_THAT(error(P("z"), P(), {4}),
              HasSubstr("expected axes of Mesh('x': 2, 'y': 2), got 'z'"));
  EXPECT_THAT(error(P("x", "x"), P(), {4, 4}), HasSubstr("names 'x' twice"));
  EXPECT_THAT(error(P("x", "y"), P(), {4}), HasSubstr("[shard_map] argument 0: "));
  EXPECT_THAT(error(P("x"), P(), {5}), HasSubstr("nearest divisible size is 4 or 6"));
  EXPECT_THAT(
      error(P("x"), P("x", "y"), {4}),
      HasSubstr("[shard_map] result: P('x', 'y') has 2 entries, its part f32[2] has 1 axes"));
  EXPECT_THAT(error(P("x"), P(), {4}),
              HasSubstr("expected a result that is the same along mesh axis 'x'"));
  EXPECT_THAT(
      message_of([&] {
        shard_map(same, mesh, {{"0/w", P()}}, P())(ramp({4}));
      }),
      HasSubstr("expected in_specs to name parts of the arguments, got '0/w'; the leaves are '0'"));
  EXPECT_THAT(
      message_of([&] {
        shard_map([](const Array& a, const Array&) { return a; }, mesh, {P()}, P())(ramp({4}),
                                                                                    ramp({4}));
      }),
      HasSubstr("expected in_specs to have a specification for every leaf of the arguments, got "
                "none for '1'"));
}

TEST(ShardMap, RefusesCollectivesThatDoNotFit) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  EXPECT_THAT(message_of([] { psum(ramp({2}), "x"); }),
              HasSubstr("[psum] expected a call in the body of shard_map, got one outside of any"));
  EXPECT_THAT(message_of([] { axis_index("x"); }), HasSubstr("[axis_index] expected a call"));
  const auto error = [&](const std::function<Array(const Array&)>& body) {
    return message_of([&] { shard_map(body, mesh, P("x"), P("x"))(ramp({6, 4})); });
  };
  EXPECT_THAT(error([](const Array& a) { return pmax(a, "z"); }),
              HasSubstr("[pmax] expected a mesh axis of the shard_map, 'x' or 'y', got 'z'"));
  EXPECT_THAT(error([](const Array& a) {
                return psum(a, {"x", "x"});
              }),
              HasSubstr("[psum] mesh axis 'x' is named twice"));
  EXPECT_THAT(error([](const Array& a) { return psum_scatter(a, "x"); }),
              HasSubstr("expected axis 0 of f32[3,4] to have the extent of the group, 2, got 3"));
  EXPECT_THAT(error([](const Array& a) { return psum_scatter(a, "x", {.tiled = true}); }),
              HasSubstr("not divisible into 2 parts"));
  EXPECT_THAT(error([](const Array& a) { return all_gather(a, "x", {.axis = 3}); }),
              HasSubstr("[all_gather]"));
  EXPECT_THAT(error([](const Array& a) {
                return ppermute(a, "x", {{0, 1}, {1, 1}});
              }),
              HasSubstr("index 1 is a destination twice"));
  EXPECT_THAT(error([](const Array& a) {
                return pshuffle(a, "x", {0, 0});
              }),
              HasSubstr("[pshuffle] expected a permutation of 2 positions, got [0, 0]"));
}

TEST(ShardMap, RefusesWhatABodyCannotHold) {
  const Mesh mesh = mesh_of({2}, {"x"});
  const auto error = [&](const std::function<Array(const Array&)>& body) {
    return message_of([&] { shard_map(body, mesh, P("x"), P("x"))(ramp({4})); });
  };
  EXPECT_THAT(error([&](const Array& a) {
                return shard_map([](const Array& b) { return b; }, mesh, P("x"), P("x"))(a);
              }),
              HasSubstr("got one in the body of one over Mesh('x': 2)"));
  EXPECT_THAT(
      error(
          [&](const Array& a) { return with_sharding_constraint(a, NamedSharding(mesh, P("x"))); }),
      HasSubstr("[with_sharding_constraint] expected a call outside of the body of shard_map"));
  EXPECT_THAT(error([&](const Array& a) { return device_put(a, NamedSharding(mesh, P("x"))); }),
              HasSubstr("[device_put] expected a memory kind in the body of shard_map"));
  EXPECT_THAT(message_of([&] { with_sharding_constraint(ramp({4}), MemoryKind::kPinnedHost); }),
              HasSubstr("[with_sharding_constraint] expected a NamedSharding"));
  EXPECT_THAT(message_of([&] { with_sharding_constraint(ramp({5}), NamedSharding(mesh, P("x"))); }),
              HasSubstr("[with_sharding_constraint]"));
  // The mesh is free again after an error in the body.
  EXPECT_THAT(message_of([] { psum(ramp({2}), "x"); }), HasSubstr("got one outside of any"));
}

TEST(ShardMap, BranchesAndLoopsOnWhatIsTheSameEverywhere) {
  const Mesh mesh = mesh_of({2}, {"x"});
  const auto branch = [](const Array& a, const Array& p) {
    return cond(
        p, [](const Array& v) { return v + 1.0f; }, [](const Array& v) { return v - 1.0f; }, a);
  };
  const Array x = ramp({4, 2});
  const auto reduced = shard_map(
      [&](const Array& a) { return branch(a, psum(sum(a), "x") > 100.0f); }, mesh, P("x"), P("x"));
  expect_near(reduced(x), x - 1.0f, 0);
  const auto own = shard_map([&](const Array& a) { return branch(a, sum(a) > 0.0f); }, mesh, P("x"),
                             P("x"));
  EXPECT_THAT(message_of([&] { own(x); }), HasSubstr("reduce it over the mesh first"));
  const auto loop = [&](bool is_reduced) {
    return shard_map(
        [is_reduced](const Array& a) {
          return while_loop(
              [is_reduced](const Array& v) {
                return (is_reduced ? pmax(max(v), "x") : max(v)) < 8.0f;
              },
              [](const Array& v) { return v + 1.0f; }, a);
        },
        mesh, P("x"), P("x"));
  };
  const Array start = Array::from(std::vector<float>{0, 1, 2, 3}, {4});
  expect_near(loop(true)(start), start + 5.0f, 0);
  EXPECT_THAT(message_of([&] { loop(false)(start); }), HasSubstr("reduce it over the mesh first"));
}

}  // namespace
}  // namespace stow
