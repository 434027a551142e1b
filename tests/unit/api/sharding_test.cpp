// Shardings and memory kinds as JAX has them: the behaviours of its tests/memories_test.py, one by
// one, on a mesh of one device. Each kind that an array can wait in runs the same tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

std::vector<float> counted(int64_t n) {
  std::vector<float> data(static_cast<size_t>(n));
  std::iota(data.begin(), data.end(), 0.0f);
  return data;
}

std::vector<float> times(std::vector<float> values, float factor) {
  for (float& v : values) v *= factor;
  return values;
}

std::vector<float> squares(std::vector<float> values) {
  for (float& v : values) v *= v;
  return values;
}

class Shardings : public ::testing::Test {
 protected:
  DevicePtr device_ = Device::virtual_device({64 * kMiB, 64 * kMiB, 64 * kMiB}, 1);
  DefaultDevice guard_{device_};
  Mesh mesh_ = make_mesh({1, 1}, {"x", "y"});
};

// ---- ShardingMemoriesTest ----

TEST_F(Shardings, DefaultKindIsTheDevice) {
  EXPECT_EQ(NamedSharding(mesh_, P("x")).memory_kind(), MemoryKind::kDevice);
  EXPECT_EQ(SingleDeviceSharding(device_).memory_kind(), MemoryKind::kDevice);
  EXPECT_EQ(Sharding().memory_kind(), MemoryKind::kDevice);
}

TEST_F(Shardings, WrongKindsListTheValidOnes) {
  const auto list = HasSubstr("the kinds are device, pinned_host and disk");
  EXPECT_THAT(message_of([&] { NamedSharding(mesh_, P("x"), "hbm"); }), list);
  EXPECT_THAT(message_of([&] { SingleDeviceSharding(device_, "host"); }), list);
  EXPECT_THAT(message_of([&] { NamedSharding(mesh_, P("x")).with_memory_kind("my_host"); }), list);
  EXPECT_THAT(message_of([&] { Sharding().with_memory_kind("my_host"); }), list);
}

TEST_F(Shardings, EqualWithTheDefaultKindSpelledOut) {
  EXPECT_EQ(NamedSharding(mesh_, P("x")), NamedSharding(mesh_, P("x"), "device"));
  EXPECT_EQ(SingleDeviceSharding(device_), SingleDeviceSharding(device_, "device"));
  EXPECT_NE(Sharding(NamedSharding(mesh_, P("x"))),
            Sharding(NamedSharding(mesh_, P("x"), "pinned_host")));
  EXPECT_NE(P("x"), P("x", nullptr));
  const Sharding named = NamedSharding(mesh_, P("x")), single = SingleDeviceSharding(device_);
  EXPECT_NE(named, single);
  EXPECT_TRUE(named.is_equivalent_to(single, 2));
  EXPECT_TRUE(Sharding(NamedSharding(mesh_, P("x", nullptr))).is_equivalent_to(named, 2));
  EXPECT_FALSE(named.is_equivalent_to(named.with_memory_kind("pinned_host"), 2));
  EXPECT_EQ(to_string(named.with_memory_kind("pinned_host")),
            "NamedSharding(Mesh('x': 1, 'y': 1), P('x'), pinned_host)");
}

TEST_F(Shardings, OfMeshesAreChecked) {
  EXPECT_THAT(message_of([&] { NamedSharding(mesh_, P("z")); }),
              HasSubstr("expected axes of Mesh('x': 1, 'y': 1), got 'z' in P('z')"));
  EXPECT_THAT(message_of([&] { NamedSharding(mesh_, P("x", P::Axes{"y", "x"})); }),
              HasSubstr("names 'x' twice"));
  EXPECT_THAT(message_of([&] { device_put(ones({3}), NamedSharding(mesh_, P("x", "y"))); }),
              HasSubstr("[device_put] P('x', 'y') has 2 entries, f32[3] has 1 axes"));
  EXPECT_THAT(message_of([&] { make_mesh({2}, {"x"}); }),
              HasSubstr("expected 2 devices for Mesh('x': 2), got 1"));
  EXPECT_THAT(message_of([&] { make_mesh({1, 1}, {"x", "x"}); }),
              HasSubstr("two axes named 'x'"));
  EXPECT_THAT(message_of([&] { make_mesh({1}, {}); }), HasSubstr("0 names and 1 extents"));
  EXPECT_THAT(message_of([&] { mesh_.extent("z"); }), HasSubstr("the axes are x, y"));
}

