// The text of schedules: every field goes out and comes back, damage is refused with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_parser.h"
#include "stowage/ir/schedule_printer.h"

namespace stow {
namespace {

using ::testing::HasSubstr;

// Every construct and every field away from its default.
constexpr const char* kWhole = R"(schedule {alignment=256, loops=2} {
  b0: 128 bytes input 0
  b1: 512 bytes temporary {slots=4, slot_bytes=128, parts=[0,64], apart=true, first_slot=b0, each=[l0 of 3, l1 of 5]} "residual" @"mlp" "m.cpp":7 by residuals parts [ @"a",none]
  b2: 4 bytes pinned_host output 1 {separate=true} "a \"label\" \\ \x0a"
  b3: 64 bytes disk temporary
  inputs f32[4,8] b0
  outputs f32[] b2, i32[3] b1 at 16
  limit "order: 3 windows"
  f32[4,8] b1 begins = mul(f32[4,8] b0, f32[4,8] by [0,1] b0 at 4) rows [4,8] {n_row_dims=1, n_group_dims=1} {
    input 0 f32 by [8,1]
    input 1 bf16 by [0,1]
    output 0 f32 by [8,1]
    output 1 f32 by [1,0]
    %0 = load 0 : f32
    %1 = load 1 : bf16
    %2 = constant bf16 0.5
    %3 = iota 1 : i32
    %4 = mul(%0, %1) : f32
    %5 = select(%3, %4, %0) : f32
    %6 = rows reduce_sum(%5) : f32
    %7 = columns 1 reduce_max(%5) : f32
    %8 = store 0(%6) : f32
  } @"act"
  f32[4,4] b1 at 64 = dot_general(f32[8] b0, f32[8,4] b0, f32[4,4] b3) {lhs_contract=[1], rhs_contract=[0], lhs_batch=[], rhs_batch=[], out=f32} behind rows [4,4] {n_row_dims=1, n_group_dims=0} {
    input 0 f32 by [4,1]
    output 0 f32 by [4,1]
    %0 = load 0 : f32
    %1 = store 0(%0) : f32
  } before 1 (f32[8,4]) rows [8,4] {n_row_dims=0, n_group_dims=0} {
    input 0 bf16 by [4,1]
    output 0 f32 by [4,1]
    %0 = load 0 : bf16
    %1 = store 0(%0) : f32
  } scratch 64 b3
  f32[8] b1 = device_put(f32[8] b2) {kind=device} start 3 from 1 to 7
  f32[8] b1 = device_put(f32[8] b2) {kind=device} done 3
  loop l0 of 3 {
    f32[8] b1 l0 {start=1, step=2, modulo=4, stride=128} l1 = neg(f32[8] b0)
    loop l1 while bool[] b3 after {
      bool[] b3 = not(bool[] b3)
    } leaves (f32[8] b1) do {
    } to 2
  } from 1 @"loop"
  branch i32[] b3 leaves (f32[8] b1 begins) [{
    f32[8] b1 = exp(f32[8] b0)
  }, {
  }]
}
)";

std::string with(std::string text, const std::string& part, const std::string& other) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return at == std::string::npos ? text : text.replace(at, part.size(), other);
}
TEST(ScheduleText, ComesBackAsItWas) {
  const Result<Schedule> parsed = parse_schedule(kWhole, "s");
  ASSERT_TRUE(parsed.ok()) << parsed.error();
  EXPECT_EQ(print(*parsed), kWhole);
  const Schedule& s = *parsed;
  EXPECT_EQ(s.alignment_bytes, 256);
  EXPECT_EQ(s.n_loops, 2u);
  ASSERT_EQ(s.buffers.size(), 4u);
  EXPECT_EQ(s.buffers[1].first_slot, BufferId(0));
  EXPECT_EQ(s.buffers[1].loop_dims[1].trip_count, 5);
  EXPECT_EQ(s.buffers[1].provenance->location.line, 7);
  EXPECT_EQ(s.buffers[2].kind, MemoryKind::kPinnedHost);
  EXPECT_EQ(s.buffers[2].label, "a \"label\" \\ \n");
  ASSERT_EQ(s.instructions.size(), 6u);
  const Kernel& rows = *s.instructions[0].kernel();
  EXPECT_EQ(rows.kind, KernelKind::kRows);
  EXPECT_TRUE(rows.outputs[0].begins_lifetime);
  EXPECT_EQ(rows.inputs[1].strides, (Dims{0, 1}));
  EXPECT_EQ(rows.program->steps[2].imm, 0x3f00u);
  EXPECT_EQ(rows.program->steps[7].index, 1);
  const Kernel& product = *s.instructions[1].kernel();
  EXPECT_EQ(product.kind, KernelKind::kOp);
  EXPECT_TRUE(product.program && product.prologues[1].program && !product.prologues[0].program);
  EXPECT_FALSE(product.prologues[1].view.buffer.valid());
  EXPECT_EQ(product.scratch_bytes, 64);
  const Instruction& start = s.instructions[2];
  EXPECT_EQ(start.kernel()->phase, MovePhase::kStart);
  EXPECT_EQ(start.kernel()->transfer, 3);
  EXPECT_EQ(start.guard.begin, 1);
  EXPECT_EQ(start.guard.end, 7);
  const Loop& loop = *s.instructions[4].loop();
  EXPECT_EQ(loop.body[0].kernel()->outputs[0].terms[0].modulo, 4);
  EXPECT_EQ(loop.body[1].loop()->trip_count, Loop::kOpen);
  EXPECT_EQ(s.instructions[5].branch()->alternatives.size(), 2u);
}

