// Programs over meshes of several devices of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using sharding::Mesh;
using sharding::P;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kLarge = int64_t{1} << 30;

std::vector<DevicePtr> virtual_devices(int n, int64_t bytes = kLarge) {
  std::vector<DevicePtr> devices;
  for (int i = 0; i < n; ++i)
    devices.push_back(Device::virtual_device({bytes, kLarge, kLarge}, 1));
  return devices;
}

Mesh mesh_of(std::vector<int64_t> shape, std::vector<std::string> names) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return make_mesh(std::move(shape), std::move(names), virtual_devices(static_cast<int>(n)));
}

Array ramp(const Shape& shape, float scale = 0.01f) {
  std::vector<float> values(static_cast<size_t>(ArrayType{DType::kF32, shape}.elems()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = scale * static_cast<float>(static_cast<int>(i * 7919 % 211) - 105);
  return Array::from(values, shape);
}

std::vector<float> floats(const Array& x) { return x.to_vector<float>(); }

void expect_near(const Array& got, const Array& want, float tolerance = 1e-5f) {
  const std::vector<float> a = floats(got), b = floats(want);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "element " << i;
}

struct Mlp {
  Array up, down;
};
STOW_TREE(Mlp, up, down);

Array loss(const Mlp& w, const Array& x) {
  return mean(square(matmul(tanh(matmul(x, w.up)), w.down)));
}

TEST(MeshJit, AProductOfCutOperandsIsTheWhole) {
  const Mesh mesh = mesh_of({2, 2}, {"data", "model"});
  const Array a = ramp({8, 12}), b = ramp({12, 16});
  const auto f = jit([](const Array& x, const Array& y) { return matmul(x, y); });
  const Array want = matmul(a, b);
  for (const auto& [pa, pb] : std::vector<std::pair<P, P>>{{P("data"), P(nullptr, "model")},
                                                           {P(nullptr, "data"), P("data")},
                                                           {P("data", "model"), P("model")},
                                                           {P(), P("data", "model")}}) {
    const Array got =
        f(device_put(a, NamedSharding(mesh, pa)), device_put(b, NamedSharding(mesh, pb)));
    expect_near(got, want);
  }
}

TEST(MeshJit, ResultsLieAsOutShardingsSay) {
  const Mesh mesh = mesh_of({4}, {"data"});
  const Array x = device_put(ramp({8, 4}), NamedSharding(mesh, P("data")));
  const auto f = jit([](const Array& a) { return a * 2.0f; },
                     {.out_shardings = Sharding(NamedSharding(mesh, P(nullptr, "data")))});
  const Array y = f(x);
  EXPECT_EQ(to_string(sharding_of(y).named()->spec()), "P(None, 'data')");
  EXPECT_EQ(addressable_shards(y).size(), 4u);
  EXPECT_EQ(addressable_shards(y)[1].data.shape(), Shape({8, 1}));
  expect_near(y, ramp({8, 4}) * 2.0f, 0);
}

TEST(MeshJit, PropagatesWhereNothingIsSaid) {
  const Mesh mesh = mesh_of({2}, {"data"});
  const Array x = device_put(ramp({8, 4}), NamedSharding(mesh, P("data")));
  const Array y = jit([](const Array& a) { return exp(a) + 1.0f; })(x);
  EXPECT_EQ(addressable_shards(y)[0].data.shape(), Shape({4, 4}));
}

TEST(MeshJit, AStepOfFullyShardedTrainingHasTheWholeGradientsAndAliasesItsState) {
  const Mesh mesh = mesh_of({4}, {"data"});
  const Mlp whole{ramp({16, 32}), ramp({32, 8})};
  const Array x = ramp({24, 16}, 0.003f);
  const auto step = [](const Mlp& w, const Array& batch) {
    const auto [value, g] = value_and_grad(loss)(w, batch);
    return std::pair(tree_map([](const Array& p, const Array& d) { return p - 0.1f * d; }, w, g),
                     value);
  };
  const auto [want, want_loss] = jit(step)(whole, x);
  const NamedSharding rows(mesh, P("data"));
  const Mlp cut = device_put(whole, rows);
  const auto meshed = jit(step, {.donate_argnums = {0}, .out_shardings = {{"0", rows}}});
  const Array batch = device_put(x, rows);
  const auto compiled = meshed.lower(cut, batch).compile();
  EXPECT_EQ(compiled.memory_analysis().device().alias_bytes, (16 * 32 + 32 * 8) * 4 / 4);
  const auto [got, got_loss] = meshed(cut, batch);
  expect_near(got.up, want.up);
  expect_near(got.down, want.down);
  expect_near(got_loss, want_loss);
  EXPECT_THAT(message_of([&] { floats(cut.up); }), HasSubstr("was donated"));
}

TEST(MeshJit, PredictedIsMeasuredOnEveryDevice) {
  const std::vector<DevicePtr> devices = virtual_devices(4);
  const Mesh mesh = make_mesh({2, 2}, {"data", "model"}, devices);
  const Mlp w{device_put(ramp({64, 128}), NamedSharding(mesh, P("data", "model"))),
              device_put(ramp({128, 32}), NamedSharding(mesh, P("model", "data")))};
  const Array x = device_put(ramp({32, 64}), NamedSharding(mesh, P("data")));
  const auto compiled = jit(grad(loss)).lower(w, x).compile();
  for (const DevicePtr& device : devices) device->reset_high_water();
  const Mlp g = compiled(w, x);
  for (const DevicePtr& device : devices)
    EXPECT_EQ(device->high_water_bytes(MemoryKind::kDevice),
              compiled.memory_analysis().device().total_bytes);
}

TEST(MeshJit, ADeviceThatIsTooSmallEndsTheRunOnAllAndTheMeshServesAgain) {
  std::vector<DevicePtr> devices = virtual_devices(2);
  devices[1] = Device::virtual_device({20000, kLarge, kLarge}, 1);
  const Mesh mesh = make_mesh({2}, {"data"}, devices);
  const Array x = device_put(ramp({64, 32}), NamedSharding(mesh, P("data")));
  const auto large = jit([](const Array& a) { return matmul(a, transpose(a)) + 1.0f; });
  EXPECT_THROW(large(x), CapacityError);
  expect_near(jit([](const Array& a) { return sum(a); })(x), sum(ramp({64, 32})));
}

TEST(MeshJit, AFailedRunLeavesNoDonatedState) {
  std::vector<DevicePtr> devices = virtual_devices(2);
  devices[1] = Device::virtual_device({20000, kLarge, kLarge}, 1);
  const Mesh mesh = make_mesh({2}, {"data"}, devices);
  const Array x = device_put(ramp({64, 32}), NamedSharding(mesh, P("data")));
  const auto step = jit([](const Array& a) { return std::pair(a + 1.0f, matmul(a, transpose(a))); },
                        {.donate_argnums = {0}});
  EXPECT_THROW(step(x), CapacityError);
  EXPECT_THAT(message_of([&] { floats(x); }), HasSubstr("(whose run failed)"));
}

TEST(MeshJit, WhatOthersHoldIsNotDonatedAndWhatTheyLetGoIs) {
  const Mesh mesh = mesh_of({2}, {"data"});
  const auto step = jit([](const Array& a) { return a + 1.0f; }, {.donate_argnums = {0}});
  const Array x = device_put(ramp({8, 4}), NamedSharding(mesh, P("data")));
  {
    const auto shards = addressable_shards(x);
    EXPECT_THAT(message_of([&] { step(x); }), HasSubstr("shares its memory with another array"));
  }
  expect_near(step(x), ramp({8, 4}) + 1.0f, 0);
  const Array moved = device_put(
      device_put(device_put(ramp({8, 4}), NamedSharding(mesh, P("data"))), MemoryKind::kPinnedHost),
      MemoryKind::kDevice);
  expect_near(step(moved), ramp({8, 4}) + 1.0f, 0);
}

TEST(MeshJit, WeightsWaitOnTheHostInParts) {
  const std::vector<DevicePtr> devices = virtual_devices(2);
  const Mesh mesh = make_mesh({2}, {"data"}, devices);
  const NamedSharding host(mesh, P("data"), "pinned_host");
  const Array w = device_put(ramp({64, 32}), host),
              x = device_put(ramp({8, 64}), NamedSharding(mesh, P()));
  const Array y = jit([&](const Array& weight, const Array& in) {
    return matmul(in, device_put(weight, NamedSharding(mesh, P("data"))));
  })(w, x);
  expect_near(y, matmul(ramp({8, 64}), ramp({64, 32})));
  EXPECT_EQ(devices[0]->in_use_bytes(MemoryKind::kPinnedHost), 64 * 32 * 4 / 2);
}

TEST(MeshJit, OperationsOutsideOfJitRunOverTheMesh) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const Array a = device_put(ramp({8, 8}), NamedSharding(mesh, P("x", "y")));
  expect_near(exp(a) * 2.0f + 1.0f, exp(ramp({8, 8})) * 2.0f + 1.0f, 0);
  expect_near(sum(a), sum(ramp({8, 8})));
  expect_near(matmul(a, a), matmul(ramp({8, 8}), ramp({8, 8})));
}

TEST(MeshJit, AConstraintInsideAProgramSaysHowAValueLies) {
  const Mesh mesh = mesh_of({2}, {"data"});
  const auto f = jit([&](const Array& a) {
    return device_put(a + 1.0f, NamedSharding(mesh, P("data"))) * 2.0f;
  });
  const Array y = f(ramp({8, 4}));
  EXPECT_EQ(addressable_shards(y)[0].data.shape(), Shape({4, 4}));
  expect_near(y, (ramp({8, 4}) + 1.0f) * 2.0f, 0);
}

TEST(MeshJit, RandomNumbersAreTheSameOnEveryMesh) {
  const auto draw = [](const Array& key) { return random::normal(key, {16, 8}); };
  const Array want = jit(draw)(random::key(7));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 2}, {4, 1}, {1, 8}}) {
    const Mesh mesh = mesh_of(shape, {"x", "y"});
    const Array got =
        jit(draw, {.out_shardings = Sharding(NamedSharding(mesh, P("x", "y")))})(random::key(7));
    EXPECT_EQ(floats(got), floats(want));
  }
}

