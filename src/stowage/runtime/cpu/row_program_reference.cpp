#include "stowage/runtime/cpu/row_program_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"
#include "stowage/runtime/cpu/kernels/simd_math.h"

namespace stow::cpu {
namespace {

// A value: `f` if its dtype is a float, else `i` (u64 as its bits, bool 0 or 1).
struct Cell {
  double f = 0;
  int64_t i = 0;
};

uint64_t bits_of(int64_t x) {
  return static_cast<uint64_t>(x);
}

// To a float of one sign bit, `mantissa` bits and the rest of 16 exponent, to nearest even.
uint16_t encode16(long double x, int mantissa) {
  const int exponent_bits = 15 - mantissa, bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  const uint32_t inf = ((1u << exponent_bits) - 1) << mantissa;
  if (std::isnan(x)) return static_cast<uint16_t>(sign | inf | 1u << (mantissa - 1));
  const long double magnitude = std::fabs(x);
  if (std::isinf(x)) return static_cast<uint16_t>(sign | inf);
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  if (exponent > bias) return static_cast<uint16_t>(sign | inf);
  const auto quotient =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa - exponent)));
  const uint32_t bits = (static_cast<uint32_t>(exponent + bias - 1) << mantissa) + quotient;
  return static_cast<uint16_t>(sign | std::min(bits, inf));
}
double decode16(uint16_t bits, int mantissa) {
  const int exponent_bits = 15 - mantissa, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa, low = bits & ((1 << mantissa) - 1);
  double x;
  if (exponent == (1 << exponent_bits) - 1)
    x = low != 0 ? std::numeric_limits<double>::quiet_NaN()
                 : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    x = std::ldexp(low, 1 - bias - mantissa);
  else
    x = std::ldexp((1 << mantissa) + low, exponent - bias - mantissa);
  return (bits & 0x8000) != 0 ? -x : x;
}
int mantissa_of(DType t) {
  return t == DType::kBF16 ? 7 : 10;
}

