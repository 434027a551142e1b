#include "stowage/runtime/cpu/kernels/op_kernels.h"

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/debug_print.h"

// Elementwise ops are row programs; products and structure have runners of their own.
#define STOW_CASES_WITHOUT_OP_KERNEL \
  case OpKind::kNeg:                 \
  case OpKind::kAbs:                 \
  case OpKind::kSign:                \
  case OpKind::kFloor:               \
  case OpKind::kCeil:                \
  case OpKind::kRound:               \
  case OpKind::kExp:                 \
  case OpKind::kExpm1:               \
  case OpKind::kLog:                 \
  case OpKind::kLog1p:               \
  case OpKind::kTanh:                \
  case OpKind::kSin:                 \
  case OpKind::kCos:                 \
  case OpKind::kTan:                 \
  case OpKind::kAsin:                \
  case OpKind::kAcos:                \
  case OpKind::kAtan:                \
  case OpKind::kSinh:                \
  case OpKind::kCosh:                \
  case OpKind::kAsinh:               \
  case OpKind::kAcosh:               \
  case OpKind::kAtanh:               \
  case OpKind::kSqrt:                \
  case OpKind::kRsqrt:               \
  case OpKind::kCbrt:                \
  case OpKind::kLogistic:            \
  case OpKind::kErf:                 \
  case OpKind::kErfc:                \
  case OpKind::kErfInv:              \
  case OpKind::kIsFinite:            \
  case OpKind::kNot:                 \
  case OpKind::kPopulationCount:     \
  case OpKind::kCountLeadingZeros:   \
  case OpKind::kAdd:                 \
  case OpKind::kSub:                 \
  case OpKind::kMul:                 \
  case OpKind::kDiv:                 \
  case OpKind::kRem:                 \
  case OpKind::kPow:                 \
  case OpKind::kAtan2:               \
  case OpKind::kMax:                 \
  case OpKind::kMin:                 \
  case OpKind::kAnd:                 \
  case OpKind::kOr:                  \
  case OpKind::kXor:                 \
  case OpKind::kShiftLeft:           \
  case OpKind::kShiftRight:          \
  case OpKind::kEq:                  \
  case OpKind::kNe:                  \
  case OpKind::kLt:                  \
  case OpKind::kLe:                  \
  case OpKind::kGt:                  \
  case OpKind::kGe:                  \
  case OpKind::kSelect:              \
  case OpKind::kConvert:             \
  case OpKind::kDotGeneral:          \
  case OpKind::kAttention:           \
  case OpKind::kAttentionGrad:       \
  case OpKind::kScan:                \
  case OpKind::kCustomVjp:           \
  case OpKind::kCond:                \
  case OpKind::kWhile:               \
  case OpKind::kCheckpoint