TEST(MeshJit, ScansOverStacksThatAreCutBesideTheirLayers) {
  const Mesh mesh = mesh_of({2}, {"data"});
  const Array stack = ramp({3, 8, 8}, 0.002f), x = ramp({4, 8});
  const auto net = [](const Array& w, const Array& in) {
    return sum(scan(checkpoint([](const Array& carry, const Array& layer) {
                      return tanh(matmul(carry, layer));
                    }),
                    in, w));
  };
  const Array want = grad(net)(stack, x);
  const Array got = jit(grad(net))(device_put(stack, NamedSharding(mesh, P(nullptr, "data"))),
                                   device_put(x, NamedSharding(mesh, P("data"))));
  expect_near(got, want);
  EXPECT_THAT(message_of([&] {
                jit(net)(device_put(ramp({4, 8, 8}), NamedSharding(mesh, P("data"))), x);
              }),
              HasSubstr("loop goes over it"));
}

TEST(MeshJit, TwoMeshesInOneProgramAreRefused) {
  const Mesh one = mesh_of({2}, {"data"}), other = mesh_of({2}, {"data"});
  EXPECT_THAT(message_of([&] {
                jit([](const Array& a, const Array& b) { return a + b; })(
                    device_put(ramp({4}), NamedSharding(one, P("data"))),
                    device_put(ramp({4}), NamedSharding(other, P("data"))));
              }),
              HasSubstr("expected one mesh"));
}

}  // namespace
}  // namespace stow
