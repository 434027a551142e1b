// Every target computes what the reference says, in the bytes that were planned: ops and random
// programs. Trainings are those of tests/e2e that run on each target.
#include <gtest/gtest.h>

#include "stowage/ir/print.h"
#include "stowage/ops/build.h"
#include "stowage/runtime/streams.h"
#include "stowage/stowage.h"
#include "tests/fuzz/near.h"
#include "tests/fuzz/random_program.h"
#include "tests/ops/near.h"
#include "tests/support/crash_note.h"
#include "tests/support/execute.h"
#include "tests/support/other_target.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::Execution;
using testing::OtherTarget;
using testing::RandomProgram;
using testing::Sample;

std::vector<TargetPtr> targets() {
  return {host_target(2), std::make_shared<const OtherTarget>(2)};
}

TEST(Targets, RunEverySampleAsTheReferenceSays) {
  testing::Random random(21);
  for (const Sample& sample : testing::samples()) {
    const Graph graph = one_op(sample);
    testing::set_crash_note(print(graph));
    const std::vector<Bytes> inputs = testing::encode_all(sample, testing::draw(sample, random));
    const std::vector<Bytes> want = testing::evaluate(graph, inputs);
    for (const TargetPtr& target : targets())
      for (const bool donate : {false, true}) {
        SCOPED_TRACE(fmt::format("{} on {}{}", to_string(sample), target->name(),
                                 donate ? ", all donated" : ""));
        CompileOptions options;
        if (donate) options.donated.assign(inputs.size(), true);
        const Execution e = testing::execute(graph, options, inputs, target);
        ASSERT_EQ(e.fault, "");
        for (size_t o = 0; o < want.size(); ++o)
          ASSERT_NO_FATAL_FAILURE(
              testing::expect_near(graph.type(graph.outputs()[o]), e.outputs[o], want[o]));
      }
  }
}

// Under few bytes and many, moves by themselves and ahead: the bits of the plainest program of the
// CPU.
TEST(Targets, RandomProgramsAreExactAndKeepTheBits) {
  const auto other = std::make_shared<const OtherTarget>(2);
  int64_t n_moving = 0;
  for (uint64_t seed = 301; seed < 325; ++seed) {
    testing::set_crash_note(fmt::format("seed {}", seed));
    const RandomProgram program = testing::random_program(seed);
    const Execution judge =
        testing::execute(program.graph, {.donated = program.donated, .fuse = false, .reuse = false},
                         program.inputs, 1);
    ASSERT_EQ(judge.fault, "");
    CompileOptions plain{.donated = program.donated}, tight = plain, apart = plain;
    plain.transfers_ahead = 3;
    tight.capacities = {1, 1, 1};
    tight.tile_bytes = 100;
    apart.reuse = false;
    if (program.differentiated) tight.override_policy = testing::random_policy(seed);
    for (const CompileOptions& options : {plain, tight, apart}) {
      SCOPED_TRACE(fmt::format("seed {}, tiles of {}{}", seed, options.tile_bytes,
                               options.reuse ? "" : ", no reuse"));
      const Execution e = testing::execute(program.graph, options, program.inputs, other);
      ASSERT_EQ(e.fault, "") << print(program.graph);
      ASSERT_EQ(e.outputs, judge.outputs) << print(program.graph);
      n_moving += e.analysis.host().total_bytes + e.analysis.disk().total_bytes > 0;
    }
  }
  EXPECT_GT(n_moving, 10);
  EXPECT_GT(other->n_on_other_threads(), 0) << "no kernel ran beside the caller";
  EXPECT_LT(other->n_on_other_threads(), other->n_kernels())
      << "no kernel waited until it was awaited";
}

TEST(Targets, TheHostHasNoAddressOfHiddenMemory) {
  const DevicePtr device =
      testing::other_device({1 << 20, 1 << 20, 0}, std::make_shared<const OtherTarget>(1));
  const DeviceBufferPtr hidden = device->allocate(4),
                        pinned = device->allocate(4, MemoryKind::kPinnedHost);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(hidden->data(), "the host has no address of the memory of other");
  EXPECT_NE(pinned->data(), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(hidden->place().memory) % 256, 0u);
}

// A kernel that fails after the program went on fails the run.
TEST(Targets, AnErrorOfASubmittedKernelIsThrown) {
  const auto target = std::make_shared<OtherTarget>(1);
  const DefaultDevice scope(testing::other_device({1 << 20, 1 << 20, 0}, target));
  const auto twice = jit([](const Array& a) { return a + a; });
  const Array x = Array::from(std::vector<float>{1, 2}, {2});
  EXPECT_EQ(twice(x).to_vector<float>(), (std::vector<float>{2, 4}));
  target->lose_kernels();
  try {
    twice(x);
    ADD_FAILURE() << "the error was dropped";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "lost");
  }
}

// Arrays are made, computed, printed and read where only copies reach their memory.
TEST(Targets, ArraysLiveInHiddenMemory) {
  const DefaultDevice scope(
      testing::other_device({1 << 22, 1 << 22, 0}, std::make_shared<const OtherTarget>(2)));
  const Array x = Array::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const Array y = jit([](const Array& a) { return matmul(a, a) + a * 0.5; })(x);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{7.5, 11, 16.5, 24}));
  EXPECT_EQ(sum(x).item<float>(), 10);
  EXPECT_EQ(device_put(y, MemoryKind::kPinnedHost).to_vector<float>(), y.to_vector<float>());
  EXPECT_EQ(elements_to_string(x), "[[1. 2.]\n [3. 4.]]");
}

}  // namespace
}  // namespace stow
