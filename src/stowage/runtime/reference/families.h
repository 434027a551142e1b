// Functions of the families of reference ops that reference_eval calls. Internal to the reference.
// Not the table of ops; that is the switch in reference.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/params.h"
#include "stowage/runtime/tensor_view.h"

namespace stow::ref {

using Views = std::span<const TensorView>;

/// Width and sign of an integer dtype.
struct IntType {
  int bits;
  bool is_signed;
};
IntType int_type(DType dtype);

// Integer functions take and give sign- or zero-extended values; stores keep the low bits.
using Float1 = double (*)(double);
using Float2 = double (*)(double, double);
using FloatTest = bool (*)(double, double);
using Int1 = int64_t (*)(int64_t, IntType);
using Int2 = int64_t (*)(int64_t, int64_t, IntType);

// elementwise.cpp: a null function means that the op does not take float or integer dtypes.
void map1(Views in, Views out, Float1 on_float, Int1 on_int);
void map2(Views in, Views out, Float2 on_float, Int2 on_int);
/// Compares floats with `on_float` and integers with `on_int`; the result is bool.
void compare(Views in, Views out, FloatTest on_float, Int2 on_int);
void is_finite(Views in, Views out);
void select(Views in, Views out);
void convert(Views in, Views out);

// scalar.cpp
double sign(double x);
double logistic(double x);
double erf_inv(double y);
double maximum(double a, double b);
double minimum(double a, double b);
double log_add_exp(double a, double b);
int64_t int_add(int64_t a, int64_t b, IntType);
int64_t int_sub(int64_t a, int64_t b, IntType);
int64_t int_mul(int64_t a, int64_t b, IntType);
int64_t int_div(int64_t a, int64_t b, IntType type);
int64_t int_rem(int64_t a, int64_t b, IntType type);
int64_t int_pow(int64_t a, int64_t b, IntType type);
int64_t int_max(int64_t a, int64_t b, IntType type);
int64_t int_min(int64_t a, int64_t b, IntType type);
int64_t int_shift_left(int64_t a, int64_t b, IntType type);
int64_t int_shift_right(int64_t a, int64_t b, IntType type);
int64_t int_population_count(int64_t x, IntType type);
int64_t int_leading_zeros(int64_t x, IntType type);
bool int_less(int64_t a, int64_t b, IntType type);

// leaves.cpp
void constant(const ConstantParams& params, Views out);
void iota(const IotaParams& params, Views out);
void random_bits(Views in, Views out);

// movement.cpp
void copy_all(Views in, Views out);
void broadcast(const BroadcastParams& params, Views in, Views out);
void reshape(Views in, Views out);
void transpose(const AxesParams& params, Views in, Views out);
void slice(const SliceParams& params, Views in, Views out);
void reverse(const AxesParams& params, Views in, Views out);
void pad(const PadParams& params, Views in, Views out);
void concatenate(const AxisParams& params, Views in, Views out);
void dynamic_slice(Views in, Views out);
void dynamic_update_slice(Views in, Views out);

// indexing.cpp
void gather(const GatherParams& params, Views in, Views out);
/// Replaces each scattered element by f(element, update).
void scatter(const GatherParams& params, Views in, Views out, Float2 on_float, Int2 on_int);

// reduction.cpp
/// Folds from the identity: `float_identity`, or `int_identity` of the type.
void reduce(const AxesParams& params, Views in, Views out, Float2 on_float, double float_identity,
            Int2 on_int, int64_t (*int_identity)(IntType));
void arg_reduce(const ArgReduceParams& params, bool max, Views in, Views out);
void sort(const AxisParams& params, Views in, Views out);
void top_k(const TopKParams& params, Views in, Views out);

// cumulative.cpp
void cumulative(const AxisParams& params, Views in, Views out, Float2 on_float, Int2 on_int);
/// Computes y_j = a_j y_{j-1} + b_j along an axis, from y_0 = b_0.
void linear_scan(const AxisParams& params, Views in, Views out);

// window.cpp
void reduce_window(const WindowParams& params, Views in, Views out, Float2 on_float,
                   double float_identity, Int2 on_int, int64_t (*int_identity)(IntType));
void window_arg(const WindowParams& params, bool max, Views in, Views out);
void convolution(const ConvParams& params, Views in, Views out);

// product.cpp
void dot_general(const DotParams& params, Views in, Views out);
void attention(const AttentionParams& params, Views in, Views out);
void attention_grad(const AttentionParams& params, Views in, Views out);

}  // namespace stow::ref
