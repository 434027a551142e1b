// A scope in which orders of units that were found are kept, and returned again for the same problem.
// Not the search for an order; order.h has that.
#pragma once

#include <memory>

#include "stowage/base/inside.h"

namespace stow {

/// Keeps every order that order_units() finds on this thread while the scope lives. The candidates of one
/// search share most of their nested graphs. Scopes nest; the innermost counts. Up to 64 MB of problems are
/// kept, then none of the earlier ones.
class KeptOrders {
 public:
  KeptOrders();
  ~KeptOrders();
  KeptOrders(const KeptOrders&) = delete;
  KeptOrders& operator=(const KeptOrders&) = delete;

 private:
  std::unique_ptr<struct OrderTable> table_;
  struct OrderTable* outer_;
};

}  // namespace stow
