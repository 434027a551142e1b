// Reads the text of a schedule that ir/schedule_printer.h writes.
// Not a check that it can run; it checks that every name exists and that numbers have their ranges.
#pragma once

#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// The most loops that a schedule may have.
inline constexpr int64_t kMaxLoops = int64_t{1} << 20;

/// Reads the schedule of a text, which need not be trusted. The limits of ir/parse.h hold: bytes of
/// text, depth of nesting, rank, integers. Policies in parameters are null.
/// Errors: "file:line:column: expected …" (columns in bytes from 1).
Result<Schedule> parse_schedule(std::string_view text, std::string_view file);

}  // namespace stow
