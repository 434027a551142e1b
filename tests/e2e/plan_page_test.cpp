// plan --html: the figures of the page are those of `plan --json`, to the byte, and each chart adds
// up; names from outside stay text, and the page stays small.
#include "stowage/train/decoder_model.h"
#include "stowage/train/plan_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "stowage/cli/commands.h"
#include "stowage/io/json.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/plan/owner_timeline.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kBefore = "<script type=\"application/json\" id=\"figures\">";

// The JSON in a page, as a browser takes it: up to the first end of a script.
Json figures_of(const std::string& html) {
  const size_t begin = html.find(kBefore) + kBefore.size();
  const Result<Json> figures =
      parse_json(std::string_view(html).substr(begin, html.find("</script", begin) - begin));
  EXPECT_TRUE(figures.ok()) << figures.error();
  return figures.ok() ? *figures : Json();
}

int64_t number(const Json& object, std::string_view key) { return *object.find(key)->as_int(); }
std::string text_of(const Json& object, std::string_view key) {
  return *object.find(key)->as_string();
}
const Json::Array& list(const Json& object, std::string_view key) {
  return *object.find(key)->as_array();
}
std::vector<int64_t> series_of(const Json& owner) {
  std::vector<int64_t> all;
  const Json::Array& runs = list(owner, "bytes");
  for (size_t i = 0; i + 1 < runs.size(); i += 2)
    all.insert(all.end(), static_cast<size_t>(*runs[i + 1].as_int()), *runs[i].as_int());
  return all;
}

class PlanPageTest : public ::testing::Test {
 protected:
  struct Outcome {
    int status = -1;
    Json report, figures;
    std::string html, printed;
  };
  Outcome plan(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--json", folder_ / "plan.json", "--html",
                                          folder_ / "plan.html"};
    for (const char* setting : {"model.dim=32", "model.layers=3", "model.ffn=64", "data.batch=4",
                                "data.seq=32"})
      arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), more.begin(), more.end());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Result<int> status = run_plan(arguments);
    std::fflush(stdout);
    Outcome o;
    o.printed = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(status.ok()) << status.error();
    o.status = status.ok() ? *status : -1;
    o.html = read_bytes(folder_ / "plan.html");
    o.report = *parse_json(read_bytes(folder_ / "plan.json"));
    o.figures = figures_of(o.html);
    return o;
  }

  // The page of settings without remedies, which take long to plan.
  static std::string page_of(std::vector<std::string> settings, const std::string& memory = "") {
    for (const char* setting : {"model.dim=32", "model.ffn=64", "data.batch=4", "data.seq=32"})
      settings.emplace_back(setting);
    const TrainConfig config = *load_train_config({.settings = settings, .memory = memory});
    const Job job(config, 1, decoder_model);
    const Budgets budgets = budgets_of(config, config.memory.device);
    const Choice choice = choose_plan(job, budgets);
    EXPECT_TRUE(choice.plan.has_value());
    return plan_page_html(plan_page_json({.job = job,
                                          .choice = choice,
                                          .budgets = budgets,
                                          .plan = *choice.plan,
                                          .report = Json::object(),
                                          .remedies = {},
                                          .near = {}}));
  }

  // Every column of every chart adds up to at most what is planned, and at the peak with the gaps
  // to it.
  static void expect_sums(const Json& figures) {
    size_t n_charts = 0;
    for (const Json& program : list(figures, "programs"))
      for (const Json& chart : list(program, "kinds")) {
        SCOPED_TRACE(text_of(program, "name") + " on " + text_of(chart, "kind"));
        ++n_charts;
        const size_t columns = list(chart, "instants").size();
        EXPECT_LE(columns, 400u);
        EXPECT_EQ(list(chart, "running").size(), columns);
        EXPECT_LE(list(chart, "owners").size(), 24u + 9u);
        std::vector<int64_t> sums(columns, 0);
        const auto peak = static_cast<size_t>(number(chart, "peak_column"));
        for (const Json& owner : list(chart, "owners")) {
          const std::vector<int64_t> bytes = series_of(owner);
          ASSERT_EQ(bytes.size(), columns);
          EXPECT_EQ(bytes[peak], number(owner, "peak_bytes"));
          for (size_t c = 0; c < columns; ++c) sums[c] += bytes[c];
        }
        EXPECT_EQ(*std::max_element(sums.begin(), sums.end()), sums[peak]);
        EXPECT_EQ(sums[peak], number(chart, "live_peak_bytes"));
        EXPECT_EQ(sums[peak] + number(chart, "gap_bytes"), number(chart, "total_bytes"));
        EXPECT_GE(number(chart, "gap_bytes"), 0);
      }
    EXPECT_GE(n_charts, 1u);
  }
  static const Json& chart_of(const Json& figures, const std::string& program,
                              const std::string& kind) {
    for (const Json& p : list(figures, "programs"))
      for (const Json& chart : list(p, "kinds"))
        if (text_of(p, "name") == program && text_of(chart, "kind") == kind) return chart;
    ADD_FAILURE() << program << " has no chart of " << kind;
    return figures;
  }

  TemporaryFolder folder_;
};

