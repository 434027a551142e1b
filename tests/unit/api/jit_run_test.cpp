// Programs of jit and grad, and operations outside of a trace, run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/api/trace.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

struct Layer {
  Array w1, w2;
};
STOW_TREE(Layer, w1, w2);

Array sequence(Shape shape, float scale = 1) {
  std::vector<float> data(static_cast<size_t>(shape.elems()));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = scale * static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 50;
  return Array::from(data, std::move(shape));
}

TEST(ApiRun, ArraysComputeAtOnceOutsideATrace) {
  const Array x = Array::from({1.0f, 2.0f, 3.0f, 4.0f}, {2, 2});
  EXPECT_THAT((x * 2 + 1).to_vector<float>(), ElementsAre(3, 5, 7, 9));
  EXPECT_THAT(matmul(x, x).to_vector<float>(), ElementsAre(7, 10, 15, 22));
  EXPECT_EQ(sum(x).item<float>(), 10);
  EXPECT_TRUE(all(x > 0));
  EXPECT_THAT((x[1] == 3).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_THAT(sort(-x, 1).to_vector<float>(), ElementsAre(-2, -1, -4, -3));
  Array y = x;
  y += 1;
  y *= x;
  EXPECT_THAT(y.to_vector<float>(), ElementsAre(2, 6, 12, 20));
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(ApiRun, OtherScalarsRunTheSameProgram) {
  const Array x = sequence({16});
  (x * 2.0 + 1.0).to_vector<float>();
  const int64_t before = context().runner.n_compiled();
  for (int i = 0; i < 5; ++i) (x * (0.5 * i) + 1.5 * i).to_vector<float>();
  EXPECT_EQ(context().runner.n_compiled(), before);
}

TEST(ApiRun, GradientsOutsideJitSeeWhatTheFunctionCapturesNow) {
  const Array x = sequence({8});
  Array scale = 1.0f;
  auto df = grad([&](const Array& a) { return sum(a * a * scale); });
  const std::vector<float> once = df(x).to_vector<float>();
  const int64_t before = context().runner.n_compiled();
  scale = 3.0f;
  const std::vector<float> thrice = df(x).to_vector<float>();
  for (size_t i = 0; i < once.size(); ++i) EXPECT_FLOAT_EQ(thrice[i], 3 * once[i]);
  EXPECT_EQ(context().runner.n_compiled(), before);  // traced again, compiled once
}

TEST(ApiRun, ASecondCallNeitherTracesNorCompiles) {
  int calls = 0;
  auto f = jit([&](const Layer& w, const Array& x) {
    ++calls;
    return sum(matmul(matmul(x, w.w1), w.w2));
  });
  const Layer w{sequence({4, 6}), sequence({6, 4})};
  const float first = f(w, sequence({3, 4})).item<float>();
  const float second = f(w, sequence({3, 4})).item<float>();
  EXPECT_EQ(first, second);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(f.n_traces(), 1);
  f(w, sequence({5, 4}));
  EXPECT_EQ(f.n_traces(), 2);
}

TEST(ApiRun, JitAndEagerAgreeOnResultsAndGradients) {
  auto loss = [](const Layer& w, const Array& x) {
    return mean(square(tanh(matmul(x, w.w1)) - matmul(x, w.w2)));
  };
  const Layer w{sequence({4, 6}), sequence({4, 6}, 0.5f)};
  const Array x = sequence({3, 4});
  const auto [l1, g1] = value_and_grad(loss)(w, x);
  const auto [l2, g2] = jit(value_and_grad(loss))(w, x);
  EXPECT_EQ(l1.item<float>(), l2.item<float>());
  EXPECT_EQ(g1.w1.to_vector<float>(), g2.w1.to_vector<float>());
  EXPECT_FLOAT_EQ(loss(w, x).item<float>(), l1.item<float>());
}

TEST(ApiRun, CheckpointingChangesNoBit) {
  const Layer w{sequence({5, 4, 8}, 0.3f), sequence({5, 8, 4}, 0.2f)};
  const Array x = sequence({3, 4});
  const auto gradient = [&](const PolicyPtr& policy, bool checkpointed) {
    return jit(grad([&](const Layer& stack) {
             auto layer = [](Array h, const Layer& l) {
               h = checkpoint_name(tanh(matmul(h, l.w1)), "h");
               return sin(matmul(h, l.w2));
             };
             if (!checkpointed) return sum(scan(layer, x, stack));
             return sum(scan(checkpoint(layer, policy), x, stack));
           }))(w)
        .w1.to_vector<float>();
  };
  const std::vector<float> plain = gradient(nullptr, false);
  for (const PolicyPtr& policy :
       {nothing_saveable(), everything_saveable(), dots_saveable(), save_only_these_names({"h"})})
    EXPECT_EQ(gradient(policy, true), plain) << policy->name;
}

// As JAX's argnums=(1, 0); a number that comes twice is answered twice.
TEST(ApiRun, GradientsStandInTheOrderOfTheArgnums) {
  const auto f = [](const std::pair<Array, Array>& a, const Array& b) {
    return sum(a.first * b * b) + sum(a.second);
  };
  const std::pair a(Array::from({1.0f, 2.0f}), Array::from({1.0f, 1.0f, 1.0f}));
  const Array b = Array::from({3.0f, 4.0f});
  const auto check = [&](const auto& gradients) {
    const auto& [gb, ga, again] = gradients;
    EXPECT_EQ(gb.template to_vector<float>(), (std::vector<float>{6, 16}));
    EXPECT_EQ(ga.first.template to_vector<float>(), (std::vector<float>{9, 16}));
    EXPECT_EQ(ga.second.template to_vector<float>(), (std::vector<float>{1, 1, 1}));
    EXPECT_EQ(again.template to_vector<float>(), (std::vector<float>{6, 16}));
  };
  check(grad<1, 0, 1>(f)(a, b));
  check(jit(grad<1, 0, 1>(f))(a, b));
}

TEST(ApiRun, NestedGradients) {
  // d/dy of (d/dx x^2 y at x = y) = d/dy 2 y y = 4 y.
  auto f = [](Array y) { return grad([&](Array x) { return x * x * y; })(y); };
  EXPECT_FLOAT_EQ(grad(f)(Array(3.0f)).item<float>(), 12);
  // x^4: 4 x^3, 12 x^2, 24 x.
  auto g = [](Array x) { return square(square(x)); };
  EXPECT_FLOAT_EQ(grad(grad(grad(g)))(Array(2.0f)).item<float>(), 48);
}

TEST(ApiRun, VjpAppliesTheCotangent) {
  const Array x = sequence({3}), ct = Array::from({1.0f, 0.0f, 2.0f}, {3});
  const auto [y, pullback] = vjp([](const Array& a) { return a * a; }, x);
  const auto dx = pullback(ct);
  const std::vector<float> xs = x.to_vector<float>();
  EXPECT_THAT(std::get<0>(dx).to_vector<float>(), ElementsAre(2 * xs[0], 0, 4 * xs[2]));
  EXPECT_EQ(y.shape(), (Shape{3}));
}

TEST(ApiRun, DonatedArgumentsAreGone) {
  auto step = jit([](const Array& x, const Array& y) { return x + y; },
                  {.donate_argnums = {0}, .name = "step"});
  const Array x = sequence({64}), y = sequence({64});
  const Array alias = x;
  step(x, y);
  EXPECT_THAT(message_of([&] { step(x, y); }),
              HasSubstr("was donated to step at jit_run_test.cpp:"));
  EXPECT_THAT(message_of([&] { (alias + 1).to_vector<float>(); }),
              HasSubstr("cannot be used again"));
  EXPECT_THAT(message_of([&] { alias.to_vector<float>(); }), HasSubstr("cannot be used again"));
  EXPECT_THAT(message_of([&] { step(y, y); }),
              HasSubstr("[step] argument 0 is donated, and the same array is argument 1"));
  EXPECT_EQ(y.to_vector<float>().size(), 64u);
}

TEST(ApiRun, DonatedMemoryIsReused) {
  auto step = jit([](const Array& x) { return x * 2 + 1; }, {.donate_argnums = {0}});
  const auto compiled = step.lower(Array::abstract({1024})).compile();
  EXPECT_EQ(compiled.memory_analysis().device().alias_bytes, 4096);
  Array x = sequence({1024});
  const float first = x.to_vector<float>()[1];
  for (int i = 0; i < 3; ++i) x = step(x);
  EXPECT_FLOAT_EQ(x.to_vector<float>()[1], 8 * first + 7);
}

TEST(ApiRun, CapturedArraysAreHiddenArguments) {
  const Array big = sequence({100}), x = sequence({100});
  auto f = jit([&](const Array& a) { return a + big; });
  const auto compiled = f.lower(x).compile();
  ASSERT_EQ(compiled.captured().size(), 1u);
  EXPECT_EQ(compiled.captured()[0].name, "captured/0");
  EXPECT_EQ(to_string(compiled.captured()[0].type), "f32[100]");
  EXPECT_THAT(compiled.captured()[0].made, HasSubstr("jit_run_test.cpp:"));
  EXPECT_EQ(compiled.memory_analysis().device().argument_bytes, 2 * 400);
  const std::vector<float> sums = f(x).to_vector<float>(), once = x.to_vector<float>();
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], 2 * once[i]);
}

