// fact_of_plan: a digest of a plan, which processes that run a program together compare at first.
// Not the comparison; runtime/comm/world.h has that.
#pragma once

#include <string>

#include "stowage/runtime/comm/world.h"
#include "stowage/session/compile.h"

namespace stow {

/// Returns a digest of the program's schedule and of its total bytes of each memory kind. Source
/// locations do not enter it, because processes may be built in different folders.
comm::Fact fact_of_plan(std::string name, const Executable& program);

}  // namespace stow