TEST_F(PlanPageTest, ItsFiguresAreThoseOfTheReport) {
  const Outcome o = plan({});
  EXPECT_EQ(o.status, kExitDone);
  EXPECT_EQ(*o.figures.find("report"), o.report);
  expect_sums(o.figures);
  const std::string phase = text_of(o.report, "peak_phase");
  const Json& chart = chart_of(o.figures, phase, "device");
  EXPECT_EQ(number(chart, "total_bytes"), number(*o.report.find("predicted_peak_bytes"), "device"));
  // Owners at the peak, by what and source; arguments are told apart further, in sum the same.
  std::map<std::pair<std::string, std::string>, int64_t> wanted, shown;
  for (const Json& owner : list(o.report, "owners")) {
    const std::string what = text_of(owner, "what");
    wanted[{what, what == "argument" ? "" : text_of(owner, "source")}] += number(owner, "bytes");
  }
  for (const Json& owner : list(chart, "owners")) {
    const std::string what = text_of(owner, "what");
    // Results beside the arena, which count in the total, are no owners of the report.
    if (number(owner, "peak_bytes") > 0 && text_of(owner, "use") != "results")
      shown[{what, what == "argument" ? "" : text_of(owner, "source")}] +=
          number(owner, "peak_bytes");
  }
  int n_equal = 0;
  for (const auto& [key, bytes] : shown) {
    if (key.first.find("smaller owners together") != std::string::npos) continue;
    // A part may be among the smaller owners.
    EXPECT_LE(bytes, wanted[key]) << key.first << " " << key.second;
    n_equal += bytes == wanted[key];
  }
  EXPECT_EQ((shown[{"argument", ""}]), (wanted[{"argument", ""}]));
  EXPECT_GE(n_equal, 8);
  const auto sum = [](const auto& owners) {
    return std::accumulate(owners.begin(), owners.end(), int64_t{0},
                           [](int64_t so_far, const auto& one) { return so_far + one.second; });
  };
  EXPECT_EQ(sum(shown), sum(wanted));
  EXPECT_GT(shown.size(), 4u);
  // The remedies are planned, and sorted as a refusal sorts them.
  EXPECT_GE(list(o.figures, "remedies").size(), 3u);
}

TEST_F(PlanPageTest, EveryMemoryHasItsChart) {
  const Json figures = figures_of(page_of(
      {"model.layers=3", "runtime.platform=virtual", "memory.policy=offload_all",
       "memory.activations=pinned_host", "memory.optimizer=disk", "memory.parameters=device",
       "memory.gradients=device", "memory.disk=1MiB", "memory.host=1GB"}));
  expect_sums(figures);
  EXPECT_GT(number(chart_of(figures, "step", "pinned_host"), "total_bytes"), 0);
  // The optimizer's state lies on the disk all along.
  bool has_state = false;
  for (const Json& owner : list(chart_of(figures, "step", "disk"), "owners"))
    if (text_of(owner, "use") == "optimizer state") {
      has_state = true;
      const std::vector<int64_t> series = series_of(owner);
      EXPECT_EQ(std::count(series.begin(), series.end(), series[0]), std::ssize(series));
    }
  EXPECT_TRUE(has_state);
}

TEST_F(PlanPageTest, ARefusalHasItsPageToo) {
  const Outcome o = plan({"--memory", "300KiB"});
  EXPECT_EQ(o.status, kExitOverBudget);
  EXPECT_EQ(*o.figures.find("report"), o.report);
  EXPECT_TRUE(*o.figures.find("refused")->as_bool());
  EXPECT_EQ(*o.figures.find("needed_bytes"), *o.report.find("needed_bytes"));
  EXPECT_EQ(number(*o.figures.find("budget_bytes"), "device"), 300 << 10);
  expect_sums(o.figures);
  // Remedies as the text has them, in its order.
  size_t at = o.printed.find("what would lower it");
  ASSERT_NE(at, std::string::npos);
  const Json::Array& remedies = list(o.figures, "remedies");
  for (size_t i = 0; i < std::min<size_t>(12, remedies.size()); ++i) {
    at = o.printed.find(text_of(remedies[i], "change"), at);
    ASSERT_NE(at, std::string::npos) << text_of(remedies[i], "change");
  }
  EXPECT_GE(remedies.size(), 5u);
}

