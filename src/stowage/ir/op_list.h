// The one list of operations; the enum, the names and every table are generated from it.
// Not their meaning; that is in ops/.
#pragma once

#include <cstdint>
#include <string_view>

// X(enumerator suffix, printed name, class); the classes are those of OpClass.
#define STOW_FOR_EACH_OP(X)                                                              \
  X(Constant, "constant", Leaf)                                                          \
  X(Iota, "iota", Leaf)                                                                  \
  X(RandomBits, "random_bits", Other)                                                    \
  /* unary */                                                                            \
  X(Neg, "neg", Elementwise)                                                             \
  X(Abs, "abs", Elementwise)                                                             \
  X(Sign, "sign", Elementwise)                                                           \
  X(Floor, "floor", Elementwise)                                                         \
  X(Ceil, "ceil", Elementwise)                                                           \
  X(Round, "round", Elementwise)                                                         \
  X(Exp, "exp", Elementwise)                                                             \
  X(Expm1, "expm1", Elementwise)                                                         \
  X(Log, "log", Elementwise)                                                             \
  X(Log1p, "log1p", Elementwise)                                                         \
  X(Tanh, "tanh", Elementwise)                                                           \
  X(Sin, "sin", Elementwise)                                                             \
  X(Cos, "cos", Elementwise)                                                             \
  X(Tan, "tan", Elementwise)                                                              \
  X(Asin, "asin", Elementwise)                                                            \
  X(Acos, "acos", Elementwise)                                                            \
  X(Atan, "atan", Elementwise)                                                            \
  X(Sinh, "sinh", Elementwise)                                                            \
  X(Cosh, "cosh", Elementwise)                                                            \
  X(Asinh, "asinh", Elementwise)                                                          \
  X(Acosh, "acosh", Elementwise)                                                          \
  X(Atanh, "atanh", Elementwise)                                                          \
  X(Sqrt, "sqrt", Elementwise)                                                           \
  X(Rsqrt, "rsqrt", Elementwise)                                                         \
  X(Cbrt, "cbrt", Elementwise)                                                            \
  X(Logistic, "logistic", Elementwise)                                                   \
  X(Erf, "erf", Elementwise)                                                             \
  X(Erfc, "erfc", Elementwise)                                                            \
  X(ErfInv, "erf_inv", Elementwise)                                                      \
  X(IsFinite, "is_finite", Elementwise)                                                  \
  X(Not, "not", Elementwise)                                                             \
  X(PopulationCount, "population_count", Elementwise)                                     \
  X(CountLeadingZeros, "clz", Elementwise)                                                \
  /* binary */                                                                           \
  X(Add, "add", Elementwise)                                                             \
  X(Sub, "sub", Elementwise)                                                             \
  X(Mul, "mul", Elementwise)                                                             \
  X(Div, "div", Elementwise)                                                             \
  X(Rem, "rem", Elementwise)                                                             \
  X(Pow, "pow", Elementwise)                                                             \
  X(Atan2, "atan2", Elementwise)                                                          \
  X(Max, "max", Elementwise)                                                             \
  X(Min, "min", Elementwise)                                                             \
  X(And, "and", Elementwise)                                                             \
  X(Or, "or", Elementwise)                                                               \
  X(Xor, "xor", Elementwise)                                                             \
  X(ShiftLeft, "shift_left", Elementwise)                                                \
  X(ShiftRight, "shift_right", Elementwise)                                              \
  X(Eq, "eq", Elementwise)                                                               \
  X(Ne, "ne", Elementwise)                                                               \
  X(Lt, "lt", Elementwise)                                                               \
  X(Le, "le", Elementwise)                                                               \
  X(Gt, "gt", Elementwise)                                                               \
  X(Ge, "ge", Elementwise)                                                               \
  /* others, element by element */                                                       \
  X(Select, "select", Elementwise)                                                       \
  X(Convert, "convert", Elementwise)                                                     \
  X(Bitcast, "bitcast", Elementwise)                                                     \
  /* shape */                                                                            \
  X(Broadcast, "broadcast", View)                                                        \
  X(Reshape, "reshape", View)                                                            \
  X(Transpose, "transpose", View)                                                        \
  X(Slice, "slice", View)                                                                \
  X(Reverse, "reverse", View)                                                            \
  X(Pad, "pad", Other)                                                                   \
  X(Concatenate, "concatenate", Other)                                                   \
  X(DynamicSlice, "dynamic_slice", Other)                                                \
  X(DynamicUpdateSlice, "dynamic_update_slice", Other)                                   \
  X(Gather, "gather", Other)                                                             \
  X(Scatter, "scatter", Other)                                                            \
  X(ScatterAdd, "scatter_add", Other)                                                    \
  X(ScatterMul, "scatter_mul", Other)                                                     \
  X(ScatterMin, "scatter_min", Other)                                                     \
  X(ScatterMax, "scatter_max", Other)                                                     \
  /* reductions */                                                                       \
  X(ReduceSum, "reduce_sum", Reduce)                                                     \
  X(ReduceProd, "reduce_prod", Reduce)                                                   \
  X(ReduceMax, "reduce_max", Reduce)                                                     \
  X(ReduceMin, "reduce_min", Reduce)                                                     \
  X(ReduceAnd, "reduce_and", Reduce)                                                     \
  X(ReduceOr, "reduce_or", Reduce)                                                       \
  X(ArgMax, "argmax", Other)                                                             \
  X(ArgMin, "argmin", Other)                                                             \
  X(CumSum, "cumsum", Other)                                                             \
  X(CumProd, "cumprod", Other)                                                            \
  X(CumMax, "cummax", Other)                                                              \
  X(CumMin, "cummin", Other)                                                              \
  X(CumLogSumExp, "cumlogsumexp", Other)                                                  \
  X(LinearScan, "linear_scan", Other)                                                     \
  X(Sort, "sort", Other)                                                                 \
  X(TopK, "top_k", Other)                                                                 \
  X(WindowSum, "reduce_window_sum", Other)                                                \
  X(WindowMax, "reduce_window_max", Other)                                                \
  X(WindowMin, "reduce_window_min", Other)                                                \
  X(WindowArgMax, "window_argmax", Other)                                                 \
  X(WindowArgMin, "window_argmin", Other)                                                 \
  /* products */                                                                         \
  X(DotGeneral, "dot_general", Other)                                                    \
  X(Convolution, "conv_general_dilated", Other)                                           \
  X(Attention, "attention", Other)                                                       \
  X(AttentionGrad, "attention_grad", Other)                                              \
  /* structure */                                                                        \
  X(Scan, "scan", Structure)                                                             \
  X(Cond, "cond", Structure)                                                             \
  X(While, "while", Structure)                                                           \
  X(Checkpoint, "checkpoint", Structure)                                                 \
  X(CustomVjp, "custom_vjp", Structure)                                                  \
  X(Name, "name", Identity)                                                              \
  X(StopGradient, "stop_gradient", Identity)                                             \
  X(OptimizationBarrier, "optimization_barrier", Identity)                               \
  X(DebugPrint, "debug_print", Other)                                                    \
  /* movement */                                                                         \
  X(DevicePut, "device_put", Other)                                                      \
  /* over a mesh */                                                                      \
  X(AxisIndex, "axis_index", Other)                                                      \
  X(AllGather, "all_gather", Other)                                                      \
  X(ReduceScatter, "reduce_scatter", Other)                                              \
  X(AllReduce, "all_reduce", Other)                                                      \
  X(AllToAll, "all_to_all", Other)                                                       \
  X(Permute, "permute", Other)                                                           \
  X(Reshard, "reshard", Identity)                                                        \
  X(FullToShard, "full_to_shard", Other)                                                 \
  X(ShardToFull, "shard_to_full", Other)

