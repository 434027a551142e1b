// Random row programs beside the reference, and programs that row_unroll.h unrolls, on every
// target; both again with results that bypass the caches, and with either way of fetching memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"
#include "stowage/runtime/cpu/kernels/row_program.h"
#include "stowage/runtime/cpu/kernels/row_unroll.h"
#include "stowage/runtime/cpu/row_program_reference.h"
#include "tests/unit/runtime/cpu/kernels/row_program_kit.h"

namespace stow::cpu {
namespace {

using namespace row_kit;

// Builds one case. `value` s are step numbers with what they depend on.
class Generator {
 public:
  Generator(uint64_t seed, bool long_rows) : random_(seed), long_rows_(long_rows) {}

  Case make() {
    make_space();
    const int64_t n_inputs = 1 + random_.below(4);
    for (int64_t i = 0; i < n_inputs; ++i) add_input();
    const int64_t n_steps = 1 + random_.below(14), idiom = random_.below(n_steps);
    for (int64_t i = 0; i < n_steps; ++i) {
      if (i == idiom && random_.chance(20)) add_one_hot();
      if (i == idiom && random_.chance(20)) add_sum_of_terms();
      if (i == idiom && random_.chance(30)) add_choice();
      add_step();
    }
    const int64_t n_outputs = 1 + random_.below(3);
    for (int64_t i = 0; i < n_outputs; ++i) add_output();
    return std::move(case_);
  }

 private:
  RowProgram& program() { return case_.program; }
  size_t rank() { return program().dims.size(); }
  bool is_row_dim(size_t k) { return static_cast<int>(k) < program().n_row_dims; }

  void make_space() {
    const int64_t rank = long_rows_ ? 2 : random_.below(5);
    for (int64_t k = 0; k < rank; ++k)
      program().dims.push_back(random_.chance(3) ? 0
                                                 : random_.pick<int64_t>({1, 2, 3, 5, 8, 17, 33}));
    program().n_row_dims = static_cast<int>(random_.below(rank + 1));
    if (long_rows_) {
      program().dims = {1 + random_.below(3), 4000 + random_.below(9000)};
      program().n_row_dims = random_.chance(80) ? 1 : static_cast<int>(random_.below(3));
    }
    if (random_.chance(50))
      program().n_group_dims = static_cast<int>(random_.below(program().n_row_dims + 1));
  }

  // Strides over the dimensions for which `wanted`, dense in some order, some of them negative;
  // gaps now and then. Returns the offset of the first point and the elements spanned.
  Dims make_strides(const std::vector<bool>& wanted, int64_t& offset, int64_t& span) {
    std::vector<size_t> order;
    for (size_t k = 0; k < rank(); ++k) order.push_back(k);
    if (random_.chance(25))
      for (size_t k = order.size(); k > 1; --k)
        std::swap(order[k - 1], order[static_cast<size_t>(random_.below(static_cast<int64_t>(k)))]);
    Dims strides(rank(), 0);
    int64_t next = random_.chance(10) ? 2 : 1;
    offset = 0;
    span = 1;
    for (size_t at = order.size(); at-- > 0;) {
      const size_t k = order[at];
      if (!wanted[k]) continue;
      const int64_t extent = std::max<int64_t>(1, program().dims[k]);
      const bool negative = random_.chance(10);
      strides[k] = negative ? -next : next;
      if (negative) offset += next * (extent - 1);
      span += next * (extent - 1);
      next *= extent;
      if (random_.chance(10)) next += random_.below(5);
    }
    return strides;
  }

  Case::Where new_memory(DType t, int64_t offset, int64_t span) {
    const int64_t size = dtype_bytes(t);
    Bytes bytes(static_cast<size_t>(span * size));
    for (int64_t i = 0; i < span; ++i) {
      const uint64_t x = random_element(random_, t);
      std::memcpy(bytes.data() + i * size, &x, static_cast<size_t>(size));
    }
    case_.memory.push_back(std::move(bytes));
    return {case_.memory.size() - 1, offset * size};
  }

