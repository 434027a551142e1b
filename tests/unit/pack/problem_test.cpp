// The problem, its lower bound, and the validator: it must find what is planted.
#include "stowage/pack/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stow::pack {
namespace {

using testing::HasSubstr;

Buffer plain(int64_t lower, int64_t upper, int64_t size, int64_t alignment = 1) {
  return {{{0, size, lower, upper}}, alignment};
}

TEST(PackProblem, LowerBoundIsTheLargestLiveSum) {
  EXPECT_EQ(lower_bound({}), 0);
  EXPECT_EQ(lower_bound({{plain(0, 3, 4), plain(3, 9, 4), plain(2, 4, 5)}}), 9);
  // Half-open: one that ends where another starts does not count beside it.
  EXPECT_EQ(lower_bound({{plain(0, 3, 4), plain(3, 9, 5)}}), 5);
  // The rectangles of a group count each in its own time.
  EXPECT_EQ(lower_bound({{Buffer{{{0, 8, 0, 2}, {0, 8, 5, 7}, {8, 2, 1, 6}}, 1}, plain(2, 5, 9)}}),
            11);
  EXPECT_EQ(lower_bound({{plain(0, 9, 0), plain(4, 4, 7), Buffer{}}}), 0);
}

TEST(PackProblem, CheckRefusesMalformedProblems) {
  EXPECT_TRUE(check_problem({}).ok());
  EXPECT_TRUE(check_problem({{Buffer{}, plain(3, 3, 5), plain(0, 9, 0)}}).ok());
  EXPECT_TRUE(check_problem({{Buffer{{{0, 8, 0, 2}, {0, 8, 2, 4}, {8, 8, 0, 4}}, 64}}}).ok());
  struct Row {
    Buffer buffer;
    const char* message;
  };
  const int64_t huge = int64_t{1} << 62;
  const Row rows[] = {
      {plain(0, 1, 8, 48), "power of two up to 2^40, got 48"},
      {plain(0, 1, 8, 0), "power of two up to 2^40, got 0"},
      {plain(0, 1, 8, -64), "power of two up to 2^40, got -64"},
      {plain(0, 1, -8), "negative"},
      {{{{-1, 8, 0, 1}}, 1}, "negative"},
      {plain(2, 1, 8), "lies after"},
      {{{{huge, 8, 0, 1}}, 1}, "2^62"},
      {plain(0, 1, huge), "2^62"},
      {{{{0, 8, 0, 3}, {0, 8, 2, 4}}, 1}, "share time and bytes"},
      {{{{0, 8, 0, 3}, {7, 8, 0, 3}}, 1}, "share time and bytes"},
  };
  for (const Row& row : rows) {
    const Result<void> result = check_problem({{plain(0, 1, 1), row.buffer}});
    ASSERT_FALSE(result.ok()) << row.message;
    EXPECT_THAT(result.error(), HasSubstr("buffer 1: "));
    EXPECT_THAT(result.error(), HasSubstr(row.message));
  }
}

// Three buffers in time, a stack of two slots, all in 128 bytes:
//   128 +----+---------+
//       | 1  | slot 1  |
//    64 +----+--+------+
//       | slot 0| 0    |
//     0 +-------+------+
//       0   2   3      6
class PackValidate : public testing::Test {
 protected:
  const Problem problem_{
      {plain(3, 6, 64, 64), plain(0, 2, 64, 64), Buffer{{{0, 64, 0, 3}, {64, 64, 2, 6}}, 64}}};
  void expect_failure(const Solution& solution, const char* message) const {
    const Result<void> result = validate(problem_, solution);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error(), HasSubstr(message));
  }
};

TEST_F(PackValidate, AcceptsWhatIsRight) {
  const Result<void> result = validate(problem_, {{0, 64, 0}, 128});
  EXPECT_TRUE(result.ok()) << result.error();
  EXPECT_TRUE(validate({}, {}).ok());
  EXPECT_TRUE(
      validate({{Buffer{}, plain(0, 4, 0), plain(0, 4, 8), plain(1, 1, 8)}}, {{0, 4, 0, 0}, 8})
          .ok());
}

TEST_F(PackValidate, FindsPlantedErrors) {
  expect_failure({{0, 64}, 128}, "2 offsets for 3 buffers");
  expect_failure({{0, 64, -64}, 128}, "negative");
  expect_failure({{0, 72, 0}, 136}, "alignment 64");
  expect_failure({{0, 64, 0}, 192}, "192 is stated and 128 is reached");
  expect_failure({{0, 64, 0}, 64}, "64 is stated");
  expect_failure({{64, 64, 0}, 128}, "share bytes [64, 128) at time 3");
  expect_failure({{0, 0, 0}, 128}, "buffers 2 and 1 share bytes [0, 64) at time 0");
  expect_failure({{0, INT64_MAX - 63, 0}, 128}, "overflows");
}

TEST_F(PackValidate, FindsOverlapOfOneByteAndOneInstant) {
  const Problem two{{plain(0, 5, 10), plain(4, 9, 10)}};
  EXPECT_TRUE(validate(two, {{0, 10}, 20}).ok());
  EXPECT_FALSE(validate(two, {{0, 9}, 19}).ok());
  EXPECT_FALSE(validate(two, {{9, 0}, 19}).ok());
  EXPECT_TRUE(validate({{plain(0, 4, 10), plain(4, 9, 10)}}, {{0, 0}, 10}).ok());
  // A small buffer inside the bytes of a large one, and the other way round.
  EXPECT_FALSE(validate({{plain(0, 9, 100), plain(3, 4, 2)}}, {{0, 50}, 100}).ok());
  EXPECT_FALSE(validate({{plain(3, 9, 100), plain(0, 4, 2)}}, {{0, 50}, 100}).ok());
}

}  // namespace
}  // namespace stow::pack
