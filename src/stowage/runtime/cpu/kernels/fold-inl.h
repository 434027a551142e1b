// Sums, products and extremes of two accumulators, or of two vectors of floats, per Highway target,
// with the results of op_types.h.
// Not the loops; the files that include this have them.
#if defined(STOW_KERNELS_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_FOLD_INL_H_
#undef STOW_KERNELS_FOLD_INL_H_
#else
#define STOW_KERNELS_FOLD_INL_H_
#endif

#include <bit>
#include <limits>
#include <type_traits>

#include <hwy/highway.h>

#include "stowage/runtime/cpu/kernels/half-inl.h"
#include "stowage/runtime/cpu/kernels/op_types.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::Acc;
using kernels::Bool;

template <typename A>
using BitsOf = std::conditional_t<sizeof(A) == 8, uint64_t, uint32_t>;

// load_lane() converts an element to the type of its accumulator, store_lane() converts it back.
template <typename A>
HWY_INLINE A load_lane(A x) {
  return x;
}
HWY_INLINE float load_lane(Bf16 x) { return widen(x); }
HWY_INLINE float load_lane(F16 x) { return widen(x); }
HWY_INLINE bool load_lane(Bool x) { return x.value != 0; }

template <typename T, typename A>
HWY_INLINE void store_lane(A x, T& to) {
  if constexpr (std::is_same_v<T, Bool>) to.value = x ? 1 : 0;
  else if constexpr (std::is_same_v<T, A>) to = x;
  else narrow(x, to);
}

// Folds over accumulators of type A: step() takes two scalars, steps() two vectors of floats, and
// kIdentity is the start of a fold. In extremes, beats() is true if v replaces `best` in an
// arg-reduction.
template <typename A>
struct SumOf {
  static constexpr A kIdentity = A{0};
  static HWY_INLINE A step(A a, A b) {
    if constexpr (std::is_same_v<A, bool>) return a | b;
    else if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else return a + b;
  }
  template <typename V>
  static HWY_INLINE V steps(V a, V b) {
    return hn::Add(a, b);
  }
};
template <typename A>
struct ProductOf {
  static HWY_INLINE A step(A a, A b) {
    if constexpr (std::is_same_v<A, bool>) return a & b;
    else if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else return a * b;
  }
  template <typename V>
  static HWY_INLINE V steps(V a, V b) {
    return hn::Mul(a, b);
  }
};
// NaN if either is; +0 is above -0. Without branches.
template <typename A>
struct MaxOf {
  static constexpr A kIdentity = std::is_floating_point_v<A> ? -std::numeric_limits<A>::infinity()
                                                             : std::numeric_limits<A>::lowest();
  static HWY_INLINE A step(A a, A b) {
    A m = a > b ? a : b;
    if constexpr (std::is_floating_point_v<A>) {
      const A both = std::bit_cast<A>(std::bit_cast<BitsOf<A>>(a) & std::bit_cast<BitsOf<A>>(b));
      m = a == b ? both : m;
      m = a != a ? a : m;
    }
    return m;
  }
  template <typename V>
  static HWY_INLINE V steps(V a, V b) {
    const V m = hn::IfThenElse(hn::Gt(a, b), a, b);
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), m));
  }
  static HWY_INLINE bool beats(A v, A best) {
    if constexpr (std::is_floating_point_v<A>) return (v > best) | ((v != v) & (best == best));
    else return v > best;
  }
};
template <typename A>
struct MinOf {
  static constexpr A kIdentity = std::is_floating_point_v<A> ? std::numeric_limits<A>::infinity()
                                                             : std::numeric_limits<A>::max();
  static HWY_INLINE A step(A a, A b) {
    A m = a < b ? a : b;
    if constexpr (std::is_floating_point_v<A>) {
      const A either = std::bit_cast<A>(std::bit_cast<BitsOf<A>>(a) | std::bit_cast<BitsOf<A>>(b));
      m = a == b ? either : m;
      m = a != a ? a : m;
    }
    return m;
  }
  template <typename V>
  static HWY_INLINE V steps(V a, V b) {
    const V m = hn::IfThenElse(hn::Lt(a, b), a, b);
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), m));
  }
  static HWY_INLINE bool beats(A v, A best) {
    if constexpr (std::is_floating_point_v<A>) return (v < best) | ((v != v) & (best == best));
    else return v < best;
  }
};

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