  DType random_dtype() {
    return random_.chance(50) ? random_.pick({DType::kF32, DType::kF32, DType::kBF16, DType::kF16})
                              : kAllDTypes[random_.below(kNumDTypes)];
  }

  void add_input() {
    RowOperand o;
    // Many alike, so that binary steps find partners.
    o.dtype =
        program().inputs.empty() || random_.chance(30) ? random_dtype() : program().inputs[0].dtype;
    std::vector<bool> wanted(rank(), true);
    const int64_t shape = random_.below(100);
    bool rows = false, cols = false;
    for (size_t k = 0; k < rank(); ++k) {
      if (shape >= 60 && shape < 75) wanted[k] = is_row_dim(k);
      if (shape >= 75 && shape < 90) wanted[k] = !is_row_dim(k);
      if (shape >= 90) wanted[k] = random_.chance(50);
      if (wanted[k] && program().dims[k] != 1) (is_row_dim(k) ? rows : cols) = true;
    }
    int64_t offset, span;
    o.strides = make_strides(wanted, offset, span);
    case_.inputs.push_back(new_memory(o.dtype, offset, span));
    program().inputs.push_back(o);
    Step s;
    s.kind = StepKind::kLoad;
    s.dtype = o.dtype;
    s.index = static_cast<int32_t>(program().inputs.size() - 1);
    push(s, rows, cols);
  }

  void push(const Step& s, bool rows, bool cols) {
    program().steps.push_back(s);
    rows_.push_back(rows);
    cols_.push_back(cols);
  }
  int32_t n_steps() { return static_cast<int32_t>(program().steps.size()); }
  const Step& step(int32_t i) { return program().steps[static_cast<size_t>(i)]; }
  // A recent value rather than an old one.
  int32_t any_value() {
    const int64_t n = n_steps();
    return static_cast<int32_t>(n - 1 - std::min(random_.below(n), random_.below(n)));
  }
  std::optional<int32_t> value_like(DType t) {
    for (int tries = 0; tries < 20; ++tries) {
      const int32_t i = any_value();
      if (step(i).dtype == t) return i;
    }
    return std::nullopt;
  }

  void add_constant() {
    Step s;
    s.kind = StepKind::kConstant;
    s.dtype = random_.chance(70) ? step(any_value()).dtype : random_dtype();
    s.imm = random_element(random_, s.dtype);
    if (dtype_bytes(s.dtype) < 8) s.imm &= (uint64_t{1} << 8 * dtype_bytes(s.dtype)) - 1;
    push(s, false, false);
  }

  void add_iota() {
    if (rank() == 0) return;
    Step s;
    s.kind = StepKind::kIota;
    s.dtype = random_.chance(50) ? DType::kI32 : random_dtype();
    if (s.dtype == DType::kBool) return;
    s.index = static_cast<int32_t>(random_.below(static_cast<int64_t>(rank())));
    const bool varies = program().dims[static_cast<size_t>(s.index)] != 1;
    const bool row = is_row_dim(static_cast<size_t>(s.index));
    push(s, varies && row, varies && !row);
  }

  void add_reduction() {
    Step s;
    s.kind = StepKind::kReduceRow;
    s.args[0] = any_value();
    s.dtype = step(s.args[0]).dtype;
    if (s.dtype == DType::kBool)
      s.op = random_.pick({OpKind::kReduceAnd, OpKind::kReduceOr, OpKind::kReduceMax});
    else if (is_float(s.dtype) || random_.chance(80))
      s.op = random_.pick({OpKind::kReduceSum, OpKind::kReduceSum, OpKind::kReduceProd,
                           OpKind::kReduceMax, OpKind::kReduceMin});
    else
      s.op = random_.pick({OpKind::kReduceAnd, OpKind::kReduceOr});
    push(s, true, false);
  }

