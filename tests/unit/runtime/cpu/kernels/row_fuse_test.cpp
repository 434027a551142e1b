// Steps that one kernel computes together: gates, hypot, choices, moments and gradients of norms,
// in any order of factors and terms, with the bits of a kernel for each step.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "stowage/runtime/cpu/kernels/row_plan.h"
#include "stowage/runtime/cpu/kernels/row_program.h"
#include "stowage/runtime/cpu/row_program_reference.h"
#include "tests/unit/runtime/cpu/kernels/row_program_kit.h"

namespace stow::cpu {
namespace {

using namespace row_kit;

TEST(RowProgramGate, IsOneKernelWithTheBitsOfThree) {
  check_gates({{16, 4096}, {2048, 32}, {1, 65535}, {65536 / 129, 129}, {5, 63}, {65536, 1}});
}
TEST(RowProgramGate, OfEveryTargetIsOneKernelWithTheBitsOfThree) {
  with_other_targets([] { check_gates({{16, 4096}}); });
}

// hypot(a, b) as the public header writes it out. `stored`: bits that say which of the larger
// magnitude, the ratio and |a| are results as well.
RowProgram hypot_program(const Dims& dims, bool turned, int stored) {
  Writer w(DType::kF32, dims);
  const int32_t x = w.compute(OpKind::kAbs, w.load()), y = w.compute(OpKind::kAbs, w.load());
  const int32_t inf = w.constant(std::numeric_limits<float>::infinity());
  const int32_t most = w.compute(OpKind::kMax, x, y);
  const int32_t least = turned ? w.compute(OpKind::kMin, y, x) : w.compute(OpKind::kMin, x, y);
  const int32_t is_zero = w.test(OpKind::kEq, most, w.constant(0));
  const int32_t ratio = w.compute(OpKind::kDiv, least, w.select(is_zero, w.one(), most));
  const int32_t square = w.compute(OpKind::kMul, ratio, ratio), one = w.one();
  const int32_t sum =
      turned ? w.compute(OpKind::kAdd, square, one) : w.compute(OpKind::kAdd, one, square);
  const int32_t root = w.compute(OpKind::kSqrt, sum);
  const int32_t finite =
      turned ? w.compute(OpKind::kMul, root, most) : w.compute(OpKind::kMul, most, root);
  const int32_t infinite = w.test(OpKind::kOr, w.test(OpKind::kEq, turned ? y : x, inf),
                                  w.test(OpKind::kEq, turned ? x : y, inf));
  w.store(w.select(infinite, inf, finite));
  if (stored & 1) w.store(most);
  if (stored & 2) w.store(ratio);
  if (stored & 4) w.store(x);
  return w.done();
}

// Every pair of what is special, then random numbers.
void check_hypot(const std::vector<Dims>& spaces) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {0.0f,   -0.0f, kInf,   -kInf,   std::nanf(""), 1e-45f,
                                      -3e38f, 3e38f, 1e-38f, -2e-30f, 1.0f,          -5.0f};
  for (const Dims& dims : spaces)
    for (const bool turned : {false, true})
      for (int stored = 0; stored < 8; ++stored) {
        Case c;
        Random random(23);
        const int64_t n = dims[0] * dims[1];
        c.memory = {random_bytes(random, DType::kF32, n), random_bytes(random, DType::kF32, n)};
        for (size_t i = 0; i < special.size() * special.size() && i < static_cast<size_t>(n); ++i) {
          std::memcpy(c.memory[0].data() + i * 4, &special[i % special.size()], 4);
          std::memcpy(c.memory[1].data() + i * 4, &special[i / special.size()], 4);
        }
        c.inputs = {{0, 0}, {1, 0}};
        c.program = hypot_program(dims, turned, stored);
        for (size_t k = 0; k < c.program.outputs.size(); ++k) {
          c.outputs.push_back({c.memory.size(), 0});
          c.memory.emplace_back(static_cast<size_t>(n) * 4);
        }
        std::vector<Bytes> want = c.memory;
        const Pointers at = pointers(c, want);
        run_row_program_reference(c.program, at.inputs, at.outputs);
        ASSERT_TRUE(same(c, run(c, 1), want)) << stored << " " << describe(c.program);
      }
}
TEST(RowProgramHypot, AgreesWithTheReference) {
  check_hypot({{2, 300}, {1, 1}, {3, 67}, {40, 7}, {1, 5001}});
}
TEST(RowProgramHypot, OfEveryTargetAgreesWithTheReference) {
  with_other_targets([] { check_hypot({{2, 300}, {3, 67}, {1, 1}}); });
}
TEST(RowProgramHypot, IsOneKernelWhereNothingElseIsWanted) {
  for (const bool turned : {false, true}) {
    const auto n_kernels = [&](int stored) {
      const RowPlan plan = compile_row_plan(hypot_program({8, 64}, turned, stored), false);
      EXPECT_EQ(plan.phases.size(), 1u);
      return plan.phases[0].strip_steps.size();
    };
    EXPECT_EQ(n_kernels(0), 1u);
    EXPECT_EQ(n_kernels(4), 2u);  // |a| is a result of its own
    EXPECT_GT(n_kernels(1), 3u);
  }
}

// A comparison and its choice, bounds from both sides, and an index that counts from the end.
TEST(RowProgramChoice, IsOneKernelWithWhatItAloneWants) {
  const auto n_kernels = [](const RowProgram& program) {
    const RowPlan plan = compile_row_plan(program, false);
    return plan.phases[0].strip_steps.size();
  };
  const auto choice = [](DType t, OpKind test, bool stores_test) {
    Writer w(t, {8, 64});
    const int32_t a = w.load(), b = w.load();
    const int32_t is = w.test(test, a, b);
    w.store(w.select(is, a, w.constant(0)));
    if (stores_test) w.store(w.select(is, b, a));
    return w.done();
  };
  for (DType t : {DType::kF32, DType::kBF16, DType::kI32})
    for (OpKind test :
         {OpKind::kEq, OpKind::kNe, OpKind::kLt, OpKind::kLe, OpKind::kGt, OpKind::kGe}) {
      EXPECT_EQ(n_kernels(choice(t, test, false)), 1u) << dtype_name(t) << " " << op_name(test);
      EXPECT_EQ(n_kernels(choice(t, test, true)), 3u) << dtype_name(t) << " " << op_name(test);
    }
  for (OpKind outer : {OpKind::kMin, OpKind::kMax}) {
    Writer w(DType::kF32, {8, 64});
    const int32_t inner =
        w.compute(outer == OpKind::kMin ? OpKind::kMax : OpKind::kMin, w.load(), w.constant(-1));
    w.store(w.compute(outer, inner, w.constant(1)));
    EXPECT_EQ(n_kernels(w.done()), 1u);
  }
  for (const bool turned : {false, true}) {
    Writer w(DType::kI32, {8, 64});
    const int32_t i = w.load(), n = w.load();
    const int32_t sum = turned ? w.compute(OpKind::kAdd, n, i) : w.compute(OpKind::kAdd, i, n);
    w.store(w.select(w.test(OpKind::kLt, i, n), sum, i));
    EXPECT_EQ(n_kernels(w.done()), 1u);
  }
}

// The gradient of silu(x), or of silu(x) * y by both and, with three outputs, the product itself.
// The product comes last, or `turned`, where factors and terms stand in another order, what is by
// y.
RowProgram gate_grad_program(DType t, const Dims& dims, int n_outs, bool turned) {
  Writer w(t, dims);
  const auto both = [&](OpKind op, int32_t a, int32_t b) {
    return turned ? w.compute(op, b, a) : w.compute(op, a, b);
  };
  const int32_t x = w.load(), dy = w.load(), y = n_outs > 1 ? w.load() : -1;
  const int32_t s = w.compute(OpKind::kLogistic, x);
  const int32_t silu = n_outs > 1 ? both(OpKind::kMul, x, s) : -1;
  int32_t product = n_outs > 2 && turned ? both(OpKind::kMul, silu, y) : -1;
  const int32_t d = n_outs > 1 ? both(OpKind::kMul, dy, y) : dy;
  int32_t by_y = n_outs > 1 && !turned ? both(OpKind::kMul, dy, silu) : -1;
  const int32_t straight = both(OpKind::kMul, d, s), by_x = both(OpKind::kMul, d, x);
  const int32_t rest = w.compute(OpKind::kSub, w.one(), s);
  const int32_t bent = both(OpKind::kMul, by_x, both(OpKind::kMul, s, rest));
  w.store(both(OpKind::kAdd, straight, bent));
  if (n_outs > 2 && !turned) product = both(OpKind::kMul, silu, y);
  if (n_outs > 1 && turned) by_y = both(OpKind::kMul, dy, silu);
  if (n_outs > 1) w.store(by_y);
  if (n_outs > 2) w.store(product);
  return w.done();
}

void check_gate_gradients(const std::vector<Dims>& spaces) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16})
    for (const Dims& dims : spaces)
      for (int n_outs : {1, 2, 3})
        for (const bool turned : {false, true}) {
          Case c;
          c.program = gate_grad_program(t, dims, n_outs, turned);
          // One kernel, which leaves nothing in scratch.
          ASSERT_LT(CompiledRowProgram(c.program).scratch_bytes(1), 512) << describe(c.program);
          Random random(13);
          for (int k = 0; k < 6; ++k)
            c.memory.push_back(random_bytes(random, t, dims[0] * dims[1]));
          for (size_t k = 0; k < c.program.inputs.size(); ++k) c.inputs.push_back({k, 0});
          // Apart; each over an input; over the inputs in another order.
          for (const auto& places : {std::array<size_t, 3>{3, 4, 5}, {0, 1, 2}, {1, 2, 0}})
            ASSERT_NO_FATAL_FAILURE(check_outputs_at(c, places));
        }
}
TEST(RowProgramGate, GradientsAreOneKernelAndAgreeWithTheReference) {
  check_gate_gradients({{3, 4096}, {700, 32}, {1, 20001}, {40, 129}, {5, 63}, {900, 1}});
}
TEST(RowProgramGate, GradientsOfEveryTargetAgreeWithTheReference) {
  with_other_targets([] { check_gate_gradients({{40, 129}}); });
}