namespace stow::cpu {

using namespace kernels;  // NOLINT: the families are this file's vocabulary

int64_t op_scratch_bytes(OpKind op, const Params& params, std::span<const TensorView> in,
                         std::span<const TensorView> out, int threads) {
  switch (op) {
    case OpKind::kIota:
      return iota_scratch_bytes(std::get<IotaParams>(params), out);
    case OpKind::kScatter:
    case OpKind::kScatterAdd:
    case OpKind::kScatterMul:
    case OpKind::kScatterMin:
    case OpKind::kScatterMax:
      return scatter_scratch_bytes(op, std::get<GatherParams>(params), in, out);
    case OpKind::kReduceSum:
    case OpKind::kReduceProd:
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
    case OpKind::kReduceAnd:
    case OpKind::kReduceOr:
      return reduce_scratch_bytes(op, std::get<AxesParams>(params), in, out, threads);
    case OpKind::kSort:
      return sort_scratch_bytes(std::get<AxisParams>(params).axis, in, threads);
    case OpKind::kTopK:
      return sort_scratch_bytes(std::get<TopKParams>(params).axis, in, threads);
    case OpKind::kWindowSum:
    case OpKind::kWindowMax:
    case OpKind::kWindowMin:
    case OpKind::kWindowArgMax:
    case OpKind::kWindowArgMin:
      return window_scratch_bytes(std::get<WindowParams>(params), in, out, threads);
    case OpKind::kConvolution:
      return convolution_scratch_bytes(std::get<ConvParams>(params), in, out, threads);

    case OpKind::kConstant:
    case OpKind::kRandomBits:
    case OpKind::kBitcast:
    case OpKind::kBroadcast:
    case OpKind::kReshape:
    case OpKind::kTranspose:
    case OpKind::kSlice:
    case OpKind::kReverse:
    case OpKind::kPad:
    case OpKind::kConcatenate:
    case OpKind::kDynamicSlice:
    case OpKind::kDynamicUpdateSlice:
    case OpKind::kGather:
    case OpKind::kArgMax:
    case OpKind::kArgMin:
    case OpKind::kCumSum:
    case OpKind::kCumProd:
    case OpKind::kCumMax:
    case OpKind::kCumMin:
    case OpKind::kCumLogSumExp:
    case OpKind::kLinearScan:
    case OpKind::kName:
    case OpKind::kStopGradient:
    case OpKind::kOptimizationBarrier:
    case OpKind::kDebugPrint:
    case OpKind::kDevicePut:
    case OpKind::kAxisIndex:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllReduce:
    case OpKind::kAllToAll:
    case OpKind::kPermute:
    case OpKind::kReshard:
    case OpKind::kFullToShard:
    case OpKind::kShardToFull:
      return 0;
    STOW_CASES_WITHOUT_OP_KERNEL:
      break;
  }
  STOW_CHECK(false, "{} has no op kernel", op_name(op));
  return 0;
}

void run_op(OpKind op, const Params& params, std::span<const TensorView> in,
            std::span<const TensorView> out, void* scratch, int threads) {
  switch (op) {
    case OpKind::kConstant:
      return constant(std::get<ConstantParams>(params), out, threads);
    case OpKind::kIota:
      return iota(std::get<IotaParams>(params), out, scratch, threads);
    case OpKind::kRandomBits:
      return random_bits(in, out, threads);
    case OpKind::kBitcast:
    case OpKind::kName:
    case OpKind::kStopGradient:
    case OpKind::kOptimizationBarrier:
    case OpKind::kDevicePut:
    case OpKind::kReshard:
    case OpKind::kFullToShard:
    case OpKind::kShardToFull:
      for (size_t k = 0; k < out.size(); ++k) copy(in[k], out[k], threads);
      return;
    case OpKind::kBroadcast:
      return broadcast(std::get<BroadcastParams>(params), in, out, threads);
    case OpKind::kReshape:
      return copy_reshaped(in[0], out[0], threads);
    case OpKind::kTranspose:
      return transpose(std::get<AxesParams>(params), in, out, threads);
    case OpKind::kSlice:
      return slice(std::get<SliceParams>(params), in, out, threads);
    case OpKind::kReverse:
      return reverse(std::get<AxesParams>(params), in, out, threads);
    case OpKind::kPad:
      return pad(std::get<PadParams>(params), in, out, threads);
    case OpKind::kConcatenate:
      return concatenate(std::get<AxisParams>(params), in, out, threads);
    case OpKind::kDynamicSlice:
      return dynamic_slice(in, out, threads);
    case OpKind::kDynamicUpdateSlice:
      return dynamic_update_slice(in, out, threads);
    case OpKind::kGather:
      return gather(std::get<GatherParams>(params), in, out, threads);
    case OpKind::kScatter:
    case OpKind::kScatterAdd:
    case OpKind::kScatterMul:
    case OpKind::kScatterMin:
    case OpKind::kScatterMax:
      return scatter(op, std::get<GatherParams>(params), in, out, scratch, threads);
    case OpKind::kReduceSum:
    case OpKind::kReduceProd:
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
    case OpKind::kReduceAnd:
    case OpKind::kReduceOr:
      return reduce(op, std::get<AxesParams>(params), in, out, scratch, threads);
    case OpKind::kArgMax:
      return arg_reduce(std::get<ArgReduceParams>(params), true, in, out, threads);
    case OpKind::kArgMin:
      return arg_reduce(std::get<ArgReduceParams>(params), false, in, out, threads);
    case OpKind::kCumSum:
    case OpKind::kCumProd:
    case OpKind::kCumMax:
    case OpKind::kCumMin:
    case OpKind::kCumLogSumExp:
      return cumulative(op, std::get<AxisParams>(params), in, out, threads);
    case OpKind::kLinearScan:
      return linear_scan(std::get<AxisParams>(params), in, out, threads);
    case OpKind::kSort:
      return sort(std::get<AxisParams>(params), in, out, scratch, threads);
    case OpKind::kTopK:
      return top_k(std::get<TopKParams>(params), in, out, scratch, threads);
    case OpKind::kWindowSum:
    case OpKind::kWindowMax:
    case OpKind::kWindowMin:
      return reduce_window(op, std::get<WindowParams>(params), in, out, scratch, threads);
    case OpKind::kWindowArgMax:
    case OpKind::kWindowArgMin:
      return window_arg(op, std::get<WindowParams>(params), in, out, scratch, threads);
    case OpKind::kConvolution:
      return convolution(std::get<ConvParams>(params), in, out, scratch, threads);
    case OpKind::kAxisIndex:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllReduce:
    case OpKind::kAllToAll:
    case OpKind::kPermute:
      return collective(op, std::get<CollectiveParams>(params), in, out, threads);
    case OpKind::kDebugPrint:
      return print_views(std::get<NameParams>(params).name, in.subspan(1));
    STOW_CASES_WITHOUT_OP_KERNEL:
      break;
  }
  STOW_CHECK(false, "{} has no op kernel", op_name(op));
}

}  // namespace stow::cpu