template <typename T>
T read(const std::byte* p) {
  T x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
template <typename T>
void write(std::byte* p, T x) {
  std::memcpy(p, &x, sizeof(x));
}

Cell load(const std::byte* p, DType t) {
  switch (t) {
    case DType::kF64:
      return {.f = read<double>(p)};
    case DType::kF32:
      return {.f = double{read<float>(p)}};
    case DType::kBF16:
    case DType::kF16:
      return {.f = decode16(read<uint16_t>(p), mantissa_of(t))};
    case DType::kI64:
    case DType::kU64:
      return {.i = read<int64_t>(p)};
    case DType::kI32:
      return {.i = read<int32_t>(p)};
    case DType::kI8:
      return {.i = read<int8_t>(p)};
    case DType::kU32:
      return {.i = read<uint32_t>(p)};
    case DType::kU8:
      return {.i = read<uint8_t>(p)};
    case DType::kBool:
      return {.i = read<uint8_t>(p) != 0};
  }
  return {};
}
void store(std::byte* p, DType t, const Cell& x) {
  switch (t) {
    case DType::kF64:
      return write(p, x.f);
    case DType::kF32:
      return write(p, static_cast<float>(x.f));
    case DType::kBF16:
    case DType::kF16:
      return write(p, encode16(x.f, mantissa_of(t)));
    case DType::kI64:
    case DType::kU64:
      return write(p, x.i);
    case DType::kI32:
    case DType::kU32:
      return write(p, static_cast<uint32_t>(x.i));
    case DType::kI8:
    case DType::kU8:
      return write(p, static_cast<uint8_t>(x.i));
    case DType::kBool:
      return write(p, static_cast<uint8_t>(x.i != 0));
  }
}

double round_to(DType t, long double x) {
  switch (t) {
    case DType::kF64:
      return static_cast<double>(x);
    case DType::kF32:
      return static_cast<float>(x);
    default:
      return decode16(encode16(x, mantissa_of(t)), mantissa_of(t));
  }
}
// Wrapped to the integer type.
int64_t wrap(DType t, int64_t x) {
  std::byte bytes[8];
  if (t == DType::kBool) return x & 1;
  store(bytes, t, {.i = x});
  return load(bytes, t).i;
}

bool is_nan(double x) {
  return x != x;
}
double maximum(double a, double b) {
  if (is_nan(a) || is_nan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
double minimum(double a, double b) {
  return -maximum(-a, -b);
}

// Functions that f32 computes in double too; none where `op` is no such function.
std::optional<double> rare_f64(OpKind op, double a, double b) {
  if (op == OpKind::kTan) return std::tan(a);
  if (op == OpKind::kAsin) return std::asin(a);
  if (op == OpKind::kAcos) return std::acos(a);
  if (op == OpKind::kAtan) return std::atan(a);
  if (op == OpKind::kSinh) return std::sinh(a);
  if (op == OpKind::kCosh) return std::cosh(a);
  if (op == OpKind::kAsinh) return std::asinh(a);
  if (op == OpKind::kAcosh) return std::acosh(a);
  if (op == OpKind::kAtanh) return std::atanh(a);
  if (op == OpKind::kCbrt) return std::cbrt(a);
  if (op == OpKind::kAtan2) return std::atan2(a, b);
  return std::nullopt;
}

double math_f64(OpKind op, double a, double b) {
  if (op == OpKind::kExp) return std::exp(a);
  if (op == OpKind::kExpm1) return std::expm1(a);
  if (op == OpKind::kLog) return std::log(a);
  if (op == OpKind::kLog1p) return std::log1p(a);
  if (op == OpKind::kTanh) return std::tanh(a);
  if (op == OpKind::kSin) return std::sin(a);
  if (op == OpKind::kCos) return std::cos(a);
  if (op == OpKind::kSqrt) return std::sqrt(a);
  if (op == OpKind::kRsqrt) return 1 / std::sqrt(a);
  if (op == OpKind::kLogistic)
    return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
  if (op == OpKind::kErf) return std::erf(a);
  if (op == OpKind::kErfc) return std::erfc(a);
  if (op == OpKind::kErfInv) return scalar::erf_inv(a);
  return std::pow(a, b);
}

// In double, which holds the result of one operation on floats closely enough that rounding it to
// f32 is rounding the exact one.
double float_op(OpKind op, bool is_f64, double a, double b) {
  if (is_math_op(op) && !is_f64) {
    const auto x = static_cast<float>(a), y = static_cast<float>(b);
    float z;
    apply_math_f32(op, &x, &y, &z, 1);
    return z;
  }
  if (const auto y = rare_f64(op, a, b)) return *y;
  if (op == OpKind::kRem) return std::fmod(a, b);
  if (is_math_op(op)) return math_f64(op, a, b);
  if (op == OpKind::kNeg) return -a;
  if (op == OpKind::kAbs) return std::fabs(a);
  if (op == OpKind::kSign) return a > 0 ? 1 : a < 0 ? -1 : a;
  if (op == OpKind::kFloor) return std::floor(a);
  if (op == OpKind::kCeil) return std::ceil(a);
  if (op == OpKind::kRound) return std::nearbyint(a);
  if (op == OpKind::kAdd) return a + b;
  if (op == OpKind::kSub) return a - b;
  if (op == OpKind::kMul) return a * b;
  if (op == OpKind::kDiv) return a / b;
  if (op == OpKind::kMax) return maximum(a, b);
  if (op == OpKind::kMin) return minimum(a, b);
  STOW_CHECK(false, "{} of floats", op_name(op));
  return 0;
}

int64_t int_op(OpKind op, DType t, int64_t a, int64_t b) {
  const bool is_signed = is_signed_int(t);
  const int64_t width = t == DType::kBool ? 1 : 8 * dtype_bytes(t);
  const bool less = is_signed ? a < b : bits_of(a) < bits_of(b);
  if (op == OpKind::kNeg) return static_cast<int64_t>(0 - bits_of(a));
  if (op == OpKind::kAbs) return is_signed && a < 0 ? static_cast<int64_t>(0 - bits_of(a)) : a;
  if (op == OpKind::kSign) return a == 0 ? 0 : is_signed && a < 0 ? -1 : 1;
  if (op == OpKind::kNot) return ~a;
  const uint64_t own_bits = bits_of(a) & (~uint64_t{0} >> (64 - width));
  if (op == OpKind::kPopulationCount) return std::popcount(own_bits);
  if (op == OpKind::kCountLeadingZeros) return std::countl_zero(own_bits) - (64 - width);
  if (op == OpKind::kAdd) return static_cast<int64_t>(bits_of(a) + bits_of(b));
  if (op == OpKind::kSub) return static_cast<int64_t>(bits_of(a) - bits_of(b));
  if (op == OpKind::kMul) return static_cast<int64_t>(bits_of(a) * bits_of(b));
  if (op == OpKind::kDiv) {
    if (b == 0) return -1;
    if (!is_signed) return static_cast<int64_t>(bits_of(a) / bits_of(b));
    return b == -1 ? static_cast<int64_t>(0 - bits_of(a)) : a / b;
  }
  if (op == OpKind::kRem) {
    if (b == 0) return a;
    if (!is_signed) return static_cast<int64_t>(bits_of(a) % bits_of(b));
    return b == -1 ? 0 : a % b;
  }
  if (op == OpKind::kPow) {
    if (is_signed && b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
    uint64_t y = 1, base = bits_of(a);
    for (uint64_t n = bits_of(b); n > 0; n >>= 1, base *= base)
      if ((n & 1) != 0) y *= base;
    return static_cast<int64_t>(y);
  }
  if (op == OpKind::kMax) return less ? b : a;
  if (op == OpKind::kMin) return less ? a : b;
  if (op == OpKind::kAnd) return a & b;
  if (op == OpKind::kOr) return a | b;
  if (op == OpKind::kXor) return a ^ b;
  const bool beyond = bits_of(b) >= bits_of(width);
  if (op == OpKind::kShiftLeft) return beyond ? 0 : static_cast<int64_t>(bits_of(a) << b);
  if (op == OpKind::kShiftRight) {
    if (is_signed) return a >> (beyond ? 63 : b);
    return beyond ? 0 : static_cast<int64_t>(bits_of(a) >> b);
  }
  STOW_CHECK(false, "{} of integers", op_name(op));
  return 0;
}

template <typename T>
bool test(OpKind op, T a, T b) {
  if (op == OpKind::kEq) return a == b;
  if (op == OpKind::kNe) return a != b;
  if (op == OpKind::kLt) return a < b;
  if (op == OpKind::kLe) return a <= b;
  if (op == OpKind::kGt) return a > b;
  return a >= b;
}

Cell convert(DType from, DType to, const Cell& x) {
  if (!is_float(from)) {
    if (to == DType::kBool) return {.i = x.i != 0};
    if (!is_float(to)) return {.i = wrap(to, x.i)};
    if (from == DType::kU64) return {.f = round_to(to, static_cast<long double>(bits_of(x.i)))};
    return {.f = round_to(to, static_cast<long double>(x.i))};
  }
  if (is_float(to)) return {.f = round_to(to, x.f)};
  if (to == DType::kBool) return {.i = x.f != 0};
  if (is_nan(x.f)) return {.i = 0};
  const int value_bits = static_cast<int>(8 * dtype_bytes(to)) - (is_signed_int(to) ? 1 : 0);
  const double bound = std::ldexp(1.0, value_bits);
  const uint64_t largest = ~uint64_t{0} >> (64 - value_bits);
  if (x.f >= bound) return {.i = static_cast<int64_t>(largest)};
  if (!is_signed_int(to))
    return {.i = x.f <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x.f))};
  if (x.f <= -bound) return {.i = -static_cast<int64_t>(largest) - 1};
  return {.i = static_cast<int64_t>(x.f)};
}

Cell compute(const Step& s, DType in, const Cell* a, const Cell* b, const Cell* c) {
  if (s.op == OpKind::kSelect) return a->i != 0 ? *b : *c;
  if (s.op == OpKind::kConvert) return convert(in, s.dtype, *a);
  if (s.op == OpKind::kBitcast) {
    std::byte bytes[8];
    store(bytes, in, *a);
    return load(bytes, s.dtype);
  }
  if (s.op == OpKind::kIsFinite) return {.i = std::isfinite(a->f)};
  if (s.op >= OpKind::kEq && s.op <= OpKind::kGe) {
    if (is_float(in)) return {.i = test(s.op, a->f, b->f)};
    if (is_signed_int(in)) return {.i = test(s.op, a->i, b->i)};
    return {.i = test(s.op, bits_of(a->i), bits_of(b->i))};
  }
  const Cell none;
  if (b == nullptr) b = &none;
  if (!is_float(in)) return {.i = wrap(s.dtype, int_op(s.op, in, a->i, b->i))};
  double y = float_op(s.op, in == DType::kF64, a->f, b->f);
  if (in != DType::kF64) y = static_cast<float>(y);
  return {.f = round_to(s.dtype, y)};
}

struct Reduction {
  OpKind op;
  DType dtype;

  bool is_f64() const { return dtype == DType::kF64; }
  Cell identity() const {
    const double inf = std::numeric_limits<double>::infinity();
    if (op == OpKind::kReduceSum || op == OpKind::kReduceOr) return {.f = 0, .i = 0};
    if (op == OpKind::kReduceProd) return {.f = 1, .i = 1};
    if (op == OpKind::kReduceAnd) return {.i = wrap(dtype, -1)};
    // The least and the greatest.
    const int bits = dtype == DType::kBool ? 1 : static_cast<int>(8 * dtype_bytes(dtype));
    const bool is_signed = is_signed_int(dtype);
    const int64_t greatest =
        static_cast<int64_t>(~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0)));
    const int64_t least = is_signed ? -greatest - 1 : 0;
    return op == OpKind::kReduceMax ? Cell{-inf, least} : Cell{inf, greatest};
  }
  Cell fold(const Cell& a, const Cell& b) const {
    const OpKind kind = op == OpKind::kReduceSum    ? OpKind::kAdd
                        : op == OpKind::kReduceProd ? OpKind::kMul
                        : op == OpKind::kReduceMax  ? OpKind::kMax
                        : op == OpKind::kReduceMin  ? OpKind::kMin
                        : op == OpKind::kReduceAnd  ? OpKind::kAnd
                                                    : OpKind::kOr;
    if (!is_float(dtype)) return {.i = wrap(dtype, int_op(kind, dtype, a.i, b.i))};
    const double y = float_op(kind, is_f64(), a.f, b.f);
    return {.f = is_f64() ? y : static_cast<float>(y)};
  }
  Cell finish(const Cell& x) const { return is_float(dtype) ? Cell{.f = round_to(dtype, x.f)} : x; }
};

