// shrink: makes a failing program smaller while it still fails in the same way.
// Not the check; the caller gives it.
#pragma once

#include <functional>

#include "tests/fuzz/random_program.h"

namespace stow::testing {

/// Drops outputs and donations, and replaces nodes (also of nested graphs) by inputs or zeros,
/// while `fails` returns true for the result. Calls `fails` at most `max_tries` times.
RandomProgram shrink(const RandomProgram& program,
                     const std::function<bool(const RandomProgram&)>& fails, int max_tries);

}  // namespace stow::testing
