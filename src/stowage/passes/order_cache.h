// A cache of orders of units, which lives as long as a scope.
// Not the search for an order; order.h has that.
#pragma once

#include <cstddef>

#include "stowage/base/inside.h"

namespace stow {

/// While a scope lives, order_units() keeps every order that it finds, on any thread, and returns
/// it again for an equal problem. The candidates of one search, and the plans that one command
/// compares, share most of their nested graphs. Scopes nest and overlap: orders are dropped when
/// the last scope ends. When the problems exceed 64 MB, all earlier ones are dropped.
class OrderCacheScope {
 public:
  OrderCacheScope();
  ~OrderCacheScope();
  OrderCacheScope(const OrderCacheScope&) = delete;
  OrderCacheScope& operator=(const OrderCacheScope&) = delete;

  /// Number of orders that were reused since the oldest living scope began.
  static size_t n_reused();
};

}  // namespace stow