// ---- DevicePutTest and the kinds part of ComputeOffload, for each kind to wait in ----

class Waiting : public Shardings, public ::testing::WithParamInterface<MemoryKind> {
 protected:
  std::string kind_{memory_kind_name(GetParam())};
  NamedSharding s_dev_{mesh_, P("x", "y")};
  NamedSharding s_host_ = s_dev_.with_memory_kind(kind_);
  std::vector<float> data_ = counted(16);

  Array put(const Sharding& to) { return device_put(std::span<const float>(data_), {8, 2}, to); }
  void expect(const Array& out, const std::vector<float>& want, const Sharding& sharding) {
    EXPECT_EQ(out.to_vector<float>(), want);
    EXPECT_EQ(sharding_of(out), sharding);
    EXPECT_EQ(out.type().kind, sharding.memory_kind());
  }
};

TEST_P(Waiting, DevicePutHostToDevice) {
  const Array host = put(s_host_);
  expect(host, data_, s_host_);
  expect(device_put(host, s_dev_), data_, s_dev_);
}

TEST_P(Waiting, DevicePutDeviceToHost) {
  const Array x = Array::from(std::span<const float>(data_), {8, 2});
  expect(device_put(x, s_host_), data_, s_host_);
  expect(device_put(device_put(x, s_dev_), s_host_), data_, s_host_);
}

TEST_P(Waiting, DevicePutToAnotherDevice) {
  const DevicePtr other = Device::virtual_device({kMiB, kMiB, kMiB}, 1);
  const SingleDeviceSharding device(other), host(other, kind_);
  for (const Sharding& from : {Sharding(s_host_), Sharding(s_dev_)})
    for (const Sharding& to : {Sharding(device), Sharding(host)}) {
      const Array moved = device_put(put(from), to);
      expect(moved, data_, to);
      EXPECT_EQ(sharding_of(moved).device(), other);
      expect(device_put(moved, from), data_, from);
    }
  other->drop_arenas();
  EXPECT_EQ(other->in_use_bytes(MemoryKind::kDevice), 0);
  expect(device_put(2.5, device), {2.5f}, device);
}

TEST_P(Waiting, DevicePutOfSpansAndScalars) {
  const int64_t before = device_->high_water_bytes(MemoryKind::kDevice);
  expect(put(s_host_), data_, s_host_);
  EXPECT_EQ(device_->high_water_bytes(MemoryKind::kDevice), before);  // straight to its place
  expect(put(s_dev_), data_, s_dev_);
  const SingleDeviceSharding device(device_), host(device_, kind_);
  for (const Sharding& to : {Sharding(device), Sharding(host)}) {
    expect(device_put(8.0f, to), {8}, to);
    expect(device_put(8, to), {8}, to);
    const std::vector<int> numbers = {1, 2, 3};
    const Array bf16 = device_put(std::span<const int>(numbers), {3}, to, DType::kBF16);
    EXPECT_EQ(bf16.dtype(), DType::kBF16);
    expect(bf16, {1, 2, 3}, to);
  }
  EXPECT_THAT(message_of([&] { device_put(std::span<const float>(data_), {3}, host); }),
              HasSubstr("[device_put] expected 3 elements for f32"));
}

TEST_P(Waiting, DevicePutInsideJit) {
  const Array x = put(s_host_);
  const auto f = jit([&](const Array& a, const Array& b) {
    const auto [p, q] = device_put(std::pair(a, b), s_dev_);
    return device_put(p * q, s_dev_);
  });
  expect(f(x, x), squares(data_), s_dev_);
}

