// train.tensorboard: a run's event files have the values of its JSON lines, over a resume as well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "stowage/cli/commands.h"
#include "stowage/io/event_file.h"
#include "stowage/io/json.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class TensorBoard : public ::testing::Test {
 protected:
  Result<int> train(int64_t steps, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"--json", json_};
    for (const std::string& setting :
         {std::string("model.dim=32"), std::string("model.layers=1"), std::string("model.ffn=64"),
          std::string("data.batch=2"), std::string("data.seq=16"),
          std::string("optimizer.warmup=1"), std::string("optimizer.total_steps=6"),
          std::string("train.sample=0"), std::string("train.eval_every=2"),
          std::string("train.checkpoint_every=4"), "train.steps=" + std::to_string(steps),
          "train.out=" + (folder_ / "out"), "train.tensorboard=" + (folder_ / "board")})
      arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), more.begin(), more.end());
    ::testing::internal::CaptureStdout();
    const Result<int> status = run_train(arguments);
    std::fflush(stdout);
    ::testing::internal::GetCapturedStdout();
    return status;
  }
  std::vector<Json> lines() {
    std::vector<Json> all;
    std::ifstream in(folder_ / "out.jsonl");
    for (std::string line; std::getline(in, line);) all.push_back(*parse_json(line));
    return all;
  }
  // The event files in the order in which TensorBoard reads them.
  std::vector<std::vector<Event>> files() {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "board"))
      paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
    std::vector<std::vector<Event>> all;
    for (const std::string& path : paths) all.push_back(*read_events(path));
    return all;
  }
  static std::map<std::string, std::map<int64_t, float>> curves(const std::vector<Event>& events) {
    std::map<std::string, std::map<int64_t, float>> all;
    for (const Event& event : events)
      for (const EventScalar& s : event.scalars) all[s.tag][event.step] = s.value;
    return all;
  }
  // Every step's line has its point on each curve, and there are no others.
  void expect_same(const std::vector<Event>& events, const std::vector<Json>& rows) {
    const auto all = curves(events);
    constexpr std::pair<const char*, const char*> kCurves[] = {
        {"train/loss", "loss"},
        {"train/grad_norm", "grad_norm"},
        {"train/lr", "lr"},
        {"train/tokens_per_s", "tokens_per_s"}};
    for (const auto& [tag, key] : kCurves) {
      std::map<int64_t, float> wanted;
      for (const Json& row : rows)
        if (row.find(key) && !row.find("summary"))
          wanted[*row.find("step")->as_int()] = static_cast<float>(*row.find(key)->as_double());
      EXPECT_FALSE(wanted.empty());
      EXPECT_EQ(all.at(tag), wanted) << tag;
    }
    const Json& summary = rows.back();
    EXPECT_EQ(all.at("validation/loss").rbegin()->second,
              static_cast<float>(*summary.find("validation_loss")->as_double()));
    EXPECT_EQ(all.at("validation/loss").rbegin()->first, *summary.find("steps")->as_int());
  }

  TemporaryFolder folder_;
  std::string json_ = folder_ / "out.jsonl";
};

TEST_F(TensorBoard, TheEventsAreTheJsonLinesOverAResume) {
  Result<int> status = train(4);
  ASSERT_TRUE(status.ok()) << status.error();
  ASSERT_EQ(files().size(), 1u);
  const std::vector<Event> first = files()[0];
  EXPECT_EQ(first[0].file_version, "brain.Event:2");
  EXPECT_TRUE(first[1].is_start);
  EXPECT_EQ(first[1].step, 1);
  expect_same(first, lines());
  EXPECT_EQ(curves(first).at("validation/loss").size(), 2u);  // after steps 2 and 4
  status = train(6, {"--resume"});
  ASSERT_TRUE(status.ok()) << status.error();
  ASSERT_EQ(files().size(), 2u);
  const std::vector<Event> second = files()[1];
  EXPECT_TRUE(second[1].is_start);
  EXPECT_EQ(second[1].step, 5);
  expect_same(second, lines());
  EXPECT_EQ(curves(second).at("train/loss").begin()->first, 5);
}

TEST_F(TensorBoard, AFolderThatIsNoneIsSaidBeforeTheRun) {
  write_bytes(folder_ / "board", "x");
  EXPECT_EQ(train(2).error(),
            "train.tensorboard: " + (folder_ / "board") + ": is there and is not a folder");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(TensorBoard, AFullDiskStopsTheRunWithOneLine) {
  json_ = "/dev/null";  // which has no size
  const FileSizeLimit limit(200);
  const Result<int> status = train(4, {"--set", "train.checkpoint_every=0"});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error(), StartsWith(folder_ / "board/events.out.tfevents."));
  EXPECT_THAT(status.error(), HasSubstr(": File too large; "));
  EXPECT_THAT(status.error(), HasSubstr("the last checkpoint is none"));
  EXPECT_EQ(status.error().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace stow