// A weight's moments and, in as far as it is asked for, what becomes of the weight by them; the
// values that a row shares are one a row, one in all or a constant. `turned`: factors and terms
// stand in another order. `shows`: the scaled gradient and the quotient are stored as well.
struct MomentsForm {
  bool scaled, updates, decays, turned, shows;
};
RowProgram moments_program(const Dims& dims, const MomentsForm& form) {
  Writer w(DType::kF32, dims);
  const auto both = [&](OpKind op, int32_t a, int32_t b) {
    return form.turned ? w.compute(op, b, a) : w.compute(op, a, b);
  };
  const auto times = [&](int32_t a, int32_t b) { return both(OpKind::kMul, a, b); };
  const auto plus = [&](int32_t a, int32_t b) { return both(OpKind::kAdd, a, b); };
  const int32_t gradient = w.load(), old_m = w.load(), old_v = w.load();
  const int32_t p = form.updates ? w.load() : -1;
  const auto of_row = [&] { return w.load({DType::kF32, {1, 0}}); };
  const auto of_all = [&] { return w.load({DType::kF32, {0, 0}}); };
  const int32_t g = form.scaled ? times(gradient, of_all()) : gradient;
  const int32_t m = plus(times(old_m, of_row()), times(g, of_all()));
  if (!form.turned) w.store(m);
  const int32_t v = plus(times(old_v, of_all()), times(w.compute(OpKind::kMul, g, g), of_row()));
  w.store(v);
  if (form.turned) w.store(m);
  const int32_t root = w.compute(OpKind::kSqrt, times(v, of_all()));
  const int32_t r = w.compute(OpKind::kDiv, times(m, of_all()), plus(root, w.one()));
  if (!form.updates || form.shows) w.store(r);
  if (form.shows) w.store(g);
  if (form.updates) {
    const int32_t step = form.decays ? plus(r, times(p, of_row())) : r;
    w.store(plus(p, times(step, of_all())));
  }
  return w.done();
}

