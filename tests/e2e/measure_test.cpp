// The commands that measure a step, `bench step` and `profile`: that they answer, with what their
// readers look for, and that the models of data/bench are the peers'. Not how fast anything is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "stowage/cli/commands.h"
#include "stowage/io/json.h"
#include "stowage/train/config.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Whole steps take a second of optimized code, and minutes of other.
#ifdef NDEBUG
constexpr int64_t kBatch = 16, kSeq = 256;
#else
constexpr int64_t kBatch = 1, kSeq = 32;
#endif

class Measure : public ::testing::Test {
 protected:
  struct Outcome {
    std::string printed, errors;
    Json json;  // what was written to --json, by which `printed` holds the text for people
  };

  // Where nobody calibrated.
  void SetUp() override { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  Outcome run(Command command, std::vector<std::string> arguments, const std::string& json) {
    arguments.insert(arguments.end(), {"--json", json});
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Result<int> status = command(arguments);
    std::fflush(stdout);
    Outcome o{
        ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr(), {}};
    EXPECT_TRUE(status.ok() && *status == kExitDone) << (status ? "a status" : status.error());
    Result<Json> parsed = parse_json(json == "-" ? o.printed : read_bytes(json));
    EXPECT_TRUE(parsed.ok()) << parsed.error();
    if (parsed) o.json = std::move(*parsed);
    return o;
  }
  static double number(const Json& object, const char* key) {
    const Json* value = object.find(key);
    EXPECT_NE(value, nullptr) << key;
    const Result<double> x = value ? value->as_double() : Result<double>(fail("missing"));
    EXPECT_TRUE(x.ok()) << key;
    return x ? *x : NAN;
  }

  TemporaryFolder folder_;
};

TEST_F(Measure, BenchStepAnswersWithWhatPeersAreComparedBy) {
  for (const std::string dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    std::vector<std::string> arguments = {"--config", "small", "--dtype", dtype, "--steps", "1"};
    if (kBatch != 16)
      arguments.insert(arguments.end(), {"--set", fmt::format("data.batch={}", kBatch), "--set",
                                         fmt::format("data.seq={}", kSeq)});
    const Outcome o = run(run_bench_step, arguments, "-");
    EXPECT_THAT(o.errors, HasSubstr("small " + dtype));
    EXPECT_EQ(*o.json.find("config"), "small");
    EXPECT_EQ(*o.json.find("dtype"), dtype);
    const double step_s = number(o.json, "step_s");
    EXPECT_GT(step_s, 0);
    EXPECT_NEAR(number(o.json, "tokens_per_s") * step_s, kBatch * kSeq, 1e-6 * kBatch * kSeq);
    EXPECT_GT(number(o.json, "compile_s"), 0);
    EXPECT_GT(number(o.json, "lower_bound_bytes"), 0);
    EXPECT_GE(number(o.json, "peak_bytes"), number(o.json, "lower_bound_bytes"));
    EXPECT_EQ(number(o.json, "peak_bytes"), number(o.json, "measured_peak_bytes"));
    EXPECT_GT(number(o.json, "gemm_share"), 0);
    EXPECT_LT(number(o.json, "gemm_share"), 1);
    ASSERT_NE(o.json.find("losses"), nullptr);
    ASSERT_EQ(o.json.find("losses")->as_array()->size(), 1u);
    // Nothing is known of seeded tokens: each of 256 is as likely, but for what first weights make.
    EXPECT_NEAR(*o.json.find("losses")->as_array()->front().as_double(), std::log(256), 0.2);
  }
}

TEST_F(Measure, BenchStepShowsTheSettingsItWasGiven) {
  const Outcome o =
      run(run_bench_step, {"--steps", "1", "--set", "data.batch=1", "--set", "data.seq=8"},
          folder_ / "o.json");
  EXPECT_THAT(o.printed, HasSubstr("small f32 with data.batch=1, data.seq=8: "));
  EXPECT_EQ(o.json.find("settings")->dump(), "[\"data.batch=1\", \"data.seq=8\"]");
}

TEST_F(Measure, BenchStepSaysWhyItRefusesInJsonToo) {
  const std::string path = folder_ / "o.json";
  const std::vector<std::string> arguments = {"--memory", "1MiB",       "--set",  "data.batch=1",
                                              "--set",    "data.seq=8", "--json", path};
  EXPECT_THROW((void)run_bench_step(arguments), CapacityError);
  const Result<Json> json = parse_json(read_bytes(path));
  ASSERT_TRUE(json.ok()) << json.error();
  EXPECT_EQ(*json->find("config"), "small");
  EXPECT_THAT(*json->find("refused")->as_string(), HasSubstr("more than the budget of 1.00 MiB"));
}

TEST_F(Measure, ProfileAnswersWithWhereTheTimeGoes) {
  const std::vector<std::string> small = {
      "--set", "model.dim=32", "--set", "model.layers=2", "--set", "model.ffn=48", "--set",
      "data.batch=2", "--set", "data.seq=32", "--trace", folder_ / "trace.json"};
  const Outcome o = run(run_profile, small, folder_ / "profile.json");
  EXPECT_GT(number(o.json, "step_s"), 0);
  EXPECT_GT(number(o.json, "kernels_s"), 0);
  EXPECT_GT(number(o.json, "product_flops_per_s"), 0);
  EXPECT_GT(number(o.json, "triad_bytes_per_s"), 0);
  EXPECT_GT(number(o.json, "flops"), 0);
  EXPECT_TRUE(o.json.find("predicted_step_s")->is_null());
  EXPECT_THAT(o.printed, HasSubstr("\nno step time: ./stowage calibrate measures this machine"));
  for (const char* by : {"by_op", "by_source", "by_kernel"}) {
    ASSERT_NE(o.json.find(by), nullptr) << by;
    double seconds = 0, flops = 0;
    for (const Json& row : *o.json.find(by)->as_array()) {
      EXPECT_FALSE(row.find("name")->as_string()->empty()) << by;
      EXPECT_GE(number(row, "calls"), 1);
      EXPECT_GE(number(row, "seconds"), number(row, "least_seconds"));
      EXPECT_GE(number(row, "bytes"), 0);
      seconds += number(row, "seconds");
      flops += number(row, "flops");
    }
    EXPECT_NEAR(seconds, number(o.json, "kernels_s"), 1e-6 * seconds) << by;
    EXPECT_NEAR(flops, number(o.json, "flops"), 1e-6 * flops) << by;
  }

  const Result<Json> trace = parse_json(read_bytes(folder_ / "trace.json"));
  ASSERT_TRUE(trace.ok()) << trace.error();
  int slices = 0;
  for (const Json& event : *trace->find("traceEvents")->as_array())
    if (*event.find("ph")->as_string() == "X") {
      ++slices;
      EXPECT_GE(number(event, "dur"), 0);
    }
  EXPECT_GT(slices, 10);
}

TEST_F(Measure, ProfileShowsThePredictedStepBesideTheMeasured) {
  const Outcome o = run(run_profile,
                        {"--set", "model.dim=32", "--set", "model.layers=1", "--set",
                         "data.batch=1", "--set", "data.seq=8", "--device-description", "h200"},
                        folder_ / "profile.json");
  EXPECT_THAT(o.printed, HasSubstr(fmt::format(
                             "\nthe measured step is {:.2f} times the simulated one\n",
                             number(o.json, "step_s") / number(o.json, "predicted_step_s"))));
  EXPECT_THAT(o.printed, Not(HasSubstr("no step time")));
}

// Those of ../shared/peers/configs.py, which JAX and PyTorch are timed on.
TEST(BenchConfigs, AreThoseOfThePeers) {
  const struct {
    const char* name;
    int64_t vocab, dim, layers, heads, kv_heads, ffn, batch, seq;
  } peers[] = {{"small", 256, 256, 6, 8, 4, 768, 16, 256},
               {"medium", 8192, 768, 8, 12, 4, 2048, 4, 512},
               {"vocab", 65536, 512, 2, 8, 8, 1408, 2, 512},
               {"long", 256, 256, 4, 4, 4, 768, 1, 4096}};
  for (const auto& p : peers) {
    SCOPED_TRACE(p.name);
    const Result<TrainConfig> loaded =
        load_train_config({.toml_path = source_path(fmt::format("data/bench/{}.toml", p.name))});
    ASSERT_TRUE(loaded.ok()) << loaded.error();
    const TrainConfig& c = *loaded;
    EXPECT_EQ(c.model.vocab, p.vocab);
    EXPECT_EQ(c.model.dim, p.dim);
    EXPECT_EQ(c.model.layers, p.layers);
    EXPECT_EQ(c.model.heads, p.heads);
    EXPECT_EQ(c.model.kv_heads, p.kv_heads);
    EXPECT_EQ(c.model.ffn, p.ffn);
    EXPECT_FALSE(c.model.tied);
    EXPECT_EQ(c.data.batch, p.batch);
    EXPECT_EQ(c.data.seq, p.seq);
    EXPECT_EQ(c.optimizer.name, "adamw");
    EXPECT_EQ(c.optimizer.lr, 1e-3);
    EXPECT_EQ(c.optimizer.schedule, "constant");
    EXPECT_EQ(c.optimizer.warmup, 0);
    EXPECT_EQ(c.optimizer.beta1, 0.9);
    EXPECT_EQ(c.optimizer.beta2, 0.999);
    EXPECT_EQ(c.optimizer.eps, 1e-8);
    EXPECT_EQ(c.optimizer.weight_decay, 0.1);
    EXPECT_EQ(c.optimizer.clip, 1.0);
    EXPECT_TRUE(c.optimizer.freeze.empty());
  }
}

}  // namespace
}  // namespace stow
