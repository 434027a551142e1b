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

/// Owns a file descriptor; the destructor closes it. A descriptor of -1 stands for no file.
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
/// file that was not committed. The temporary file has the unique name PATH.<digits and '-'>.tmp
/// and is in the same folder as PATH with symbolic links resolved. If PATH exists and is not a
/// regular file, such as a device or a pipe, it is written to directly.
class AtomicFile {
 public:
  /// Opens a file to be written at `path`. Errors: the folder is missing or cannot be written to.
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&&) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  /// Appends the bytes. Errors: a full disk, a size limit.
  Result<void> write(std::span<const std::byte> bytes);
  /// Syncs the file, renames it to `path` and syncs the folder. `path` is in the same folder as the
  /// path that create() got; if it is empty, that path is used. Errors: those of the system calls.
  Result<void> commit(const std::string& path = "");
  /// True if the path is not a regular file and is written to directly.
  bool in_place() const { return temporary_.empty(); }

 private:
  AtomicFile(std::string path, std::string temporary, FileDescriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
};

/// Returns a view of the bytes of `text`.
std::span<const std::byte> as_bytes(std::string_view text);

/// Returns the folder part of a path; "." if the path has none.
std::string parent_directory(const std::string& path);

/// Syncs a folder, so that its created, renamed and removed entries survive a power loss.
Result<void> sync_directory(const std::string& path);

/// Opens a file with open(2) and these flags plus O_CLOEXEC. Returns the descriptor, or -1 with
/// errno set.
int open_file(const std::string& path, int flags);

/// Largest number of bytes in one read or write call; the kernel's limit is 2^31 - 4096.
inline constexpr size_t kMaxTransferBytes = size_t{1} << 30;

/// Writes all bytes to a descriptor, in as many calls as needed. Errors: system_failure(path).
Result<void> write_fully(int fd, std::span<const std::byte> bytes, const std::string& path);

/// Returns the failure "PATH: text of errno" for the system call that failed last.
Failure system_failure(const std::string& path);

}  // namespace stow
