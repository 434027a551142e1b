// Files: reading whole, writing so that a crash or a full disk leaves the old content, folders.
// Not a format; errors name the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stowage/base/result.h"

namespace stow {

/// Bytes of a string, and back.
std::span<const std::byte> as_bytes(std::string_view text);

/// Reads a whole file.
/// Errors: missing, a folder, unreadable, larger than `max_bytes`; "PATH: reason".
Result<std::string> read_text_file(const std::string& path, int64_t max_bytes = int64_t{1} << 30);

/// A file open for reading at offsets. Safe for one file read by several threads. It reads and does
/// not map: a file that another process cuts short is then an error and no signal.
class InputFile {
 public:
  /// Errors: missing, a folder or another thing that is no regular file, unreadable.
  static Result<InputFile> open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }
  /// Fills `out` from the offset. Errors: the file ends before, or the system's reason.
  Result<void> read(int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  InputFile(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_bytes_(size) {}

  std::string path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
};

/// A file written under a temporary name (PATH.tmp) that takes its own on commit. Until then, and
/// whatever fails, what stood at PATH stays; the temporary file goes when this goes.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  /// Appends. Errors: a full disk, a size limit.
  Result<void> write(std::span<const std::byte> bytes);
  /// Syncs the file, renames it (to `path` where given, in the same folder) and syncs the folder.
  Result<void> commit(const std::string& path = "");

 private:
  AtomicFile(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  // What is no regular file is written to as it is.
  bool in_place() const { return path_ == temporary_; }

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

/// AtomicFile for a small file at once.
Result<void> write_file_atomically(const std::string& path, std::string_view text);

/// Makes the folder and those above it. Fine when it exists.
/// Errors: "PATH: reason"; also when something there is no folder.
Result<void> ensure_directory(const std::string& path);

/// Makes the folder's entries (created, renamed, removed files) survive a power loss.
Result<void> sync_directory(const std::string& path);

/// Removes a file. Fine when there is none.
Result<void> remove_file(const std::string& path);

/// Whether anything stands at the path.
bool file_exists(const std::string& path);

/// The folder part of a path; "." where it has none.
std::string parent_directory(const std::string& path);

/// "PATH: what errno says", for the call that has just failed.
Failure system_failure(const std::string& path);

/// Writes all bytes to a descriptor, whatever it takes per call. Errors: as system_failure.
Result<void> write_fully(int fd, std::span<const std::byte> bytes, const std::string& path);

}  // namespace stow
