// PlanningScope: a scope in which plan searches share the orders that they find.
// Not a cache of plans: every plan is the same as without the scope.
#pragma once

#include "stowage/passes/kept_orders.h"

namespace stow {

/// Speeds up the planning of several similar programs, such as the candidates of a choice or the
/// remedies of a refusal. It holds up to 64 MB and should end before anything runs.
class PlanningScope {
 private:
  const KeptOrders orders_;
};

}  // namespace stow
