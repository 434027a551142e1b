#include "stowage/base/parallel_in_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stow {
namespace {

using Work = std::function<int()>;

TEST(InOrder, TakesResultsInOrderWhicheverComesFirst) {
  std::vector<std::pair<size_t, int>> taken;
  // Each but the first waits until the one after it is through, if that runs beside it.
  std::latch second_is_through(1);
  const auto begin = [&](size_t i) -> std::optional<Work> {
    return [&, i] {
      if (i == 1) second_is_through.wait();
      if (i == 2) second_is_through.count_down();
      return static_cast<int>(10 * i);
    };
  };
  parallel_in_order(4, 3, begin, [&](size_t i, int value) {
    taken.emplace_back(i, value);
    return true;
  });
  const std::vector<std::pair<size_t, int>> expected = {{0, 0}, {1, 10}, {2, 20}, {3, 30}};
  EXPECT_EQ(taken, expected);
}

TEST(InOrder, ComputesNothingButTheFirstWhereThatIsEnough) {
  std::atomic<int> computed = 0;
  const auto begin = [&](size_t) -> std::optional<Work> { return [&] { return ++computed; }; };
  parallel_in_order(100, 8, begin, [](size_t, int) { return false; });
  EXPECT_EQ(computed, 1);
}

TEST(InOrder, PassesOverAndKnowsWhatWasTakenBefore) {
  std::vector<size_t> begun, taken;
  const auto begin = [&](size_t i) -> std::optional<Work> {
    if (i % 3 != 0) return std::nullopt;
    begun.push_back(i);
    return [] { return 0; };
  };
  for (const int threads : {1, 2, 8}) {
    begun.clear(), taken.clear();
    parallel_in_order(10, threads, begin, [&](size_t i, int) {
      taken.push_back(i);
      EXPECT_LE(begun.size(), taken.size() + static_cast<size_t>(threads));
      return true;
    });
    EXPECT_EQ(taken, (std::vector<size_t>{0, 3, 6, 9})) << threads;
    EXPECT_EQ(begun, taken);
  }
  parallel_in_order(0, 2, begin, [](size_t, int) { return true; });
}

TEST(InOrder, GivesTheErrorThatTheOrderHasFirst) {
  std::atomic<int> taken = 0;
  const auto begin = [&](size_t i) -> std::optional<Work> {
    return [i]() -> int {
      if (i >= 2) throw std::runtime_error(std::to_string(i));
      return 0;
    };
  };
  const auto run = [&](int threads) {
    parallel_in_order(9, threads, begin, [&](size_t, int) { return ++taken > 0; });
  };
  for (const int threads : {1, 4}) {
    taken = 0;
    try {
      run(threads);
      ADD_FAILURE() << "no error";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "2");
    }
    EXPECT_EQ(taken, 2);
  }
}

}  // namespace
}  // namespace stow