void check_moments(const std::vector<Dims>& spaces) {
  for (const Dims& dims : spaces)
    for (int bits = 0; bits < 32; ++bits) {
      const MomentsForm form = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
                                (bits & 16) != 0};
      if (form.decays && !form.updates) continue;
      Case c;
      c.program = moments_program(dims, form);
      if (!form.shows && dims[1] >= 16) {  // one kernel, which leaves no rows in scratch
        ASSERT_LT(CompiledRowProgram(c.program).scratch_bytes(1), 2048) << describe(c.program);
      }
      Random random(17);
      for (size_t k = 0; k < c.program.inputs.size(); ++k) {
        c.inputs.push_back({k, 0});
        c.memory.push_back(random_bytes(random, DType::kF32, dims[0] * dims[1]));
      }
      // Apart; each over an input; over the inputs in another order.
      const size_t n = c.memory.size(), weight = form.updates ? 3 : 0;
      for (int k = 0; k < 5; ++k)
        c.memory.push_back(random_bytes(random, DType::kF32, dims[0] * dims[1]));
      for (const auto& places : {std::array<size_t, 5>{n, n + 1, n + 2, n + 3, n + 4},
                                 {1, 2, form.shows ? n : weight, n + 1, n + 2},
                                 {2, form.shows ? n : weight, 1, n + 1, n + 2}})
        ASSERT_NO_FATAL_FAILURE(check_outputs_at(c, places));
    }
}
TEST(RowProgramMoments, AreOneKernelAndAgreeWithTheReference) {
  check_moments({{3, 4096}, {700, 32}, {1, 20001}, {40, 129}, {5, 63}, {900, 1}, {1, 16}});
}
TEST(RowProgramMoments, OfEveryTargetAgreeWithTheReference) {
  with_other_targets([] { check_moments({{40, 129}}); });
}

