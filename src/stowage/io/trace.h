// TraceFile: what ran when, on named tracks, as a file that Perfetto and chrome://tracing show.
// Not a recorder, and it knows of no program; tune/run_trace.h makes traces of runs.
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

/// Something that lasted, on one track.
struct TraceSlice {
  size_t track = 0;
  std::string name;
  double begin_s = 0, end_s = 0;
  std::vector<std::pair<std::string, std::string>> details;  ///< Shown where it is clicked on.
};
/// A value from an instant on.
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

/// The file of a trace, nothing where the path is empty: opened before the work, so that what cannot be
/// written is said at once. Errors: those of AtomicFile::create, with path and reason.
Result<std::optional<AtomicFile>> open_trace(const std::string& path);

/// Writes the trace in Chrome's trace event format (JSON, one event a line), and commits the file.
/// Source: "Trace Event Format", Chromium project: complete events, counters, metadata.
/// Errors: the file cannot be written, with path and reason.
Result<void> write_trace(AtomicFile& file, const TraceFile& trace);
Result<void> write_trace(const std::string& path, const TraceFile& trace);

}  // namespace stow
