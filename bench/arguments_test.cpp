#include "bench/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stow {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What a benchmark of THREADS [SCALE] LAYOUT makes of its words.
struct Outcome {
  int status;
  bool ran;
  std::string printed, errors;
};
Outcome run(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  Outcome o{};
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  o.status = run_bench_program(static_cast<int>(argv.size()), argv.data(), "usage: bench\n",
                               [&](Arguments a) {
                                 (void)a.number("THREADS", 1, 64);
                                 if (a.left() > 1) (void)a.number("SCALE", 0.0, 2.5);
                                 (void)a.word("LAYOUT", {"nn", "tn"});
                                 a.end();
                                 o.ran = true;
                               });
  o.printed = ::testing::internal::GetCapturedStdout();
  o.errors = ::testing::internal::GetCapturedStderr();
  return o;
}

TEST(BenchArguments, WhatIsUnderstoodRuns) {
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"1", "nn"}, {"64", "2.5", "tn"}}) {
    const Outcome o = run(words);
    EXPECT_TRUE(o.ran && o.status == 0 && o.errors.empty()) << words[0] << o.errors;
  }
}

TEST(BenchArguments, HelpRunsNothing) {
  const Outcome o = run({"--help"});
  EXPECT_EQ(o.status, 0);
  EXPECT_FALSE(o.ran);
  EXPECT_THAT(o.printed, Eq("usage: bench\n"));
  EXPECT_THAT(o.errors, IsEmpty());
}

TEST(BenchArguments, AnythingElseIsStatus2WithTheReasonAndTheUsage) {
  const struct {
    std::vector<std::string> words;
    const char* why;
  } cases[] = {
      {{}, "THREADS is missing"},
      {{"2"}, "LAYOUT is missing"},
      {{"two", "nn"}, "THREADS takes 1 to 64, not 'two'"},
      {{"2x", "nn"}, "THREADS takes 1 to 64, not '2x'"},
      {{"", "nn"}, "THREADS takes 1 to 64, not ''"},
      {{"0", "nn"}, "THREADS takes 1 to 64, not '0'"},
      {{"99999999999999999999", "nn"}, "THREADS takes 1 to 64, not '99999999999999999999'"},
      {{"1", "nan", "nn"}, "SCALE takes 0 to 2.5, not 'nan'"},
      {{"1", "3", "nn"}, "SCALE takes 0 to 2.5, not '3'"},
      {{"1", "xy"}, "LAYOUT takes nn, tn, not 'xy'"},
      {{"1", "1", "nn", "more"}, "'more' is not understood"},
      {{"--what"}, "THREADS takes 1 to 64, not '--what'"},
  };
  for (const auto& c : cases) {
    const Outcome o = run(c.words);
    EXPECT_EQ(o.status, 2) << c.why;
    EXPECT_FALSE(o.ran) << c.why;
    EXPECT_THAT(o.errors, Eq(std::string(c.why) + "\nusage: bench\n"));
    EXPECT_THAT(o.printed, IsEmpty());
  }
}

}  // namespace
}  // namespace stow
