// TraceFile: timed slices and counters on named tracks, as a file for Perfetto or chrome://tracing.
// Not a recorder; tune/run_trace.h makes traces of runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stowage/base/atomic_file.h"
#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// An interval of time on one track.
struct TraceSlice {
  size_t track = 0;
  std::string name;
  double begin_s = 0, end_s = 0;
  std::vector<std::pair<std::string, std::string>> details;  ///< Shown when the slice is selected.
};
/// The value of a counter from a point in time on.
struct TraceSample {
  size_t counter = 0;
  double at_s = 0;
  double value = 0;
};

struct TraceFile {
  std::string name;                   ///< Name of all tracks together.
  std::vector<std::string> tracks;    ///< In the order in which they are shown.
  std::vector<TraceSlice> slices;     ///< In any order; those of one track do not overlap.
  std::vector<std::string> counters;  ///< Names.
  std::vector<TraceSample> samples;   ///< Samples of each counter are in order of time.
};

/// Opens the file of a trace; none for an empty path. Called before the work, so that errors of the
/// file are reported at once. Errors: those of AtomicFile::create.
Result<std::optional<AtomicFile>> open_trace(const std::string& path);

/// Writes the trace in Chrome's trace event format (JSON, one event a line), and commits the file.
/// Source: "Trace Event Format", Chromium project: complete events, counters, metadata.
/// Errors: "PATH: reason" if the file cannot be written.
Result<void> write_trace(AtomicFile& file, const TraceFile& trace);
Result<void> write_trace(const std::string& path, const TraceFile& trace);

}  // namespace stow