// The order of ir/row_program.h, word by word.
Cell reduce_row(const Reduction& r, const Cell* x, int64_t n) {
  Cell result = r.identity();
  for (int64_t first = 0; first < n; first += kReduceBlock) {
    Cell lanes[16];
    for (Cell& lane : lanes) lane = r.identity();
    for (int64_t i = first; i < std::min(n, first + kReduceBlock); ++i)
      lanes[(i - first) % 16] = r.fold(lanes[(i - first) % 16], x[i]);
    for (int half : {8, 4, 2, 1})
      for (int l = 0; l < half; ++l) lanes[l] = r.fold(lanes[l], lanes[l + half]);
    result = first == 0 ? lanes[0] : r.fold(result, lanes[0]);
  }
  return r.finish(result);
}

// One column: element i lies at x[i * step].
Cell reduce_column(const Reduction& r, const Cell* x, int64_t n, int64_t step) {
  const int64_t chunk = column_chunk_rows(n);
  Cell result = r.identity();
  for (int64_t first = 0; first < n; first += chunk) {
    Cell acc = r.identity();
    for (int64_t i = first; i < std::min(n, first + chunk); ++i) acc = r.fold(acc, x[i * step]);
    result = first == 0 ? acc : r.fold(result, acc);
  }
  return r.finish(result);
}

