// Loops whose operands lie elsewhere in every iteration, in rings of slots and in stacks: addresses
// go on by distances that are known when the program is bound. The bits are those of the steps
// written out.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using Arrays = std::vector<Array>;
// What one iteration makes of the carry, of x, and of its number.
using Body = std::function<Arrays(const Arrays& carry, const Array& x)>;

struct Case {
  const char* name;
  size_t n_carries;
  Body body;
  bool has_ring;  // of two slots or more
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

constexpr int64_t kN = 5;

// The sizes of the rings that kernels read or write.
std::set<int64_t> ring_sizes(const Schedule& schedule) {
  std::set<int64_t> sizes;
  for_each_kernel(schedule.instructions, [&](const Kernel& kernel) {
    for (const auto* views : {&kernel.inputs, &kernel.outputs})
      for (const View& view : *views)
        for (const LoopTerm& term : view.terms)
          if (term.modulo > 1) sizes.insert(term.modulo);
  });
  return sizes;
}

class LoopSteps : public ::testing::TestWithParam<Case> {};

TEST_P(LoopSteps, HaveTheBitsOfTheStepsWrittenOut) {
  const Case& c = GetParam();
  std::set<int64_t> rings;
  for (int64_t steps : {1, 2, 3, 4, 7, 16, 17}) {
    for (bool reverse : {false, true}) {
      SCOPED_TRACE(std::to_string(steps) + (reverse ? " back" : ""));
      const Array xs = random::normal(random::key(9), {steps, kN, kN});
      Arrays start;
      for (size_t k = 0; k < c.n_carries; ++k)
        start.push_back(random::normal(random::key(static_cast<uint32_t>(k)), {kN, kN}));
      const auto loop = [&](const Arrays& carry, const Array& xs) {
        auto [last, all] = scan(
            [&](const Arrays& carry, const Array& x) {
              Arrays next = c.body(carry, x);
              return std::pair(next, next[0]);
            },
            carry, xs, {.reverse = reverse});
        last.push_back(all);
        return last;
      };
      const auto compiled = jit(loop).lower(start, xs).compile();
      rings.merge(ring_sizes(compiled.executable().schedule()));
      const Arrays got = compiled(start, xs);

      Arrays want = start;
      std::vector<std::vector<float>> rows(static_cast<size_t>(steps));
      for (int64_t i = 0; i < steps; ++i) {
        const int64_t at = reverse ? steps - 1 - i : i;
        want = jit(c.body)(
            want,
            jit([&](const Array& xs) { return xs.slice(0, at, at + 1); })(xs).reshape({kN, kN}));
        rows[static_cast<size_t>(at)] = want[0].to_vector<float>();
      }
      for (size_t k = 0; k < c.n_carries; ++k)
        EXPECT_EQ(got[k].to_vector<float>(), want[k].to_vector<float>()) << "carry " << k;
      std::vector<float> stacked;
      for (const auto& row : rows) stacked.insert(stacked.end(), row.begin(), row.end());
      EXPECT_EQ(got.back().to_vector<float>(), stacked);
    }
  }
  EXPECT_EQ(!rings.empty(), c.has_ring) << ::testing::PrintToString(rings);
}

const Case kCases[] = {
    {"two_take_turns", 2,
     [](const Arrays& c, const Array& x) {
       return Arrays{c[1], c[0] * 0.5 + x};
     },
     true},
    {"three_take_turns", 3,
     [](const Arrays& c, const Array& x) {
       return Arrays{c[1], c[2], c[0] * 0.5 + c[2] * x};
     },
     true},
    {"five_take_turns", 5,
     [](const Arrays& c, const Array& x) {
       return Arrays{c[1], c[2], c[3], c[4], c[0] * 0.5 + c[3] * x};
     },
     true},
    {"products", 1, [](const Arrays& c, const Array& x) { return Arrays{matmul(c[0], x) * 0.5}; },
     false},
    {"products_and_turns", 3,
     [](const Arrays& c, const Array& x) {
       return Arrays{matmul(c[1], x) * 0.5, c[2], c[0] + transpose(c[1])};
     },
     true},
    {"in_place", 1, [](const Arrays& c, const Array& x) { return Arrays{c[0] * 0.5 + x}; }, false},
};
INSTANTIATE_TEST_SUITE_P(All, LoopSteps, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Loops of single elements, counted and open, whose bodies are a few kernels of one element each.
TEST(LoopSteps, OfSingleElementsHaveTheBitsOfTheStepsWrittenOut) {
  using Pair = std::pair<Array, Array>;
  const auto step = [](const Pair& c) {
    const Array y = c.second * 1.5 + 0.1;
    const Array z = where(y > 2.0, y - 1.3, y * abs(y));
    return Pair(c.first + 1, z / (1.0 + c.first.astype(DType::kF32)) - sqrt(abs(z)) * 0.25);
  };
  for (int n : {0, 1, 2, 3, 50}) {
    SCOPED_TRACE(n);
    const Pair start(Array::scalar(0, DType::kI32), Array::scalar(1.25, DType::kF32));
    const auto open = jit([&](const Pair& c) {
      return while_loop([&](const Pair& c) { return c.first < n; }, step, c);
    })(start);
    const auto counted = jit([&](const Pair& c) {
      return fori_loop(
          0, n, [&](const Array&, const Pair& c) { return step(c); }, c);
    })(start);
    Pair want = start;
    float y = 1.25f;
    for (int i = 0; i < n; ++i) {
      want = jit(step)(want);
      const float a = y * 1.5f + 0.1f, z = a > 2.0f ? a - 1.3f : a * std::fabs(a);
      y = z / (1.0f + static_cast<float>(i)) - std::sqrt(std::fabs(z)) * 0.25f;
    }
    for (const Pair& got : {open, counted, want}) {
      EXPECT_EQ(got.first.to_vector<int32_t>(), std::vector<int32_t>{n});
      EXPECT_EQ(got.second.to_vector<float>(), std::vector<float>{y});
    }
  }
}

}  // namespace
}  // namespace stow
