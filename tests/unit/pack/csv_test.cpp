// CSV: what is read is what is written, and damage is refused with the file and the line.
#include "stowage/pack/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "stowage/base/text_file.h"
#include "stowage/pack/svg.h"

namespace stow::pack {
namespace {

class PackCsv : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "pack_csv_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/in.csv";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<CsvProblem> read(std::string_view text, CsvColumns columns = CsvColumns::kProblem) {
    EXPECT_TRUE(write_text_file(path_, text).ok());
    return read_csv(path_, columns);
  }

  std::string folder_, path_;
};

TEST_F(PackCsv, ReadsAnyOrderOfColumnsAndEndings) {
  for (const char* text : {"id,lower,upper,size\nb1,0,3,4\nx y,3,9,0\n",
                           "id,lower,upper,size\r\nb1,0,3,4\r\nx y,3,9,0\r\n",
                           "size,id,upper,lower\n4,b1,3,0\n0,x y,9,3",
                           "id,lower,upper,size\nb1,0,3,4\nx y,3,9,0\n\r\n\n"}) {
    const Result<CsvProblem> got = read(text);
    ASSERT_TRUE(got.ok()) << got.error();
    EXPECT_THAT(got->ids, testing::ElementsAre("b1", "x y"));
    const Rect& r = got->problem.buffers[0].rects.at(0);
    EXPECT_EQ(std::tuple(r.offset, r.size, r.lower, r.upper), std::tuple(0, 4, 0, 3));
    EXPECT_EQ(got->problem.buffers[1].rects.at(0).upper, 9);
    EXPECT_EQ(got->problem.buffers[0].alignment, 1);
    EXPECT_TRUE(check_problem(got->problem).ok());
  }
}

TEST_F(PackCsv, AByteOrderMarkIsNoPartOfTheFirstName) {
  EXPECT_TRUE(read("\xef\xbb\xbfid,lower,upper,size\na,0,1,4\n").ok());
}

TEST_F(PackCsv, WritesWhatItReads) {
  const CsvProblem problem =
      read("id,lower,upper,size\na,0,3,4\nb,2,9223372036854775807,4611686018427387000\n").value();
  const std::string out = folder_ + "/out.csv";
  ASSERT_TRUE(write_csv(out, problem, {7, 11}).ok());
  EXPECT_EQ(read_text_file(out).value(),
            "id,lower,upper,size,offset\na,0,3,4,7\n"
            "b,2,9223372036854775807,4611686018427387000,11\n");
  const Result<CsvProblem> again = read_csv(out, CsvColumns::kSolution);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_THAT(again->offsets, testing::ElementsAre(7, 11));
  EXPECT_EQ(again->ids, problem.ids);
  // It is a problem again, as it was.
  const Result<CsvProblem> as_problem = read_csv(out);
  ASSERT_TRUE(as_problem.ok()) << as_problem.error();
  EXPECT_EQ(as_problem->ids, problem.ids);
  EXPECT_TRUE(as_problem->offsets.empty());
  // Only the two files: no temporary one stays.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
  EXPECT_FALSE(write_csv(folder_ + "/none/out.csv", problem, {7, 11}).ok());
}

TEST_F(PackCsv, RefusesDamage) {
  const std::string head = "id,lower,upper,size\n";
  struct Row {
    std::string text;
    int line;
    const char* why;
  };
  const Row rows[] = {
      {"", 1, "expected a header and rows, got an empty file"},
      {"\n", 1, "unknown column ''"},
      {head, 1, "no rows"},
      {"id,lower,upper\na,0,1\n", 1, "column 'size' is missing"},
      {"lower,upper,size\n0,1,4\n", 1, "column 'id' is missing"},
      {"id,lower,upper,size,offset\na,0,1,4,x\n", 2, "offset: expected an integer, got 'x'"},
      {"id,lower,upper,size,hint\na,0,1,4,0\n", 1, "unknown column 'hint'"},
      {"id,lower,upper,size,size\na,0,1,4,4\n", 1, "'size' stands twice"},
      {"id, lower,upper,size\na,0,1,4\n", 1, "unknown column ' lower'"},
      {"a,0,1,4\n", 1, "unknown column 'a'"},
      {head + "a,0,1\n", 2, "3 fields where the header has 4"},
      {head + "a,0,1,4,9\n", 2, "5 fields where the header has 4"},
      {head + "a,0,1,4\n\nb,0,1,4\n", 3, "1 fields"},
      {head + "a,0,1,4\nb,0,one,4\n", 3, "upper: expected an integer, got 'one'"},
      {head + "a,0,1,4.0\n", 2, "size: expected an integer, got '4.0'"},
      {head + "a,0,1,\n", 2, "size: expected an integer, got ''"},
      {head + "a,0,1, 4\n", 2, "size: expected an integer, got ' 4'"},
      {head + "a,0,1,1e3\n", 2, "size: expected an integer, got '1e3'"},
      {head + "a,0x1,9,4\n", 2, "lower: expected an integer, got '0x1'"},
      {head + "a,0,nan,4\n", 2, "upper: expected an integer, got 'nan'"},
      {head + "a,-1,1,4\n", 2, "lower -1 is negative"},
      {head + "a,0,1,-4\n", 2, "size -4 is negative"},
      {head + "a,0,9223372036854775808,4\n", 2, "does not fit in 64 bits"},
      {head + "a,0,1,99999999999999999999\n", 2, "does not fit in 64 bits"},
      {head + "a,0,1,-99999999999999999999\n", 2, "does not fit in 64 bits"},
      {head + "a,0,1,4611686018427387905\n", 2, "more than 2^62"},
      {head + "a,0,1,3000000000000000000\nb,5,6,3000000000000000000\n", 3, "more than 2^62"},
      {head + "a,1,1,4\n", 2, "lower 1 is not below upper 1"},
      {head + "a,2,1,4\n", 2, "lower 2 is not below upper 1"},
      {head + "a,0,1,4\nb,0,1,4\na,3,4,4\n", 4, "id 'a' stands in line 2 too"},
      {head + ",0,1,4\n", 2, "the id is empty"},
      {head + std::string("a\0,0,1,4\x1b\n", 11), 2, "size: expected an integer, got '4?'"},
      {head + std::string(1000, 'x') + "\n", 2, "1 fields"},
  };
  for (const Row& row : rows) {
    const Result<CsvProblem> got = read(row.text);
    ASSERT_FALSE(got.ok()) << row.text;
    EXPECT_THAT(got.error(), testing::StartsWith(fmt::format("{}:{}: ", path_, row.line)))
        << row.text;
    EXPECT_THAT(got.error(), testing::HasSubstr(row.why));
    EXPECT_EQ(got.error().find('\n'), std::string::npos);
    EXPECT_LT(got.error().size(), path_.size() + 150);
  }
  EXPECT_EQ(read(head + "a,0,1,4\n", CsvColumns::kSolution).error(),
            path_ + ":1: column 'offset' is missing");
  EXPECT_THAT(read_csv(folder_ + "/none.csv").error(), testing::HasSubstr("No such file"));
  EXPECT_THAT(read_csv(folder_).error(), testing::HasSubstr("is a folder"));
}

TEST_F(PackCsv, ADashIsStandardInputAndOutput) {
  const auto from_stdin = [&](const std::string& text) {
    const int kept = ::dup(STDIN_FILENO);
    EXPECT_TRUE(write_text_file(path_, text).ok());
    EXPECT_NE(std::freopen(path_.c_str(), "rb", stdin), nullptr);
    Result<CsvProblem> got = read_csv("-");
    ::dup2(kept, STDIN_FILENO);
    ::close(kept);
    return got;
  };
  const Result<CsvProblem> got = from_stdin("id,lower,upper,size\na,0,2,4\n");
  ASSERT_TRUE(got.ok()) << got.error();
  testing::internal::CaptureStdout();
  EXPECT_TRUE(write_csv("-", *got, {7}).ok());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "id,lower,upper,size,offset\na,0,2,4,7\n");
  EXPECT_EQ(from_stdin("id,lower\n").error(), "standard input:1: column 'upper' is missing");
}

TEST_F(PackCsv, SvgDrawsEachRectangleAndEscapesNames) {
  const CsvProblem csv = read("id,lower,upper,size\na<b&c>,0,3,4\nnil,1,2,0\nd,3,9,4\n").value();
  const std::string svg = draw_svg(csv.problem, {{0, 0, 0}, 4}, csv.ids);
  size_t rects = 0;
  for (size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1))
    ++rects;
  EXPECT_EQ(rects, 2u);
  const std::string odd = draw_svg(csv.problem, {{0, 0, 0}, 4}, {"\xff\x1b", "nil", "d"});
  EXPECT_THAT(odd, testing::HasSubstr("<title>??: [0, 4) bytes"));
  EXPECT_THAT(svg,
              testing::HasSubstr("<title>a&lt;b&amp;c&gt;: [0, 4) bytes, [0, 3) time</title>"));
}

}  // namespace
}  // namespace stow::pack
