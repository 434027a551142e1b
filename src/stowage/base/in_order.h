// Computations that do not depend on each other, some beside others, whose results are taken in
// order. Not for kernels: those have a team of threads of their own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <future>
#include <optional>
#include <utility>

namespace stow {

/// For each i in [0, n): what begin(i) returns is called, beside others of up to `threads`, and
/// take(i, its result) then in the order of i; until that returns false. begin() and take() are
/// called by this thread alone; begin(i) returns an empty optional where i is to be passed over.
/// The first few begin one by one, then more at once: where the first is enough, nothing else is
/// computed. What has begun by the end is waited for, and its result dropped. An error comes from
/// the call that the order has first.
template <typename Begin, typename Take>
void in_order(size_t n, int threads, const Begin& begin, const Take& take) {
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
