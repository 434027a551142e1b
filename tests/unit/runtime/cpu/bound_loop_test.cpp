// Loops that run without the program's runner: what an iteration of small work consists of, and the
// bits of random bodies, which are those of their kernels run one by one.
#include "stowage/runtime/cpu/bound_loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stowage/api/trace.h"
#include "stowage/base/inside.h"
#include "stowage/runtime/run_observer.h"
#include "stowage/stowage.h"
#include "tests/support/other_target.h"

namespace stow {
namespace {

using Arrays = std::vector<Array>;
using Code = std::vector<cpu::LoopInstruction>;

// The CPU, which keeps the lists of the loops that it binds.
class WatchedCpu final : public Target {
 public:
  WatchedCpu() : Target(1, host_target(1)->description()), cpu_(host_target(1)) {}
  std::string_view name() const override { return cpu_->name(); }
  int64_t scratch_bytes(const Kernel& kernel) const override { return cpu_->scratch_bytes(kernel); }
  std::unique_ptr<BoundKernel> bind(const Kernel& kernel) const override {
    return cpu_->bind(kernel);
  }
  std::unique_ptr<BoundLoop> bind_loop(const LoopSteps& steps) const override {
    std::unique_ptr<BoundLoop> loop = cpu_->bind_loop(steps);
    loops_.push_back(dynamic_cast<const cpu::BoundLoop&>(*loop).code());
    return loop;
  }
  void copy(const TensorView& from, const TensorView& to, int threads) const override {
    cpu_->copy(from, to, threads);
  }
  std::string instruction_set() const override { return cpu_->instruction_set(); }
  double product_rate(DType dtype) const override { return cpu_->product_rate(dtype); }
  double triad_rate() const override { return cpu_->triad_rate(); }

  const std::vector<Code>& loops() const { return loops_; }

