// Arrays in other memories than the device, on the host and on disk: moves, offloaded residuals,
// plans by kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using ::testing::HasSubstr;

const SingleDeviceSharding kDevice("device");

struct Weights {
  Array w1, w2;
};
STOW_TREE(Weights, w1, w2);

constexpr int64_t kMiB = 1 << 20;

class MemoryKinds : public ::testing::TestWithParam<MemoryKind> {
 protected:
  const SingleDeviceSharding away_{GetParam()};
  const std::string name_{memory_kind_name(GetParam())};
  DevicePtr device_ = Device::virtual_device({256 * kMiB, 256 * kMiB, 256 * kMiB}, 1);
  DefaultDevice guard_{device_};

  PolicyPtr offload_x() const { return save_and_offload_only_these_names({}, {"x"}, GetParam()); }
  const KindAnalysis& away(const MemoryAnalysis& a) const {
    return a.kinds[static_cast<size_t>(GetParam())];
  }
  int64_t used(MemoryKind kind) const { return device_->in_use_bytes(kind); }
};

std::string name_of(const ::testing::TestParamInfo<MemoryKind>& info) {
  return std::string(memory_kind_name(info.param));
}
constexpr MemoryKind kElsewhere[] = {MemoryKind::kPinnedHost, MemoryKind::kDisk};
INSTANTIATE_TEST_SUITE_P(, MemoryKinds, ::testing::ValuesIn(kElsewhere), name_of);

TEST_P(MemoryKinds, NamesAndDefaults) {
  EXPECT_EQ(SingleDeviceSharding(), SingleDeviceSharding(""));
  EXPECT_EQ(kDevice.with_memory_kind(name_), away_);
  EXPECT_THAT(message_of([] { SingleDeviceSharding("hbm"); }),
              HasSubstr("[sharding] there is no memory kind 'hbm'; the kinds are device, "
                        "pinned_host and disk"));
}