// What kernels of several steps are made of, with one value in another's place from where that is
// there on: they may then read what they themselves make, and are no kernel, or another.
void check_replaced(const RowProgram& whole, const Dims& dims) {
  const auto n = static_cast<int32_t>(whole.steps.size());
  Case plain;
  Random random(19);
  for (size_t k = 0; k < whole.inputs.size(); ++k) {
    plain.inputs.push_back({k, 0});
    plain.memory.push_back(random_bytes(random, whole.inputs[k].dtype, dims[0] * dims[1]));
  }
  for (size_t k = 0; k < whole.outputs.size(); ++k) {
    plain.outputs.push_back({plain.memory.size(), 0});
    plain.memory.push_back(random_bytes(random, whole.outputs[k].dtype, dims[0] * dims[1]));
  }
  const auto is_value = [&](int32_t i) {
    const Step& s = whole.steps[static_cast<size_t>(i)];
    return s.kind == StepKind::kLoad || s.kind == StepKind::kCompute;
  };
  for (int32_t from = 0; from < n; ++from)
    for (int32_t to = 0; to < n; ++to) {
      if (from == to || !is_value(from) || !is_value(to)) continue;
      Case c = plain;
      c.program = whole;
      bool changed = false;
      for (int32_t j = to + 1; j < n; ++j)
        for (int32_t& a : c.program.steps[static_cast<size_t>(j)].args)
          if (a == from) a = to, changed = true;
      if (!changed) continue;
      std::vector<Bytes> want = c.memory;
      const Pointers at = pointers(c, want);
      run_row_program_reference(c.program, at.inputs, at.outputs);
      ASSERT_TRUE(same(c, run(c, 1), want)) << to << " for " << from << " " << describe(c.program);
    }
}
TEST(RowProgramGate, OfWhatItMakesItselfIsNone) {
  const Dims dims = {3, 70};
  ASSERT_NO_FATAL_FAILURE(check_replaced(gate_program(DType::kF32, dims, true, false), dims));
  for (int n_outs : {1, 2, 3})
    for (const bool turned : {false, true})
      ASSERT_NO_FATAL_FAILURE(
          check_replaced(gate_grad_program(DType::kF32, dims, n_outs, turned), dims));
}
TEST(RowProgramMoments, OfWhatTheyMakeThemselvesAreNone) {
  const Dims dims = {3, 70};
  for (int bits = 0; bits < 16; ++bits) {
    const MomentsForm form = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
                              false};
    if (form.decays && !form.updates) continue;
    ASSERT_NO_FATAL_FAILURE(check_replaced(moments_program(dims, form), dims));
  }
}

// The steps of a norm's gradient: a sum of squares beside one of products by the same values,
// column sums of products of two values and of three, one of them a value of each row, and twice a
// product added to a sum and to a product. `keeps`: what the sum of products multiplies is read
// again.
void check_norm_gradient(bool keeps) {
  for (const Dims& dims : std::vector<Dims>{
           {37, 129}, {5, 1024}, {64, 16}, {300, 7}, {1, 33}, {18, 9000}, {3, 8224}}) {
    Case c;
    Writer w(DType::kF32, dims);
    const int32_t x = w.load(), dy = w.load();
    const int32_t r = w.sum(w.compute(OpKind::kMul, x, x));
    const int32_t inner = w.compute(OpKind::kMul, dy, w.load({DType::kF32, {0, 1}}));
    const int32_t products = w.sum(w.compute(OpKind::kMul, x, inner));
    w.store(w.compute(OpKind::kMul, products, keeps ? inner : x));
    w.store_sums(w.compute(OpKind::kMul, dy, w.compute(OpKind::kMul, x, r)));
    w.store_sums(w.compute(OpKind::kMul, x, dy));
    for (OpKind left : {OpKind::kMul, OpKind::kAdd}) {
      const int32_t m = w.compute(OpKind::kMul, r, left == OpKind::kMul ? x : dy);
      const int32_t twice = w.compute(OpKind::kAdd, m, m);
      w.store(left == OpKind::kMul ? w.compute(OpKind::kAdd, w.compute(left, dy, r), twice)
                                   : w.compute(OpKind::kAdd, twice, w.compute(left, dy, x)));
    }
    c.program = w.done();
    Random random(11);
    for (size_t k = 0; k < c.program.inputs.size() + c.program.outputs.size(); ++k) {
      const bool input = k < c.program.inputs.size();
      (input ? c.inputs : c.outputs).push_back({k, 0});
      const int64_t n = dims[0] * dims[1];
      c.memory.push_back(input ? random_bytes(random, DType::kF32, n)
                               : Bytes(static_cast<size_t>(n) * 4));
    }
    std::vector<Bytes> want = c.memory;
    const Pointers at = pointers(c, want);
    run_row_program_reference(c.program, at.inputs, at.outputs);
    for (int threads : {1, 3}) ASSERT_TRUE(same(c, run(c, threads), want)) << describe(c.program);
  }
}
TEST(RowProgramNormGradient, AgreesWithTheReference) {
  check_norm_gradient(false);
}
TEST(RowProgramNormGradient, AgreesWhereWhatIsMultipliedIsReadAgain) {
  check_norm_gradient(true);
}

