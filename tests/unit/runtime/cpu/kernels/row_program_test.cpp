#include "stowage/runtime/cpu/kernels/row_program.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"
#include "stowage/runtime/cpu/kernels/row_unroll.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/row_program_reference.h"
#include "tests/support/on_target.h"

namespace stow::cpu {
namespace {

// Every array at the begin of a cache line.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};
using Bytes = std::vector<std::byte, LineAllocator<std::byte>>;

// A random row program with the memory of its operands.
struct Case {
  RowProgram program;
  std::vector<Bytes> memory;
  struct Where {
    size_t memory;
    int64_t offset_bytes;
  };
  std::vector<Where> inputs, outputs;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  uint64_t bits() { return engine_(); }
  template <typename T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int64_t>(list.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

constexpr DType kAllDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                                DType::kI64, DType::kI32, DType::kI8,   DType::kU64,
                                DType::kU32, DType::kU8,  DType::kBool};

uint64_t float_bits(DType t, double x) {
  switch (t) {
    case DType::kF64:
      return std::bit_cast<uint64_t>(x);
    case DType::kBF16:
      return f32_to_bf16(static_cast<float>(x));
    case DType::kF16:
      return f32_to_f16(static_cast<float>(x));
    default:
      return std::bit_cast<uint32_t>(static_cast<float>(x));
  }
}

// While it lives, floats are of everyday size alone: what one NaN of a long row would hide.
bool g_all_everyday = false;
struct AllEveryday {
  explicit AllEveryday(bool all = true) { g_all_everyday = all; }
  ~AllEveryday() { g_all_everyday = false; }
  AllEveryday(const AllEveryday&) = delete;
  AllEveryday& operator=(const AllEveryday&) = delete;
};

// Mostly of everyday size, now and then special.
uint64_t random_element(Random& random, DType t) {
  if (t == DType::kBool) return random.bits() & 1;
  if (!is_float(t)) {
    const int64_t small = random.below(200) - 100;
    return random.chance(80)
               ? static_cast<uint64_t>(small)
               : random.pick<uint64_t>({0, 1, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 31,
                                        0x80, 0x7f, random.bits()});
  }
  const double inf = std::numeric_limits<double>::infinity();
  if (!g_all_everyday && random.chance(3))
    return float_bits(t, random.pick({0.0, -0.0, 1.0, -1.0, inf, -inf, std::nan(""), 1e-40, 1e30,
                                      -1e-45, 65520.0, 6e-8}));
  const double unit = static_cast<double>(random.below(1 << 24)) / (1 << 22) - 2;
  return float_bits(t, !g_all_everyday && random.chance(10) ? unit * 1000 : unit);
}

bool is_nan(const std::byte* p, DType t) {
  uint64_t bits = 0;
  std::memcpy(&bits, p, static_cast<size_t>(dtype_bytes(t)));
  switch (t) {
    case DType::kF64:
      return (bits & ~(uint64_t{1} << 63)) > 0x7ff0000000000000;
    case DType::kF32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case DType::kBF16:
      return (bits & 0x7fff) > 0x7f80;
    case DType::kF16:
      return (bits & 0x7fff) > 0x7c00;
    default:
      return false;
  }
}

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
    const auto x = value_like(DType::kF32), y = value_like(DType::kF32), z = value_like(DType::kF32);
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
      const int32_t e = compute(OpKind::kExp, DType::kF32, {compute(OpKind::kSub, DType::kF32, {*x, lower})});
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
    const OpKind test = random_.pick(
        {OpKind::kEq, OpKind::kNe, OpKind::kLt, OpKind::kLt, OpKind::kLe, OpKind::kGt, OpKind::kGe});
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

std::string describe(const RowProgram& p) {
  std::string text = "dims";
  for (size_t k = 0; k < p.dims.size(); ++k)
    text += fmt::format("{}{}{}", static_cast<int>(k) == p.n_group_dims && k > 0 ? " /" : "",
                        static_cast<int>(k) == p.n_row_dims ? " | " : " ", p.dims[k]);
  const auto operand = [](const RowOperand& o) {
    std::string t = fmt::format(" {}(", dtype_name(o.dtype));
    for (int64_t s : o.strides) t += fmt::format(" {}", s);
    return t + " )";
  };
  for (const RowOperand& o : p.inputs) text += "\nin" + operand(o);
  for (const RowOperand& o : p.outputs) text += "\nout" + operand(o);
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    constexpr const char* kKinds[] = {"load",       "constant",       "iota", "compute",
                                      "reduce_row", "reduce_columns", "store"};
    text += fmt::format("\n%{} = {} {} {} #{} ({} {} {}) {:#x}", i,
                        kKinds[static_cast<size_t>(s.kind)], op_name(s.op), dtype_name(s.dtype),
                        s.index, s.args[0], s.args[1], s.args[2], s.imm);
  }
  return text;
}

struct Pointers {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
};
Pointers pointers(const Case& c, std::vector<Bytes>& memory) {
  Pointers p;
  for (const Case::Where& w : c.inputs)
    p.inputs.push_back(memory[w.memory].data() + w.offset_bytes);
  for (const Case::Where& w : c.outputs)
    p.outputs.push_back(memory[w.memory].data() + w.offset_bytes);
  return p;
}

// Calls run(memory, scratch) with memory as in the beginning and scratch of exactly the bytes asked for,
// between canaries; returns the memory.
template <typename Run>
std::vector<Bytes> run_guarded(const Case& c, int64_t scratch_bytes, Run&& run) {
  std::vector<Bytes> memory = c.memory;
  const auto bytes = static_cast<size_t>(scratch_bytes);
  constexpr size_t kGuard = 256;
  Bytes scratch(bytes + 3 * kGuard, std::byte{0xa5});
  auto* begin = reinterpret_cast<std::byte*>(
      (reinterpret_cast<uintptr_t>(scratch.data()) + kGuard + 63) / 64 * 64);
  run(pointers(c, memory), begin);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(begin[-1 - static_cast<ptrdiff_t>(i)], std::byte{0xa5}) << "before the scratch";
    EXPECT_EQ(begin[bytes + i], std::byte{0xa5}) << "after the scratch";
  }
  return memory;
}

// What there is to know of the memory of a case before its addresses are.
RowOverlaps overlaps_of(const Case& c) {
  RowOverlaps overlaps(c.outputs.size(), c.inputs.size());
  for (size_t k = 0; k < c.outputs.size(); ++k)
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const Case::Where &out = c.outputs[k], &in = c.inputs[i];
      if (out.memory != in.memory)
        overlaps.set(k, i, Overlap::kNever);
      else if (out.offset_bytes == in.offset_bytes)
        overlaps.set(k, i, Overlap::kAlways);
    }
  return overlaps;
}

