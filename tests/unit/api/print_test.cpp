#include "stowage/api/print.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using testing::HasSubstr;

std::string streamed(const Array& array) {
  std::ostringstream out;
  out << array;
  return out.str();
}

TEST(Print, ShowsElementsTypeAndPlace) {
  const struct {
    Array array;
    const char* text;
  } rows[] = {
      {Array::from({1.f, 2.5f, -3.f}), "Array([ 1.   2.5 -3. ], f32[3], cpu)"},
      {Array::from({1.f, 2.5f, -3.f}).astype(DType::kBF16),
       "Array([ 1.   2.5 -3. ], bf16[3], cpu)"},
      {Array::from({1, 20, 3, 4}, {2, 2}), "Array([[ 1 20]\n       [ 3  4]], i32[2,2], cpu)"},
      {Array::scalar(0.1), "Array(0.1, f32[])"},
      {Array::from({3.f}, {}), "Array(3.0, f32[], cpu)"},
      {Array::from({0.1f}, {}, DType::kBF16), "Array(0.1, bf16[], cpu)"},
      {Array::from({0.1f}, {}, DType::kF16), "Array(0.1, f16[], cpu)"},
      {Array::from({0.1}), "Array([0.1], f64[1], cpu)"},
      {Array::from({1.0f / 3}), "Array([0.33333334], f32[1], cpu)"},
      {Array::from({~uint64_t{0}}), "Array([18446744073709551615], u64[1], cpu)"},
      {Array::from({-128, 127}, {2}, DType::kI8), "Array([-128  127], i8[2], cpu)"},
      {Array::from({true, false}), "Array([ true false], bool[2], cpu)"},
      {zeros({0, 3}), "Array([], f32[0,3], cpu)"},
      {Array::abstract({2, 3}), "Array(f32[2,3], abstract)"},
      {Array(), "Array(empty)"},
      {device_put(Array::from({1.f}), MemoryKind::kPinnedHost),
       "Array([1.], f32<pinned_host>[1], cpu)"},
      {device_put(Array::from({1.f}), MemoryKind::kDisk), "Array([1.], f32<disk>[1], cpu)"},
      {device_put(Array::from({1.f}), NamedSharding(make_mesh({1}, {"data"}), P("data"))),
       "Array([1.], f32[1], NamedSharding(Mesh('data': 1), P('data'), device))"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(fmt::format("{}", row.array), row.text);
    EXPECT_EQ(streamed(row.array), row.text);
  }
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(elements_to_string(Array::from({inf, -inf, std::nanf("")})), "[ inf -inf  nan]");
  EXPECT_EQ(elements_to_string(Array::from({1e-30f, 2.f})), "[1e-30    2.]");
}

TEST(Print, FormatsElements) {
  const Array x = Array::from({1.f, -2.5f});
  EXPECT_EQ(fmt::format("{:v} {:.2f} {:+.1e}", x, x, x),
            "[ 1.  -2.5] [ 1.00 -2.50] [+1.0e+00 -2.5e+00]");
  EXPECT_EQ(fmt::format("{:04d} {:x}", Array::from({7}), Array(255)), "[0007] ff");
}

TEST(Print, SummarisesLongArraysAndReadsNoMore) {
  EXPECT_EQ(elements_to_string(arange(1000)).find("..."), std::string::npos);
  EXPECT_EQ(elements_to_string(arange(1001)), "[   0    1    2 ...  998  999 1000]");
  EXPECT_EQ(elements_to_string(arange(100 * 100).reshape({100, 100})),
            "[[   0    1    2 ...   97   98   99]\n"
            " [ 100  101  102 ...  197  198  199]\n"
            " [ 200  201  202 ...  297  298  299]\n"
            " ...\n"
            " [9700 9701 9702 ... 9797 9798 9799]\n"
            " [9800 9801 9802 ... 9897 9898 9899]\n"
            " [9900 9901 9902 ... 9997 9998 9999]]");
  EXPECT_EQ(elements_to_string(arange(8).reshape({2, 2, 2})),
            "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
}

TEST(Print, SaysWhyThereIsNothing) {
  Array seen;
  jit(
      [&](const Array& x) {
        EXPECT_EQ(fmt::format("{} {:.2f}", x, x),
                  "Array(f32[2], traced by step) Array(f32[2], traced by step)");
        return x + 1;
      },
      {.name = "step"})(ones({2}));
  const Array x = ones({2});
  jit([](const Array& a) { return a + 1; }, {.donate_argnums = {0}, .name = "step"})(x);
  EXPECT_THAT(streamed(x), HasSubstr("Array(f32[2], donated to step"));
}

TEST(Print, ShowsTypes) {
  const Array x = zeros({2, 3});
  EXPECT_EQ(fmt::format("{} {} {}", x.shape(), x.dtype(), x.type()), "[2,3] f32 f32[2,3]");
  std::ostringstream out;
  out << x.shape() << ' ' << x.dtype() << ' ' << x.type();
  EXPECT_EQ(out.str(), "[2,3] f32 f32[2,3]");
}

// ---- debug_print ----

// What a call prints.
template <typename F>
std::string printed(F f) {
  testing::internal::CaptureStdout();
  f();
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(DebugPrint, PrintsAtOnceOutsideATrace) {
  EXPECT_EQ(printed([] { debug_print("x {} y {:.1f} {{}}", Array::from({1, 2}), 0.25f); }),
            "x [1 2] y 0.2 {}\n");
  EXPECT_EQ(printed([] { debug_print("{1} {0} {1}", 1, 2); }), "2 1 2\n");
  EXPECT_EQ(printed([] { debug_print("here"); }), "here\n");
  EXPECT_EQ(printed([] { debug_print("m {}", eye(2)); }), "m [[1. 0.]\n   [0. 1.]]\n");
}

TEST(DebugPrint, PrintsInOrderEachTimeAProgramRuns) {
  const auto f = jit([](const Array& x) {
    debug_print("first {}", x);
    const Array y = x * 2;
    debug_print("second");
    debug_print("third {:.2f} {}", y, x);
    return y;
  });
  const std::string text = "first 1.0\nsecond\nthird 2.00 1.0\n";
  EXPECT_EQ(printed([&] { f(Array(1.f)); }), text);
  EXPECT_EQ(printed([&] { f(Array(1.f)); }), text);
  EXPECT_EQ(f.n_traces(), 1);
  EXPECT_EQ(printed([&] { f.lower(Array(1.f)).compile(); }), "");
}

TEST(DebugPrint, PrintsWhatIsNeededForNothingElse) {
  EXPECT_EQ(printed([] {
              jit([](const Array& x) {
                debug_print("sum {}", sum(x));
                return x;
              })(ones({3}));
            }),
            "sum 3.0\n");
}

TEST(DebugPrint, WorksInEveryTransform) {
  const auto body = [](const Array& c, const Array& x) {
    debug_print("c {} x {}", c, x);
    return c + x;
  };
  const auto sum_of_scan = [&](const Array& xs) {
    return scan(body, Array::scalar(0.f, DType::kF32), xs);
  };
  const Array xs = Array::from({1.f, 2.f, 3.f});
  const std::string lines = "c 0.0 x 1.0\nc 1.0 x 2.0\nc 3.0 x 3.0\n";
  const auto square_of = [](const Array& x) {
    debug_print("x {}", x);
    return x * x;
  };
  const auto noisy_vjp = custom_vjp(
      square_of,
      [](const Array& x) {
        debug_print("forward {}", x);
        return std::pair(x * x, x);
      },
      [](const Array& x, const Array& ct) { return 2 * x * ct; });
  const auto plain_forward = custom_vjp(
      square_of, [](const Array& x) { return std::pair(x * x, x); },
      [](const Array& x, const Array& ct) { return 2 * x * ct; });
  const struct {
    const char* name;
    std::function<void()> run;
    std::string text;
  } rows[] = {
      {"scan", [&] { scan(body, Array::scalar(0.f, DType::kF32), xs); }, lines},
      {"scan under jit", [&] { jit(sum_of_scan)(xs); }, lines},
      {"prints around a scan",
       [&] {
         jit([&](const Array& a) {
           debug_print("before");
           const Array s = sum_of_scan(a);
           debug_print("after {}", s);
           return s;
         })(xs);
       },
       "before\n" + lines + "after 6.0\n"},
      {"scan in a scan",
       [&] {
         jit([&](const Array& a) {
           return scan(
               [&](const Array& c, const None&) {
                 const Array s = sum_of_scan(a) + c;
                 debug_print("outer {}", s);
                 return s;
               },
               Array::scalar(0.f, DType::kF32), None{}, {.length = 2});
         })(xs);
       },
       lines + "outer 6.0\n" + lines + "outer 12.0\n"},
      {"reversed scan with stacked results, unrolled",
       [&] {
         jit([&](const Array& a) {
           return scan(
               [](const Array& c, const Array& x) {
                 debug_print("{}", x);
                 return std::pair(c + x, c * x);
               },
               Array::scalar(0.f, DType::kF32), a, {.reverse = true, .unroll = 2});
         })(xs);
       },
       "3.0\n2.0\n1.0\n"},
      {"nested_scan",
       [&] {
         jit([&](const Array& a) {
           return nested_scan(body, Array::scalar(0.f, DType::kF32), a, {.blocks = {2}});
         })(xs);
       },
       lines},
      {"grad of a scan", [&] { jit(grad(sum_of_scan))(xs); }, lines},
      {"grad outside jit", [&] { grad(square_of)(Array(3.f)); }, "x 3.0\n"},
      {"grad of a checkpointed scan",
       [&] {
         jit(grad([&](const Array& a) {
           return scan(checkpoint([&](const Array& c, const Array& x) {
                         debug_print("{}", x);
                         return sin(c) * x + c;
                       }),
                       Array::scalar(1.f, DType::kF32), a);
         }))(xs);
       },
       "1.0\n2.0\n3.0\n"},
      {"grad of a checkpoint around a scan",
       [&] {
         jit(grad(checkpoint([&](const Array& a) { return sin(sum_of_scan(sin(a * 0) + a)); })))(
             xs);
       },
       lines},
      {"grad of grad", [&] { jit(grad(grad(square_of)))(Array(3.f)); }, "x 3.0\n"},
      {"vjp", [&] { vjp(square_of, Array(3.f)).second(Array(1.f)); }, "x 3.0\n"},
      {"jvp", [&] { jvp(square_of, std::tuple(Array(3.f)), std::tuple(Array(1.f))); }, "x 3.0\n"},
      {"vmap", [&] { vmap(square_of)(xs); }, "x 1.0\nx 2.0\nx 3.0\n"},
      {"vmap of what does not differ",
       [&] {
         jit(vmap([](const Array& x) {
           debug_print("here");
           return x;
         }))(xs);
       },
       "here\n"},
      {"vmap under grad",
       [&] { jit(grad([&](const Array& a) { return sum(vmap(square_of)(a)); }))(xs); },
       "x 1.0\nx 2.0\nx 3.0\n"},
      {"vmap of a scan, then a print",
       [&] {
         jit(vmap([&](const Array& a) {
           const Array s = sum_of_scan(a);
           debug_print("after {}", s);
           return s;
         }))(Array::from({1.f, 2.f, 3.f, 4.f}, {2, 2}));
       },
       "c 0.0 x 1.0\nc 0.0 x 3.0\nc 1.0 x 2.0\nc 3.0 x 4.0\nafter 3.0\nafter 7.0\n"},
      {"cond",
       [&] {
         const auto f = jit([&](const Array& x) {
           debug_print("before");
           const Array y = cond(x > 0, [&](const Array& a) { return square_of(a); },
                                [](const Array& a) { return a; }, x);
           debug_print("after");
           return y;
         });
         f(Array(2.f));
         f(Array(-2.f));
       },
       "before\nx 2.0\nafter\nbefore\nafter\n"},
      {"grad of a cond",
       [&] {
         jit(grad([&](const Array& x) {
           return cond(x > 0, [&](const Array& a) { return sin(square_of(a)); },
                       [](const Array& a) { return a; }, x);
         }))(Array(2.f));
       },
       "x 2.0\n"},
      {"cond under vmap",
       [&] {
         jit(vmap([&](const Array& x) {
           const Array y = cond(x > 1, [&](const Array& a) { return square_of(a); },
                                [](const Array& a) { return a; }, x);
           debug_print("y {}", y);
           return y;
         }))(xs);
       },
       "x 2.0\nx 3.0\ny 1.0\ny 4.0\ny 9.0\n"},
      {"while_loop",
       [&] {
         jit([&](const Array& x) {
           return while_loop([](const Array& c) { return c < 10; }, square_of, x);
         })(Array(3.f));
       },
       "x 3.0\nx 9.0\n"},
      {"fori_loop",
       [&] {
         jit([&](const Array& x) {
           return fori_loop(0, 2, [&](const Array& i, const Array& c) {
             debug_print("i {}", i);
             return square_of(c);
           }, x);
         })(Array(3.f));
       },
       "i 0\nx 3.0\ni 1\nx 9.0\n"},
      {"fori_loop with a bound that is an array",
       [&] {
         jit([&](const Array& x, const Array& n) {
           return fori_loop(0, n, [&](const Array&, const Array& c) { return square_of(c); }, x);
         })(Array(3.f), Array(2));
       },
       "x 3.0\nx 9.0\n"},
      {"custom_vjp", [&] { jit(noisy_vjp)(Array(3.f)); }, "x 3.0\n"},
      {"grad of custom_vjp",
       [&] {
         jit(grad([&](const Array& x) {
           debug_print("before");
           const Array y = noisy_vjp(x);
           debug_print("after {}", y);
           return y;
         }))(Array(3.f));
       },
       "before\nforward 3.0\nafter 9.0\n"},
      {"grad of custom_vjp whose forward rule is silent",
       [&] { jit(grad(plain_forward))(Array(3.f)); }, ""},
      {"jit in a jit", [&] { jit([&](const Array& x) { return jit(square_of)(x); })(Array(3.f)); },
       "x 3.0\n"},
  };
  for (const auto& row : rows) EXPECT_EQ(printed(row.run), row.text) << row.name;
}

TEST(DebugPrint, ChangesNoBitAndNoByteBesideWhatItReads) {
  const auto net = [](bool prints) {
    return [prints](const Array& w, const Array& x) {
      const auto layer = [&](const Array& h, const Array& v) {
        if (prints) debug_print("norm {}", v[0][0]);
        return tanh(matmul(h, v));
      };
      return sum(square(scan(checkpoint(layer), x, w)));
    };
  };
  const Array w = random::normal(random::key(0), {6, 32, 32}) * 0.2;
  const Array x = random::normal(random::key(1), {8, 32});
  const auto plain = jit(value_and_grad(net(false))), printing = jit(value_and_grad(net(true)));
  const auto [loss, gradient] = plain(w, x);
  Array loss2, gradient2;
  printed([&] { std::tie(loss2, gradient2) = printing(w, x); });
  EXPECT_EQ(loss.to_vector<float>(), loss2.to_vector<float>());
  EXPECT_EQ(gradient.to_vector<float>(), gradient2.to_vector<float>());
  const int64_t before = plain.lower(w, x).compile().memory_analysis().device().total_bytes;
  const int64_t after = printing.lower(w, x).compile().memory_analysis().device().total_bytes;
  EXPECT_LE(after, before + 64);  // the slot of one number
}

}  // namespace
}  // namespace stow