// The whole gradient of x w / |x|, by x and by w. `turned`: factors stand in another order, and the
// sums come last. `reads_again`: dy w is wanted elsewhere.
RowProgram whole_norm_gradient(const Dims& dims, bool turned, bool reads_again) {
  Writer w(DType::kF32, dims);
  const auto both = [&](OpKind op, int32_t a, int32_t b) {
    return turned ? w.compute(op, b, a) : w.compute(op, a, b);
  };
  const int32_t x = w.load(), dy = w.load(), weight = w.load({DType::kF32, {0, 1}});
  const int32_t inner = both(OpKind::kMul, dy, weight);
  const int32_t dot = w.sum(both(OpKind::kMul, inner, x));
  const int32_t scale = w.compute(OpKind::kRsqrt, w.sum(w.compute(OpKind::kMul, x, x)));
  const int32_t by_w = w.compute(OpKind::kMul, both(OpKind::kMul, x, scale), dy);
  if (!turned) w.store_sums(by_w);
  const int32_t p = both(OpKind::kMul, w.compute(OpKind::kMul, dot, scale), x);
  w.store(both(OpKind::kAdd, both(OpKind::kMul, inner, scale), w.compute(OpKind::kAdd, p, p)));
  if (turned) w.store_sums(by_w);
  if (reads_again) w.store(w.compute(OpKind::kMul, inner, dot));
  return w.done();
}
void check_whole_norm_gradients(const std::vector<Dims>& spaces) {
  for (const Dims& dims : spaces)
    for (const bool turned : {false, true}) {
      const auto scratch = [&](bool reads_again) {
        return CompiledRowProgram(whole_norm_gradient(dims, turned, reads_again)).scratch_bytes(1);
      };
      if (dims[0] > 1 && dims[1] <= 8192) {  // else it lies where a result will
        EXPECT_LE(scratch(false) + dims[1] * 4, scratch(true)) << "dy w is kept";
      }
      for (const bool reads_again : {false, true}) {
        Case c;
        c.program = whole_norm_gradient(dims, turned, reads_again);
        Random random(17);
        for (int k = 0; k < 6; ++k)
          c.memory.push_back(random_bytes(random, DType::kF32, dims[0] * dims[1]));
        for (size_t k = 0; k < c.program.inputs.size(); ++k) c.inputs.push_back({k, 0});
        // The sums apart or over the weight, the rest apart, over dy or over x.
        for (const auto& [sums, rest] : {std::pair<size_t, size_t>{3, 4}, {3, 1}, {2, 0}, {2, 1}}) {
          std::array<size_t, 3> places = {sums, rest, 5};
          if (turned) std::swap(places[0], places[1]);
          ASSERT_NO_FATAL_FAILURE(check_outputs_at(c, places));
        }
      }
    }
}
TEST(RowProgramNormGradient, OfAWholeNormKeepsNothingAndAgreesWithTheReference) {
  check_whole_norm_gradients(
      {{37, 129}, {5, 1024}, {64, 16}, {301, 7}, {1, 33}, {18, 5000}, {3, 9000}});
}
TEST(RowProgramNormGradient, OfOtherValuesAgreesWithTheReference) {
  const Dims dims = {19, 70};
  for (const bool turned : {false, true})
    for (const bool reads_again : {false, true})
      ASSERT_NO_FATAL_FAILURE(check_replaced(whole_norm_gradient(dims, turned, reads_again), dims));
}
TEST(RowProgramNormGradient, OfAWholeNormAgreesOnEveryTarget) {
  with_other_targets([] { check_whole_norm_gradients({{37, 129}}); });
}

}  // namespace
}  // namespace stow::cpu
