// Row programs written by hand: sums over runs, copies, results of many arrays, exponentials, long
// rows.
#include "stowage/runtime/cpu/kernels/row_program.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "stowage/runtime/cpu/kernels/row_plan.h"
#include "stowage/runtime/cpu/row_program_reference.h"
#include "tests/unit/runtime/cpu/kernels/row_program_kit.h"

namespace stow::cpu {
namespace {

using namespace row_kit;

// Sums over the first and the last axis of three read the runs of the last where they lie, and add
// in the order of one row.
void check_sums_of_runs(const std::vector<Dims>& spaces) {
  for (const Dims& space : spaces) {  // outer, rows, run
    const int64_t outer = space[0], rows = space[1], run_cols = space[2];
    for (const bool is_stored : {false, true}) {
      Case c;
      Random random(8);
      c.memory = {random_bytes(random, DType::kF32, outer * rows * run_cols), Bytes(rows * 4),
                  Bytes(outer * rows * run_cols * 4)};
      c.inputs = {{0, 0}};
      c.outputs = {{1, 0}, {2, 0}};
      c.program.dims = {rows, outer, run_cols};
      c.program.n_row_dims = 1;
      const RowOperand x = {DType::kF32, {run_cols, rows * run_cols, 1}};
      c.program.inputs = {x};
      c.program.outputs = {{DType::kF32, {1, 0, 0}}, x};
      Step load, sum, store;
      load.kind = StepKind::kLoad;
      sum.kind = StepKind::kReduceRow, sum.op = OpKind::kReduceSum, sum.args[0] = 0;
      store.kind = StepKind::kStore, store.args[0] = 1;
      c.program.steps = {load, sum, store};
      if (is_stored) {  // the load too, which then is a register that others read
        store.args[0] = 0, store.index = 1;
        c.program.steps.push_back(store);
      } else {
        c.outputs.pop_back();
        c.program.outputs.pop_back();
        const RowPlan plan = compile_row_plan(c.program, false);
        EXPECT_EQ(plan.phases[0].strip_steps.size(), run_cols >= 32 ? 1u : 2u) << run_cols;
      }
      std::vector<Bytes> want = c.memory;
      const Pointers at = pointers(c, want);
      run_row_program_reference(c.program, at.inputs, at.outputs);
      for (int threads : {1, 2, 3})
        ASSERT_TRUE(same(c, run(c, threads), want)) << threads << " " << describe(c.program);
    }
  }
}
TEST(RowProgramRuns, SumInTheOrderOfARow) {
  const AllEveryday everyday;
  check_sums_of_runs({{2, 3, 31},
                      {2, 3, 32},
                      {7, 40, 33},
                      {60, 100, 100},
                      {5, 70, 129},
                      {2, 9, 4096},
                      {3, 2, 5000},
                      {130, 64, 47}});
}
TEST(RowProgramRuns, OfEveryTargetSumInTheOrderOfARow) {
  with_other_targets([] {
    const AllEveryday everyday;
    check_sums_of_runs({{7, 40, 33}, {60, 100, 100}, {2, 3, 5000}});
  });
}

// Copies of any strides: turned, reversed, repeated, spread out. Extents that fill blocks of
// vectors and do not, for elements of every size.
TEST(RowProgramCopy, OfAnyStridesIsTheReference) {
  struct Layout {
    Dims dims, to, from;
    int64_t first;  // element of the input
  };
  std::vector<Layout> layouts;
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{64, 64},
                                   {37, 53},
                                   {3, 4099},
                                   {4099, 3},
                                   {130, 18},
                                   {5, 5},
                                   {1000, 7}}) {
    layouts.push_back({{rows, cols}, {cols, 1}, {1, rows}, 0});
    layouts.push_back({{rows, cols}, {cols, 1}, {1, rows + 3}, 0});
    layouts.push_back({{rows, cols}, {cols, 1}, {cols, -1}, cols - 1});
    layouts.push_back({{rows, cols}, {cols, 1}, {-1, rows}, rows - 1});
    layouts.push_back({{rows, cols}, {cols, 1}, {3 * cols, 3}, 0});
    layouts.push_back({{rows, cols}, {2 * cols, 2}, {cols, 1}, 0});
    layouts.push_back({{rows, cols, 2}, {2 * cols, 1, cols}, {2 * cols, 2, 1}, 0});
    layouts.push_back({{2, rows, cols}, {rows * cols, cols, 1}, {1, 2 * cols, 2}, 0});
  }
  for (int64_t times = 2; times <= 9; ++times) {
    layouts.push_back({{700, times}, {times, 1}, {1, 0}, 0});
    layouts.push_back({{700, times}, {times, 1}, {2, 0}, 0});
    layouts.push_back({{9, 700, times}, {700 * times + 1, times, 1}, {0, 1, 0}, 0});
    layouts.push_back({{700, times}, {times, 1}, {2 * times, 1}, 0});
  }
  for (DType t : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64})
    for (const Layout& l : layouts) {
      Case c;
      Random random(5);
      int64_t from_elems = 1, to_elems = 1;
      for (size_t d = 0; d < l.dims.size(); ++d) {
        from_elems += std::abs(l.from[d]) * (l.dims[d] - 1);
        to_elems += l.to[d] * (l.dims[d] - 1);
      }
      c.memory = {random_bytes(random, t, from_elems), random_bytes(random, t, to_elems)};
      c.inputs = {{0, l.first * dtype_bytes(t)}};
      c.outputs = {{1, 0}};
      c.program.dims = l.dims;
      c.program.n_row_dims = 1;
      c.program.inputs = {{t, l.from}};
      c.program.outputs = {{t, l.to}};
      Step load, store;
      load.kind = StepKind::kLoad, store.kind = StepKind::kStore;
      load.dtype = store.dtype = t;
      store.args[0] = 0;
      c.program.steps = {load, store};
      std::vector<Bytes> want = c.memory;
      const Pointers at = pointers(c, want);
      run_row_program_reference(c.program, at.inputs, at.outputs);
      for (int threads : {1, 3})
        ASSERT_TRUE(same(c, run(c, threads), want)) << threads << " " << describe(c.program);
    }
}

