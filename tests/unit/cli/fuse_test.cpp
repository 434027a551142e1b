// `fuse` and `--adapter` as a person gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/cli/commands.h"
#include "tests/support/peft_kit.h"

namespace stow {
namespace {

using ::testing::HasSubstr;

class FuseCommand : public ::testing::Test {
 protected:
  FuseCommand() {
    const nlohmann::json one = testing::peft_cases()["cases"]["head_tied"];
    testing::write_base(folder_ / "base", true);
    testing::write_adapter(folder_ / "adapter", one["config"], testing::peft_tensors(one));
    write_bytes(folder_ / "lines.jsonl", "{\"tokens\": [1, 5, 9, 2]}\n{\"tokens\": [3, 4]}\n");
  }
  std::string error(const Result<int>& status) { return status.ok() ? "" : status.error(); }
  Result<int> fuse(const std::string& adapter, const std::string& out,
                   std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--model",           folder_ / "base", "--adapter",
                                          folder_ / adapter, "--out",           folder_ / out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_fuse(arguments);
  }
  // The mean log-probability that `score` gives.
  double mean(const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--model", folder_ / model, "--data",
                                          folder_ / "lines.jsonl", "--json", folder_ / "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ::testing::internal::CaptureStdout();
    const Result<int> status = run_score(arguments);
    text_ = ::testing::internal::GetCapturedStdout();
    STOW_CHECK(status.ok(), "{}", status.error());
    return nlohmann::json::parse(read_bytes(folder_ / "json"))["mean_logprob"].get<double>();
  }

  TemporaryFolder folder_;
  std::string text_;
};

TEST_F(FuseCommand, MakesAModelThatScoresAsWithTheAdapter) {
  ::testing::internal::CaptureStdout();
  const Result<int> status = fuse("adapter", "new/fused");
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("4 modules merged, f32; the head is untied from the embedding"));
  ASSERT_TRUE(status.ok()) << status.error();
  const double fused = mean("new/fused", {});
  EXPECT_NEAR(mean("base", {"--adapter", folder_ / "adapter"}), fused, 1e-5);
  EXPECT_THAT(text_, HasSubstr("adapter: 4 modules, "));
  EXPECT_GT(std::abs(mean("base", {}) - fused), 1e-3);
}

TEST_F(FuseCommand, RefusesWhatItCannotDo) {
  EXPECT_EQ(error(fuse("adapter", "base")),
            "fuse: --out " + (folder_ / "base") + " is read from; expected another folder");
  EXPECT_EQ(error(fuse("adapter", "x", {"--dtype", "f64"})),
            "fuse: --dtype: expected f32 or bf16, got 'f64'");
  EXPECT_THAT(error(fuse("nothing", "x")), HasSubstr(folder_ / "nothing/adapter_config.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
}

}  // namespace
}  // namespace stow
