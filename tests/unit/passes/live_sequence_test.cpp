#include "stowage/passes/live_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace stow {
namespace {

// The same calls on plain vectors.
struct Naive {
  std::vector<int> order;
  std::vector<int64_t> live, extra;  // by unit

  size_t place(int unit) const {
    return static_cast<size_t>(std::find(order.begin(), order.end(), unit) - order.begin());
  }
  int64_t peak() const {
    int64_t peak = live[static_cast<size_t>(order[0])] + extra[static_cast<size_t>(order[0])];
    for (size_t u = 0; u < live.size(); ++u) peak = std::max(peak, live[u] + extra[u]);
    return peak;
  }
  void relocate(size_t from, size_t to) {
    const int unit = order[from];
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(from));
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), unit);
  }
};

TEST(LiveSequence, IsWhatPlainVectorsAre) {
  std::mt19937 random(7);
  for (const size_t n : {1, 2, 3, 17, 200}) {
    const auto below = [&](size_t end) { return random() % end; };
    Naive naive{std::vector<int>(n), std::vector<int64_t>(n), std::vector<int64_t>(n)};
    std::iota(naive.order.begin(), naive.order.end(), 0);
    std::shuffle(naive.order.begin(), naive.order.end(), random);
    for (size_t u = 0; u < n; ++u)
      naive.live[u] = static_cast<int64_t>(below(100)),
      naive.extra[u] = static_cast<int64_t>(below(9));
    LiveSequence sequence(naive.order, naive.live, naive.extra);
    for (int step = 0; step < 2000; ++step) {
      const auto bytes = static_cast<int64_t>(below(200)) - 100;
      const size_t u = below(n), from = below(n), to = below(n);
      switch (below(4)) {
        case 0:
          naive.relocate(from, to);
          sequence.relocate(from, to);
          break;
        case 1:
          for (size_t i = from; i < to; ++i)
            naive.live[static_cast<size_t>(naive.order[i])] += bytes;
          sequence.add_live(from, to, bytes);
          break;
        case 2:
          naive.live[u] = bytes;
          sequence.set_live(static_cast<int>(u), bytes);
          break;
        default:
          naive.extra[u] = bytes;
          sequence.set_extra(static_cast<int>(u), bytes);
      }
      ASSERT_EQ(sequence.peak(), naive.peak()) << "step " << step << " of " << n;
      ASSERT_EQ(sequence.place(static_cast<int>(u)), naive.place(static_cast<int>(u)));
      ASSERT_EQ(sequence.at(from), naive.order[from]);
      ASSERT_EQ(sequence.live(static_cast<int>(u)), naive.live[u]);
    }
    EXPECT_EQ(sequence.order(), naive.order);
  }
}

TEST(LiveSequence, IsEmptyOfNothing) {
  const LiveSequence sequence({}, {}, {});
  EXPECT_EQ(sequence.peak(), 0);
  EXPECT_TRUE(sequence.order().empty());
}

}  // namespace
}  // namespace stow
