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
#include <vector>

#include "tests/support/on_target.h"

namespace stow::cpu {
namespace {

struct Known {
  const char* name;
  SingleOp op;
  MapKernel kernel;
  bool of_floats;
};

std::vector<Known> all_known() {
  return {
#define STOW_X(name, out, in, value, kernel) \
  {#name, SingleOp::name, kernel, std::is_floating_point_v<in>},
      STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
  };
}

// Every special number, then numbers of every size; a NaN alone at a time, whose bits are kept.
std::vector<std::array<uint32_t, 3>> operands(bool of_floats) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {0.0f,    -0.0f,         1.0f,       -1.5f,  inf,
                                      -inf,    std::nanf(""), 1e38f,      -3e38f, 1e-40f,
                                      -1e-45f, 0.1f,          16777217.0f};
  const std::vector<uint32_t> whole = {0, 1, ~0u, 0x7fffffff, 0x80000000, 16777217, 46341};
  std::vector<std::array<uint32_t, 3>> all;
  const auto add = [&](auto a, auto b, auto c) {
    all.push_back(
        {std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b), std::bit_cast<uint32_t>(c)});
  };
  std::mt19937 engine(7);
  if (!of_floats) {
    for (uint32_t a : whole)
      for (uint32_t b : whole) add(a, b, 1u);
    for (int i = 0; i < 1000; ++i) add(uint32_t(engine()), uint32_t(engine()), 1u);
    return all;
  }
  for (float a : special)
    for (float b : special)
      for (float c : special)
        if (std::isnan(a) + std::isnan(b) + std::isnan(c) < 2) add(a, b, c);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 3000; ++i)
    add(normal(engine), normal(engine), std::ldexp(normal(engine), i % 40 - 20));
  return all;
}

bool is_nan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

void check_all() {
  for (const Known& known : all_known()) {
    SCOPED_TRACE(known.name);
    if (!known.kernel) continue;  // no such kernel: never met
    ASSERT_EQ(single_op(known.kernel), known.op);
    for (const auto& values : operands(known.of_floats)) {
      alignas(64) uint32_t in[3][16] = {};
      KernelCall call;
      call.rows = call.cols = 1;
      Single single;
      for (int k = 0; k < 3; ++k) {
        in[k][0] = values[static_cast<size_t>(k)];
        call.args[k].data = single.args[k] = reinterpret_cast<const std::byte*>(in[k]);
      }
      for (bool is_small : {false, true}) {
        call.is_small = is_small;
        uint32_t want = 0xa5a5a5a5, got = 0xa5a5a5a5;
        call.out = reinterpret_cast<std::byte*>(&want);
        single.out = reinterpret_cast<std::byte*>(&got);
        known.kernel(call);
        run_single(known.op, single);
        // The sign of a NaN is the compiler's: it may swap the operands of a sum.
        if (known.of_floats && is_nan(got) && is_nan(want)) continue;
        ASSERT_EQ(got, want) << std::hex << values[0] << ' ' << values[1] << ' ' << values[2];
      }
    }
  }
}

TEST(RowSingle, HasTheBitsOfTheKernel) {
  size_t n = 0;
  for (const Known& known : all_known()) n += known.kernel != nullptr;
  EXPECT_GE(n, 30u);
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
  const uint32_t yes = 0x7fa00001, no = 0x80000000;  // a signalling NaN stays as it is
  for (uint8_t chosen : {uint8_t{0}, uint8_t{1}}) {
    uint32_t got = 0;
    run_single(SingleOp::kSelect32, {reinterpret_cast<std::byte*>(&got),
                                     {reinterpret_cast<const std::byte*>(&chosen),
                                      reinterpret_cast<const std::byte*>(&yes),
                                      reinterpret_cast<const std::byte*>(&no)}});
    EXPECT_EQ(got, chosen ? yes : no);
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