// Registers too are turned block by block: an operand that is read down its columns, beside one
// that is not.
TEST(RowProgramCopy, TurnedOperandsAreTheReference) {
  for (DType t : {DType::kU8, DType::kF32, DType::kF64, DType::kBF16})
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{64, 64}, {37, 53}, {130, 18}, {3, 1030}, {1030, 3}}) {
      Case c;
      Random random(6);
      c.memory = {random_bytes(random, t, rows * cols), random_bytes(random, t, rows * cols),
                  random_bytes(random, t, rows * cols)};
      c.inputs = {{0, 0}, {1, 0}};
      c.outputs = {{2, 0}};
      Writer w(t, {rows, cols});
      const int32_t x = w.load(), turned = w.load(RowOperand{t, {1, rows}});
      w.store(w.compute(OpKind::kMax, x, turned));
      c.program = w.done();
      std::vector<Bytes> want = c.memory;
      const Pointers at = pointers(c, want);
      run_row_program_reference(c.program, at.inputs, at.outputs);
      for (int threads : {1, 2})
        ASSERT_TRUE(same(c, run(c, threads), want)) << describe(c.program);
    }
}

// n gradients, all scaled before the first of them is stored: times a factor over itself, and its
// square times a factor.
RowProgram scaled_gradients_program(int n, int64_t elems) {
  Writer w(DType::kF32, {1, elems});
  const int32_t scale = w.load({DType::kF32, {0, 0}});
  std::vector<int32_t> scaled;
  for (int i = 0; i < n; ++i) scaled.push_back(w.compute(OpKind::kMul, w.load(), scale));
  for (const int32_t g : scaled) {
    w.store(w.compute(OpKind::kMul, g, scale));
    w.store(w.compute(OpKind::kMul, w.compute(OpKind::kMul, g, g), scale));
  }
  return w.done();
}

TEST(RowProgramOrder, ResultsOfManyArraysTakeNoRegisterEach) {
  constexpr int kArrays = 24;
  Case c;
  c.program = scaled_gradients_program(kArrays, 3000);
  Random random(23);
  for (size_t k = 0; k < c.program.inputs.size(); ++k) {
    c.inputs.push_back({k, 0});
    c.memory.push_back(random_bytes(random, DType::kF32, 3000));
  }
  for (size_t i = 1; i <= kArrays; ++i) {
    c.outputs.push_back({i, 0});
    c.outputs.push_back({c.memory.size(), 0});
    c.memory.push_back(random_bytes(random, DType::kF32, 3000));
  }
  constexpr int64_t kStrip = 4 * 1024;
  EXPECT_LT(CompiledRowProgram(c.program, overlaps_of(c)).scratch_bytes(1), 2 * kStrip);
  std::vector<Bytes> want = c.memory;
  const Pointers at = pointers(c, want);
  run_row_program_reference(c.program, at.inputs, at.outputs);
  for (const RowOverlaps& known : {RowOverlaps(), overlaps_of(c)})
    for (int threads : {1, 2}) {
      EXPECT_TRUE(same(c, run(c, threads, known), want));
      EXPECT_TRUE(runner_agrees(c, threads, want, known));
    }
}