// As a digest takes it: where the source lies makes no difference, what is done does.
TEST(ScheduleText, WithoutPlacesIsThatOfTheWorkAlone) {
  const auto work = [](const std::string& text) {
    return print(*parse_schedule(text, "s"), {.places = false});
  };
  const std::string text = work(kWhole);
  for (const char* place : {"m.cpp", "mlp", "\"act\"", "\"loop\"", "parts [ "})
    EXPECT_EQ(text.find(place), std::string::npos) << place;
  EXPECT_EQ(work(with(kWhole, "\"m.cpp\":7", "\"n.cpp\":9")), text);
  EXPECT_EQ(work(with(kWhole, "@\"act\"", "@\"gate\"")), text);
  EXPECT_NE(work(with(kWhole, "by [0,1] b0 at 4", "by [0,1] b0 at 8")), text);
  EXPECT_NE(work(with(kWhole, "= mul(%0", "= add(%0")), text);
}

TEST(ScheduleText, DamageIsRefusedWithItsPlace) {
  const struct {
    const char *part, *other, *error;
  } kCases[] = {
      {"alignment=256", "alignment=0", "s:1:21: expected an integer from 1 to"},
      {"b1: 512", "b2: 512", "s:3:3: expected b1 as the name of the next buffer, found b2"},
      {"first_slot=b0", "first_slot=b9", "expected a buffer below b4, found b9"},
      {"l1 of 5", "l2 of 5", "expected a loop below l2, found l2"},
      {"inputs f32[4,8] b0", "inputs f32[4,8] b7", "s:6:19: expected a buffer below b4, found b7"},
      {"by [0,1] b0", "by [0] b0", "expected 2 strides, one an axis, found 1"},
      {"%4 = mul(%0, %1)", "%4 = mul(%0, %4)", "expected a step below %4, found '%4'"},
      {"%0 = load 0 : f32", "%0 = load 5 : f32", "the number of an input"},
      {"store 0(%6)", "store 2(%6)", "the number of an output"},
      {"n_row_dims=1, n_group_dims=1", "n_row_dims=3, n_group_dims=1",
       "expected an integer from 0 to 2"},
      {"device_put(", "device_drop(", "expected an instruction: a window, an op, loop or branch"},
      {"loop l0 of 3", "loop l0 3", "expected 'of' and a number of iterations, or 'while'"},
      {"slots=4", "plots=4", "there is no field 'plots'"},
  };
  for (const auto& [part, other, error] : kCases) {
    const Result<Schedule> parsed = parse_schedule(with(kWhole, part, other), "s");
    ASSERT_FALSE(parsed.ok()) << other;
    EXPECT_THAT(parsed.error(), HasSubstr(error)) << other;
  }
}

TEST(ScheduleText, NothingDamagedCrashes) {
  const std::string text = kWhole;
  std::mt19937 random(7);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  int n_parsed = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string damaged = text.substr(0, round < 500 ? below(text.size()) : text.size());
    for (size_t i = 0; i < below(3) + 1 && !damaged.empty(); ++i) {
      const size_t at = below(damaged.size());
      if (below(2) == 0) damaged.erase(at, below(6));
      else damaged[at] = text[below(text.size())];
    }
    const Result<Schedule> parsed = parse_schedule(damaged, "s");
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().rfind("s:", 0), 0u) << parsed.error();
      continue;
    }
    ++n_parsed;
    const std::string once = print(*parsed);
    const Result<Schedule> again = parse_schedule(once, "s");
    ASSERT_TRUE(again.ok()) << again.error() << "\n" << once;
    EXPECT_EQ(print(*again), once);
  }
  EXPECT_GT(n_parsed, 50);
  const std::string deep = "schedule {} { inputs outputs ";
  std::string nested = deep;
  for (int i = 0; i < 100000; ++i) nested += "branch i32[] leaves () [{";
  EXPECT_FALSE(parse_schedule(nested, "s").ok());
}

}  // namespace
}  // namespace stow
