// Every target computes what the reference says, in the bytes that were planned: ops, random programs and a
// training.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "stowage/base/text_file.h"
#include "stowage/ir/print.h"
#include "stowage/ops/build.h"
#include "stowage/runtime/streams.h"
#include "stowage/stowage.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/trainer.h"
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

// Under few bytes and many, moves by themselves and ahead: the bits of the plainest program of the CPU.
TEST(Targets, RandomProgramsAreExactAndKeepTheBits) {
  const auto other = std::make_shared<const OtherTarget>(2);
  int64_t n_moving = 0;
  for (uint64_t seed = 301; seed < 325; ++seed) {
    testing::set_crash_note(fmt::format("seed {}", seed));
    const RandomProgram program = testing::random_program(seed);
    const Execution judge = testing::execute(
        program.graph, {.donated = program.donated, .fuse = false, .reuse = false}, program.inputs, 1);
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
  const DeviceBufferPtr hidden = device->allocate(4), pinned = device->allocate(4, MemoryKind::kPinnedHost);
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

class TargetsTrain : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / fmt::format("stow-targets-{}", ::getpid());
    std::filesystem::create_directories(folder_);
    std::string text;
    for (int i = 0; text.size() < 20000; ++i) text += fmt::format("the quick brown fox {}\n", i * i % 97);
    ASSERT_TRUE(write_text_file((folder_ / "data.txt").string(), text).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  TrainConfig config(const std::string& name, int64_t steps) const {
    TrainConfig c;
    c.model = {.dim = 32, .layers = 3, .heads = 4, .kv_heads = 2, .ffn = 64, .vocab = 256, .tied = false};
    c.data = {.path = (folder_ / "data.txt").string(), .batch = 4, .seq = 32};
    c.train.steps = steps;
    c.train.sample = 8;
    c.train.out = (folder_ / name).string();
    c.optimizer.total_steps = 6;
    c.optimizer.warmup = 2;
    return c;
  }

  // The losses of each step, as bits. Measured is what was predicted, of each memory.
  std::vector<std::string> losses(TrainConfig c, const TargetPtr& target, bool resume = false) {
    c.train.out += target->name();
    const Job job(c, target, decoder_model);
    const Choice choice = choose_plan(job, budgets_of(c, {}));
    EXPECT_TRUE(choice.plan);
    const BytesByKind& peak = choice.plan->peak_bytes;
    const std::string path = (folder_ / "out.jsonl").string();
    {
      Result<JsonLines> json = JsonLines::open(path);
      RunOptions options;
      options.resume = resume;
      options.json = &*json;
      Positions positions(std::make_shared<Device>("virtual", peak, target));
      options.positions = &positions;
      const Result<int> status = run_training(job, choice, {peak[0], peak[1], peak[2]}, options);
      EXPECT_TRUE(status.ok()) << status.error();
    }
    std::vector<std::string> losses;
    std::ifstream lines(path);
    for (std::string line; std::getline(lines, line);) {
      const Json row = *parse_json(line);
      if (row.find("summary"))
        EXPECT_EQ(*row.find("predicted_peak_bytes"), *row.find("measured_peak_bytes"));
      else if (row.find("loss_hex"))
        losses.push_back(*row.find("loss_hex")->as_string());
    }
    return losses;
  }

  std::filesystem::path folder_;
};

TEST_F(TargetsTrain, ToTheSameBits) {
  for (const bool away : {false, true}) {
    SCOPED_TRACE(away ? "moments and activations on the host" : "all on the device");
    TrainConfig whole = config(away ? "away-" : "near-", 6);
    TrainConfig half = config(away ? "away-half-" : "near-half-", 3);
    for (TrainConfig* c : {&whole, &half}) {
      if (!away) continue;
      c->runtime.platform = "virtual";
      c->memory.policy = "offload_carries";
      c->memory.activations = c->memory.optimizer = "pinned_host";
      c->memory.host = 1'000'000'000;
    }
    const auto other = std::make_shared<const OtherTarget>(2);
    const std::vector<std::string> want = losses(whole, host_target(2));
    ASSERT_EQ(want.size(), 6u);
    std::vector<std::string> got = losses(half, other);
    half.train.steps = 6;
    for (const std::string& loss : losses(half, other, true)) got.push_back(loss);
    EXPECT_EQ(got, want);
    EXPECT_GT(other->n_kernels(), 100);
  }
}

}  // namespace
}  // namespace stow