  int32_t compute(OpKind op, DType t, std::initializer_list<int32_t> args) {
    Step s;
    s.op = op;
    s.dtype = t;
    std::copy(args.begin(), args.end(), s.args);
    bool rows = false, cols = false;
    for (int32_t a : args) {
      rows = rows || rows_[static_cast<size_t>(a)];
      cols = cols || cols_[static_cast<size_t>(a)];
    }
    push(s, rows, cols);
    return n_steps() - 1;
  }
  int32_t sum_of_row(int32_t value) {
    Step s;
    s.kind = StepKind::kReduceRow;
    s.op = OpKind::kReduceSum;
    s.dtype = step(value).dtype;
    s.args[0] = value;
    push(s, true, false);
    return n_steps() - 1;
  }

  // What a loss by integer targets does: x where the column is one of a row's own, else 0; summed,
  // or added to or subtracted from another value.
  void add_one_hot() {
    const auto x = value_like(DType::kF32), y = value_like(DType::kF32);
    if (!x || !y || rank() == 0) return;
    RowOperand positions{DType::kI32, Dims(rank(), 0)};
    std::vector<bool> wanted(rank());
    bool rows = false;
    for (size_t k = 0; k < rank(); ++k) {
      wanted[k] = is_row_dim(k) && !random_.chance(5);
      rows = rows || (wanted[k] && program().dims[k] != 1);
    }
    int64_t offset, span;
    positions.strides = make_strides(wanted, offset, span);
    case_.inputs.push_back(new_memory(DType::kI32, offset, span));
    Bytes& memory = case_.memory.back();
    for (size_t i = 0; i < memory.size() / 4; ++i) {
      const auto column = static_cast<int32_t>(random_.below(program().dims.back() + 4) - 2);
      std::memcpy(memory.data() + 4 * i, &column, 4);
    }
    program().inputs.push_back(positions);
    Step load, iota, zero;
    load.kind = StepKind::kLoad;
    iota.kind = StepKind::kIota;
    zero.kind = StepKind::kConstant;
    load.dtype = iota.dtype = DType::kI32;
    load.index = static_cast<int32_t>(program().inputs.size() - 1);
    iota.index = static_cast<int32_t>(rank() - 1);
    zero.dtype = DType::kF32;
    zero.imm = random_.chance(90) ? 0 : 0x80000000;
    push(load, rows, false);
    const int32_t target = n_steps() - 1;
    const bool is_row = is_row_dim(rank() - 1), varies = program().dims.back() != 1;
    push(iota, varies && is_row, varies && !is_row);
    const int32_t column = n_steps() - 1;
    push(zero, false, false);
    const int32_t none = n_steps() - 1;
    const bool swapped = random_.chance(50);
    const int32_t hit = compute(OpKind::kEq, DType::kBool,
                                {swapped ? target : column, swapped ? column : target});
    const int32_t hot = compute(OpKind::kSelect, DType::kF32, {hit, *x, none});
    const int32_t other =
        random_.chance(50) ? compute(OpKind::kMul, DType::kF32, {*x, *y}) : *y;
    if (random_.chance(30)) compute(OpKind::kConvert, DType::kF32, {hit});
    if (random_.chance(50)) sum_of_row(hot);
    if (random_.chance(50)) compute(OpKind::kSub, DType::kF32, {other, hot});
    else if (random_.chance(50)) compute(OpKind::kAdd, DType::kF32, {hot, other});
    else compute(OpKind::kAdd, DType::kF32, {other, hot});
  }