TEST_P(Waiting, ResultsWhereOutShardingsSay) {
  const Array host = put(s_host_), dev = put(s_dev_);
  const auto f = [&](const Array& a, const Array& b) {
    const Array z = device_put(a, s_dev_) * (b * 2.0);
    return std::pair(z * 4.0, z);
  };
  const auto [first, second] = jit(f, {.out_shardings = s_host_})(host, dev);
  expect(first, times(squares(data_), 8), s_host_);
  expect(second, times(squares(data_), 2), s_host_);
  const auto [there, here] =
      jit(f, {.out_shardings = {{"0", s_host_}, {"1", s_dev_}}})(host, dev);
  expect(there, times(squares(data_), 8), s_host_);
  expect(here, times(squares(data_), 2), s_dev_);
  EXPECT_THAT(
      message_of([&] {
        jit(f, {.out_shardings = {{"2", s_host_}}})(host, dev);
      }),
      HasSubstr("expected out_shardings to name parts of the result, got '2'; the leaves are "
                "'0', '1'"));
}

TEST_P(Waiting, ZeroSize) {
  const NamedSharding none = NamedSharding(mesh_, P()).with_memory_kind(kind_);
  const Array empty = device_put(zeros({0}), none);
  const auto f = jit([&](const Array& a) { return device_put(a, none.with_memory_kind("device")); },
                     {.out_shardings = none});
  expect(f(empty), {}, none);
}

TEST_P(Waiting, ScalarsAndConstants) {
  const NamedSharding to(mesh_, P(), kind_);
  const auto f =
      jit([&](const Array& a) { return std::pair(device_put(a, to), device_put(2, to)); },
          {.out_shardings = to});
  const auto [x, two] = f(1);
  expect(x, {1}, to);
  expect(two, {2}, to);
}

TEST_P(Waiting, IdentityOfArraysThere) {
  const Array host = put(s_host_);
  const auto [a, b] =
      jit([](const Array& x) { return std::pair(x, x); }, {.out_shardings = s_host_})(host);
  expect(a, data_, s_host_);
  expect(b, data_, s_host_);
}

TEST_P(Waiting, IdentityFromKindToKind) {
  const auto same = [](const Array& x) { return x; };
  expect(jit(same, {.out_shardings = s_dev_})(put(s_host_)), data_, s_dev_);
  expect(jit(same, {.out_shardings = s_host_})(put(s_dev_)), data_, s_host_);
}

TEST_P(Waiting, ParametersStreamInsideAScan) {
  const auto data = counted(4096);
  const Array host = device_put(std::span<const float>(data), {16, 16, 16},
                                NamedSharding(mesh_, P("x", "y"), kind_));
  const auto f = [](const Array& xs) {
    return scan(
               [](const Array& carry, const Array& x) {
                 return std::pair(carry, device_put(x, MemoryKind::kDevice) + carry);
               },
               Array::scalar(1.0f), xs)
        .second;
  };
  const auto compiled = jit(f).lower(host).compile();
  std::vector<float> want = data;
  for (float& v : want) v += 1;
  EXPECT_EQ(compiled(host).to_vector<float>(), want);
  EXPECT_LE(compiled.memory_analysis().device().temp_bytes, 2 * 16 * 16 * 4);
}

TEST_P(Waiting, ResultsStreamOutOfAScan) {
  const auto data = counted(4096);
  const Array dev = Array::from(std::span<const float>(data), {16, 16, 16});
  const auto body = [&](const Array& carry, const Array& x) {
    return std::pair(carry, device_put(x + carry, SingleDeviceSharding(kind_)));
  };
  const auto f = jit([&](const Array& xs) { return scan(body, Array::scalar(1.0f), xs).second; });
  std::vector<float> want = data;
  for (float& v : want) v += 1;
  const Array out = f(dev);
  EXPECT_EQ(out.type().kind, GetParam());
  EXPECT_EQ(out.to_vector<float>(), want);
}