std::vector<Bytes> run(const Case& c, int threads, const RowOverlaps& overlaps = {}) {
  const CompiledRowProgram compiled(c.program, overlaps);
  return run_guarded(c, compiled.scratch_bytes(threads), [&](const Pointers& p, std::byte* scratch) {
    compiled.run(p.inputs, p.outputs, scratch, threads);
  });
}

// Whether all memory is alike, NaNs of an output being equal to one another.
::testing::AssertionResult same(const Case& c, const std::vector<Bytes>& got,
                                const std::vector<Bytes>& want) {
  for (size_t m = 0; m < got.size(); ++m) {
    DType t = DType::kU8;
    for (size_t k = 0; k < c.outputs.size(); ++k)
      if (c.outputs[k].memory == m) t = c.program.outputs[k].dtype;
    const int64_t size = dtype_bytes(t);
    for (int64_t i = 0; i + size <= static_cast<int64_t>(got[m].size()); i += size) {
      const std::byte *a = got[m].data() + i, *b = want[m].data() + i;
      if (std::memcmp(a, b, static_cast<size_t>(size)) == 0 || (is_nan(a, t) && is_nan(b, t)))
        continue;
      uint64_t x = 0, y = 0;
      std::memcpy(&x, a, static_cast<size_t>(size));
      std::memcpy(&y, b, static_cast<size_t>(size));
      return ::testing::AssertionFailure()
             << "memory " << m << " element " << i / size << " of " << dtype_name(t) << ": "
             << std::hex << x << " not " << y;
    }
  }
  return ::testing::AssertionSuccess();
}