 private:
  TargetPtr cpu_;
  mutable std::vector<Code> loops_;
};

Array f32(double value) {
  return Array::scalar(value, DType::kF32);
}
Array i32(int64_t value) {
  return Array::scalar(static_cast<double>(value), DType::kI32);
}

// ---- what an iteration consists of ----

struct Form {
  const char* name;
  Arrays init;
  std::function<Arrays(const Arrays&)> loop;
  size_t instructions;  // of all iterations that the list has
  size_t iterations = 1;
  size_t loops = 1;  // bound, the whole one last
};
void PrintTo(const Form& form, std::ostream* out) {
  *out << form.name;
}

// A while loop over the carries with a counter before them.
std::function<Arrays(const Arrays&)> open(std::function<Arrays(const Arrays&)> body) {
  return [body](const Arrays& init) {
    return while_loop([](const Arrays& c) { return c[0] < 100; },
                      [body](const Arrays& c) {
                        Arrays next = body({c.begin() + 1, c.end()});
                        next.insert(next.begin(), c[0] + 1);
                        return next;
                      },
                      init);
  };
}
std::function<Arrays(const Arrays&)> counted(std::function<Arrays(const Arrays&)> body) {
  return [body](const Arrays& init) {
    return fori_loop(
        0, 100, [body](const Array&, const Arrays& c) { return body(c); }, init);
  };
}

std::vector<Form> forms() {
  // An open loop has a comparison, the exit, the counter and the way back besides its body.
  return {
      {"counted", {f32(1)}, counted([](const Arrays& c) { return Arrays{c[0] * 0.99 + 0.1}; }), 2},
      {"open",
       {i32(0), f32(1)},
       open([](const Arrays& c) { return Arrays{c[0] * 0.99 + 0.1}; }),
       5},
      {"independent",
       {i32(0), f32(1), f32(2), f32(3), i32(4)},
       open([](const Arrays& c) {
         return Arrays{c[0] * 0.99 + 0.1, maximum(minimum(c[1] + 0.3, 10.0), -5.0),
                       c[2] * 0.5 - 1.0, c[3] + 2};
       }),
       9},
      {"dependent",
       {f32(1), f32(2)},
       counted([](const Arrays& c) {
         return Arrays{c[0] * 0.9 + c[1] * 0.1, c[1] * 0.9 - c[0] * 0.1};
       }),
       6,
       2},
      {"choice",
       {f32(2)},
       counted([](const Arrays& c) { return Arrays{where(c[0] > 2.0, c[0] - 1.5, c[0] * c[0])}; }),
       5},
      {"branch",
       {f32(2)},
       counted([](const Arrays& c) {
         return cond(
             c[0] > 2.0, [](const Arrays& c) { return Arrays{c[0] - 1.3}; },
             [](const Arrays& c) { return Arrays{c[0] * 1.5 + 0.1}; }, c);
       }),
       6},
      // The inner loop has two iterations in the list, as its carries have two slots.
      {"nested",
       {f32(1), f32(2)},
       counted([](const Arrays& c) {
         return fori_loop(
             0, 5,
             [](const Array&, const Arrays& c) {
               return Arrays{c[0] * 0.9 + c[1] * 0.1, c[1] * 0.9 - c[0] * 0.1};
             },
             c);
       }),
       9,
       3,
       2},
      {"bool",
       {i32(0), Array::scalar(1, DType::kBool)},
       open([](const Arrays& c) { return Arrays{logical_not(c[0])}; }),
       5},
  };
}

class LoopForms : public ::testing::TestWithParam<Form> {};

// Each elementwise operation, or pair or triple of them, is an instruction. None calls a kernel,
// and slots that iterations take in turn cost no instruction.
TEST_P(LoopForms, HaveOneListOfSingleElements) {
  const Form& form = GetParam();
  const auto target = std::make_shared<const WatchedCpu>();
  const DefaultDevice scope(testing::other_device({1 << 20, 1 << 20, 0}, target));
  Arrays init;
  for (const Array& a : form.init) init.push_back(a + zeros_like(a));
  jit(form.loop)(init);
  ASSERT_EQ(target->loops().size(), form.loops);
  const Code& code = target->loops().back();
  EXPECT_EQ(code.size(), form.instructions);
  size_t iterations = 0;
  for (const cpu::LoopInstruction& made : code) {
    using cpu::LoopCommand;
    for (LoopCommand end :
         {LoopCommand::kNext, LoopCommand::kAgain, LoopCommand::kNextNested,
          LoopCommand::kAgainNested})
      iterations += made.command == end ? 1 : 0;
    for (LoopCommand slow : {LoopCommand::kCallMap, LoopCommand::kCall, LoopCommand::kRunKernel,
                             LoopCommand::kMove, LoopCommand::kMoveInTurn})
      EXPECT_NE(static_cast<int>(made.command), static_cast<int>(slow));
  }
  EXPECT_EQ(iterations, form.iterations);
}
INSTANTIATE_TEST_SUITE_P(All, LoopForms, ::testing::ValuesIn(forms()),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- bits of random bodies ----

// Expressions over carries and scanned values of several dtypes, scalars and vectors of three
// elements.
class RandomBody {
 public:
  explicit RandomBody(uint32_t seed) : seed_(seed) {
    std::mt19937 engine(seed);
    const size_t n = 1 + engine() % 4;
    for (size_t k = 0; k < n; ++k)
      carries_.push_back({kDTypes[engine() % std::size(kDTypes)], engine() % 4 == 0});
  }

  Arrays init(uint32_t seed) const {
    std::mt19937 engine(seed);
    Arrays made;
    for (const Type& type : carries_) {
      const Shape shape = type.is_vector ? Shape{3} : Shape{};
      std::vector<float> values;
      for (int i = 0; i < 3; ++i) values.push_back(static_cast<float>(engine() % 13) * 0.5f - 2);
      values.resize(static_cast<size_t>(shape.elems()));
      made.push_back(Array::from(std::span<const float>(values), shape).astype(type.dtype));
    }
    return made;
  }

  Arrays operator()(const Arrays& carries, const Array& x) const {
    std::mt19937 engine(seed_ + 1);
    Arrays pool = carries;
    pool.push_back(x);
    const int n = 3 + static_cast<int>(engine() % 20);
    for (int i = 0; i < n; ++i) pool.push_back(apply(engine, pool));
    Arrays next;
    for (const Array& carry : carries) {
      Array value =
          pool[engine() % 3 ? pool.size() - 1 - engine() % std::min<size_t>(pool.size(), 6)
                            : engine() % pool.size()];
      // A carry of another type is made of what there is; often one takes another's place.
      if (value.shape() != carry.shape())
        value = carry.shape().rank() > 0 ? broadcast_to(value, carry.shape()) : sum(value);
      next.push_back(value.astype(carry.dtype()));
    }
    return next;
  }

 private:
  struct Type {
    DType dtype;
    bool is_vector;
  };
  static constexpr DType kDTypes[] = {DType::kF32, DType::kF32,  DType::kI32,
                                      DType::kU32, DType::kBool, DType::kF64};

  static Array apply(std::mt19937& engine, const Arrays& pool) {
    // Often the values made last, which loops keep in registers.
    const auto pick = [&] {
      const size_t age = engine() % (engine() % 2 ? std::min<size_t>(pool.size(), 3) : pool.size());
      return pool[pool.size() - 1 - age];
    };
    const Array a = pick(), b = pick().astype(a.dtype());
    if (a.dtype() == DType::kBool) {
      const Array tests[] = {logical_and(a, b), logical_or(a, b), logical_not(a),
                             logical_xor(a, b)};
      return tests[engine() % 4];
    }
    const uint32_t op = engine() % 16;
    if (op > 13 && a.shape().rank() == 0 && b.shape().rank() == 0)
      return cond(
          a < b, [](const Array& a, const Array& b) { return a * b - 3; },
          [](const Array& a, const Array& b) { return a + b; }, a, b);
    if (op < 3) return engine() % 2 ? a * 0.5 + b * 0.25 : a * b + 1;
    if (op == 3) return a - b * 2;
    if (op == 4) return minimum(maximum(a, b), 7);
    if (op == 5) return where(a < b, b, a + 1);
    if (op == 6) return a >= b;
    if (op == 7) return -abs(a);
    if (op == 8) return a.astype(kDTypes[engine() % std::size(kDTypes)]);
    if (op == 9) return a + b;
    if (a.dtype() == DType::kF32 || a.dtype() == DType::kF64) {
      if (op == 10) return sqrt(abs(a));
      if (op == 11) return a / (abs(b) + 0.5);
      if (op == 12) return sin(a);
      return abs(b) * 0.125 - a;
    }
    if (op == 10) return a % 5;
    if (op == 11) return floor_divide(a, 3);
    return op == 12 ? a ^ b : a & b;
  }

  uint32_t seed_;
  std::vector<Type> carries_;
};

class Ignore final : public RunObserver {
 public:
  void ran(const RunEvent&) override {}
};

using Bits = std::vector<std::string>;
// A result's numbers as they are; a NaN of any sign or payload is one.
Bits bits_of(const Arrays& results) {
  Bits bits;
  for (const Array& result : results)
    for (double number : result.astype(DType::kF64).to_vector<double>())
      bits.push_back(std::isnan(number) ? "nan" : fmt::format("{:a}", number));
  return bits;
}

enum class Kind { kCounted, kOpen, kScan, kNested };
using Step = std::function<Arrays(const Arrays& carries, const Array& x)>;

Arrays run_loop(const Step& body, Kind kind, int n, const Arrays& init, const Array& xs) {
  const auto without_last = [](Arrays all) {
    all.pop_back();
    return all;
  };
  switch (kind) {
    case Kind::kCounted:
      return fori_loop(
          0, n, [&](const Array& i, const Arrays& c) { return body(c, i.astype(DType::kF32)); },
          init);
    case Kind::kOpen: {
      Arrays all = init;
      all.push_back(i32(0));
      return while_loop([&](const Arrays& c) { return c.back() < n; },
                        [&](const Arrays& c) {
                          Arrays next = body(without_last(c), c.back().astype(DType::kF32) * 0.5);
                          next.push_back(c.back() + 1);
                          return next;
                        },
                        all);
    }
    case Kind::kScan: {
      auto [last, stacked] = scan(
          [&](const Arrays& c, const Array& x) {
            Arrays next = body(c, x);
            return std::pair(next, next[0]);
          },
          init, xs);
      last.push_back(stacked);
      return last;
    }
    case Kind::kNested: {
      const Step both = [&](const Arrays& c, const Array& x) {
        const Step at_x = [&](const Arrays& c, const Array& y) { return body(c, y - x); };
        const Arrays counted = run_loop(at_x, Kind::kCounted, 2 + n % 4, c, xs);
        return without_last(run_loop(body, Kind::kOpen, n % 3, counted, xs));
      };
      return run_loop(both, Kind::kScan, n, init, xs);
    }
  }
  return {};
}

TEST(BoundLoops, HaveTheBitsOfTheirKernelsRunOneByOne) {
  const DevicePtr device = Device::cpu_with_capacity(1 << 22, 1);
  const DefaultDevice scope(device);
  Ignore observer;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const RandomBody body(seed);
    const Kind kind = static_cast<Kind>(seed % 4);
    const int n = std::vector<int>{1, 2, 5, 9, 0}[seed / 4 % 5];
    SCOPED_TRACE(fmt::format("seed {}, {} iterations", seed, n));
    const auto lowered = jit([&](const Arrays& init, const Array& xs) {
                           return run_loop(body, kind, n, init, xs);
                         }).lower(body.init(0), zeros({n}));
    const auto fused = lowered.compile();
    const auto unfused = lowered.compile(CompileOptions{.fuse = false});
    // Other arguments lie elsewhere, and come back.
    for (uint32_t arguments : {1u, 2u, 1u}) {
      const Arrays init = body.init(arguments);
      const Array xs = random::normal(random::key(arguments), {n});
      std::vector<DeviceBufferPtr> buffers;
      for (const Array& a : init) buffers.push_back(buffer_of(a, device));
      buffers.push_back(buffer_of(xs, device));
      const Arrays got = fused(init, xs);
      // An observer has the program run each kernel itself.
      const std::vector<DeviceBufferPtr> stepped =
          fused.executable().run(*device, buffers, &observer);
      ASSERT_EQ(stepped.size(), got.size());
      Arrays want;
      for (size_t k = 0; k < got.size(); ++k)
        want.push_back(make_concrete(got[k].type(), stepped[k]));
      EXPECT_EQ(bits_of(got), bits_of(want));
      EXPECT_EQ(bits_of(unfused(init, xs)), bits_of(want));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace stow