TEST_P(Waiting, StacksNeverLieWholeOnTheDevice) {
  // Asked for outside the scan: the move goes to each slice.
  const auto body = [](const Array& c, const Array& x) {
    const Array y = tanh(c * x);
    return std::pair(y, std::pair(y * 2.0, reshape(y + 1.0, {4096})));
  };
  const auto f = [&](const Array& c, const Array& xs) {
    const auto [last, ys] = scan(body, c, xs);
    return std::tuple(last, ys.first, reshape(ys.second, {32 * 4096}));
  };
  const Array c = random::normal(random::key(1), {64, 64}),
              xs = random::normal(random::key(2), {32, 64, 64});
  const auto here = jit(f).lower(c, xs).compile();
  const auto there =
      jit(f, {.out_shardings = {{"1", s_host_}, {"2", SingleDeviceSharding(kind_)}}})
          .lower(c, xs)
          .compile();
  const auto [a0, a1, a2] = here(c, xs);
  const auto [b0, b1, b2] = there(c, xs);
  EXPECT_EQ(a0.to_vector<float>(), b0.to_vector<float>());
  EXPECT_EQ(a1.to_vector<float>(), b1.to_vector<float>());
  EXPECT_EQ(a2.to_vector<float>(), b2.to_vector<float>());
  EXPECT_EQ(b1.type().kind, GetParam());
  const int64_t slice = 64 * 64 * 4;
  const auto beyond = [](const MemoryAnalysis& m) {
    return m.device().total_bytes - m.device().argument_bytes;
  };
  EXPECT_GE(beyond(here.memory_analysis()), 64 * slice);
  EXPECT_LE(beyond(there.memory_analysis()), 5 * slice);
  EXPECT_EQ(there.memory_analysis().kinds[static_cast<size_t>(GetParam())].total_bytes, 64 * slice);
}

TEST_P(Waiting, GradientsOfUnrolledLayersLeaveOneByOne) {
  const auto loss = [](const Array& w, const Array& x) {
    Array h = x;
    for (int64_t i = 0; i < 8; ++i) h = tanh(matmul(h, w[i]));
    return sum(h);
  };
  const Array w = random::normal(random::key(1), {8, 64, 64}), x = ones({4, 64});
  const auto here = jit(grad(loss)).lower(w, x).compile();
  const auto there =
      jit(grad(loss), {.out_shardings = SingleDeviceSharding(kind_)}).lower(w, x).compile();
  EXPECT_EQ(here(w, x).to_vector<float>(), there(w, x).to_vector<float>());
  EXPECT_LE(there.memory_analysis().device().total_bytes,
            here.memory_analysis().device().total_bytes - 6 * 64 * 64 * 4);
}

TEST_P(Waiting, MixedKindsAreAnErrorThatNamesBoth) {
  const Array host = put(s_host_), dev = put(s_dev_);
  const std::string message =
      message_of([&] { jit([](const Array& x, const Array& y) { return x + y; })(dev, host); });
  EXPECT_THAT(message, HasSubstr(fmt::format(
                           "[add] operand 1 is on {0} and operand 0 on device: f32<{0}>[8,2] and "
                           "f32[8,2]; move them to one memory with device_put first\n"
                           "  operand 1 is argument '1' of jit",
                           kind_)));
  EXPECT_THAT(message_of([&] { concatenate({dev, host}); }),
              HasSubstr(fmt::format("[concatenate] operand 0 is on device and operand 1 on {0}: "
                                    "f32[8,2] and f32<{0}>[8,2]; move them to one memory with "
                                    "device_put first",
                                    kind_)));
  const auto there = [&](MemoryKind kind) { return device_put(dev, kind); };
  EXPECT_THAT(
      message_of([&] { there(MemoryKind::kDisk) + there(MemoryKind::kPinnedHost); }),
      HasSubstr("[add] operand 0 is on disk and operand 1 on pinned_host: f32<disk>[8,2] and "
                "f32<pinned_host>[8,2]; move them to the device with device_put first"));
}

struct Model {
  Array w;
};
STOW_TREE(Model, w);