// A runner gives the bits of `want` wherever the memory lies, and wherever that of the run before did.
::testing::AssertionResult runner_agrees(const Case& c, int threads, const std::vector<Bytes>& want,
                                         const RowOverlaps& overlaps = {}) {
  RowProgramRunner runner(c.program, threads, overlaps);
  const int64_t bytes = CompiledRowProgram(c.program, overlaps).scratch_bytes(threads);
  std::vector<std::vector<Bytes>> results;  // all kept, so that no two runs have the same addresses
  for (int i = 0; i < 3; ++i) {
    results.push_back(run_guarded(c, bytes, [&](const Pointers& p, std::byte* scratch) {
      runner.run(p.inputs, p.outputs, scratch);
    }));
    if (auto alike = same(c, results.back(), want); !alike) return alike << ", run " << i;
  }
  return ::testing::AssertionSuccess();
}

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
// The instruction sets that a machine has beside its best, and what stands for those without any.
void with_other_targets(void (*f)()) {
  for (int64_t target : {int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
    if (target != int64_t{HWY_EMU128} && (hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    const OnTarget held(target);
    f();
  }
}
TEST(RowProgramRandom, EveryTargetAgreesWithTheReference) {
  with_other_targets([] {
    check(200000, 1000, false);
    check(300000, 60, true);
  });
}

// Writes a program step by step over arrays of one dtype, whole unless said otherwise.
class Writer {
 public:
  Writer(DType t, const Dims& dims) : whole_{t, {dims[1], 1}} {
    p_.dims = dims;
    p_.n_row_dims = 1;
  }
  int32_t load() { return load(whole_); }
  int32_t load(const RowOperand& from) {
    p_.inputs.push_back(from);
    return add(StepKind::kLoad, OpKind::kAdd, -1, -1, p_.inputs.size() - 1);
  }
  int32_t one() { return constant(1); }
  int32_t constant(float x) {
    const int32_t s = add(StepKind::kConstant, OpKind::kAdd, -1, -1, 0);
    p_.steps.back().imm = float_bits(whole_.dtype, x);
    return s;
  }
  int32_t test(OpKind op, int32_t a, int32_t b) {  // bool
    const int32_t s = compute(op, a, b);
    p_.steps.back().dtype = DType::kBool;
    return s;
  }
  int32_t select(int32_t condition, int32_t a, int32_t b) {
    const int32_t s = compute(OpKind::kSelect, condition, a);
    p_.steps.back().args[2] = b;
    return s;
  }
  int32_t compute(OpKind op, int32_t a, int32_t b = -1) {
    return add(StepKind::kCompute, op, a, b, 0);
  }
  int32_t sum(int32_t value) { return reduce(OpKind::kReduceSum, value); }
  int32_t reduce(OpKind op, int32_t value) { return add(StepKind::kReduceRow, op, value, -1, 0); }
  void store(int32_t value) { write(StepKind::kStore, value, whole_); }
  void store_sums(int32_t value) {
    write(StepKind::kReduceColumns, value, {whole_.dtype, {0, 1}});
  }
  RowProgram done() { return std::move(p_); }

 private:
  int32_t add(StepKind kind, OpKind op, int32_t a, int32_t b, size_t index) {
    Step s;
    s.kind = kind;
    s.op = op;
    s.dtype = whole_.dtype;
    s.args[0] = a;
    s.args[1] = b;
    s.index = static_cast<int32_t>(index);
    p_.steps.push_back(s);
    return static_cast<int32_t>(p_.steps.size() - 1);
  }
  void write(StepKind kind, int32_t value, const RowOperand& to) {
    add(kind, OpKind::kReduceSum, value, -1, p_.outputs.size());
    p_.outputs.push_back(to);
  }

  RowProgram p_;
  RowOperand whole_;
};

Bytes random_bytes(Random& random, DType t, int64_t n) {
  const auto size = static_cast<size_t>(dtype_bytes(t));
  Bytes b(static_cast<size_t>(n) * size);
  for (size_t i = 0; i < b.size(); i += size) {
    const uint64_t e = random_element(random, t);
    std::memcpy(b.data() + i, &e, size);
  }
  return b;
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

// silu(gate) * up, or silu(gate) alone. `apart`: every step is stored, so that each has a kernel of
// its own.
RowProgram gate_program(DType t, const Dims& dims, bool has_up, bool apart) {
  Writer w(t, dims);
  const int32_t gate = w.load(), logistic = w.compute(OpKind::kLogistic, gate);
  const int32_t silu = w.compute(OpKind::kMul, gate, logistic);
  w.store(has_up ? w.compute(OpKind::kMul, silu, w.load()) : silu);
  if (apart) {
    w.store(logistic);
    if (has_up) w.store(silu);
  }
  return w.done();
}

// Every gate of the halves, and as many others of f32, where a space is of 65536.
void check_gates(const std::vector<Dims>& spaces) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16})
    for (const Dims& dims : spaces)
      for (const bool has_up : {false, true}) {
        Case c;
        const int64_t n = dims[0] * dims[1];
        Random random(7);
        Bytes gate = random_bytes(random, t, n), up = random_bytes(random, t, n);
        for (int64_t i = 0; i < n && t != DType::kF32; ++i) {
          const auto x = static_cast<uint16_t>(i);
          std::memcpy(gate.data() + i * 2, &x, 2);
        }
        const size_t bytes = gate.size();
        c.memory = {gate, up, Bytes(bytes), Bytes(bytes), Bytes(bytes)};
        c.inputs = {{0, 0}, {1, 0}};
        if (!has_up) c.inputs.pop_back();
        c.outputs = {{2, 0}};
        c.program = gate_program(t, dims, has_up, false);
        Case apart = c;
        apart.program = gate_program(t, dims, has_up, true);
        for (size_t k = 1; k < apart.program.outputs.size(); ++k)
          apart.outputs.push_back({2 + k, 0});
        std::vector<Bytes> want = run(apart, 1), got = run(c, 1);
        want.resize(3);
        got.resize(3);
        ASSERT_TRUE(same(c, got, want)) << dtype_name(t) << " " << describe(c.program);
        for (size_t over = 0; over < c.inputs.size(); ++over) {
          c.outputs = {{over, 0}};
          got = run(c, 2);
          got[2] = got[over];
          got[over] = want[over];
          got.resize(3);
          c.outputs = {{2, 0}};
          ASSERT_TRUE(same(c, got, want))
              << "over " << over << ", " << dtype_name(t) << " " << describe(c.program);
        }
      }
}

TEST(RowProgramGate, IsOneKernelWithTheBitsOfThree) {
  check_gates({{16, 4096}, {2048, 32}, {1, 65535}, {65536 / 129, 129}, {5, 63}, {65536, 1}});
}
TEST(RowProgramGate, OfEveryTargetIsOneKernelWithTheBitsOfThree) {
  with_other_targets([] { check_gates({{16, 4096}}); });
}

// hypot(a, b) as the public header writes it out. `stored`: bits that say which of the larger magnitude,
// the ratio and |a| are results as well.
RowProgram hypot_program(const Dims& dims, bool turned, int stored) {
  Writer w(DType::kF32, dims);
  const int32_t x = w.compute(OpKind::kAbs, w.load()), y = w.compute(OpKind::kAbs, w.load());
  const int32_t inf = w.constant(std::numeric_limits<float>::infinity());
  const int32_t most = w.compute(OpKind::kMax, x, y);
  const int32_t least = turned ? w.compute(OpKind::kMin, y, x) : w.compute(OpKind::kMin, x, y);
  const int32_t is_zero = w.test(OpKind::kEq, most, w.constant(0));
  const int32_t ratio = w.compute(OpKind::kDiv, least, w.select(is_zero, w.one(), most));
  const int32_t square = w.compute(OpKind::kMul, ratio, ratio), one = w.one();
  const int32_t sum = turned ? w.compute(OpKind::kAdd, square, one) : w.compute(OpKind::kAdd, one, square);
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
    for (OpKind test : {OpKind::kEq, OpKind::kNe, OpKind::kLt, OpKind::kLe, OpKind::kGt, OpKind::kGe}) {
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

// Sums over the first and the last axis of three read the runs of the last where they lie, and add in the order
// of one row.
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
  check_sums_of_runs({{2, 3, 31}, {2, 3, 32}, {7, 40, 33}, {60, 100, 100}, {5, 70, 129}, {2, 9, 4096},
                      {3, 2, 5000}, {130, 64, 47}});
}
TEST(RowProgramRuns, OfEveryTargetSumInTheOrderOfARow) {
  with_other_targets([] {
    const AllEveryday everyday;
    check_sums_of_runs({{7, 40, 33}, {60, 100, 100}, {2, 3, 5000}});
  });
}

// Copies of any strides: turned, reversed, repeated, spread out. Extents that fill blocks of vectors and
// do not, for elements of every size.
TEST(RowProgramCopy, OfAnyStridesIsTheReference) {
  struct Layout {
    Dims dims, to, from;
    int64_t first;  // element of the input
  };
  std::vector<Layout> layouts;
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{64, 64}, {37, 53}, {3, 4099}, {4099, 3},
                                   {130, 18}, {5, 5}, {1000, 7}}) {
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

// Registers too are turned block by block: an operand that is read down its columns, beside one that is not.
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

// Output k in memory places[k]: the reference's, by one thread and by two.
void check_outputs_at(Case& c, std::span<const size_t> places) {
  c.outputs.clear();
  for (size_t k = 0; k < c.program.outputs.size(); ++k) c.outputs.push_back({places[k], 0});
  std::vector<Bytes> want = c.memory;
  const Pointers at = pointers(c, want);
  run_row_program_reference(c.program, at.inputs, at.outputs);
  for (int threads : {1, 2})
    ASSERT_TRUE(same(c, run(c, threads), want)) << "over " << places[0] << " " << describe(c.program);
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

// n gradients, all scaled before the first of them is stored: times a factor over itself, and its square
// times a factor.
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

// The steps of a norm's gradient: a sum of squares beside one of products by the same values, column
// sums of products of two values and of three, one of them a value of each row, and twice a product
// added to a sum and to a product. `keeps`: what the sum of products multiplies is read again.
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
  check_whole_norm_gradients({{37, 129}, {5, 1024}, {64, 16}, {301, 7}, {1, 33}, {18, 5000}, {3, 9000}});
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
