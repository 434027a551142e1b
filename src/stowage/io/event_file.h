// EventFile: scalars by step in the event files that TensorBoard shows.
// Not a log of anything but scalars; JSON lines have the same values (json.h).
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

/// The CRC-32 of the Castagnoli polynomial. Source: RFC 3720, appendix B.4.
uint32_t crc32c(std::span<const std::byte> bytes);

/// A value of a curve; `tag` names the curve ("train/loss").
struct EventScalar {
  std::string tag;
  float value = 0;
  friend bool operator==(const EventScalar&, const EventScalar&) = default;
};

/// One record of an event file, as far as it is known here.
struct Event {
  double wall_time_s = 0;  ///< Since 1970.
  int64_t step = 0;
  std::string file_version;  ///< "brain.Event:2" in the first record, else empty.
  bool is_start = false;     ///< A run begins: TensorBoard drops earlier events from this step on.
  std::vector<EventScalar> scalars;
};

/// A new event file in a folder, records appended to it.
/// Source: the TFRecord framing (length u64, masked CRC-32C of it, data, masked CRC-32C of them; all
/// little-endian) and event.proto and summary.proto of TensorFlow, in protobuf's wire format.
class EventFile {
 public:
  /// Makes the folder and, in it, "events.out.tfevents.<seconds>.<host>.<pid>.<n>", which sorts behind
  /// the event files that are there, as TensorBoard reads them by name. Writes the version and a start
  /// of a run at `first_step`. Errors: "PATH: reason".
  static Result<EventFile> create(const std::string& folder, int64_t first_step);

  const std::string& path() const { return path_; }
  /// Appends the values of one step. The record is on the file, whole, when this returns; of one that
  /// fails nothing stays. Errors: "PATH: reason", of a full disk or a size limit.
  Result<void> write(int64_t step, std::span<const EventScalar> scalars);

 private:
  EventFile(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> append(const std::string& event);

  std::string path_;
  FileDescriptor file_;
  int64_t size_bytes_ = 0;
};

/// Reads a whole event file; fields that are not in Event are skipped. A record that is cut off at the
/// end, as a killed process leaves it, ends the file.
/// Errors: "PATH: byte N: reason": a checksum that does not match, a malformed event; a file of more
/// than 1 GiB.
Result<std::vector<Event>> read_events(const std::string& path);

}  // namespace stow