namespace stow::ir {

enum class OpKind : uint8_t {
#define STOW_X(kind, name, cls) k##kind,
  STOW_FOR_EACH_OP(STOW_X)
#undef STOW_X
};

inline constexpr int kNumOps = 0
#define STOW_X(kind, name, cls) +1
    STOW_FOR_EACH_OP(STOW_X)
#undef STOW_X
    ;

/// How an op touches memory, for fusion and lowering.
enum class OpClass : uint8_t {
  kLeaf,         ///< No operand; computed from its parameters.
  kElementwise,  ///< Result element i from operand elements i; all shapes equal.
  kView,         ///< The result is a strided view of the operand if the layout allows it.
  kReduce,       ///< Reduces axes of one operand.
  kIdentity,     ///< The result is the operand; the op only marks it.
  kStructure,    ///< Holds nested graphs.
  kOther         ///< A kernel of its own.
};

/// True for an op by which devices exchange data. All devices of a mesh run one schedule, so they
/// run collectives in one order. A pass may clone a collective into recomputed work, but never into
/// work that only some devices do.
constexpr bool is_collective(OpKind op) {
  return op == OpKind::kAllGather || op == OpKind::kReduceScatter || op == OpKind::kAllReduce ||
         op == OpKind::kAllToAll || op == OpKind::kPermute;
}

std::string_view op_name(OpKind op);
OpClass op_class(OpKind op);
/// True for an op that costs at most a few operations an element, so its result is not worth
/// keeping.
inline bool is_cheap_to_recompute(OpKind op) {
  const OpClass c = op_class(op);
  return c == OpClass::kLeaf || c == OpClass::kElementwise || c == OpClass::kView ||
         c == OpClass::kIdentity;
}

}  // namespace stow::ir