// e^(x - y) and its sums of rows: what is at the bounds of an exponential, one a row.
TEST(RowProgramExponentials, OfEverySizeAgreeWithTheReference) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> rare = {88.7f,   89,      90,    1e5f,  kInf, -87,
                                   -103.9f, -104.1f, -1e5f, -kInf, kNan};
  const std::vector<size_t> places = {3, 77, 195};
  const auto rows = static_cast<int64_t>(rare.size() * places.size());
  constexpr int64_t kCols = 200;
  for (const bool keeps : {false, true}) {
    Writer w(DType::kF32, {rows, kCols});
    const int32_t x = w.load(), y = w.load();
    const int32_t e = w.compute(OpKind::kExp, w.compute(OpKind::kSub, x, y)), sum = w.sum(e);
    w.store(keeps ? w.compute(OpKind::kMul, e, sum) : w.compute(OpKind::kAdd, x, sum));
    Case c;
    c.program = w.done();
    const AllEveryday everyday;
    Random random(11);
    for (int k = 0; k < 3; ++k) c.memory.push_back(random_bytes(random, DType::kF32, rows * kCols));
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      const size_t at = (r * kCols + places[r % places.size()]) * sizeof(float);
      const float zero = 0;
      std::memcpy(c.memory[0].data() + at, &rare[r / places.size()], sizeof(float));
      std::memcpy(c.memory[1].data() + at, &zero, sizeof(float));
    }
    c.inputs = {{0, 0}, {1, 0}};
    for (const size_t place : {size_t{2}, size_t{0}})
      ASSERT_NO_FATAL_FAILURE(check_outputs_at(c, std::array{place}));
  }
}

// Softmax of rows too long for one strip, e / sum(e) with e = exp(x - max(x)): e lies where the
// result will. What else reads x or e afterwards:
enum class Also { kNothing, kArgument, kFirst, kSecond };
RowProgram long_softmax(const Dims& dims, Also also) {
  Writer w(DType::kF32, dims);
  const int32_t x = w.load();
  const int32_t e = w.compute(
      OpKind::kExp, w.compute(OpKind::kSub, x, w.reduce(OpKind::kReduceMax, x)));
  const int32_t sum = w.sum(e), y = w.compute(OpKind::kDiv, e, sum);
  if (also == Also::kSecond) w.store(w.compute(OpKind::kMul, e, w.compute(OpKind::kAdd, e, sum)));
  w.store(also == Also::kArgument ? w.compute(OpKind::kMul, y, x) : y);
  if (also == Also::kFirst) w.store(w.compute(OpKind::kMul, e, w.compute(OpKind::kAdd, e, sum)));
  return w.done();
}
void check_long_softmax(Also also) {
  // The last is of more than is kept elsewhere, and a row that threads share.
  for (const bool everyday : {false, true})
    for (const Dims& dims : std::vector<Dims>{{3, 8200}, {2, 20000}, {1, 8193}, {1, 130000}}) {
      Case c;
      c.program = long_softmax(dims, also);
      const AllEveryday held(everyday);
      Random random(5);
      for (int k = 0; k < 3; ++k)
        c.memory.push_back(random_bytes(random, DType::kF32, dims[0] * dims[1]));
      c.inputs = {{0, 0}};
      // Apart, over the input, and the other output over it.
      for (const auto& places : {std::array<size_t, 2>{1, 2}, {0, 1}, {1, 0}})
        ASSERT_NO_FATAL_FAILURE(check_outputs_at(c, places));
    }
}
TEST(RowProgramLongRows, WhatIsKeptLiesWhereTheResultWill) {
  const Dims dims = {3, 20000};
  EXPECT_LT(CompiledRowProgram(long_softmax(dims, Also::kNothing)).scratch_bytes(1), 4096);
  EXPECT_LT(CompiledRowProgram(long_softmax({3, 130000}, Also::kNothing)).scratch_bytes(1), 4096);
  // Over x, which is read again, it must not.
  EXPECT_GT(CompiledRowProgram(long_softmax(dims, Also::kArgument)).scratch_bytes(1), 4 * 20000);
  check_long_softmax(Also::kNothing);
}
TEST(RowProgramLongRows, AreRightWhereTheirArgumentIsReadAgain) {
  check_long_softmax(Also::kArgument);
}
TEST(RowProgramLongRows, AreRightWhereWhatIsKeptIsReadAgain) {
  check_long_softmax(Also::kFirst);
  check_long_softmax(Also::kSecond);
}

}  // namespace
}  // namespace stow::cpu
