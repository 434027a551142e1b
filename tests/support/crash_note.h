// What a test was at, printed when the process aborts or faults: our checks abort.
// Not a message of a failing expectation.
#pragma once

#include <string>

namespace stow::testing {

/// Holds until the next call. One thread.
void set_crash_note(std::string note);

}  // namespace stow::testing
