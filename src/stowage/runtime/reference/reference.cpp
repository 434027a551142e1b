#include "stowage/runtime/reference/reference.h"

#include <cmath>
#include <limits>

#include "stowage/base/error.h"
#include "stowage/runtime/debug_print.h"
#include "stowage/runtime/reference/families.h"

namespace stow {

void reference_eval(OpKind op, const Params& params, std::span<const TensorView> in,
                    std::span<const TensorView> out) {
  using namespace ref;  // NOLINT: the families are this file's vocabulary
  const double inf = std::numeric_limits<double>::infinity();
  const auto zero = [](IntType) { return int64_t{0}; };
  const auto all_ones = [](IntType) { return int64_t{-1}; };
  const auto lowest = [](IntType t) {
    return t.is_signed ? -static_cast<int64_t>(~uint64_t{0} >> (65 - t.bits)) - 1 : int64_t{0};
  };
  const auto highest = [](IntType t) {
    return static_cast<int64_t>(~uint64_t{0} >> ((t.is_signed ? 65 : 64) - t.bits));
  };
  const Int2 int_and = [](int64_t a, int64_t b, IntType) { return a & b; };
  const Int2 int_or = [](int64_t a, int64_t b, IntType) { return a | b; };
  const Int2 int_xor = [](int64_t a, int64_t b, IntType) { return a ^ b; };

  switch (op) {
    case OpKind::kConstant:
      return constant(std::get<ConstantParams>(params), out);
    case OpKind::kIota:
      return iota(std::get<IotaParams>(params), out);
    case OpKind::kRandomBits:
      return random_bits(in, out);

    case OpKind::kNeg:
      return map1(
          in, out, [](double x) { return -x; },
          [](int64_t x, IntType t) { return int_sub(0, x, t); });
    case OpKind::kAbs:
      return map1(
          in, out, [](double x) { return std::fabs(x); },
          [](int64_t x, IntType t) { return t.is_signed && x < 0 ? int_sub(0, x, t) : x; });
    case OpKind::kSign:
      return map1(in, out, sign, [](int64_t x, IntType t) {
        return x == 0 ? int64_t{0} : t.is_signed && x < 0 ? int64_t{-1} : int64_t{1};
      });
    case OpKind::kFloor:
      return map1(
          in, out, [](double x) { return std::floor(x); }, nullptr);
    case OpKind::kCeil:
      return map1(
          in, out, [](double x) { return std::ceil(x); }, nullptr);
    case OpKind::kRound:
      return map1(
          in, out, [](double x) { return std::nearbyint(x); }, nullptr);
    case OpKind::kExp:
      return map1(
          in, out, [](double x) { return std::exp(x); }, nullptr);
    case OpKind::kExpm1:
      return map1(
          in, out, [](double x) { return std::expm1(x); }, nullptr);
    case OpKind::kLog:
      return map1(
          in, out, [](double x) { return std::log(x); }, nullptr);
    case OpKind::kLog1p:
      return map1(
          in, out, [](double x) { return std::log1p(x); }, nullptr);
    case OpKind::kTanh:
      return map1(
          in, out, [](double x) { return std::tanh(x); }, nullptr);
    case OpKind::kSin:
      return map1(
          in, out, [](double x) { return std::sin(x); }, nullptr);
    case OpKind::kCos:
      return map1(
          in, out, [](double x) { return std::cos(x); }, nullptr);
    case OpKind::kTan:
      return map1(
          in, out, [](double x) { return std::tan(x); }, nullptr);
    case OpKind::kAsin:
      return map1(
          in, out, [](double x) { return std::asin(x); }, nullptr);
    case OpKind::kAcos:
      return map1(
          in, out, [](double x) { return std::acos(x); }, nullptr);
    case OpKind::kAtan:
      return map1(
          in, out, [](double x) { return std::atan(x); }, nullptr);
    case OpKind::kSinh:
      return map1(
          in, out, [](double x) { return std::sinh(x); }, nullptr);
    case OpKind::kCosh:
      return map1(
          in, out, [](double x) { return std::cosh(x); }, nullptr);
    case OpKind::kAsinh:
      return map1(
          in, out, [](double x) { return std::asinh(x); }, nullptr);
    case OpKind::kAcosh:
      return map1(
          in, out, [](double x) { return std::acosh(x); }, nullptr);
    case OpKind::kAtanh:
      return map1(
          in, out, [](double x) { return std::atanh(x); }, nullptr);
    case OpKind::kCbrt:
      return map1(
          in, out, [](double x) { return std::cbrt(x); }, nullptr);
    case OpKind::kErfc:
      return map1(
          in, out, [](double x) { return std::erfc(x); }, nullptr);
    case OpKind::kSqrt:
      return map1(
          in, out, [](double x) { return std::sqrt(x); }, nullptr);
    case OpKind::kRsqrt:
      return map1(
          in, out, [](double x) { return 1 / std::sqrt(x); }, nullptr);
    case OpKind::kLogistic:
      return map1(in, out, logistic, nullptr);
    case OpKind::kErf:
      return map1(
          in, out, [](double x) { return std::erf(x); }, nullptr);
    case OpKind::kErfInv:
      return map1(in, out, erf_inv, nullptr);
    case OpKind::kIsFinite:
      return is_finite(in, out);
    case OpKind::kNot:
      return map1(in, out, nullptr,
                  [](int64_t x, IntType t) { return t.bits == 1 ? int64_t{x == 0} : ~x; });

    case OpKind::kPopulationCount:
      return map1(in, out, nullptr, int_population_count);
    case OpKind::kCountLeadingZeros:
      return map1(in, out, nullptr, int_leading_zeros);

    case OpKind::kAdd:
      return map2(
          in, out, [](double a, double b) { return a + b; }, int_add);
    case OpKind::kSub:
      return map2(
          in, out, [](double a, double b) { return a - b; }, int_sub);
    case OpKind::kMul:
      return map2(
          in, out, [](double a, double b) { return a * b; }, int_mul);
    case OpKind::kDiv:
      return map2(
          in, out, [](double a, double b) { return a / b; }, int_div);
    case OpKind::kRem:
      return map2(
          in, out, [](double a, double b) { return std::fmod(a, b); }, int_rem);
    case OpKind::kPow:
      return map2(
          in, out, [](double a, double b) { return std::pow(a, b); }, int_pow);
    case OpKind::kAtan2:
      return map2(
          in, out, [](double a, double b) { return std::atan2(a, b); }, nullptr);
    case OpKind::kMax:
      return map2(in, out, maximum, int_max);
    case OpKind::kMin:
      return map2(in, out, minimum, int_min);
    case OpKind::kAnd:
      return map2(in, out, nullptr, int_and);
    case OpKind::kOr:
      return map2(in, out, nullptr, int_or);
    case OpKind::kXor:
      return map2(in, out, nullptr, int_xor);
    case OpKind::kShiftLeft:
      return map2(in, out, nullptr, int_shift_left);
    case OpKind::kShiftRight:
      return map2(in, out, nullptr, int_shift_right);
    case OpKind::kEq:
      return compare(
          in, out, [](double a, double b) { return a == b; },
          [](int64_t a, int64_t b, IntType) { return int64_t{a == b}; });
    case OpKind::kNe:
      return compare(
          in, out, [](double a, double b) { return a != b; },
          [](int64_t a, int64_t b, IntType) { return int64_t{a != b}; });
    case OpKind::kLt:
      return compare(
          in, out, [](double a, double b) { return a < b; },
          [](int64_t a, int64_t b, IntType t) { return int64_t{int_less(a, b, t)}; });
    case OpKind::kLe:
      return compare(
          in, out, [](double a, double b) { return a <= b; },
          [](int64_t a, int64_t b, IntType t) { return int64_t{!int_less(b, a, t)}; });
    case OpKind::kGt:
      return compare(
          in, out, [](double a, double b) { return a > b; },
          [](int64_t a, int64_t b, IntType t) { return int64_t{int_less(b, a, t)}; });
    case OpKind::kGe:
      return compare(
          in, out, [](double a, double b) { return a >= b; },
          [](int64_t a, int64_t b, IntType t) { return int64_t{!int_less(a, b, t)}; });

    case OpKind::kSelect:
      return select(in, out);
    case OpKind::kConvert:
      return convert(in, out);
    case OpKind::kBitcast:
      return copy_all(in, out);

    case OpKind::kBroadcast:
      return broadcast(std::get<BroadcastParams>(params), in, out);
    case OpKind::kReshape:
      return reshape(in, out);
    case OpKind::kTranspose:
      return transpose(std::get<AxesParams>(params), in, out);
    case OpKind::kSlice:
      return slice(std::get<SliceParams>(params), in, out);
    case OpKind::kReverse:
      return reverse(std::get<AxesParams>(params), in, out);
    case OpKind::kPad:
      return pad(std::get<PadParams>(params), in, out);
    case OpKind::kConcatenate:
      return concatenate(std::get<AxisParams>(params), in, out);
    case OpKind::kDynamicSlice:
      return dynamic_slice(in, out);
    case OpKind::kDynamicUpdateSlice:
      return dynamic_update_slice(in, out);
    case OpKind::kGather:
      return gather(std::get<GatherParams>(params), in, out);
    case OpKind::kScatter:
      return scatter(
          std::get<GatherParams>(params), in, out, [](double, double u) { return u; },
          [](int64_t, int64_t u, IntType) { return u; });
    case OpKind::kScatterAdd:
      return scatter(
          std::get<GatherParams>(params), in, out, [](double a, double u) { return a + u; },
          int_add);
    case OpKind::kScatterMul:
      return scatter(
          std::get<GatherParams>(params), in, out, [](double a, double u) { return a * u; },
          int_mul);
    case OpKind::kScatterMin:
      return scatter(std::get<GatherParams>(params), in, out, minimum, int_min);
    case OpKind::kScatterMax:
      return scatter(std::get<GatherParams>(params), in, out, maximum, int_max);

    case OpKind::kReduceSum:
      return reduce(
          std::get<AxesParams>(params), in, out, [](double a, double b) { return a + b; }, 0,
          int_add, zero);
    case OpKind::kReduceProd:
      return reduce(
          std::get<AxesParams>(params), in, out, [](double a, double b) { return a * b; }, 1,
          int_mul, [](IntType) { return int64_t{1}; });
    case OpKind::kReduceMax:
      return reduce(std::get<AxesParams>(params), in, out, maximum, -inf, int_max, lowest);
    case OpKind::kReduceMin:
      return reduce(std::get<AxesParams>(params), in, out, minimum, inf, int_min, highest);
    case OpKind::kReduceAnd:
      return reduce(std::get<AxesParams>(params), in, out, nullptr, 0, int_and, all_ones);
    case OpKind::kReduceOr:
      return reduce(std::get<AxesParams>(params), in, out, nullptr, 0, int_or, zero);
    case OpKind::kArgMax:
      return arg_reduce(std::get<ArgReduceParams>(params), true, in, out);
    case OpKind::kArgMin:
      return arg_reduce(std::get<ArgReduceParams>(params), false, in, out);
    case OpKind::kCumSum:
      return cumulative(
          std::get<AxisParams>(params), in, out, [](double a, double b) { return a + b; }, int_add);
    case OpKind::kCumProd:
      return cumulative(
          std::get<AxisParams>(params), in, out, [](double a, double b) { return a * b; }, int_mul);
    case OpKind::kCumMax:
      return cumulative(std::get<AxisParams>(params), in, out, maximum, int_max);
    case OpKind::kCumMin:
      return cumulative(std::get<AxisParams>(params), in, out, minimum, int_min);
    case OpKind::kCumLogSumExp:
      return cumulative(std::get<AxisParams>(params), in, out, log_add_exp, nullptr);
    case OpKind::kLinearScan:
      return linear_scan(std::get<AxisParams>(params), in, out);
    case OpKind::kSort:
      return sort(std::get<AxisParams>(params), in, out);

    case OpKind::kTopK:
      return top_k(std::get<TopKParams>(params), in, out);
    case OpKind::kWindowSum:
      return reduce_window(
          std::get<WindowParams>(params), in, out, [](double a, double b) { return a + b; }, 0,
          int_add, zero);
    case OpKind::kWindowMax:
      return reduce_window(std::get<WindowParams>(params), in, out, maximum, -inf, int_max, lowest);
    case OpKind::kWindowMin:
      return reduce_window(std::get<WindowParams>(params), in, out, minimum, inf, int_min, highest);
    case OpKind::kWindowArgMax:
      return window_arg(std::get<WindowParams>(params), true, in, out);
    case OpKind::kWindowArgMin:
      return window_arg(std::get<WindowParams>(params), false, in, out);

    case OpKind::kConvolution:
      return convolution(std::get<ConvParams>(params), in, out);
    case OpKind::kDotGeneral:
      return dot_general(std::get<DotParams>(params), in, out);
    case OpKind::kAttention:
      return attention(std::get<AttentionParams>(params), in, out);
    case OpKind::kAttentionGrad:
      return attention_grad(std::get<AttentionParams>(params), in, out);

    case OpKind::kScan:
    case OpKind::kCond:
    case OpKind::kWhile:
    case OpKind::kCheckpoint:
    case OpKind::kCustomVjp:
      STOW_CHECK(false, "{} holds graphs; the interpreter evaluates it", op_name(op));
      return;
    case OpKind::kName:
    case OpKind::kStopGradient:
    case OpKind::kOptimizationBarrier:
    case OpKind::kDevicePut:
    case OpKind::kReshard:
    case OpKind::kFullToShard:
    case OpKind::kShardToFull:
      return copy_all(in, out);
    case OpKind::kAxisIndex:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllReduce:
    case OpKind::kAllToAll:
    case OpKind::kPermute: {
      const auto& p = std::get<CollectiveParams>(params);
      STOW_CHECK(p.group_size() == 1, "{} of a group is not an op of one position", op_name(op));
      if (op != OpKind::kAxisIndex && (op != OpKind::kPermute || !p.pairs.empty()))
        return copy_all(in, out);
      const auto width = static_cast<size_t>(dtype_bytes(out[0].dtype));
      return constant({{out[0].dtype, {}}, std::vector<std::byte>(width)}, out);
    }
    case OpKind::kDebugPrint:
      return print_views(std::get<NameParams>(params).name, in.subspan(1));
  }
}

}  // namespace stow