TEST_P(Waiting, ArithmeticThereNamesTheArray) {
  const Model model{put(s_host_)};
  EXPECT_THAT(message_of([&] {
                jit([](const Model& m) { return exp(m.w); }, {.name = "step"})(model);
              }),
              HasSubstr(fmt::format("[exp] operand 0 is on {0}: f32<{0}>[8,2]; move it with "
                                    "device_put first\n  operand 0 is argument '0/w' of step",
                                    kind_)));
}

TEST_P(Waiting, OutputStreaming) {
  const auto f = jit([](const Array& x) { return x + 1.0; }, {.out_shardings = s_host_});
  std::vector<float> want = data_;
  for (float& v : want) v += 1;
  expect(f(put(s_dev_)), want, s_host_);
}

TEST_P(Waiting, DevicePutOfAResultKnowsItsKindWhileTraced) {
  const auto f = jit([&](const Array& x) {
    const Array twice = x * 2.0;
    EXPECT_EQ(twice.type().kind, MemoryKind::kDevice);
    const Array moved = device_put(twice, s_host_);
    EXPECT_EQ(moved.type().kind, GetParam());
    EXPECT_EQ(sharding_of(moved), Sharding(s_host_));
    return moved;
  });
  expect(f(put(s_dev_)), times(data_, 2), s_host_);
}

TEST_P(Waiting, ClosesOverAnArrayThere) {
  const Array host = put(s_host_);
  const auto f = jit([&] { return device_put(host, s_dev_) * 2.0; }, {.out_shardings = s_dev_});
  expect(f(), times(data_, 2), s_dev_);
}

TEST_P(Waiting, AKindAloneKeepsTheRestOfTheSharding) {
  const Array x = put(s_dev_);
  expect(device_put(x, GetParam()), data_, s_host_);
  expect(device_put(device_put(x, GetParam()), MemoryKind::kDevice), data_, s_dev_);
}

TEST_P(Waiting, ThereAndBackAgain) {
  Array d = device_put(std::span<const float>(data_), {16}, MemoryKind::kDevice);
  for (int i = 0; i < 2; ++i) {
    const Array h = device_put(d, GetParam());
    expect(h, data_, Sharding(GetParam()));
    d = device_put(h, MemoryKind::kDevice);
    expect(d, data_, Sharding());
  }
}

TEST_P(Waiting, NoOpCopiesNothing) {
  const Array host = put(s_host_);
  const int64_t used = device_->in_use_bytes(GetParam());
  EXPECT_EQ(device_put(host, s_host_).impl(), host.impl());
  const Array renamed = device_put(host, NamedSharding(mesh_, P("y"), kind_));
  EXPECT_EQ(device_->in_use_bytes(GetParam()), used);
  EXPECT_EQ(renamed.to_vector<float>(), data_);
  // Within a program it is no copy either.
  const auto f = [&](const Array& x) { return device_put(device_put(x, s_host_), GetParam()); };
  const auto compiled = jit(f, {.donate_argnums = {0}}).lower(host).compile();
  const KindAnalysis& k = compiled.memory_analysis().kinds[static_cast<size_t>(GetParam())];
  EXPECT_EQ(k.alias_bytes, 64);
  EXPECT_EQ(k.total_bytes, 64);
}

TEST_P(Waiting, FunctionsWithoutArguments) {
  const auto init = [] {
    return std::pair(random::normal(random::key(42), {16, 16}),
                     random::normal(random::key(42), {16, 16}));
  };
  const auto [dev, host] = jit(init, {.out_shardings = {{"0", s_dev_}, {"1", s_host_}}})();
  EXPECT_EQ(sharding_of(dev), Sharding(s_dev_));
  EXPECT_EQ(sharding_of(host), Sharding(s_host_));
  EXPECT_EQ(dev.to_vector<float>(), host.to_vector<float>());
}

