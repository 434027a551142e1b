// The sweep over meshes: which there are, the largest batch, the table and its lines, with a
// planner whose figures are formulas.
#include "stowage/train/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

namespace stow {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> names(const std::vector<SweepMesh>& meshes) {
  std::vector<std::string> texts;
  for (const SweepMesh& mesh : meshes) texts.push_back(to_string(mesh));
  return texts;
}

TEST(Sweep, AMeshIsEveryFactoringAndReplicasOfBlocks) {
  EXPECT_EQ(names(meshes_of(1, {})), (std::vector<std::string>{"one device"}));
  EXPECT_EQ(names(meshes_of(6, {})),
            (std::vector<std::string>{"data=6", "data=3 model=2", "data=2 model=3", "model=6"}));
  const std::vector<int64_t> blocks = {4, 64};
  EXPECT_EQ(names(meshes_of(16, blocks)),
            (std::vector<std::string>{"data=16", "replica=4 data=4", "data=8 model=2",
                                      "replica=4 data=2 model=2", "data=4 model=4",
                                      "replica=4 model=4", "data=2 model=8", "model=16"}));
  // 12 devices are no number of blocks of 8.
  const std::vector<int64_t> eight = {8};
  for (const SweepMesh& mesh : meshes_of(12, eight)) {
    EXPECT_EQ(mesh.replica, 1);
    EXPECT_EQ(mesh.size(), 12);
  }
}

TEST(Sweep, MeshesAreReadAsTheyAreWritten) {
  EXPECT_EQ(parse_sweep_mesh("data=256,model=4").value(), (SweepMesh{1, 256, 4}));
  EXPECT_EQ(parse_sweep_mesh("replica=2").value(), (SweepMesh{2, 1, 1}));
  EXPECT_EQ(parse_sweep_mesh("").error(), "expected axes such as data=256,model=4, got ''");
  EXPECT_EQ(parse_sweep_mesh("data=2,").error(),
            "expected axes such as data=256,model=4, got 'data=2,'");
  EXPECT_EQ(parse_sweep_mesh("dat=2").error(), "no axis 'dat' in 'dat=2'; did you mean 'data'?");
  EXPECT_EQ(parse_sweep_mesh("data=2,data=4").error(),
            "expected each axis once, got 'data=2,data=4'");
  for (const char* extent : {"0", "-1", "x", "", "2x", "1048577", "99999999999999999999"})
    EXPECT_EQ(parse_sweep_mesh(std::string("data=") + extent).error(),
              std::string("expected a number of devices from 1 to 1048576 for data, got '") +
                  extent + "'");
  EXPECT_EQ(parse_sweep_mesh("replica=1024,data=1024,model=2").error(),
            "'replica=1024,data=1024,model=2' is more than 1048576 devices");
}

// A planner of formulas: `fixed` bytes, `each` for every sequence of a part and `square` for its
// square.
class FakePlanner : public SweepPlanner {
 public:
  std::optional<int64_t> budget = 1000;
  int64_t fixed = 100, each = 10, square = 0;
  int64_t indivisible_model = 8;
  int64_t no_plan_from = INT64_MAX;  // sequences a part
  std::optional<double> seconds_of_model = 1;
  mutable std::atomic<int> n_plans = 0;

