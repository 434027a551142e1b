// Single elements that loops over scalars make in line: the bits of the kernels that they stand
// for.
#include "stowage/runtime/cpu/kernels/row_single.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/on_target.h"

namespace stow::cpu {
namespace {

enum class Kind : uint8_t { kF32, kF64, kWord, kBool };
template <typename T>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<T, float>) return Kind::kF32;
  else if constexpr (std::is_same_v<T, double>) return Kind::kF64;
  else return sizeof(T) == 1 ? Kind::kBool : Kind::kWord;
}

struct Known {
  const char* name;
  SingleOp op;
  MapKernel kernel;
  Kind operands, result;
};

std::vector<Known> all_known() {
  return {
#define STOW_X(name, out, in, value, kernel) \
  {#name, SingleOp::name, kernel, kind_of<in>(), kind_of<out>()},
      STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
  };
}

using Operands = std::array<uint64_t, 4>;

// Every special number, then numbers of every size; a NaN alone at a time, whose bits are kept.
template <typename T>
void add_floats(std::vector<Operands>& all) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const auto add = [&](T a, T b, T c, T d) {
    all.push_back({std::bit_cast<Bits>(a), std::bit_cast<Bits>(b), std::bit_cast<Bits>(c),
                   std::bit_cast<Bits>(d)});
  };
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T tiny = std::numeric_limits<T>::denorm_min(), most = std::numeric_limits<T>::max();
  const std::vector<T> special = {0,    T(-0.0),   1,      T(-1.5), inf,           -inf, nan,
                                  most, -most / 2, -3 * tiny, T(0.1), T(16777217), T(4294967295.0)};
  for (T a : special)
    for (T b : special)
      for (T c : special)
        if (std::isnan(a) + std::isnan(b) + std::isnan(c) < 2) add(a, b, c, T(0.75));
  std::mt19937 engine(7);
  std::normal_distribution<T> normal;
  for (int i = 0; i < 3000; ++i)
    add(normal(engine), normal(engine), std::ldexp(normal(engine), i % 40 - 20), normal(engine));
}

std::vector<Operands> operands(Kind kind) {
  std::vector<Operands> all;
  if (kind == Kind::kF32) add_floats<float>(all);
  if (kind == Kind::kF64) add_floats<double>(all);
  if (kind == Kind::kBool)
    for (uint64_t a : {0, 1})
      for (uint64_t b : {0, 1}) all.push_back({a, b, a, b});
  if (kind != Kind::kWord) return all;
  const std::vector<uint32_t> whole = {0,   1,          2,          31,       32,
                                       ~0u, 0x7fffffff, 0x80000000, 16777217, 46341};
  for (uint32_t a : whole)
    for (uint32_t b : whole) all.push_back({a, b, 1, 1});
  std::mt19937 engine(7);
  for (int i = 0; i < 1000; ++i)
    all.push_back({uint32_t(engine()), uint32_t(engine()) >> i % 32, 1, 1});
  return all;
}

bool is_nan(Kind kind, uint64_t bits) {
  if (kind == Kind::kF64) return (bits & ~(uint64_t{1} << 63)) > 0x7ff0000000000000;
  return kind == Kind::kF32 && (bits & 0x7fffffff) > 0x7f800000;
}

void check_all() {
  for (const Known& known : all_known()) {
    SCOPED_TRACE(known.name);
    if (!known.kernel) continue;  // no such kernel: never met
    ASSERT_EQ(single_op(known.kernel), known.op);
    for (const Operands& values : operands(known.operands)) {
      alignas(64) uint64_t in[4][8] = {};
      KernelCall call;
      call.rows = call.cols = 1;
      Single single;
      for (int k = 0; k < 4; ++k) {
        in[k][0] = values[static_cast<size_t>(k)];
        call.args[k].data = single.args[k] = reinterpret_cast<const std::byte*>(in[k]);
      }
      for (bool is_small : {false, true}) {
        call.is_small = is_small;
        uint64_t want = 0, got = 0;
        call.out = reinterpret_cast<std::byte*>(&want);
        single.out = reinterpret_cast<std::byte*>(&got);
        known.kernel(call);
        run_single(known.op, single);
        // The sign of a NaN is the compiler's: it may swap the operands of a sum.
        if (is_nan(known.result, got) && is_nan(known.result, want)) continue;
        ASSERT_EQ(got, want) << std::hex << values[0] << ' ' << values[1] << ' ' << values[2];
      }
    }
  }
}

TEST(RowSingle, HasTheBitsOfTheKernel) {
  size_t n = 0;
  for (const Known& known : all_known()) n += known.kernel != nullptr;
  EXPECT_GE(n, 130u);
  check_all();
}
TEST(RowSingle, HasTheBitsOfTheKernelOfEveryTarget) {
  for (int64_t target : {int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
    if (target != int64_t{HWY_EMU128} && (hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    const OnTarget held(target);
    check_all();
  }
}

TEST(RowSingle, ChoosesAndCopies) {
  const uint64_t yes = 0x7ff000017fa00001, no = 0x80000000;  // a signalling NaN stays as it is
  for (uint8_t chosen : {uint8_t{0}, uint8_t{1}})
    for (auto [op, bytes] : {std::pair{SingleOp::kSelect8, 1}, {SingleOp::kSelect32, 4},
                             {SingleOp::kSelect64, 8}}) {
      uint64_t got = 0;
      run_single(op, {reinterpret_cast<std::byte*>(&got),
                      {reinterpret_cast<const std::byte*>(&chosen),
                       reinterpret_cast<const std::byte*>(&yes),
                       reinterpret_cast<const std::byte*>(&no)}});
      EXPECT_EQ(got, (chosen ? yes : no) & (~uint64_t{0} >> (64 - 8 * bytes)));
    }
  const uint64_t from = 0x0123456789abcdef;
  const auto* const at = reinterpret_cast<const std::byte*>(&from);
  for (auto [op, want] : {std::pair{SingleOp::kCopy1, uint64_t{0xef}},
                          {SingleOp::kCopy4, uint64_t{0x89abcdef}},
                          {SingleOp::kCopy8, from}}) {
    uint64_t to = 0;
    run_single(op, {reinterpret_cast<std::byte*>(&to), {at, at, at}});
    EXPECT_EQ(to, want);
  }
}

}  // namespace
}  // namespace stow::cpu
