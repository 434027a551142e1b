// KindError: operands in a memory where an op cannot read them.
// Not for a name that is no memory kind; that is the sharding's error.
#pragma once

#include "stowage/base/error.h"

namespace stow {

/// Thrown by type rules. Who knows the arrays behind the operands adds what they are called.
class KindError : public TraceError {
 public:
  using TraceError::TraceError;
};

}  // namespace stow
