// Reads the text of a schedule that ir/schedule_printer.h writes.
// Not a check that it can run; it checks that every name exists and that numbers have their ranges.
#pragma once

#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// Loops of a schedule, at most.
inline constexpr int64_t kMaxLoops = int64_t{1} << 20;

/// The schedule of a text, which may come from anywhere. Limits are those of ir/parse.h: bytes of text,
/// depth of nesting, rank, integers. Policies of nested parameters are none.
/// Errors: "file:line:column: expected …" (columns in bytes from 1).
Result<Schedule> parse_schedule(std::string_view text, std::string_view file);

}  // namespace stow