  // Sums whose terms one kernel makes on the way, read again later or not.
  void add_sum_of_terms() {
    const auto x = value_like(DType::kF32), y = value_like(DType::kF32),
               z = value_like(DType::kF32);
    if (!x || !y || !z) return;
    if (random_.chance(50)) {
      int32_t lower = *y;
      if (random_.chance(70)) {
        Step s;
        s.kind = StepKind::kReduceRow;
        s.op = OpKind::kReduceMax;
        s.dtype = DType::kF32;
        s.args[0] = *x;
        push(s, true, false);
        lower = n_steps() - 1;
      }
      const int32_t e =
          compute(OpKind::kExp, DType::kF32, {compute(OpKind::kSub, DType::kF32, {*x, lower})});
      const int32_t total = sum_of_row(e);
      if (random_.chance(60)) compute(OpKind::kDiv, DType::kF32, {e, total});
    } else {
      const int32_t inner = compute(OpKind::kMul, DType::kF32, {*x, *y});
      const int32_t term = random_.chance(50) ? compute(OpKind::kMul, DType::kF32, {inner, *z})
                                              : compute(OpKind::kMul, DType::kF32, {*z, inner});
      const int32_t total = sum_of_row(term);
      if (random_.chance(60)) compute(OpKind::kAdd, DType::kF32, {inner, total});
    }
  }

  // A comparison that one choice alone wants, of values or of a sum; or bounds from both sides.
  void add_choice() {
    const DType t = random_.pick({DType::kF32, DType::kI32, DType::kI32, DType::kBF16});
    const auto a = value_like(t), b = value_like(t), x = value_like(t);
    const auto y = value_like(random_.chance(70) ? t : DType::kF32);
    if (!a || !b || !x || !y) return;
    if (random_.chance(30)) {
      const bool up = random_.chance(50);
      const int32_t inner = compute(up ? OpKind::kMax : OpKind::kMin, t, {*a, *b});
      compute(up ? OpKind::kMin : OpKind::kMax, t, {inner, *x});
      return;
    }
    const OpKind test = random_.pick({OpKind::kEq, OpKind::kNe, OpKind::kLt, OpKind::kLt,
                                      OpKind::kLe, OpKind::kGt, OpKind::kGe});
    const int32_t sum = random_.chance(50) && step(*y).dtype == t
                            ? compute(OpKind::kAdd, t, {*b, *y})
                            : *y;
    const int32_t is = compute(test, DType::kBool, {*a, *b});
    compute(OpKind::kSelect, step(*y).dtype, {is, sum, *y});
    if (random_.chance(20)) compute(OpKind::kNot, DType::kBool, {is});
  }

  void add_step() {
    const int64_t kind = random_.below(100);
    if (kind < 8) return add_constant();
    if (kind < 12) return add_iota();
    if (kind < 22) return add_reduction();
    Step s;
    s.args[0] = any_value();
    const DType t = step(s.args[0]).dtype;
    s.dtype = t;
    if (kind < 32) {
      s.op = OpKind::kConvert;
      s.dtype = random_dtype();
    } else if (kind < 35) {
      s.op = OpKind::kBitcast;
      // From integers only: the bits of a computed NaN are nobody's promise.
      if (is_float(t) || t == DType::kBool) return;
      for (DType to : kAllDTypes)
        if (dtype_bytes(to) == dtype_bytes(t) && to != DType::kBool && random_.chance(50))
          s.dtype = to;
    } else if (kind < 42) {
      const auto condition = value_like(DType::kBool), other = value_like(t);
      if (!condition || !other) return;
      s.op = OpKind::kSelect;
      s.args[1] = s.args[0];
      s.args[0] = *condition;
      s.args[2] = *other;
    } else if (kind < 50) {
      const auto other = value_like(t);
      if (is_float(t) && random_.chance(20)) {
        s.op = OpKind::kIsFinite;
      } else {
        if (!other) return;
        s.args[1] = *other;
        s.op = random_.pick(
            {OpKind::kEq, OpKind::kNe, OpKind::kLt, OpKind::kLe, OpKind::kGt, OpKind::kGe});
      }
      s.dtype = DType::kBool;
    } else if (kind < 62) {
      if (is_float(t))
        s.op = random_.pick({OpKind::kNeg, OpKind::kAbs, OpKind::kSign, OpKind::kFloor,
                             OpKind::kCeil, OpKind::kRound, OpKind::kExp, OpKind::kTanh,
                             OpKind::kRsqrt, OpKind::kLogistic, OpKind::kLog, OpKind::kErf,
                             OpKind::kSin, OpKind::kSqrt});
      else if (t == DType::kBool)
        s.op = OpKind::kNot;
      else
        s.op = random_.pick({OpKind::kNeg, OpKind::kAbs, OpKind::kSign, OpKind::kNot});
    } else {
      const auto other = value_like(t);
      if (!other) return;
      s.args[1] = *other;
      if (is_float(t))
        s.op = random_.pick({OpKind::kAdd, OpKind::kSub, OpKind::kMul, OpKind::kMul, OpKind::kAdd,
                             OpKind::kDiv, OpKind::kMax, OpKind::kMin, OpKind::kPow, OpKind::kRem});
      else if (t == DType::kBool)
        s.op = random_.pick({OpKind::kAnd, OpKind::kOr, OpKind::kXor, OpKind::kMax, OpKind::kMin});
      else
        s.op = random_.pick({OpKind::kAdd, OpKind::kSub, OpKind::kMul, OpKind::kDiv, OpKind::kRem,
                             OpKind::kPow, OpKind::kMax, OpKind::kMin, OpKind::kAnd, OpKind::kOr,
                             OpKind::kXor, OpKind::kShiftLeft, OpKind::kShiftRight});
    }
    bool rows = false, cols = false;
    for (int32_t a : s.args)
      if (a >= 0) {
        rows = rows || rows_[static_cast<size_t>(a)];
        cols = cols || cols_[static_cast<size_t>(a)];
      }
    push(s, rows, cols);
  }

