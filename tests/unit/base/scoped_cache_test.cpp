#include "stowage/base/scoped_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace stow {
namespace {

// A search whose results are numbered in the order in which it is run.
class Numbered {
 public:
  explicit Numbered(ScopedCache<int>& cache) : cache_(cache) {}
  int operator()(const std::vector<int64_t>& problem) {
    return cache_.find([&] { return ++n_problems_, problem; }, [&] { return ++n_searches_; });
  }
  int n_problems() const { return n_problems_; }

 private:
  ScopedCache<int>& cache_;
  int n_problems_ = 0, n_searches_ = 0;
};

TEST(ScopedCache, KeepsNothingOutsideAScope) {
  ScopedCache<int> cache;
  Numbered find(cache);
  EXPECT_EQ(find({1}), 1);
  EXPECT_EQ(find({1}), 2);
  EXPECT_EQ(find.n_problems(), 0) << "no problem is written down";
  EXPECT_EQ(cache.n_reused(), 0u);
}

TEST(ScopedCache, ReusesWhatAScopeHasFound) {
  ScopedCache<int> cache;
  Numbered find(cache);
  cache.begin_scope();
  EXPECT_EQ(find({1}), 1);
  EXPECT_EQ(find({1, 2}), 2);
  EXPECT_EQ(find({1}), 1);
  EXPECT_EQ(find({1, 2}), 2);
  EXPECT_EQ(cache.n_reused(), 2u);
  cache.end_scope();
  EXPECT_EQ(find({1}), 3);
  cache.begin_scope();
  EXPECT_EQ(cache.n_reused(), 0u);
  EXPECT_EQ(find({1}), 4);
  cache.end_scope();
}

TEST(ScopedCache, KeepsResultsUntilTheLastScopeEnds) {
  ScopedCache<int> cache;
  Numbered find(cache);
  cache.begin_scope();
  EXPECT_EQ(find({1}), 1);
  cache.begin_scope();
  EXPECT_EQ(find({1}), 1);
  EXPECT_EQ(find({2}), 2);
  cache.end_scope();
  EXPECT_EQ(find({1}), 1);
  EXPECT_EQ(find({2}), 2);
  EXPECT_EQ(cache.n_reused(), 3u) << "since the outer scope began";
  cache.end_scope();
  cache.begin_scope();
  EXPECT_EQ(find({1}), 3);
  cache.end_scope();
}

TEST(ScopedCache, DropsAllBeforeItsProblemsExceedTheBound) {
  ScopedCache<int> cache(4);
  Numbered find(cache);
  cache.begin_scope();
  EXPECT_EQ(find({1, 1}), 1);
  EXPECT_EQ(find({2, 2}), 2);
  EXPECT_EQ(find({1, 1}), 1) << "four numbers are within the bound";
  EXPECT_EQ(find({3}), 3);
  EXPECT_EQ(find({1, 1}), 4) << "dropped for the third problem";
  EXPECT_EQ(find({3}), 3) << "kept";
  cache.end_scope();
  // The next scope begins with an empty account.
  cache.begin_scope();
  EXPECT_EQ(find({1, 1}), 5);
  EXPECT_EQ(find({2, 2}), 6);
  EXPECT_EQ(find({1, 1}), 5);
  cache.end_scope();
}

}  // namespace
}  // namespace stow