TEST_P(Waiting, ResidualsOfACustomRuleWaitThere) {
  const auto f = custom_vjp(
      [](const Array& x) { return sin(x); },
      [&](const Array& x) {
        return std::pair(x * 2.0, std::pair(x, device_put(x * 2.0, GetParam())));
      },
      [&](const std::pair<Array, Array>& residuals, const Array&) {
        const Array again = residuals.first * 2.0;
        return astype(device_put(residuals.second, MemoryKind::kDevice) == again, DType::kF32);
      });
  const auto g = jit(grad([&](const Array& x) { return sum(f(x)); }));
  EXPECT_EQ(g(ones({3}) * 4.0).to_vector<float>(), std::vector<float>(3, 1));
}

TEST_P(Waiting, SeveralResultsInSeveralKinds) {
  const auto f = jit([&](const Array& x, const Array& y) {
    return std::pair(device_put(sin(x), s_host_), device_put(cos(y), s_dev_));
  });
  const Array x = put(s_dev_);
  const auto [a, b] = f(x, x);
  expect(a, sin(x).to_vector<float>(), s_host_);
  expect(b, cos(x).to_vector<float>(), s_dev_);
}

TEST_P(Waiting, OneScalarResultThere) {
  const NamedSharding to(mesh_, P(), kind_);
  const Array x = put(s_dev_);
  const auto g = [](const Array& a) { return sum(a * 2.0); };
  expect(jit(g, {.out_shardings = to})(x), {240}, to);
  expect(jit([&](const Array& a) { return device_put(g(a), to); })(x), {240}, to);
}

TEST_P(Waiting, InShardingsRefuseOtherKinds) {
  const auto f = jit([](const Array& x) { return x * 2.0; }, {.in_shardings = s_host_});
  const auto message = HasSubstr(
      fmt::format("[jit] in_shardings say {} for argument 0, which is on device: f32[8,2]; move it "
                  "with device_put first",
                  kind_));
  EXPECT_THAT(message_of([&] { f(Array::from(std::span<const float>(data_), {8, 2})); }), message);
  EXPECT_THAT(message_of([&] { f(put(s_dev_)); }), message);
  const auto g = jit([](const Array& x) { return x * 2.0; }, {.in_shardings = s_dev_});
  EXPECT_EQ(g(put(s_dev_)).to_vector<float>(), times(data_, 2));
  const auto h = jit([](const Array& x) { return x; }, {.in_shardings = {{"1", s_dev_}}});
  EXPECT_THAT(
      message_of([&] { h(put(s_dev_)); }),
      HasSubstr("expected in_shardings to name parts of the arguments, got '1'; the leaves are "
                "'0'"));
}

TEST_P(Waiting, InAndOutShardings) {
  const auto f = [](const Array& x) { return sum(x); };
  const NamedSharding out(mesh_, P());
  expect(jit(f, {.in_shardings = s_dev_, .out_shardings = out})(put(s_dev_)), {120}, out);
  const NamedSharding there = out.with_memory_kind(kind_);
  expect(jit(f, {.in_shardings = s_dev_, .out_shardings = there})(put(s_dev_)), {120}, there);
}

TEST_P(Waiting, ProgramsRunOnOneDevice) {
  const DevicePtr other = Device::virtual_device({kMiB, kMiB, kMiB}, 1);
  const auto f =
      jit([&](const Array& x) { return device_put(x, SingleDeviceSharding(other, kind_)); });
  EXPECT_THAT(message_of([&] { f(put(s_dev_)); }), HasSubstr("[device_put] "));
}

TEST_P(Waiting, CompiledOnceForEqualShardings) {
  const auto f = jit([](const Array& x) { return matmul(x, transpose(x)); });
  f(put(s_dev_));
  f(put(NamedSharding(mesh_, P("x", "y"), "device")));
  f(put(NamedSharding(mesh_, P())));
  f(put(SingleDeviceSharding(device_)));
  EXPECT_EQ(f.n_traces(), 1);
  const auto twice = jit([](const Array& x) { return x * 2.0; });
  twice(twice(put(s_dev_)));
  EXPECT_EQ(twice.n_traces(), 1);
  const auto moved = jit([](const Array& x) { return device_put(x, MemoryKind::kDevice); });
  moved(put(s_host_));
  moved(put(NamedSharding(mesh_, P("y"), kind_)));
  EXPECT_EQ(moved.n_traces(), 1);
  moved(put(s_dev_));
  EXPECT_EQ(moved.n_traces(), 2);
}

