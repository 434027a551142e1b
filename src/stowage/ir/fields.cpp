#include "stowage/ir/fields.h"

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
    case OpKind::kSort:
      return AxisParams();
    case OpKind::kArgMax:
    case OpKind::kArgMin:
      return ArgReduceParams();
    case OpKind::kGather:
    case OpKind::kScatterAdd:
      return GatherParams();
    case OpKind::kDotGeneral:
      return DotParams();
    case OpKind::kAttention:
    case OpKind::kAttentionGrad:
      return AttentionParams();
    case OpKind::kDevicePut:
      return DevicePutParams();
    case OpKind::kName:
      return NameParams();
    case OpKind::kScan:
      return ScanParams();
    case OpKind::kCheckpoint:
      return CheckpointParams();
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
    case OpKind::kSqrt:
    case OpKind::kRsqrt:
    case OpKind::kLogistic:
    case OpKind::kErf:
    case OpKind::kErfInv:
    case OpKind::kIsFinite:
    case OpKind::kNot:
    case OpKind::kAdd:
    case OpKind::kSub:
    case OpKind::kMul:
    case OpKind::kDiv:
    case OpKind::kRem:
    case OpKind::kPow:
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

int n_nested_graphs(OpKind op) {
  return op == OpKind::kScan || op == OpKind::kCheckpoint ? 1 : 0;
}

}  // namespace stow