TEST(ApiRun, CompiledProgramsRefuseOtherArguments) {
  const auto compiled = jit([](const Layer& w) { return w.w1 + w.w2; })
                            .lower(Layer{Array::abstract({4}), Array::abstract({4})})
                            .compile();
  EXPECT_EQ(compiled(Layer{sequence({4}), sequence({4})}).size(), 4);
  EXPECT_THAT(
      message_of([&] {
        compiled(Layer{sequence({4}), sequence({5})});
      }),
      HasSubstr(
          "[jit] expected argument 0/w2 to be f32[4], as compiled, got f32[5]\n  at jit_run"));
  EXPECT_THAT(
      message_of([&] {
        compiled(Layer{sequence({4}), Array(1.0)});
      }),
      HasSubstr(
          "[jit] expected argument 0/w2 to be f32[4], as compiled, got f32[] (weak)\n  at jit_run"));
}

TEST(ApiRun, OneTraceHasManyPlans) {
  auto layer = checkpoint([](Array h) { return sin(sin(sin(sin(h)))); });
  const auto lowered = jit(grad([&](const Array& x) {
                         return sum(layer(layer(x)));
                       })).lower(Array::abstract({1000}));
  const auto least = lowered.compile();
  CompileOptions keep;
  keep.override_policy = everything_saveable();
  const auto most = lowered.compile(keep);
  const Array x = sequence({1000});
  EXPECT_EQ(least(x).to_vector<float>(), most(x).to_vector<float>());
  EXPECT_LE(least.memory_analysis().device().total_bytes,
            most.memory_analysis().device().total_bytes);
}

