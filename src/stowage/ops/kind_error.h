// KindError: the error for an operand in a memory where the op cannot read it.
// Not the error for an unknown name of a memory kind, which belongs to shardings.
#pragma once

#include "stowage/base/error.h"

namespace stow {

/// Thrown by type rules. api/trace catches it and adds the names of the arrays.
class KindError : public TraceError {
 public:
  using TraceError::TraceError;
};

}  // namespace stow