TEST_P(MemoryKinds, ValuesSurviveMovesInsideAndOutsideOfJit) {
  const Array x = random::normal(random::key(1), {3, 5});
  const int64_t before = used(GetParam());
  const Array h = device_put(x, away_);
  EXPECT_EQ(sharding_of(h), away_);
  EXPECT_EQ(used(GetParam()) - before, 60);
  EXPECT_EQ(h.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(device_put(h, kDevice).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(device_put(h, away_).impl(), h.impl());  // no copy
  const auto there_and_back = jit([&](const Array& a) {
    return std::pair(device_put(device_put(a, away_), kDevice) + 1.0, device_put(a, away_));
  });
  const auto [device, host] = there_and_back(x);
  EXPECT_EQ(device.to_vector<float>(), (x + 1.0).to_vector<float>());
  EXPECT_EQ(sharding_of(host), away_);
  EXPECT_EQ(host.to_vector<float>(), x.to_vector<float>());
  const Array empty = device_put(zeros({0, 4}), away_);
  EXPECT_EQ(empty.shape(), (Shape{0, 4}));
  EXPECT_EQ(device_put(2.5, away_).item<float>(), 2.5f);
}

TEST_P(MemoryKinds, ArithmeticElsewhereIsAnErrorThatNamesTheKind) {
  const Array h = device_put(ones({4}), away_);
  EXPECT_THAT(
      message_of([&] { h + 1.0; }),
      HasSubstr(fmt::format("is on {0} and operand 1 on device: f32<{0}>[4] and f32[4]; move "
                            "them to one memory with device_put first",
                            name_)));
  EXPECT_THAT(
      message_of([&] { exp(h); }),
      HasSubstr(fmt::format("[exp] operand 0 is on {0}: f32<{0}>[4]; move it with device_put "
                            "first\n  operand 0 is made at memory_test.cpp:",
                            name_)));
}

TEST_P(MemoryKinds, CompiledProgramsKnowKinds) {
  const auto f = jit([](const Array& a) { return device_put(a, kDevice) * 2.0; });
  const Array x = ones({8});
  f(x);
  f(device_put(x, away_));
  f(device_put(x + 1.0, away_));
  EXPECT_EQ(f.n_traces(), 2);
}

TEST_P(MemoryKinds, DonationWorksWithinAKind) {
  const auto f = [&](const Array& a) { return device_put(device_put(a, kDevice) + 1.0, away_); };
  const auto compiled = jit(f, {.donate_argnums = {0}})
                            .lower(device_put(ones({1 << 16}), away_))
                            .compile();
  EXPECT_EQ(away(compiled.memory_analysis()).alias_bytes, 4 << 16);
  EXPECT_EQ(away(compiled.memory_analysis()).total_bytes, 4 << 16);
  const auto crossing = jit([](const Array& a) { return device_put(a, kDevice); },
                            {.donate_argnums = {0}})
                            .lower(device_put(ones({1 << 16}), away_))
                            .compile();
  EXPECT_EQ(away(crossing.memory_analysis()).alias_bytes, 0);
}

TEST_P(MemoryKinds, ViewsAndJoinsStayWhereTheyAre) {
  const Array x = random::normal(random::key(1), {6, 40, 30});
  const Array far = device_put(x, away_);
  const auto f = [](const Array& a) {
    const Array cut = a.slice(0, 1, 5).slice(2, 3, 20);
    return std::pair(concatenate({cut, cut}, 1), transpose(cut, {2, 0, 1}).reshape({17 * 4, 40}));
  };
  const auto [joined, turned] = jit(f)(far);
  EXPECT_EQ(sharding_of(joined), away_);
  EXPECT_EQ(sharding_of(turned), away_);
  const auto [joined_here, turned_here] = f(x);
  EXPECT_EQ(joined.to_vector<float>(), joined_here.to_vector<float>());
  EXPECT_EQ(turned.to_vector<float>(), turned_here.to_vector<float>());
}

TEST_P(MemoryKinds, EmptyValues) {
  const Array empty = device_put(zeros({0, 4}), away_);
  EXPECT_EQ(used(GetParam()), 0);
  EXPECT_TRUE(empty.to_vector<float>().empty());
  const auto f = [&](const Array& a) {
    const Array back = device_put(a, kDevice) + 1.0;
    return std::pair(device_put(concatenate({back, ones({2, 4})}, 0), away_),
                     device_put(back, away_));
  };
  const auto [two, none] = jit(f)(empty);
  EXPECT_EQ(two.to_vector<float>(), std::vector<float>(8, 1.0f));
  EXPECT_EQ(none.shape(), (Shape{0, 4}));
  EXPECT_EQ(sharding_of(none), away_);
}

TEST_P(MemoryKinds, GradientsLieWhereTheirParametersLie) {
  const Array w = random::normal(random::key(1), {8, 8}), x = ones({4, 8});
  const auto loss = [&](const Array& a) { return sum(tanh(matmul(x, device_put(a, kDevice)))); };
  const Array g = jit(grad(loss))(device_put(w, away_));
  EXPECT_EQ(sharding_of(g), away_);
  EXPECT_EQ(g.to_vector<float>(), jit(grad(loss))(w).to_vector<float>());
}

TEST_P(MemoryKinds, JacobiansGoThroughThem) {
  const Array x = random::normal(random::key(1), {3}), there = device_put(x, away_);
  const auto from = [&](const Array& a) { return sin(device_put(a, kDevice)) * 2.0; };
  const auto to = [&](const Array& a) { return device_put(sin(a) * 2.0, away_); };
  const auto loss = [&](const Array& a) { return sum(from(a) * from(a)); };
  const auto loss_there = [&](const Array& a) { return device_put(loss(a), away_); };
  const auto values = [](const Array& a) { return a.to_vector<float>(); };
  EXPECT_EQ(values(jacrev(from)(there)), values(jacrev(from)(x)));
  EXPECT_EQ(values(jacfwd(from)(there)), values(jacfwd(from)(x)));
  EXPECT_EQ(values(jacrev(to)(x)), values(jacrev(from)(x)));
  EXPECT_EQ(values(jacfwd(to)(x)), values(jacfwd(from)(x)));
  EXPECT_EQ(values(jacrev(loss_there)(there)), values(grad(loss)(x)));
  const std::vector<float> second = values(hessian(loss)(there)), here = values(hessian(loss)(x));
  ASSERT_EQ(second.size(), here.size());
  for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(second[i], here[i], 1e-5) << i;
}

// With on_device they stay on the device, whatever happens to their parameters on the way: the same
// bits, and no byte of them elsewhere.
TEST_P(MemoryKinds, GradientsCanStayOnTheDevice) {
  const Weights w{random::normal(random::key(1), {4, 8, 8}),
                  random::normal(random::key(2), {4, 8, 8})};
  const Array x = random::normal(random::key(3), {4, 8});
  const auto layer = [](const Array& h, const Weights& p) {
    const Weights here = device_put(p, kDevice);
    return h + tanh(matmul(matmul(h, here.w1), here.w2));
  };
  const auto row = [](const Array& a, int64_t i) {
    return a.slice(0, i, i + 1).reshape({8, 8});
  };
  const std::pair<const char*, std::function<Array(const Weights&)>> losses[] = {
      {"scanned", [&](const Weights& p) { return sum(scan(layer, x, p)); }},
      {"unrolled",
       [&](const Weights& p) {
         Array h = x;
         for (int64_t i = 0; i < 4; ++i) h = layer(h, {row(p.w1, i), row(p.w2, i)});
         return sum(h);
       }},
      {"overlapping slices",
       [&](const Weights& p) {
         const Array a = device_put(p.w1.slice(0, 0, 3), kDevice);
         const Array b = device_put(p.w1.slice(0, 1, 4), kDevice);
         return sum(a * b) +
                sum(device_put(transpose(concatenate({p.w2, p.w2}, 1), {1, 0, 2}), kDevice));
       }},
      {"a constant of a loop, and a cond",
       [&](const Weights& p) {
         const Array h = fori_loop(0, 3, [&](const Array&, const Array& v) {
           return tanh(matmul(v, device_put(row(p.w1, 1), kDevice)));
         }, x);
         return cond(
             sum(h) > 0.0,
             [](const Array& a, const Weights& q) {
               return sum(matmul(a, device_put(q.w2, kDevice).slice(0, 0, 1).reshape({8, 8})));
             },
             [](const Array& a, const Weights& q) {
               return sum(a) * sum(device_put(q.w1, kDevice));
             },
             h, p);
       }},
      {"rules of its own",
       [&](const Weights& p) {
         const auto twice = custom_vjp(
             [](const Array& a) {
               return device_put(device_put(a, kDevice) * 2.0, sharding_of(a));
             },
             [](const Array& a) {
               return std::pair(device_put(device_put(a, kDevice) * 2.0, sharding_of(a)), None{});
             },
             [](None, const Array& ct) {
               return device_put(device_put(ct, kDevice) * 2.0, sharding_of(ct));
             });
         return sum(tanh(device_put(twice(p.w1), kDevice))) + sum(device_put(p.w2, kDevice));
       }},
  };
  for (const auto& [what, loss] : losses) {
    SCOPED_TRACE(what);
    const auto step = jit(grad(loss, {.on_device = true}));
    const Weights there = device_put(w, away_);
    const Weights g = step(there);
    EXPECT_EQ(sharding_of(g.w1), kDevice);
    EXPECT_EQ(sharding_of(g.w2), kDevice);
    const Weights plain = jit(grad(loss))(w);
    EXPECT_EQ(g.w1.to_vector<float>(), plain.w1.to_vector<float>());
    EXPECT_EQ(g.w2.to_vector<float>(), plain.w2.to_vector<float>());
    EXPECT_EQ(away(step.lower(there).compile().memory_analysis()).output_bytes, 0);
  }
  // Nothing of them goes elsewhere on the way, and where they are put, they go slice by slice.
  const auto stay = jit(grad(losses[0].second, {.on_device = true}));
  const auto leave = jit([&](const Weights& p) {
    return device_put(grad(losses[0].second, {.on_device = true})(p), away_);
  });
  const MemoryAnalysis kept = stay.lower(device_put(w, away_)).compile().memory_analysis();
  const MemoryAnalysis gone = leave.lower(w).compile().memory_analysis();
  const int64_t bytes = 2 * 4 * 8 * 8 * 4;
  EXPECT_EQ(away(kept).total_bytes, bytes);  // the parameters
  EXPECT_EQ(away(gone).total_bytes, bytes);  // the gradients
  EXPECT_LT(gone.device().total_bytes, kept.device().total_bytes);
}

TEST_P(MemoryKinds, ConditionsAndLoopsCarryThem) {
  const Array x = random::normal(random::key(1), {5, 7});
  const auto map = [](const Array& v, auto g) {
    return device_put(g(device_put(v, kDevice)), sharding_of(v));
  };
  const auto f = [&](const Array& a, const Array& up, const Array& n) {
    const Array chosen = cond(
        up, [&](const Array& v) { return map(v, [](const Array& h) { return h * 2.0; }); },
        [](const Array& v) { return v; }, a);
    const auto body = [&](const Array&, const Array& v) {
      return map(v, [](const Array& h) { return h + 1.0; });
    };
    return fori_loop(0, n, body, fori_loop(0, 3, body, chosen));
  };
  for (const bool up : {false, true}) {
    const Array far = jit(f)(device_put(x, away_), Array(up), Array(2));
    EXPECT_EQ(sharding_of(far), away_);
    EXPECT_EQ(far.to_vector<float>(), jit(f)(x, Array(up), Array(2)).to_vector<float>());
  }
}

// The first of the seed's programs: ten layers y = x w1, x = y w2, scanned.
class Offloading : public MemoryKinds {
 protected:
  static constexpr int64_t kLayers = 10, kRows = 64, kWidth = 64, kHidden = 256;
  Array x_ = random::normal(random::key(1), {kRows, kWidth});
  Weights w_{random::normal(random::key(2), {kLayers, kWidth, kHidden}) * 0.1,
             random::normal(random::key(3), {kLayers, kHidden, kWidth}) * 0.1};

  template <typename Body>
  std::pair<Weights, MemoryAnalysis> gradient(Body body, const Weights& w) {
    const auto f =
        jit(grad([&](const Weights& p, const Array& x) { return sum(scan(body, x, p)); }));
    const auto compiled = f.lower(w, x_).compile();
    const MemoryAnalysis analysis = compiled.memory_analysis();
    std::array<int64_t, kNumMemoryKinds> before{};
    device_->drop_arenas();
    device_->reset_high_water();
    for (size_t k = 0; k < before.size(); ++k) before[k] = used(static_cast<MemoryKind>(k));
    const Weights g = compiled(w, x_);
    for (size_t k = 0; k < before.size(); ++k)
      EXPECT_EQ(device_->high_water_bytes(static_cast<MemoryKind>(k)) - before[k],
                analysis.kinds[k].total_bytes - analysis.kinds[k].argument_bytes);
    return {{device_put(g.w1, kDevice), device_put(g.w2, kDevice)}, analysis};
  }
};

INSTANTIATE_TEST_SUITE_P(, Offloading, ::testing::ValuesIn(kElsewhere), name_of);

TEST_P(Offloading, SavesMemoryAndChangesNoBit) {
  const auto plain = [](const Array& x, const Weights& w) {
    return matmul(matmul(checkpoint_name(x, "x"), w.w1), w.w2);
  };
  const auto offloaded = checkpoint(plain, offload_x());
  const auto streamed = checkpoint(
      [&](const Array& x, const Weights& w) { return plain(x, device_put(w, kDevice)); },
      offload_x());
  const auto [g, on_device] = gradient(plain, w_);
  const auto [g_x, x_away] = gradient(offloaded, w_);
  const Weights host = device_put(w_, away_);
  const auto [g_w, all_away] = gradient(streamed, host);
  EXPECT_EQ(g.w1.to_vector<float>(), g_x.w1.to_vector<float>());
  EXPECT_EQ(g.w2.to_vector<float>(), g_x.w2.to_vector<float>());
  EXPECT_EQ(g.w1.to_vector<float>(), g_w.w1.to_vector<float>());
  EXPECT_EQ(g.w2.to_vector<float>(), g_w.w2.to_vector<float>());
  // The stack of x is elsewhere, and one layer's worth of everything is on the device.
  const int64_t x_bytes = kRows * kWidth * 4, w_bytes = kWidth * kHidden * 4;
  EXPECT_EQ(away(x_away).total_bytes, kLayers * x_bytes);
  EXPECT_LT(x_away.device().total_bytes, on_device.device().total_bytes);
  // Gradients follow where slots of x were.
  EXPECT_LE(away(all_away).total_bytes, kLayers * (4 * w_bytes + x_bytes));
  EXPECT_LT(all_away.device().total_bytes, 8 * w_bytes);
}

TEST_P(Offloading, WithoutEffectIsAnError) {
  const auto linear = checkpoint(
      [](const Array& x, const Weights& w) {
        return sum(tanh(matmul(x, slice(w.w1, 0, 0, 1).reshape({kWidth, kHidden})))) +
               sum(checkpoint_name(w.w2, "x"));
      },
      offload_x());
  const auto f = [&](const Array& x, const Weights& w) {
    auto body = linear;
    return sum(body(x, w));
  };
  EXPECT_THAT(message_of([&] { jit(grad<0, 1>(f)).lower(x_, w_).compile(); }),
              HasSubstr("asks for the name 'x', which no value that is used in its region has"));
}

// Policies that move products, and names of what does not lie on the device.
TEST_P(Offloading, OfNothingIsAnError) {
  const auto products = offload_dot_with_no_batch_dims(GetParam());
  const auto refused = [&](const auto& f, const auto&... args) {
    // The place of the call of checkpoint comes last.
    const std::string message =
        message_of([&] { jit(value_and_grad(f)).lower(args...).compile(); });
    return message.substr(0, message.find("\n  at memory_test.cpp:"));
  };
  EXPECT_EQ(refused([&](const Array& x) {
              return sum(checkpoint([](const Array& a) { return tanh(sin(a)); }, products)(x));
            }, x_),
            "[checkpoint] policy " + products->name +
                " has no effect: no product without batch axes is used in its region");
  EXPECT_EQ(refused([&](const Array& x) {
              const auto f = [](const Array& a) { return matmul(a, a) + tanh(sin(a)); };
              return sum(checkpoint(f, products)(x));
            }, x_),
            "[checkpoint] policy " + products->name +
                " has no effect: the backward pass reads nothing that depends on a product without "
                "batch axes in its region");
  EXPECT_EQ(
      refused(
          [&](const Array& x) {
            const auto inner = [&](const Array& c, const Array& row) {
              return checkpoint([](const Array& a, const Array& b) { return tanh(matmul(a, b)); },
                                nothing_saveable())(c, row);
            };
            const auto all = [&](const Array& a) {
              return scan(inner, ones({2, 4}), a.reshape({kRows * kWidth / 16, 4, 4}));
            };
            return sum(checkpoint(all, products)(x));
          },
          x_),
      "[checkpoint] policy " + products->name +
          " has no effect: the products in its region are inside a while loop, a custom_vjp or "
          "a checkpoint with a policy of its own");
  const auto named = offload_x();
  EXPECT_EQ(refused([&](const Weights& w) {
              return sum(checkpoint([](const Weights& p) {
                return tanh(device_put(checkpoint_name(p.w1, "x"), kDevice));
              }, named)(w));
            }, device_put(w_, away_)),
            "[checkpoint] policy " + named->name +
                " offloads what is named 'x', which has no effect: it lies on " + name_ +
                " already, and only what is on the device is offloaded");
  // The gradient of tanh reads its result, which leaves the region.
  EXPECT_EQ(
      refused(
          [&](const Array& x) {
            const auto f = [](const Array& a) { return tanh(matmul(a, a)); };
            return sum(tanh(checkpoint(f, products)(x)));
          },
          x_),
      "[checkpoint] policy " + products->name +
          " offloads a product without batch axes, which has no effect: the backward pass reads "
          "no such value, as what is computed from it is there anyway (a region's result is; so "
          "is what a policy around this one keeps)");
  // Legitimate: nothing is differentiated; one of several regions under a policy has what it wants.
  const auto f = checkpoint([](const Array& a) { return tanh(sin(a)); }, products);
  EXPECT_NO_THROW(jit([&](const Array& x) { return f(x); }).lower(x_).compile());
  EXPECT_NO_THROW(jit([&](const Array& w) {
                    return checkpoint([](const Array& a) {
                      return tanh(device_put(checkpoint_name(a, "x"), kDevice));
                    }, named)(w);
                  }).lower(device_put(x_, away_)).compile());
  const auto both = [&](const Array& x) {
    return sum(tanh(checkpoint([](const Array& a) { return sin(matmul(a, a)); }, products)(f(x))));
  };
  EXPECT_NO_THROW(jit(grad(both)).lower(x_).compile());
}

TEST_P(Offloading, UnrolledLayersOffloadToo) {
  const auto body = checkpoint(
      [](const Array& x, const Weights& w) {
        return matmul(tanh(matmul(checkpoint_name(x, "x"), device_put(w.w1, kDevice))),
                      device_put(w.w2, kDevice));
      },
      offload_x());
  const auto unrolled = [&](const Weights& w, const Array& x) {
    auto f = body;
    Array h = x;
    for (int64_t i = 0; i < kLayers; ++i)
      h = f(h, Weights{w.w1.slice(0, i, i + 1).reshape({kWidth, kHidden}),
                       w.w2.slice(0, i, i + 1).reshape({kHidden, kWidth})});
    return sum(h);
  };
  const auto scanned = [&](const Weights& w, const Array& x) { return sum(scan(body, x, w)); };
  const Weights host = device_put(w_, away_);
  const auto a = jit(grad(unrolled)).lower(host, x_).compile();
  const auto b = jit(grad(scanned)).lower(host, x_).compile();
  EXPECT_EQ(a(host, x_).w1.to_vector<float>(), b(host, x_).w1.to_vector<float>());
  const auto total = [](const auto& c) {
    return static_cast<double>(c.memory_analysis().device().total_bytes);
  };
  EXPECT_LE(total(a), 1.02 * total(b));
  EXPECT_LE(total(b), 1.05 * total(a));  // the scan's carry begins as a copy of the argument
}

}  // namespace
}  // namespace stow
