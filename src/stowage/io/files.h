// Files that are read at offsets, and folders.
// Not whole files, nor how one is written; see base/text_file.h and base/atomic_file.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "stowage/base/atomic_file.h"
#include "stowage/base/inside.h"

namespace stow {

/// A file open for reading at offsets. Safe for one file read by several threads. It reads and does
/// not map: a file that another process cuts short is then an error and no signal.
class InputFile {
 public:
  /// Errors: missing, a folder or another thing that is no regular file, unreadable.
  static Result<InputFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }
  /// Fills `out` from the offset. Errors: the file ends before, or the system's reason.
  Result<void> read(int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  InputFile(std::string path, FileDescriptor file, int64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_bytes_(size) {}

  std::string path_;
  FileDescriptor file_;
  int64_t size_bytes_ = 0;
};

/// The whole content of a file from outside. Errors: as InputFile::open, so a pipe is refused and not
/// waited for; more than `max_bytes`.
Result<std::string> read_regular_file(const std::string& path, int64_t max_bytes);

/// Makes the folder and those above it. Fine when it exists.
/// Errors: "PATH: reason"; also when something there is no folder.
Result<void> ensure_directory(const std::string& path);

/// Checks before a run that it could write into a folder at its end. Makes nothing.
/// Errors: "PATH: reason" if the folder, or the nearest above it that is there, is not a folder or may
/// not be written to.
Result<void> check_writable_directory(const std::string& path);

/// While it lives, nobody else gets to hold the folder; that ends with the process, however it
/// ends. Where the file system knows no such locks (flock), nothing is held.
class HeldDirectory {
 public:
  /// Errors: it is held already; it cannot be opened.
  static Result<HeldDirectory> hold(const std::string& path);

 private:
  explicit HeldDirectory(FileDescriptor folder) : folder_(std::move(folder)) {}
  FileDescriptor folder_;
};

/// Removes a file. Fine when there is none.
Result<void> remove_file(const std::string& path);

/// True if anything stands at the path.
bool file_exists(const std::string& path);

}  // namespace stow