  void add_output() {
    const int32_t value = n_values_();
    RowOperand o;
    o.dtype = step(value).dtype;
    const bool columns = cols_[static_cast<size_t>(value)];
    Step s;
    s.dtype = o.dtype;
    s.args[0] = value;
    s.index = static_cast<int32_t>(program().outputs.size());
    s.kind = StepKind::kStore;
    std::vector<bool> wanted(rank(), true);
    if (random_.chance(25) && o.dtype != DType::kBool) {
      s.kind = StepKind::kReduceColumns;
      s.op = random_.pick({OpKind::kReduceSum, OpKind::kReduceMax});
    }
    for (size_t k = 0; k < rank(); ++k) {
      if (s.kind == StepKind::kReduceColumns && is_row_dim(k) &&
          static_cast<int>(k) >= program().n_group_dims)
        wanted[k] = false;
      if (s.kind == StepKind::kStore && !columns && !is_row_dim(k) && narrow_) wanted[k] = false;
    }
    narrow_ = !narrow_;
    // Over an input, element for element, if one has that width and a place for every point.
    std::optional<size_t> over;
    if (s.kind == StepKind::kStore && random_.chance(60))
      for (size_t k = 0; k < program().inputs.size(); ++k) {
        const RowOperand& in = program().inputs[k];
        bool fits = dtype_bytes(in.dtype) == dtype_bytes(o.dtype) && !taken(k);
        for (size_t i = 0; i < rank(); ++i)
          fits = fits && (program().dims[i] == 1 || (in.strides[i] != 0) == wanted[i]);
        if (fits) over = k;
      }
    int64_t offset = 0, span = 0;
    if (over) {
      o.strides = program().inputs[*over].strides;
      case_.outputs.push_back(case_.inputs[*over]);
    } else {
      o.strides = make_strides(wanted, offset, span);
      case_.outputs.push_back(new_memory(o.dtype, offset, span));
    }
    program().outputs.push_back(o);
    push(s, false, false);
    stores_ += 1;
  }
  // A value (not a store), the last ones preferred.
  int32_t n_values_() {
    const int64_t n = n_steps() - stores_;
    return static_cast<int32_t>(n - 1 - std::min(random_.below(n), random_.below(n)));
  }
  bool taken(size_t input) {
    for (const Case::Where& w : case_.outputs)
      if (w.memory == case_.inputs[input].memory) return true;
    return false;
  }