// The offset of every point, in elements.
std::vector<int64_t> offsets(const Dims& dims, const Dims& strides) {
  std::vector<int64_t> all = {0};
  for (size_t k = 0; k < dims.size(); ++k) {
    std::vector<int64_t> next;
    for (int64_t base : all)
      for (int64_t i = 0; i < dims[k]; ++i) next.push_back(base + i * strides[k]);
    all = std::move(next);
  }
  return all;
}

}  // namespace

void run_row_program_reference(const RowProgram& program, std::span<const std::byte* const> inputs,
                               std::span<std::byte* const> outputs) {
  const int64_t rows = program.rows(), cols = program.cols();
  // A row without columns is given one point, for what it has of its own: identities of reductions
  // and values of operands that do not look at columns.
  Dims dims = program.dims;
  if (cols == 0) std::fill(dims.begin() + program.n_row_dims, dims.end(), 1);
  const auto ignores_columns = [&](const RowOperand& o) {
    for (size_t k = static_cast<size_t>(program.n_row_dims); k < dims.size(); ++k)
      if (o.strides[k] != 0 && program.dims[k] != 1) return false;
    return true;
  };
  const int64_t points_a_row = std::max<int64_t>(1, cols);
  const auto n = static_cast<size_t>(rows * points_a_row);
  std::vector<std::vector<Cell>> values(program.steps.size());
  // Stores wait until everything is read, so that outputs may be inputs.
  std::vector<std::pair<const Step*, std::vector<Cell>>> stores;
  for (size_t at = 0; at < program.steps.size(); ++at) {
    const Step& s = program.steps[at];
    std::vector<Cell>& out = values[at];
    out.resize(n);
    const auto arg = [&](int k) { return values[static_cast<size_t>(s.args[k])].data(); };
    switch (s.kind) {
      case StepKind::kLoad: {
        const RowOperand& o = program.inputs[static_cast<size_t>(s.index)];
        if (cols == 0 && !ignores_columns(o)) break;
        const std::vector<int64_t> where = offsets(dims, o.strides);
        for (size_t i = 0; i < n; ++i)
          out[i] =
              load(inputs[static_cast<size_t>(s.index)] + where[i] * dtype_bytes(o.dtype), o.dtype);
        break;
      }
      case StepKind::kConstant: {
        std::byte bytes[8];
        std::memcpy(bytes, &s.imm, sizeof(bytes));
        std::fill(out.begin(), out.end(), load(bytes, s.dtype));
        break;
      }
      case StepKind::kIota: {
        Dims strides(program.dims.size(), 0);
        strides[static_cast<size_t>(s.index)] = 1;
        const std::vector<int64_t> where = offsets(dims, strides);
        for (size_t i = 0; i < n; ++i) out[i] = convert(DType::kI64, s.dtype, {.i = where[i]});
        break;
      }
      case StepKind::kCompute: {
        int n_args = 0;
        while (n_args < 3 && s.args[n_args] >= 0) ++n_args;
        const DType in = program.steps[static_cast<size_t>(s.args[n_args - 1])].dtype;
        for (size_t i = 0; i < n; ++i)
          out[i] = compute(s, in, arg(0) + i, n_args > 1 ? arg(1) + i : nullptr,
                           n_args > 2 ? arg(2) + i : nullptr);
        break;
      }
      case StepKind::kReduceRow:
        for (int64_t r = 0; r < rows; ++r) {
          const Cell y = reduce_row({s.op, s.dtype}, arg(0) + r * points_a_row, cols);
          std::fill_n(out.begin() + r * points_a_row, points_a_row, y);
        }
        break;
      case StepKind::kReduceColumns: {
        std::vector<Cell> sums;
        const int64_t n_rows = program.group_rows();
        for (int64_t g = 0; g < program.groups(); ++g)
          for (int64_t c = 0; c < cols; ++c)
            sums.push_back(reduce_column({s.op, s.dtype},
                                         n_rows > 0 ? arg(0) + g * n_rows * cols + c : nullptr,
                                         n_rows, cols));
        stores.emplace_back(&s, std::move(sums));
        break;
      }
      case StepKind::kStore:
        stores.emplace_back(&s, values[static_cast<size_t>(s.args[0])]);
        break;
    }
  }
  for (const auto& [s, cells] : stores) {
    const RowOperand& o = program.outputs[static_cast<size_t>(s->index)];
    Dims places = dims;
    if (s->kind == StepKind::kReduceColumns)
      std::fill(places.begin() + program.n_group_dims, places.begin() + program.n_row_dims, 1);
    if (cols == 0 && (s->kind == StepKind::kReduceColumns || !ignores_columns(o))) continue;
    const std::vector<int64_t> where = offsets(places, o.strides);
    for (size_t i = 0; i < where.size(); ++i)
      store(outputs[static_cast<size_t>(s->index)] + where[i] * dtype_bytes(o.dtype), o.dtype,
            cells[i]);
  }
}

}  // namespace stow::cpu