TEST(ApiRun, WeaknessDoesNotHideWhatIsShared) {
  const Array x = jit([] { return full({64}, 1.0) * 2.0; })();
  auto f = jit([&](const Array& a) { return a * (x + 1) + x; });
  EXPECT_EQ(f.lower(x).graph().inputs().size(), 2u);
}

TEST(ApiRun, ProgramsRunOnTheDeviceOfTheirArguments) {
  const DevicePtr small = Device::cpu_with_capacity(1 << 20);
  Array x;
  {
    const DefaultDevice guard(small);
    x = sequence({1000});
  }
  const Array y = x * 2;
  EXPECT_EQ(y.impl()->storage->buffer->device(), small);
  EXPECT_THAT(message_of([&] { x + sequence({1000}); }), HasSubstr("[device] f32[1000]"));
  // Devices of one name are told apart by number.
  const DevicePtr other = Device::virtual_device({1 << 20, 1 << 20, 1 << 20}),
                  third = Device::virtual_device({1 << 20, 1 << 20, 1 << 20});
  const auto there = [&](const DevicePtr& device) {
    return device_put(x, SingleDeviceSharding(device));
  };
  EXPECT_THAT(message_of([&] { there(other) + x; }),
              ContainsRegex("is on virtual and .* on cpu\n"));
  EXPECT_THAT(message_of([&] { there(other) + there(third); }),
              ContainsRegex(fmt::format("is on virtual:{} and .* on virtual:{}\n",
                                        other->number(), third->number())));
  EXPECT_NE(other->number(), third->number());
  EXPECT_THROW(
      {
        const DefaultDevice guard(small);
        zeros({1 << 20});
      },
      CapacityError);
}

TEST(ApiRun, EmptyArraysPass) {
  const Array x = Array::from(std::vector<float>{}, {0, 3});
  EXPECT_EQ((x * 2).size(), 0);
  EXPECT_THAT(sum(x, 0).to_vector<float>(), ElementsAre(0, 0, 0));
  const Array none = scan([](Array c, Array r) { return c + sum(r); }, 1.0, x);
  EXPECT_EQ(none.item<float>(), 1);
  const Array bare = zeros({3, 0});
  EXPECT_EQ(softmax(bare).shape(), (Shape{3, 0}));
  EXPECT_EQ(log_softmax(bare, 1).shape(), (Shape{3, 0}));
  EXPECT_THAT(softmax(bare, 0).to_vector<float>(), ElementsAre());
  // A place of an axis without elements is out of range, and changes nothing.
  const Array first = Array::from({0});
  EXPECT_EQ(bare.at({all_of_axis, first}).set(1).shape(), (Shape{3, 0}));
  EXPECT_EQ(bare.at({0, zeros({0}, DType::kI32)}).add(1).shape(), (Shape{3, 0}));
}

TEST(ApiRun, AuxAndTreesOfEveryKindComeBack) {
  auto f = jit([](const std::map<std::string, Array>& m, const std::optional<Array>& b) {
    std::vector<Array> list;
    for (const auto& [key, a] : m) list.push_back(b ? a + *b : a);
    return std::tuple(list, m, None{});
  });
  const std::map<std::string, Array> m = {{"a", Array(1.0f)}, {"b", Array(2.0f)}};
  const auto [list, back, none] = f(m, std::optional<Array>(Array(10.0f)));
  EXPECT_EQ(list[1].item<float>(), 12);
  EXPECT_EQ(back.at("b").item<float>(), 2);
  const auto [same, back2, none2] = f(m, std::optional<Array>());
  EXPECT_EQ(same[1].item<float>(), 2);
  EXPECT_EQ(f.n_traces(), 2);
}

}  // namespace
}  // namespace stow
