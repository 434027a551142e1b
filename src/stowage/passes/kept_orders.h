// A scope in which orders of units that were found are kept, and returned again for the same problem.
// Not the search for an order; order.h has that.
#pragma once

#include <cstddef>

#include "stowage/base/inside.h"

namespace stow {

/// Keeps every order that order_units() finds, on any thread, while a scope lives. The candidates of one
/// search, and the plans that one command compares, share most of their nested graphs. Scopes nest and
/// overlap: orders are dropped when the last scope ends. Up to 64 MB of problems are kept, then none of the
/// earlier ones.
class KeptOrders {
 public:
  KeptOrders();
  ~KeptOrders();
  KeptOrders(const KeptOrders&) = delete;
  KeptOrders& operator=(const KeptOrders&) = delete;

  /// The number of orders that were returned again since the first of the scopes that live began.
  static size_t n_reused();
};

}  // namespace stow
