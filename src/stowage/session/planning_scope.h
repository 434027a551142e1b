// PlanningScope: a scope in which plan searches share the orders and packings that they find.
// Not a cache of plans: every plan is the same as without the scope.
#pragma once

#include "stowage/passes/order_cache.h"
#include "stowage/plan/packing_cache.h"

namespace stow {

/// Speeds up the planning of several similar programs, such as the candidates of a choice or the
/// remedies of a refusal. It holds up to 128 MB and should end before anything runs.
class PlanningScope {
 private:
  const OrderCacheScope orders_;
  const PackingCacheScope packings_;
};

}  // namespace stow
