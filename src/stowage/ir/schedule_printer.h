// The text of a schedule: buffers, then instructions in the order they run, read back by
// ir/schedule_parser.h. Not a plan; a schedule has no offsets.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

struct ScheduleTextOptions {
  /// Prints the source lines that kernels, loops and buffers come from. Without them the text is of
  /// the work alone: equal texts do the same on the same memory, wherever the source lies.
  bool places = true;
};

/// The whole schedule:
///
///   schedule {alignment=64, loops=1} {
///     b0: 32 bytes input 0 "x"
///     b1: 256 bytes temporary {slots=8, slot_bytes=32} "residual"
///     inputs f32[8] b0
///     outputs f32[8] b1 at 32
///     loop l0 of 8 {
///       f32[8] b1 l0 {stride=32} begins = mul(f32[8] b0) rows [8] {n_row_dims=0, n_group_dims=0} {
///         input 0 f32 by [1]
///         output 0 f32 by [1]
///         %0 = load 0 : f32
///         %1 = mul(%0, %0) : f32
///         %2 = store 0(%1) : f32
///       } @"mlp" "m.cpp":7
///       f32[8] b2 = device_put(f32[8] b1) {kind=pinned_host} start 3 from 1 to 7
///     }
///   }
///
/// A window is a type, its strides in elements where it is not contiguous ("by [1,8]"), a buffer, bytes
/// from the buffer's begin ("at 32") and terms of loops. What a field has by default is left out; a
/// buffer's slot has by default all of its bytes. A
/// kernel says last: its scratch, "start N" or "done N" of a pair (moves, or whatever else has a
/// phase), and the iterations [from, to) in which it runs. Never fails, on a malformed schedule either.
std::string print(const Schedule& schedule, const ScheduleTextOptions& options = {});

/// One row program as in print().
std::string print(const RowProgram& program);

/// "whole", "start" or "done".
std::string_view phase_name(MovePhase phase);

}  // namespace stow