  Random random_;
  bool long_rows_;
  bool narrow_ = true;
  int32_t stores_ = 0;
  Case case_;
  std::vector<bool> rows_, cols_;
};

void check(uint64_t first_seed, int n, bool long_rows) {
  for (uint64_t seed = first_seed; seed < first_seed + static_cast<uint64_t>(n); ++seed) {
    const Case c = Generator(seed, long_rows).make();
    std::vector<Bytes> want = c.memory;
    const Pointers p = pointers(c, want);
    run_row_program_reference(c.program, p.inputs, p.outputs);
    for (int threads : {1, 2, 3}) {
      const RowOverlaps known = threads == 1 ? RowOverlaps() : overlaps_of(c);
      ASSERT_TRUE(same(c, run(c, threads, known), want))
          << "seed " << seed << ", " << threads << " threads\n"
          << describe(c.program);
      ASSERT_TRUE(runner_agrees(c, threads, want, known))
          << "seed " << seed << ", " << threads << " threads\n"
          << describe(c.program);
    }
  }
}

TEST(RowProgramRandom, SmallSpacesAgreeWithTheReference) {
  check(1, 4000, false);
}
TEST(RowProgramRandom, LongRowsAgreeWithTheReference) {
  check(100000, 200, true);
  const AllEveryday everyday;
  check(150000, 100, true);
}
TEST(RowProgramRandom, EveryTargetAgreesWithTheReference) {
  with_other_targets([] {
    check(200000, 1000, false);
    check(300000, 60, true);
  });
}

// x [3][heads][n][cols] times factors of its own, and backwards along n times others of a token;
// what stands in `over` is added, over which the result lies, and column numbers are.
Case turned_case(DType t, int64_t heads, int64_t n, int64_t cols, uint64_t seed) {
  Case c;
  Random random(seed);
  const int64_t tokens = 3, elems = tokens * heads * n * cols, size = dtype_bytes(t);
  c.memory = {random_bytes(random, t, elems), random_bytes(random, t, tokens * cols),
              random_bytes(random, t, tokens * n * cols), random_bytes(random, t, elems)};
  RowProgram& p = c.program;
  p.dims = {tokens, heads, n, cols};
  p.n_row_dims = 3;
  const Dims whole = {heads * n * cols, n * cols, cols, 1};
  p.inputs = {{t, whole},
              {t, {whole[0], whole[1], -cols, 1}},
              {t, {cols, 0, 0, 1}},
              {t, {n * cols, 0, cols, 1}},
              {t, whole}};
  c.inputs = {{0, 0}, {0, (n - 1) * cols * size}, {1, 0}, {2, 0}, {3, 0}};
  p.outputs = {{t, whole}};
  c.outputs = {{3, 0}};
  const auto step = [&](StepKind kind, OpKind op, int32_t index, int32_t a = -1, int32_t b = -1) {
    Step s;
    s.kind = kind, s.op = op, s.dtype = t, s.index = index, s.args[0] = a, s.args[1] = b;
    p.steps.push_back(s);
    return static_cast<int32_t>(p.steps.size() - 1);
  };
  int32_t x[5];
  for (int32_t k = 0; k < 5; ++k) x[k] = step(StepKind::kLoad, OpKind::kAdd, k);
  const int32_t straight = step(StepKind::kCompute, OpKind::kMul, 0, x[0], x[2]);
  const int32_t turned = step(StepKind::kCompute, OpKind::kMul, 0, x[1], x[3]);
  int32_t sum = step(StepKind::kCompute, OpKind::kAdd, 0, straight, turned);
  sum = step(StepKind::kCompute, OpKind::kSub, 0, sum, step(StepKind::kIota, OpKind::kAdd, 3));
  sum = step(StepKind::kCompute, OpKind::kAdd, 0, sum, x[4]);
  step(StepKind::kStore, OpKind::kAdd, 0, sum);
  return c;
}

RowProgram unrolled(const RowProgram& program) {
  const auto made = unroll_reversed(program);
  return made ? made->program : program;
}

void check_turned() {
  for (DType t : {DType::kF32, DType::kBF16})
    for (int64_t n : {2, 3, 5})
      for (int64_t heads : {1, 5, 12})
        for (int64_t cols : {1, 7, 16, 32, 33, 64, 100}) {
          const Case c = turned_case(t, heads, n, cols, static_cast<uint64_t>(n * heads * cols));
          // Of three and more there would be too many operands.
          EXPECT_EQ(unrolled(c.program).dims.size(), n == 2 ? 3u : 4u);
          std::vector<Bytes> want = c.memory;
          const Pointers p = pointers(c, want);
          run_row_program_reference(c.program, p.inputs, p.outputs);
          for (int threads : {1, 2}) {
            ASSERT_TRUE(same(c, run(c, threads), want)) << describe(c.program);
            ASSERT_TRUE(runner_agrees(c, threads, want)) << describe(c.program);
          }
        }
}

TEST(RowProgramTurned, AShortDimensionThatIsReadBackwardsIsUnrolledAndKeepsTheBits) {
  check_turned();
}
TEST(RowProgramTurned, OfEveryTargetKeepsTheBits) {
  with_other_targets(check_turned);
}

TEST(RowProgramTurned, IsLeftWhereItIsReducedOrCountedOrLong) {
  Case c = turned_case(DType::kF32, 4, 2, 16, 1);
  c.program.inputs[1].strides[2] = 16;  // not backwards
  EXPECT_EQ(unrolled(c.program), c.program);
  c = turned_case(DType::kF32, 4, 2, 16, 1);
  for (Step& s : c.program.steps)
    if (s.kind == StepKind::kIota) s.index = 2;
  EXPECT_EQ(unrolled(c.program), c.program);
  c = turned_case(DType::kF32, 4, 6, 16, 1);
  EXPECT_EQ(unrolled(c.program), c.program);
  c = turned_case(DType::kF32, 4, 2, 16, 1);
  Step& last = c.program.steps.back();
  last.kind = StepKind::kReduceRow, last.op = OpKind::kReduceSum;
  EXPECT_EQ(unrolled(c.program), c.program);
}

// As if no cache held anything: results go past them wherever they may.
TEST(RowProgramStreams, LeaveTheSameBits) {
  const auto may_stream = [](const RowProgram& program) {
    return compile_row_plan(program, false).operands[program.inputs.size()].may_stream;
  };
  EXPECT_TRUE(may_stream(gate_program(DType::kBF16, {3, 4096}, true, false)));
  EXPECT_TRUE(may_stream(gate_program(DType::kF32, {3, 48}, true, false)));
  EXPECT_FALSE(may_stream(gate_program(DType::kBF16, {3, 48}, true, false))) << "rows of 96 bytes";
  set_least_streamed_bytes(1);
  const auto check_all = [] {
    check_gates({{16, 4096}, {33, 96}, {2048, 32}, {1, 65535}, {5, 1136}});
    check(400000, 1000, false);
    check(500000, 60, true);
    check_turned();
  };
  check_all();
  with_other_targets(check_all);
  set_least_streamed_bytes(0);
}

// Where memory is fetched ahead and where it is left to the machine, as neither has both by itself.
TEST(RowProgramFetching, LeavesTheSameBits) {
  for (const bool left_alone : {false, true}) {
    set_prefers_hardware_prefetch(left_alone);
    const RowPlan plan =
        compile_row_plan(gate_program(DType::kBF16, {1, 200000}, true, false), false);
    EXPECT_EQ(plan.fetches, !left_alone);
    check_gates({{1, 200000}, {3, 70001}});
    check(600000, 1000, false);
    check(700000, 60, true);
    check_turned();
  }
  set_prefers_hardware_prefetch(std::nullopt);
}

}  // namespace
}  // namespace stow::cpu
