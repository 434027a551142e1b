// A scope in which plans share what was found for one of them.
// Not a cache of plans: every plan is the one that would be found alone.
#pragma once

#include "stowage/passes/order_cache.h"
#include "stowage/plan/packing_cache.h"

namespace stow {

/// Stands around the planning of several programs that are much alike, as the candidates of a choice and the
/// remedies of a refusal. It holds up to 128 MB and ends before anything runs.
class PlanningScope {
 private:
  const OrderCacheScope orders_;
  const PackingCacheScope packings_;
};

}  // namespace stow
