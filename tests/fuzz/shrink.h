// Makes a failing program smaller while it still fails alike.
// Not a judge: the caller says what fails.
#pragma once

#include <functional>

#include "tests/fuzz/random_program.h"

namespace stow::testing {

/// Drops outputs and donations and replaces nodes, in nested graphs too, by inputs or zeros, as
/// long as `fails` and `max_tries` calls of it last.
RandomProgram shrink(const RandomProgram& program,
                     const std::function<bool(const RandomProgram&)>& fails, int max_tries);

}  // namespace stow::testing
