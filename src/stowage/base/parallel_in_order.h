// parallel_in_order: runs independent computations in parallel and consumes their results in order.
// Not for kernels; those have their own team of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <future>
#include <optional>
#include <utility>

namespace stow {

/// For each i in [0, n), begin(i) returns a function, or an empty optional to skip i. Up to
/// min(threads, 8) of these functions run at once, each on its own thread; with threads = 1 they
/// run on the calling thread. take(i, result) receives their results in the order of i; if it
/// returns false, the loop ends. begin() and take() are called on the calling thread only. At first
/// one function runs at a time; each result taken allows one more. If take() ends the loop at the
/// first result, nothing else is computed. Functions that still run at the end are waited for, and
/// their results are dropped. If functions throw, the exception of the lowest i is rethrown.
template <typename Begin, typename Take>
void parallel_in_order(size_t n, int threads, const Begin& begin, const Take& take) {
  using Work = typename decltype(begin(size_t{0}))::value_type;
  using Value = decltype(std::declval<Work&>()());
  constexpr int kMost = 8;  // each takes memory of its own
  const auto most = static_cast<size_t>(std::clamp(threads, 1, kMost));
  struct Begun {
    size_t i;
    std::future<Value> value;
  };
  std::deque<Begun> begun;
  size_t next = 0, taken = 0;
  while (true) {
    for (; next < n && begun.size() < std::min(most, taken + 1); ++next)
      if (std::optional<Work> work = begin(next))
        begun.push_back({next, std::async(most > 1 ? std::launch::async : std::launch::deferred,
                                          std::move(*work))});
    if (begun.empty()) return;
    const size_t i = begun.front().i;
    Value value = begun.front().value.get();
    begun.pop_front();
    ++taken;
    if (!take(i, std::move(value))) return;
  }
}

}  // namespace stow
