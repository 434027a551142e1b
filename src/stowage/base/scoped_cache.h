// A cache of search results by problem, shared by all threads, which lives as long as a scope.
// Not a search; its user brings that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace stow {

/// Results of a deterministic search. A problem is written as numbers: all that its result depends
/// on. Any thread may call any member. When the problems exceed a bound, all earlier ones are
/// dropped.
template <typename Result>
class ScopedCache {
 public:
  using Problem = std::vector<int64_t>;

  /// `max_numbers`: the numbers of all kept problems together; 64 MB by default.
  explicit ScopedCache(size_t max_numbers = 8'000'000) : max_numbers_(max_numbers) {}

  /// Results are kept while at least one scope is open.
  void begin_scope() {
    const std::lock_guard lock(mutex_);
    if (n_scopes_++ == 0) n_reused_ = 0;
  }
  void end_scope() {
    const std::lock_guard lock(mutex_);
    if (--n_scopes_ == 0) clear();
  }
  /// Number of results that were reused since the oldest open scope began.
  size_t n_reused() {
    const std::lock_guard lock(mutex_);
    return n_reused_;
  }

  /// Returns the kept result for the problem that `problem_of()` returns; otherwise runs
  /// `search()`, keeps its result and returns it. Outside a scope it only runs `search()`.
  template <typename ProblemOf, typename Search>
  Result find(const ProblemOf& problem_of, const Search& search) {
    if (!has_scope()) return search();
    Problem problem = problem_of();
    {
      const std::lock_guard lock(mutex_);
      if (const auto at = results_.find(problem); at != results_.end()) {
        ++n_reused_;
        return at->second;
      }
    }
    Result result = search();
    const std::lock_guard lock(mutex_);
    if (n_scopes_ > 0) {
      if (n_numbers_ + problem.size() > max_numbers_) clear();
      const size_t n = problem.size();
      if (results_.try_emplace(std::move(problem), result).second) n_numbers_ += n;
    }
    return result;
  }

 private:
  bool has_scope() {
    const std::lock_guard lock(mutex_);
    return n_scopes_ > 0;
  }
  void clear() {
    results_.clear();
    n_numbers_ = 0;
  }

  const size_t max_numbers_;
  std::mutex mutex_;  // Guards all members below.
  int n_scopes_ = 0;
  std::map<Problem, Result> results_;
  size_t n_numbers_ = 0;  // Sum of the sizes of all kept problems.
  size_t n_reused_ = 0;
};

}  // namespace stow
