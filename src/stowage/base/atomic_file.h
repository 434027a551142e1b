// AtomicFile: a file that is written completely or not at all; and the system calls that it uses.
// Not a format; errors name the path and the system's reason.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// Owns a file descriptor, which the destructor closes; -1: none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return fd_; }
  /// Closes the descriptor now. Returns false, with errno set, if that fails. get() is -1
  /// afterwards in either case.
  bool close();

 private:
  int fd_;
};

/// Writes to a temporary file that commit() renames to its final name. Until then, and after any
/// failure, a file that already existed at PATH is unchanged. The destructor removes a temporary
/// file that was not committed. Its name, PATH.<digits and '-'>.tmp, is unique; it lies in the same
/// folder, after symbolic links are followed. A PATH that is no regular file, such as a device or a
/// pipe, is written to directly.
class AtomicFile {
 public:
  /// Opens a file to be written at `path`. Errors: the folder is missing or cannot be written to.
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&&) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  /// Appends the bytes. Errors: a full disk, a size limit.
  Result<void> write(std::span<const std::byte> bytes);
  /// Syncs the file, renames it and syncs the folder. `path`: another final name in the same
  /// folder; empty: the path given to create(). Errors: the system's.
  Result<void> commit(const std::string& path = "");
  /// True if PATH is no regular file and is written to directly.
  bool in_place() const { return temporary_.empty(); }

 private:
  AtomicFile(std::string path, std::string temporary, FileDescriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
};

/// The bytes of a string, without a copy.
std::span<const std::byte> as_bytes(std::string_view text);

/// The folder part of a path; "." if it has none.
std::string parent_directory(const std::string& path);

/// Makes the folder's entries (created, renamed, removed files) survive a power loss.
Result<void> sync_directory(const std::string& path);

/// Opens a file with these flags of open(2). Returns its descriptor, or -1 with errno set. The
/// descriptor is closed on exec.
int open_file(const std::string& path, int flags);

/// The most bytes that one call reads or writes; the kernel's limit is 2^31 - 4096.
inline constexpr size_t kMaxTransferBytes = size_t{1} << 30;

/// Writes all bytes to a descriptor, in as many calls as it takes. Errors: as system_failure(path).
Result<void> write_fully(int fd, std::span<const std::byte> bytes, const std::string& path);

/// The failure "PATH: text of errno", for the system call that has just failed.
Failure system_failure(const std::string& path);

}  // namespace stow
