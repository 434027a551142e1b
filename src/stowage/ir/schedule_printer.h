// The text of a schedule: buffers, then instructions in the order they run, read back by
// ir/schedule_parser.h. Not a plan; a schedule has no offsets.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

struct ScheduleTextOptions {
  /// True to print the source lines of kernels, loops and buffers. Without them, schedules that do
  /// the same work on the same memory have equal texts.
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
/// A window is a type, its strides in elements unless it is contiguous ("by [1,8]"), a buffer, its
/// offset in bytes ("at 32") and its loop terms. A field with its default value is left out;
/// `slot_bytes` is by default all bytes of the buffer. A kernel ends with its scratch, "start N" or
/// "done N" if it is one of a pair, and its Guard ("from 1 to 7"). Never fails, even on a malformed
/// schedule.
std::string print(const Schedule& schedule, const ScheduleTextOptions& options = {});

/// Returns the text of one row program as in print().
std::string print(const RowProgram& program);

/// "whole", "start" or "done".
std::string_view phase_name(MovePhase phase);

}  // namespace stow