TEST_F(PlanPageTest, NamesFromOutsideStayText) {
  const std::string name = "</script><img src=x>&amp;\u2028\"\xff.txt";
  const std::string html =
      page_of({"model.layers=1", "memory.policy=save_all", "data.path=" + name});
  const size_t begin = html.find(kBefore) + kBefore.size();
  const std::string inside = html.substr(begin, html.find("</script>", begin) - begin);
  EXPECT_EQ(inside.find_first_of("<>&\n"), std::string::npos);
  EXPECT_EQ(inside.find("\u2028"), std::string::npos);
  bool is_there = false;
  const Json figures = figures_of(html);
  for (const Json& setting : list(figures, "settings"))
    if (*(*setting.as_array())[0].as_string() == "data.path")
      is_there =
          *(*setting.as_array())[1].as_string() == "</script><img src=x>&amp;\u2028\"\ufffd.txt";
  EXPECT_TRUE(is_there);
  // Nothing is asked of a network, and no text becomes markup.
  const std::string page = html.substr(0, begin) + html.substr(begin + inside.size());
  for (const char* way : {"innerHTML", "src=", "href", "url(", "fetch(", "import", "eval("})
    EXPECT_THAT(page, Not(HasSubstr(way)));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST_F(PlanPageTest, OverAMeshItSaysWhoseSizesItShows) {
  const auto mesh_of = [](const std::vector<std::string>& settings) {
    return text_of(figures_of(page_of(settings)), "mesh");
  };
  EXPECT_EQ(mesh_of({"model.layers=1", "memory.policy=save_all", "mesh.data=2"}),
            "mesh: data 2; sizes are those of one of 2 devices");
  EXPECT_EQ(mesh_of({"model.layers=1", "memory.policy=save_all"}), "");
}

TEST_F(PlanPageTest, ALongTimelineIsBoundedAndKeepsItsPeak) {
  const std::string html = page_of({"model.layers=100", "memory.policy=recompute"});
  const Json figures = figures_of(html);
  expect_sums(figures);
  const Json& chart = chart_of(figures, "step", "device");
  EXPECT_GT(number(chart, "n_instants"), 2000);
  EXPECT_EQ(list(chart, "instants").size(), 400u);
  const auto peak = static_cast<size_t>(number(chart, "peak_column"));
  EXPECT_EQ(*list(chart, "instants")[peak].as_int(),
            number(list(figures, "programs")[0], "peak_instant"));
  EXPECT_LT(html.size(), 600u << 10);
}

TEST_F(PlanPageTest, AColumnShowsTheFullestOfItsInstants) {
  const Job job(*load_train_config({.settings = {"model.dim=32", "model.layers=3", "model.ffn=64",
                                                 "data.batch=2", "data.seq=32"}}),
                1, decoder_model);
  const JobPlan plan = job.plan({}, {});
  const Schedule& schedule = plan.programs.step->schedule();
  const OwnerTimeline whole = owner_timeline(schedule, MemoryKind::kDevice, SIZE_MAX);
  const OwnerTimeline few = owner_timeline(schedule, MemoryKind::kDevice, 7);
  ASSERT_EQ(static_cast<int64_t>(whole.instants.size()), whole.n_instants + 1);
  ASSERT_EQ(few.instants.size(), 7u);
  const auto sum_at = [](const OwnerTimeline& t, size_t column) {
    int64_t sum = 0;
    for (const OwnerLine& line : t.lines) sum += line.bytes[column];
    return sum;
  };
  const std::vector<int64_t> live =
      live_bytes(schedule, compute_lifetimes(schedule), MemoryKind::kDevice);
  const int64_t beside = bytes_outside_arena(schedule)[0];
  for (size_t t = 0; t < whole.instants.size(); ++t) EXPECT_EQ(sum_at(whole, t), live[t] + beside);
  const size_t n = whole.instants.size();
  for (size_t c = 0; c < 7; ++c) {
    int64_t most = 0;
    for (size_t t = n * c / 7; t < n * (c + 1) / 7; ++t) most = std::max(most, sum_at(whole, t));
    EXPECT_EQ(sum_at(few, c), most);
  }
  EXPECT_EQ(few.peak_live_bytes, whole.peak_live_bytes);
  EXPECT_EQ(owner_timeline(schedule, MemoryKind::kDisk, 7).lines.size(), 0u);
}

}  // namespace
}  // namespace stow
