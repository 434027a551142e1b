// AtomicFile: a file that is written whole or not at all, and the calls it is made of.
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

/// A descriptor that is closed when this goes; -1 for none.
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
  /// Closes it now; false, with errno, where that fails. There is none then.
  bool close();

 private:
  int fd_;
};

/// A file written under a temporary name that takes its own on commit. Until then, and whatever
/// fails, what stood at PATH stays; the temporary file goes when this goes. Its name is nobody
/// else's: PATH.<digits and '-'>.tmp in the same folder, behind symbolic links. What no file may
/// take the place of, such as a device or a pipe, is written to as it is.
class AtomicFile {
 public:
  /// Errors: the folder is missing or cannot be written to.
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&&) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  /// Appends. Errors: a full disk, a size limit.
  Result<void> write(std::span<const std::byte> bytes);
  /// Syncs the file, renames it (to `path` where given, in the same folder) and syncs the folder.
  Result<void> commit(const std::string& path = "");
  /// True if the file that is there is written to as it is.
  bool in_place() const { return temporary_.empty(); }

 private:
  AtomicFile(std::string path, std::string temporary, FileDescriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
};

/// Bytes of a string.
std::span<const std::byte> as_bytes(std::string_view text);

/// The folder part of a path; "." where it has none.
std::string parent_directory(const std::string& path);

/// Makes the folder's entries (created, renamed, removed files) survive a power loss.
Result<void> sync_directory(const std::string& path);

/// A descriptor of the file, or -1 with errno set. It is closed on exec.
int open_file(const std::string& path, int flags);

/// The most that one call reads or writes: the kernel takes 2^31 - 4096 bytes.
inline constexpr size_t kMaxTransferBytes = size_t{1} << 30;

/// Writes all bytes to a descriptor, whatever it takes per call. Errors: as system_failure.
Result<void> write_fully(int fd, std::span<const std::byte> bytes, const std::string& path);

/// "PATH: what errno says", for the call that has just failed.
Failure system_failure(const std::string& path);

}  // namespace stow
