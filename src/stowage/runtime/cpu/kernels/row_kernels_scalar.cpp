// Map kernels by op and dtype, and those that are left of f64, the integers and bool: what calls
// the C library or loops for each element.
#include <cstring>

#include "stowage/base/error.h"
#include "stowage/core/half.h"
#include "stowage/runtime/cpu/kernels/row_kernels_plain.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"

namespace stow::cpu {

float bf16_to_f32(uint16_t bits) {
  return widen(Bf16{bits});
}
float f16_to_f32(uint16_t bits) {
  return widen(F16{bits});
}
uint16_t f32_to_bf16(float x) {
  Bf16 half;
  narrow(x, half);
  return half.bits;
}
uint16_t f32_to_f16(float x) {
  F16 half;
  narrow(x, half);
  return half.bits;
}

namespace {

using scalar::Bool;

template <typename T>
T element(const KernelArg& arg, int64_t row, int64_t i) {
  return reinterpret_cast<const T*>(arg.data + row * arg.row_step)[arg.splat ? 0 : i];
}
template <typename T>
const T* row_of(const KernelArg& arg, int64_t row) {
  return reinterpret_cast<const T*>(arg.data + row * arg.row_step);
}

template <typename Out, typename In, Out (*F)(In)>
void map1(const KernelCall& c) {
  for (int64_t r = 0; r < c.rows; ++r) {
    Out* out = reinterpret_cast<Out*>(c.out + r * c.out_row_step);
    const In* a = row_of<In>(c.args[0], r);
    if (c.args[0].splat) {
      const Out y = F(*a);
      for (int64_t i = 0; i < c.cols; ++i) out[i] = y;
    } else {
      for (int64_t i = 0; i < c.cols; ++i) out[i] = F(a[i]);
    }
  }
}

template <typename Out, typename In, Out (*F)(In, In)>
void map2(const KernelCall& c) {
  for (int64_t r = 0; r < c.rows; ++r) {
    Out* out = reinterpret_cast<Out*>(c.out + r * c.out_row_step);
    const In *a = row_of<In>(c.args[0], r), *b = row_of<In>(c.args[1], r);
    if (c.args[0].splat) {
      const In x = *a;
      if (c.args[1].splat) {
        const Out y = F(x, *b);
        for (int64_t i = 0; i < c.cols; ++i) out[i] = y;
      } else {
        for (int64_t i = 0; i < c.cols; ++i) out[i] = F(x, b[i]);
      }
    } else if (c.args[1].splat) {
      const In y = *b;
      for (int64_t i = 0; i < c.cols; ++i) out[i] = F(a[i], y);
    } else {
      for (int64_t i = 0; i < c.cols; ++i) out[i] = F(a[i], b[i]);
    }
  }
}

Bool is_finite(double x) {
  return Bool(uint8_t(std::isfinite(x)));
}

template <typename T>
void copy(const KernelCall& c) {
  for (int64_t r = 0; r < c.rows; ++r) {
    T* out = reinterpret_cast<T*>(c.out + r * c.out_row_step);
    for (int64_t i = 0; i < c.cols; ++i) out[i] = element<T>(c.args[0], r, i);
  }
}

float bf16_as_f16(float x) {
  return f16_to_f32(f32_to_bf16(x));
}
float f16_as_bf16(float x) {
  return bf16_to_f32(f32_to_f16(x));
}

MapKernel copy_kernel(DType t) {
  switch (dtype_bytes(register_dtype(t))) {
    case 8:
      return copy<uint64_t>;
    case 4:
      return f32_map_kernel(OpKind::kReshape);
    default:
      return copy<uint8_t>;
  }
}

MapKernel bitcast_kernel(DType in, DType out) {
  if (in == DType::kBF16 && out == DType::kF16) return map1<float, float, bf16_as_f16>;
  if (in == DType::kF16 && out == DType::kBF16) return map1<float, float, f16_as_bf16>;
  if (dtype_bytes(in) != dtype_bytes(out)) return nullptr;
  // Between f32 and i32 through the f32 copy: a load and a store move bits as they are.
  return copy_kernel(out);
}

template <typename T, OpKind K>
constexpr MapKernel find_one() {
  if constexpr (requires(T x) { scalar::Unary<K, T>::apply(x); })
    return map1<T, T, scalar::Unary<K, T>::apply>;
  else if constexpr (requires(T x) { scalar::Binary<K, T>::apply(x, x); })
    return map2<T, T, scalar::Binary<K, T>::apply>;
  else if constexpr (requires(T x) { scalar::Test<K, T>::apply(x, x); })
    return map2<Bool, T, scalar::Test<K, T>::apply>;
  else
    return nullptr;
}

template <typename T>
MapKernel find(OpKind op) {
  static constexpr MapKernel kTable[] = {
#define STOW_X(kind, name, cls) find_one<T, OpKind::k##kind>(),
      STOW_FOR_EACH_OP(STOW_X)
#undef STOW_X
  };
  return kTable[static_cast<size_t>(op)];
}

MapKernel convert_kernel(DType in, DType out) {
  if (register_dtype(in) == register_dtype(out)) return copy_kernel(out);
  if (register_dtype(in) == DType::kF32 && out == DType::kBool)
    return f32_test_kernel(OpKind::kConvert);
  return plain_convert_kernel(register_dtype(in), register_dtype(out));
}

bool is_test(OpKind op) {
  return (op >= OpKind::kEq && op <= OpKind::kGe) || op == OpKind::kIsFinite;
}

}  // namespace

MapKernel map_kernel(OpKind op, DType in, DType out) {
  if (op == OpKind::kConvert) return convert_kernel(in, out);
  if (op == OpKind::kBitcast) return bitcast_kernel(in, out);
  if (is_test(op) ? out != DType::kBool : in != out) return nullptr;
  if (op == OpKind::kReshape) return copy_kernel(out);
  const DType t = register_dtype(in);
  if (const MapKernel plain = plain_map_kernel(op, t)) return plain;
  switch (t) {
    case DType::kF64:
      return op == OpKind::kIsFinite ? map1<Bool, double, is_finite> : find<double>(op);
    case DType::kF32: {
      if (is_test(op)) return f32_test_kernel(op);
      const MapKernel math = f32_math_kernel(op);
      return math != nullptr ? math : f32_map_kernel(op);
    }
    case DType::kI64:
      return find<int64_t>(op);
    case DType::kI32:
      return find<int32_t>(op);
    case DType::kI8:
      return find<int8_t>(op);
    case DType::kU64:
      return find<uint64_t>(op);
    case DType::kU32:
      return find<uint32_t>(op);
    case DType::kU8:
      return find<uint8_t>(op);
    case DType::kBool:
      return find<Bool>(op);
    case DType::kBF16:
    case DType::kF16:
      break;
  }
  return nullptr;
}

}  // namespace stow::cpu
