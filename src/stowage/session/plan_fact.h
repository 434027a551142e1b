// The facts of their plans that processes running a program together compare before the first run.
// Not the comparison; runtime/comm/world.h has that.
#pragma once

#include <string>

#include "stowage/runtime/comm/world.h"
#include "stowage/session/compile.h"

namespace stow {

/// A digest of what the program does and how many bytes of each memory it takes. Places in the source are no
/// part of it: processes may be built in different folders.
comm::Fact fact_of_plan(std::string name, const Executable& program);

}  // namespace stow