TEST_P(Waiting, NoDonationAcrossKinds) {
  const auto f = jit([](const Array& x) { return x * 2.0; },
                     {.donate_argnums = {0}, .out_shardings = s_host_});
  const Array x = put(s_dev_);
  ::testing::internal::CaptureStderr();
  f(x);
  f(x);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(log,
            fmt::format("stowage: warning: [jit] argument 0 is donated on device and its result "
                        "is on {}; a donation never crosses memories, the argument is kept\n",
                        kind_));
  EXPECT_EQ(f.lower(x).compile().memory_analysis().device().alias_bytes, 0);
  EXPECT_EQ(x.to_vector<float>(), data_);
}

TEST_P(Waiting, DonationWithinTheDefaultKind) {
  const auto f =
      jit([](const Array& x) { return x * 2.0; }, {.donate_argnums = {0}, .out_shardings = s_dev_});
  const Array x = put(s_dev_);
  EXPECT_EQ(f.lower(x).compile().memory_analysis().device().alias_bytes, 64);
  f(x);
  EXPECT_THAT(message_of([&] { x.to_vector<float>(); }), HasSubstr("was donated"));
}

TEST_P(Waiting, DonationWithinThisKind) {
  const auto f = jit(
      [](const Array& x, const Array& y) {
        return std::pair(device_put(device_put(x, MemoryKind::kDevice) * 2.0, x.type().kind),
                         y * 2.0);
      },
      {.donate_argnums = {0, 1}, .out_shardings = {{"0", s_host_}, {"1", s_dev_}}});
  const Array x = put(s_host_), y = put(s_dev_);
  const MemoryAnalysis analysis = f.lower(x, y).compile().memory_analysis();
  EXPECT_EQ(analysis.kinds[static_cast<size_t>(GetParam())].alias_bytes, 64);
  EXPECT_EQ(analysis.device().alias_bytes, 64);
  const auto [a, b] = f(x, y);
  expect(a, times(data_, 2), s_host_);
  expect(b, times(data_, 2), s_dev_);
  EXPECT_THAT(message_of([&] { x.to_vector<float>(); }), HasSubstr("was donated"));
  EXPECT_THAT(message_of([&] { y.to_vector<float>(); }), HasSubstr("was donated"));
}

TEST_P(Waiting, DonationOfTheIdentity) {
  for (const NamedSharding& s : {s_host_, s_dev_}) {
    const auto f =
        jit([](const Array& x) { return x; }, {.donate_argnums = {0}, .out_shardings = s});
    const Array x = put(s);
    const auto kind = static_cast<size_t>(s.memory_kind());
    EXPECT_EQ(f.lower(x).compile().memory_analysis().kinds[kind].alias_bytes, 64);
    expect(f(x), data_, s);
    EXPECT_THAT(message_of([&] { x.to_vector<float>(); }), HasSubstr("was donated"));
  }
}

TEST_P(Waiting, SlicesMoveAlone) {
  // Looking at an array needs no device: a slice there is moved alone.
  const Array host = put(s_host_);
  const auto f = [&](const Array& x) {
    return device_put(x.slice(0, 2, 4), MemoryKind::kDevice) * 2.0;
  };
  EXPECT_EQ(jit(f)(host).to_vector<float>(), (std::vector<float>{8, 10, 12, 14}));
  const Array large = device_put(Array::abstract({1 << 10, 1 << 10}, DType::kF32), s_host_);
  EXPECT_LE(jit(f).lower(large).compile().memory_analysis().device().total_bytes, 4 * 2 * 4 << 10);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Waiting,
                         ::testing::Values(MemoryKind::kPinnedHost, MemoryKind::kDisk),
                         [](const auto& info) {
                           return std::string(memory_kind_name(info.param));
                         });

}  // namespace
}  // namespace stow
