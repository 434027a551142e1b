#include "stowage/io/trace.h"

#include "stowage/io/json.h"

namespace stow {
namespace {

// The process of all tracks, and of events that belong to no track.
constexpr int kProcess = 1;

// A track's name, or the program's where `thread` is 0, and where it stands among the others.
void name_event(const char* what, size_t thread, const std::string& name, std::string& out) {
  out += Json::object({{"ph", "M"},
                       {"pid", kProcess},
                       {"tid", thread},
                       {"name", what},
                       {"args", Json::object({{"name", name}})}})
             .dump() +
         ",\n";
  if (thread == 0) return;
  out += Json::object({{"ph", "M"},
                       {"pid", kProcess},
                       {"tid", thread},
                       {"name", "thread_sort_index"},
                       {"args", Json::object({{"sort_index", thread}})}})
             .dump() +
         ",\n";
}

}  // namespace

Result<std::optional<AtomicFile>> open_trace(const std::string& path) {
  if (path.empty()) return std::optional<AtomicFile>();
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.failure();
  return std::optional<AtomicFile>(std::move(*file));
}

Result<void> write_trace(AtomicFile& file, const TraceFile& trace) {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  const auto flush = [&](size_t at_least) -> Result<void> {
    if (text.size() < at_least) return {};
    Result<void> written = file.write(as_bytes(text));
    text.clear();
    return written;
  };
  for (size_t t = 0; t < trace.tracks.size(); ++t)
    name_event("thread_name", t + 1, trace.tracks[t], text);
  for (const TraceSlice& slice : trace.slices) {
    Json details = Json::object();
    for (const auto& [key, value] : slice.details) details.set(key, value);
    text += Json::object({{"ph", "X"},
                          {"pid", kProcess},
                          {"tid", slice.track + 1},
                          {"ts", 1e6 * slice.begin_s},
                          {"dur", 1e6 * (slice.end_s - slice.begin_s)},
                          {"name", slice.name},
                          {"args", details}})
                .dump() +
            ",\n";
    if (Result<void> written = flush(1 << 20); !written) return written;
  }
  for (const TraceSample& sample : trace.samples) {
    text += Json::object({{"ph", "C"},
                          {"pid", kProcess},
                          {"ts", 1e6 * sample.at_s},
                          {"name", trace.counters[sample.counter]},
                          {"args", Json::object({{"value", sample.value}})}})
                .dump() +
            ",\n";
    if (Result<void> written = flush(1 << 20); !written) return written;
  }
  name_event("process_name", 0, trace.name, text);
  text.resize(text.size() - 2);  // no comma behind the last event
  text += "\n]}\n";
  if (Result<void> written = flush(0); !written) return written;
  return file.commit();
}

Result<void> write_trace(const std::string& path, const TraceFile& trace) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.failure();
  return write_trace(*file, trace);
}

}  // namespace stow
