// EventFile: writes scalars by step as TensorBoard event files.
// Not for other data; JSON lines (json.h) have the same values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stowage/base/atomic_file.h"
#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// Returns the CRC-32C (Castagnoli polynomial) of the bytes. Source: RFC 3720, appendix B.4.
uint32_t crc32c(std::span<const std::byte> bytes);

/// A value of a curve; `tag` names the curve ("train/loss").
struct EventScalar {
  std::string tag;
  float value = 0;
  friend bool operator==(const EventScalar&, const EventScalar&) = default;
};

/// One record of an event file; fields that Stowage does not use are left out.
struct Event {
  double wall_time_s = 0;  ///< Since 1970.
  int64_t step = 0;
  std::string file_version;  ///< "brain.Event:2" in the first record, else empty.
  bool is_start = false;     ///< A run begins: TensorBoard drops earlier events from this step on.
  std::vector<EventScalar> scalars;
};

/// A new event file in a folder, to which records are appended.
/// Source: the TFRecord framing (length u64, masked CRC-32C of it, data, masked CRC-32C of them;
/// all little-endian) and event.proto and summary.proto of TensorFlow, in protobuf's wire format.
class EventFile {
 public:
  /// Creates the folder if needed, and in it "events.out.tfevents.<seconds>.<host>.<pid>.<n>". The
  /// name sorts after all event files in the folder, because TensorBoard reads them in the order of
  /// names. Writes the version and the start of a run at `first_step`. Errors: "PATH: reason".
  static Result<EventFile> create(const std::string& folder, int64_t first_step);

  const std::string& path() const { return path_; }
  /// Appends the values of one step. The whole record is in the file when the call returns; a call
  /// that fails leaves no part of it. Errors: "PATH: reason" for a full disk or a size limit.
  Result<void> write(int64_t step, std::span<const EventScalar> scalars);

 private:
  EventFile(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> append(const std::string& event);

  std::string path_;
  FileDescriptor file_;
  int64_t size_bytes_ = 0;
};

/// Reads a whole event file; fields that are not in Event are skipped. A truncated record at the
/// end, which a killed process may leave, is ignored.
/// Errors: "PATH: byte N: reason": a checksum that does not match, a malformed event; a file of
/// more than 1 GiB.
Result<std::vector<Event>> read_events(const std::string& path);

}  // namespace stow
