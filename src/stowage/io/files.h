// Files that are read at offsets, and operations on folders.
// Not writing, and not text files; see base/atomic_file.h and base/text_file.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "stowage/base/atomic_file.h"
#include "stowage/base/inside.h"

namespace stow {

/// A file open for reading at offsets; thread-safe. It is read, not mapped: if another process
/// truncates the file, a read returns an error, while a mapping would raise a signal.
class InputFile {
 public:
  /// Opens a file. Errors: it is missing, unreadable or not a regular file.
  static Result<InputFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }
  /// Fills `out` with the bytes from the offset on. Errors: the file is too short; those of the
  /// system.
  Result<void> read(int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  InputFile(std::string path, FileDescriptor file, int64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_bytes_(size) {}

  std::string path_;
  FileDescriptor file_;
  int64_t size_bytes_ = 0;
};

/// Returns the content of a file. Refuses a pipe instead of waiting for it. Errors: as
/// InputFile::open; the file has more than `max_bytes`.
Result<std::string> read_regular_file(const std::string& path, int64_t max_bytes);

/// Creates the folder and its missing parents. Succeeds if it exists.
/// Errors: "PATH: reason", also if a part of the path is not a folder.
Result<void> ensure_directory(const std::string& path);

/// Checks that files could be created in a folder, which need not exist yet. Creates nothing.
/// Errors: "PATH: reason" if the folder, or else its nearest existing parent, is not a folder or is
/// not writable.
Result<void> check_writable_directory(const std::string& path);

/// An exclusive lock (flock) of a folder during this object's lifetime. The system releases it when
/// the process ends in any way. On file systems without flock nothing is locked.
class DirectoryLock {
 public:
  /// Locks the folder. Errors: it is locked already; it cannot be opened.
  static Result<DirectoryLock> lock(const std::string& path);

 private:
  explicit DirectoryLock(FileDescriptor folder) : folder_(std::move(folder)) {}
  FileDescriptor folder_;
};

/// Removes a file. Succeeds if there is none.
Result<void> remove_file(const std::string& path);

/// True if the path exists, as a file, a folder or anything else.
bool file_exists(const std::string& path);

}  // namespace stow
