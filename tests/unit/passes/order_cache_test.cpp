// Cached orders are those that a search would find again.
#include <gtest/gtest.h>

#include <thread>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_printer.h"
#include "stowage/passes/lower.h"
#include "stowage/passes/order_cache.h"
#include "stowage/stowage.h"
#include "tests/support/realized.h"

namespace stow {
namespace {

// Two products of columns with rows, each reduced to a few columns. The one that gives back more
// goes first.
Graph two_products(int64_t n, int64_t n_kept, int64_t m, int64_t m_kept) {
  const auto f = [](const Array& a, const Array& b, const Array& c, const Array& d, const Array& e,
                    const Array& g) {
    return std::pair(matmul(matmul(a, b), c), matmul(matmul(d, e), g));
  };
  const auto a = [](int64_t rows, int64_t columns) { return Array::abstract({rows, columns}); };
  const Graph traced =
      jit(f).lower(a(n, 1), a(1, n), a(n, n_kept), a(m, 1), a(1, m), a(m, m_kept)).graph();
  return testing::realized(traced);
}

std::string lowered(const Graph& graph, OrderStrategy order) {
  LowerOptions options;
  options.order = order;
  return print(lower(graph, options));
}

TEST(OrderCacheScope, ReturnsTheOrdersThatASearchFinds) {
  const std::vector<Graph> graphs = {two_products(64, 60, 128, 2), two_products(128, 2, 64, 60),
                                     two_products(64, 2, 128, 60), two_products(64, 60, 128, 2)};
  for (const OrderStrategy order :
       {OrderStrategy::kProgram, OrderStrategy::kGreedy, OrderStrategy::kBeam}) {
    const size_t kept = order == OrderStrategy::kProgram ? 0 : 1;  // that order takes no search
    std::vector<std::string> anew;
    for (const Graph& graph : graphs) anew.push_back(lowered(graph, order));
    const OrderCacheScope outer;
    for (size_t g = 0; g < graphs.size(); ++g) EXPECT_EQ(lowered(graphs[g], order), anew[g]) << g;
    EXPECT_EQ(OrderCacheScope::n_reused(), kept) << "the last graph is the first";
    {
      const OrderCacheScope inner;
      EXPECT_EQ(lowered(graphs[1], order), anew[1]);
      EXPECT_EQ(OrderCacheScope::n_reused(), 2 * kept);
    }
    std::thread([&] { EXPECT_EQ(lowered(graphs[0], order), anew[0]); }).join();
    EXPECT_EQ(OrderCacheScope::n_reused(), 3 * kept);
  }
}

TEST(OrderCacheScope, DropsOrdersWithTheLastScope) {
  const Graph graph = two_products(64, 60, 128, 2);
  for (int time = 0; time < 2; ++time) {
    const OrderCacheScope scope;
    lowered(graph, OrderStrategy::kGreedy);
    EXPECT_EQ(OrderCacheScope::n_reused(), 0u);
  }
}

}  // namespace
}  // namespace stow