  Result<SweepPlan> plan(const SweepPoint& point) const override {
    if (point.mesh.model >= indivisible_model) return fail("heads cannot be cut");
    const LeanestPlan need = *plan_leanest(point);
    SweepPlan plan;
    plan.placement = "save_all";
    plan.peak_bytes = {need.device_bytes, 0, 0};
    plan.fits = need.fits;
    plan.tokens = point.batch * 10;
    if (!plan.fits) {
      plan.bound_by = "memory";
    } else if (seconds_of_model) {
      plan.step_s = *seconds_of_model * static_cast<double>(point.mesh.model);
      plan.exposed_s = 0.25;
      plan.bound_by = "compute";
    }
    return plan;
  }
  Result<LeanestPlan> plan_leanest(const SweepPoint& point) const override {
    ++n_plans;
    const int64_t n = point.batch / point.mesh.batch_parts();
    if (n >= no_plan_from) return fail("too large");
    const int64_t bytes = fixed + each * n + square * n * n;
    return LeanestPlan{bytes, !budget || bytes <= *budget};
  }
  std::optional<int64_t> budget_bytes() const override { return budget; }
};

TEST(Sweep, TheLargestBatchIsTheLastThatFits) {
  FakePlanner planner;
  const SweepMesh mesh{2, 4, 2};
  // 100 + 10 n <= 1000: 90 sequences for each of 8 parts.
  for (const int64_t first : {8, 80, 720, 728, 80000}) {
    planner.n_plans = 0;
    EXPECT_EQ(largest_batch(planner, {mesh, first, "auto"}), 720) << first;
    EXPECT_LE(planner.n_plans, 6) << first;
  }
  for (const int64_t budget : {109, 110, 111, 119, 120, 999, 1009, 100'000}) {
    planner.budget = budget;
    EXPECT_EQ(largest_batch(planner, {mesh, 64, "auto"}), (budget - 100) / 10 * 8) << budget;
  }
  // A curve, and what does not even fit without a batch.
  planner.square = 3;
  for (const int64_t budget : {99, 113, 5000, 123'456, 98'765'432}) {
    planner.budget = budget;
    int64_t n = 0;
    while (100 + 10 * (n + 1) + 3 * (n + 1) * (n + 1) <= budget) ++n;
    EXPECT_EQ(largest_batch(planner, {mesh, 64, "auto"}), n * 8) << budget;
  }
  planner.no_plan_from = 7;
  EXPECT_EQ(largest_batch(planner, {mesh, 64, "auto"}), 48);
  EXPECT_EQ(largest_batch(planner, {mesh, 6400, "auto"}), 48);
  planner.budget.reset();
  EXPECT_EQ(largest_batch(planner, {mesh, 64, "auto"}), std::nullopt);
}

TEST(Sweep, TheLargestBatchIsBoundedWhereNeedDoesNotGrow) {
  FakePlanner planner;
  planner.each = 0;
  EXPECT_EQ(largest_batch(planner, {{1, 1, 1}, 16, "auto"}), 1 << 20);
  EXPECT_LE(planner.n_plans, 24);
}

std::vector<SweepRow> rows_of(const FakePlanner& planner, int threads) {
  std::vector<SweepPoint> points;
  for (const SweepMesh& mesh : meshes_of(8, {})) points.push_back({mesh, 64, "auto"});
  return sweep(planner, points, threads);
}

TEST(Sweep, RowsAreInOrderAndTheFastestThatFitsIsBest) {
  FakePlanner planner;
  planner.seconds_of_model = 2;
  for (const int threads : {1, 4}) {
    const std::vector<SweepRow> rows = rows_of(planner, threads);
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].point.mesh, (SweepMesh{1, 8, 1}));
    EXPECT_EQ(rows[0].plan.peak_bytes[0], 180);
    EXPECT_EQ(rows[0].tokens_per_s(), 320);
    EXPECT_EQ(rows[0].largest_batch, 720);
    EXPECT_EQ(rows[2].plan.peak_bytes[0], 420);
    EXPECT_EQ(rows[2].tokens_per_s(), 80);
    EXPECT_EQ(rows[3].impossible, "heads cannot be cut");
    EXPECT_EQ(best_row(rows), 0u);
  }
  // data=8 has room, data=4 and data=2 have not.
  planner.budget = 200;
  std::vector<SweepRow> rows = rows_of(planner, 1);
  EXPECT_EQ(best_row(rows), 0u);
  EXPECT_FALSE(rows[1].plan.fits);
  EXPECT_EQ(rows[1].tokens_per_s(), std::nullopt);
  EXPECT_EQ(rows[1].largest_batch, 40);
  planner.budget = 100;
  rows = rows_of(planner, 1);
  EXPECT_EQ(best_row(rows), std::nullopt);
  EXPECT_EQ(rows[0].largest_batch, 0);
}

TEST(Sweep, TheTableMarksTheBestAndEndsWithTheImpossible) {
  FakePlanner planner;
  planner.budget = 300;
  const std::vector<SweepRow> rows = rows_of(planner, 2);
  EXPECT_EQ(sweep_table(rows),
            "   mesh            batch  placement   peak    step  exposed  tokens/s  largest batch  "
            "bound by\n"
            "*  data=8             64  save_all   180 B  1.00 s   250 ms       640            160  "
            "compute\n"
            "   data=4 model=2     64  save_all   260 B  2.00 s   250 ms       320             80  "
            "compute\n"
            "   data=2 model=4     64  save_all   420 B       -        -         -             40  "
            "memory\n"
            "not possible: model=8: heads cannot be cut\n");
}

TEST(Sweep, ALineOfJsonHasEveryKey) {
  FakePlanner planner;
  const std::vector<SweepRow> rows = rows_of(planner, 1);
  EXPECT_EQ(
      to_json(rows[1], true).dump(),
      R"({"mesh": {"replica": 1, "data": 4, "model": 2}, "devices": 8, "batch": 64, "policy": "auto", )"
      R"("placement": "save_all", "peak_bytes": 260, "by_kind": {"device": 260, "pinned_host": 0, "disk": 0}, )"
      R"("fits": true, "step_s": 2.0, "exposed_s": 0.25, "tokens_per_s": 320.0, "largest_batch": 360, )"
      R"("bound_by": "compute", "whole": [], "best": true, "impossible": null})");
  const std::string impossible = to_json(rows[3], false).dump();
  EXPECT_THAT(impossible,
              HasSubstr(R"("peak_bytes": null, "by_kind": null, "fits": false, "step_s": null)"));
  EXPECT_THAT(impossible, HasSubstr(R"("largest_batch": null)"));
  EXPECT_THAT(impossible, HasSubstr(R"("impossible": "heads cannot be cut")"));
  planner.seconds_of_model.reset();
  planner.budget.reset();
  const std::vector<SweepRow> untimed = rows_of(planner, 1);
  EXPECT_EQ(best_row(untimed), std::nullopt);
  EXPECT_THAT(sweep_table(untimed), HasSubstr("no limit"));
}

}  // namespace
}  // namespace stow
