// `sweep` with real plans: its rows agree with `plan`, what it takes loads, and what stays whole on
// every device is named with the saving that a plan without it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/base/bytes.h"
#include "stowage/cli/commands.h"
#include "stowage/io/files.h"
#include "stowage/io/json.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/replication.h"
#include "stowage/train/sweep_planner.h"
#include "stowage/tune/devices.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kSmall = {"model.dim=32",    "model.layers=3",   "model.heads=4",
                                         "model.kv_heads=2", "model.ffn=64",    "model.vocab=256",
                                         "data.batch=16",   "data.seq=32",      "train.sample=0"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kSmall.begin(), kSmall.end());
  return more;
}

Job job_of(const std::vector<std::string>& more) {
  return Job(*load_train_config({.settings = with(more)}), 1, decoder_model,
             std::make_shared<const DeviceDescription>(*load_device_description("h200")));
}

struct Outcome {
  int status = -1;
  std::string error, printed;
  std::vector<Json> lines;
};

Outcome run(std::vector<std::string> more, const std::string& folder) {
  std::vector<std::string> arguments = {"--json", folder + "/sweep.json"};
  for (const std::string& setting : kSmall) arguments.insert(arguments.end(), {"--set", setting});
  arguments.insert(arguments.end(), more.begin(), more.end());
  ::testing::internal::CaptureStdout();
  const Result<int> status = run_sweep(arguments);
  std::fflush(stdout);
  Outcome o;
  o.printed = ::testing::internal::GetCapturedStdout();
  if (!status) {
    o.error = status.error();
    return o;
  }
  o.status = *status;
  std::istringstream text(read_bytes(folder + "/sweep.json"));
  for (std::string line; std::getline(text, line);) o.lines.push_back(*parse_json(line));
  return o;
}

int64_t number(const Json& row, const char* key) { return *row.find(key)->as_int(); }

TEST(SweepCommand, RowsAreThoseOfPlanAndTheBestIsTaken) {
  TemporaryFolder folder;
  const std::string taken = folder / "best.toml", html = folder / "sweep.html";
  const Outcome o = run({"--devices", "4", "--device-description", "h200", "--take", taken,
                         "--html", html, "--memory", "1MiB"},
                        folder.path());
  ASSERT_EQ(o.status, 0) << o.error;
  ASSERT_EQ(o.lines.size(), 3u);
  size_t n_best = 0;
  for (const Json& row : o.lines) {
    const Json& mesh = *row.find("mesh");
    if (!row.find("impossible")->is_null()) {
      EXPECT_EQ(number(mesh, "model"), 4);
      EXPECT_THAT(*row.find("impossible")->as_string(), HasSubstr("model.kv_heads = 2"));
      continue;
    }
    const Job job =
        job_of({fmt::format("mesh.data={}", number(mesh, "data")),
                fmt::format("mesh.model={}", number(mesh, "model")), "memory.device=1048576"});
    const Choice choice = choose_plan(job, budgets_of(job.config(), job.config().memory.device));
    ASSERT_TRUE(choice.plan.has_value());
    EXPECT_EQ(number(row, "peak_bytes"), choice.plan->peak_bytes[0]);
    EXPECT_EQ(*row.find("placement")->as_string(), to_string(choice.plan->placement));
    EXPECT_GT(*row.find("tokens_per_s")->as_double(), 0);
    EXPECT_TRUE(*row.find("fits")->as_bool());
    n_best += *row.find("best")->as_bool();
  }
  EXPECT_EQ(n_best, 1u);
  EXPECT_THAT(o.printed, HasSubstr("budget of each device: 1.00 MiB"));
  EXPECT_THAT(o.printed, HasSubstr("not possible: model=4"));
  const Result<TrainConfig> config = load_train_config({.toml_path = taken});
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->mesh.size(), 4);
  EXPECT_EQ(config->memory.device, 1 << 20);
  EXPECT_EQ(config->model.dim, 32);
  EXPECT_THAT(read_bytes(html), HasSubstr("\"sweep\": ["));
}

TEST(SweepCommand, TheLargestBatchFitsAndTheNextDoesNot) {
  const ConfigSources sources{.settings = with({"memory.device=400KiB"})};
  const JobPlanner planner(sources, std::nullopt, 400 << 10, [](int64_t) { return 1; });
  const SweepPoint point{{1, 2, 2}, 16, "auto"};
  const std::optional<int64_t> largest = largest_batch(planner, point);
  ASSERT_TRUE(largest.has_value());
  ASSERT_GE(*largest, 2);
  SweepPoint changed = point;
  changed.batch = *largest;
  EXPECT_TRUE(planner.plan_leanest(changed)->fits);
  EXPECT_TRUE(planner.plan(changed)->fits);
  changed.batch = *largest + 2;
  EXPECT_FALSE(planner.plan_leanest(changed)->fits);
  EXPECT_FALSE(planner.plan(changed)->fits);
}

TEST(SweepCommand, TheMeshOfAConfigurationGivesWayAndSoDoKeysWithoutEffect) {
  const ConfigSources sources{.settings =
                                  with({"mesh.data=2", "mesh.model=2", "mesh.parameters=replicated",
                                        "mesh.sequence=true"})};
  const Result<TrainConfig> data = config_of(sources, {{1, 4, 1}, 8, "recompute"});
  ASSERT_TRUE(data) << data.error();
  EXPECT_EQ(data->mesh.data, 4);
  EXPECT_EQ(data->mesh.model, 1);
  EXPECT_EQ(data->mesh.parameters, "replicated");
  EXPECT_FALSE(data->mesh.sequence);
  EXPECT_EQ(data->data.batch, 8);
  EXPECT_EQ(data->memory.policy, "recompute");
  const Result<TrainConfig> model = config_of(sources, {{1, 1, 2}, 8, "auto"});
  ASSERT_TRUE(model) << model.error();
  EXPECT_EQ(model->mesh.parameters, "auto");
  EXPECT_TRUE(model->mesh.sequence);
}

