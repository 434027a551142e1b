// A note about the current case of a test, printed if the process aborts (STOW_CHECK) or faults.
// Not a message of a failing expectation.
#pragma once

#include <string>

namespace stow::testing {

/// Sets the note until the next call. One thread at a time.
void set_crash_note(std::string note);

}  // namespace stow::testing
