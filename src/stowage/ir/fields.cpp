#include "stowage/ir/fields.h"

#include <limits>

namespace stow {

Params empty_params(OpKind op) {
  switch (op) {
    case OpKind::kConstant:
      return ConstantParams();
    case OpKind::kIota:
      return IotaParams();
    case OpKind::kRandomBits:
    case OpKind::kReshape:
    case OpKind::kDynamicSlice:
      return ShapeParams();
    case OpKind::kConvert:
    case OpKind::kBitcast:
      return DTypeParams();
    case OpKind::kBroadcast:
      return BroadcastParams();
    case OpKind::kTranspose:
    case OpKind::kReverse:
    case OpKind::kReduceSum:
    case OpKind::kReduceProd:
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
    case OpKind::kReduceAnd:
    case OpKind::kReduceOr:
      return AxesParams();
    case OpKind::kSlice:
      return SliceParams();
    case OpKind::kPad:
      return PadParams();
    case OpKind::kConcatenate:
    case OpKind::kCumSum:
    case OpKind::kCumProd:
    case OpKind::kCumMax:
    case OpKind::kCumMin:
    case OpKind::kCumLogSumExp:
    case OpKind::kLinearScan:
    case OpKind::kSort:
      return AxisParams();
    case OpKind::kArgMax:
    case OpKind::kArgMin:
      return ArgReduceParams();
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kScatterAdd:
    case OpKind::kScatterMul:
    case OpKind::kScatterMin:
    case OpKind::kScatterMax:
      return GatherParams();
    case OpKind::kTopK:
      return TopKParams();
    case OpKind::kWindowSum:
    case OpKind::kWindowMax:
    case OpKind::kWindowMin:
    case OpKind::kWindowArgMax:
    case OpKind::kWindowArgMin:
      return WindowParams();
    case OpKind::kConvolution:
      return ConvParams();
    case OpKind::kDotGeneral:
      return DotParams();
    case OpKind::kAttention:
    case OpKind::kAttentionGrad:
      return AttentionParams();
    case OpKind::kDevicePut:
      return DevicePutParams();
    case OpKind::kAxisIndex:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllReduce:
    case OpKind::kAllToAll:
    case OpKind::kPermute:
      return CollectiveParams();
    case OpKind::kReshard:
    case OpKind::kFullToShard:
    case OpKind::kShardToFull:
      return ReshardParams();
    case OpKind::kName:
    case OpKind::kDebugPrint:
      return NameParams();
    case OpKind::kScan:
      return ScanParams();
    case OpKind::kCond:
      return CondParams();
    case OpKind::kWhile:
      return WhileParams();
    case OpKind::kCheckpoint:
      return CheckpointParams();
    case OpKind::kCustomVjp:
      return CustomVjpParams();
    case OpKind::kNeg:
    case OpKind::kAbs:
    case OpKind::kSign:
    case OpKind::kFloor:
    case OpKind::kCeil:
    case OpKind::kRound:
    case OpKind::kExp:
    case OpKind::kExpm1:
    case OpKind::kLog:
    case OpKind::kLog1p:
    case OpKind::kTanh:
    case OpKind::kSin:
    case OpKind::kCos:
    case OpKind::kTan:
    case OpKind::kAsin:
    case OpKind::kAcos:
    case OpKind::kAtan:
    case OpKind::kSinh:
    case OpKind::kCosh:
    case OpKind::kAsinh:
    case OpKind::kAcosh:
    case OpKind::kAtanh:
    case OpKind::kSqrt:
    case OpKind::kRsqrt:
    case OpKind::kCbrt:
    case OpKind::kLogistic:
    case OpKind::kErf:
    case OpKind::kErfc:
    case OpKind::kErfInv:
    case OpKind::kIsFinite:
    case OpKind::kNot:
    case OpKind::kPopulationCount:
    case OpKind::kCountLeadingZeros:
    case OpKind::kAdd:
    case OpKind::kSub:
    case OpKind::kMul:
    case OpKind::kDiv:
    case OpKind::kRem:
    case OpKind::kPow:
    case OpKind::kAtan2:
    case OpKind::kMax:
    case OpKind::kMin:
    case OpKind::kAnd:
    case OpKind::kOr:
    case OpKind::kXor:
    case OpKind::kShiftLeft:
    case OpKind::kShiftRight:
    case OpKind::kEq:
    case OpKind::kNe:
    case OpKind::kLt:
    case OpKind::kLe:
    case OpKind::kGt:
    case OpKind::kGe:
    case OpKind::kSelect:
    case OpKind::kDynamicUpdateSlice:
    case OpKind::kStopGradient:
    case OpKind::kOptimizationBarrier:
      return NoParams();
  }
  return NoParams();
}

NestedCount n_nested_graphs(OpKind op) {
  if (op == OpKind::kScan || op == OpKind::kCheckpoint) return {1, 1};
  if (op == OpKind::kWhile) return {2, 2};
  if (op == OpKind::kCustomVjp) return {3, 3};
  if (op == OpKind::kCond) return {1, std::numeric_limits<int>::max()};
  return {0, 0};
}

}  // namespace stow