TEST(SweepCommand, WhatCannotBeSweptIsSaid) {
  TemporaryFolder folder;
  EXPECT_EQ(run({}, folder.path()).error,
            "sweep: expected --devices N, or --mesh once a mesh, got neither");
  EXPECT_EQ(run({"--devices", "2", "--mesh", "data=2"}, folder.path()).error,
            "sweep: expected --devices N, or --mesh once a mesh, got both");
  EXPECT_EQ(run({"--mesh", "dta=2"}, folder.path()).error,
            "--mesh: no axis 'dta' in 'dta=2'; did you mean 'data'?");
  EXPECT_THAT(run({"--devices", "0"}, folder.path()).error, HasSubstr("--devices"));
  EXPECT_THAT(run({"--mesh", "model=3"}, folder.path()).error,
              HasSubstr("sweep: no mesh is possible: model=3: model.heads = 4"));
}

// With the weights whole and the moments cut, cutting all weights that are named gives the plan of
// "auto": every matrix is large enough to be named, and no vector is.
TEST(ReplicationReport, TheSavingIsThatOfThePlanWhichCutsThem) {
  const Job whole = job_of({"mesh.data=8", "mesh.parameters=replicated", "mesh.optimizer=sharded"});
  const Job cut = job_of({"mesh.data=8", "mesh.parameters=auto", "mesh.optimizer=sharded"});
  const Placement placement{.policy = StepPolicy::kRecompute};
  const JobPlan plan = whole.plan(placement);
  const Replication found = find_replication(whole, plan, {}, 100);
  ASSERT_GT(found.values.size(), 2u);
  EXPECT_EQ(found.devices, 8);
  EXPECT_EQ(found.peak_bytes, plan.peak_bytes);
  EXPECT_LT(*found.peak_if_all_cut, plan.peak_bytes[0]);
  EXPECT_EQ(*found.peak_if_all_cut, cut.plan(placement).peak_bytes[0]);
  for (const WholeValue& value : found.values) {
    if (!value.peak_if_sharded) continue;
    EXPECT_TRUE(value.name.starts_with("model/")) << value.name;
    EXPECT_EQ(value.bytes, value.type.bytes());
    EXPECT_GE(value.bytes * 100, plan.peak_bytes[0]);
    if (value.name != "model/embed") continue;
    AxisSharding by_width = whole_sharding(2);
    by_width.axes[1].push_back(0);
    const Job one(whole.config(), whole.target(), whole.factory(), {{value.name, by_width}});
    EXPECT_EQ(*value.peak_if_sharded, one.plan(placement).peak_bytes[0]);
  }
  const std::vector<std::string> lines = replication_lines(found);
  EXPECT_THAT(lines,
              ::testing::Contains(::testing::AllOf(
                  HasSubstr("model/embed f32[256,32] is whole on each of 8 devices: 32.00 KiB; cut "
                            "over data the peak falls from "),
                  HasSubstr(format_bytes(plan.peak_bytes[0])))));
}

TEST(ReplicationReport, MomentsStandApartAndNothingIsSaidOfWhatIsCut) {
  const Job moments = job_of({"mesh.data=8", "mesh.optimizer=replicated"});
  const Replication found =
      find_replication(moments, moments.plan({.policy = StepPolicy::kRecompute}), {}, 2);
  ASSERT_GE(found.values.size(), 2u);
  for (const WholeValue& value : found.values)
    EXPECT_TRUE(!value.peak_if_sharded || value.name.starts_with("optimizer/")) << value.name;
  EXPECT_GT(found.n_unplanned, 0u);
  EXPECT_THAT(
      replication_lines(found).back(),
      HasSubstr("more; all of them cut over data (mesh.parameters = sharded, mesh.optimizer = "
                "sharded), the peak falls from "));
  const Job cut = job_of({"mesh.data=8", "mesh.parameters=sharded"});
  const Replication nothing =
      find_replication(cut, cut.plan({.policy = StepPolicy::kRecompute}), {});
  for (const WholeValue& value : nothing.values) EXPECT_FALSE(value.peak_if_sharded) << value.name;
  const Job one = job_of({});
  EXPECT_TRUE(
      find_replication(one, one.plan({.policy = StepPolicy::kRecompute}), {}).values.empty());
}

TEST(ReplicationReport, ValuesThatTheModelAxisCutsAreWholeAlongData) {
  const Job job = job_of({"mesh.data=4", "mesh.model=2", "mesh.parameters=replicated"});
  const Replication found =
      find_replication(job, job.plan({.policy = StepPolicy::kRecompute}), {}, 1);
  ASSERT_FALSE(found.values.empty());
  EXPECT_FALSE(found.values[0].is_whole);
  EXPECT_EQ(found.values[0].bytes * 2, found.values[0].type.bytes());
  EXPECT_THAT(replication_lines(found)[0], HasSubstr("is whole along data on each of 8 devices"));
}

}  // namespace
}  // namespace stow
