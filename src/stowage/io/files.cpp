#include "stowage/io/files.h"

#include "stowage/base/output_target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "stowage/base/bytes.h"

namespace stow {
namespace {

// The kernel takes at most 2^31 - 4096 bytes a call.
constexpr size_t kMaxTransfer = size_t{1} << 30;

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

void close_keeping_errno(int fd) {
  const int saved = errno;
  ::close(fd);
  errno = saved;
}

}  // namespace

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Failure system_failure(const std::string& path) {
  return fail("{}: {}", path, std::system_category().message(errno));
}

Result<void> write_fully(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_failure(path);
    // A write of nothing would repeat for ever; the kernel gives it only where no more fits.
    if (n == 0) return fail("{}: nothing more could be written", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

// --- InputFile ---------------------------------------------------------------------------------

Result<InputFile> InputFile::open(const std::string& path) {
  // Without O_NONBLOCK the open of a pipe waits for its writer.
  const int fd = open_retrying(path, O_RDONLY | O_NONBLOCK);
  if (fd < 0) return system_failure(path);
  InputFile file(path, fd, 0);
  struct stat info;
  if (::fstat(fd, &info) != 0) return system_failure(path);
  if (S_ISDIR(info.st_mode)) return fail("{}: is a folder, not a file", path);
  if (!S_ISREG(info.st_mode)) return fail("{}: is no regular file", path);
  file.size_bytes_ = info.st_size;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> InputFile::read(int64_t offset_bytes, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), std::min(out.size(), kMaxTransfer), offset_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_failure(path_);
    if (n == 0) return fail("{}: ends at byte {}, {} bytes short", path_, offset_bytes, out.size());
    out = out.subspan(static_cast<size_t>(n));
    offset_bytes += n;
  }
  return {};
}

Result<std::string> read_text_file(const std::string& path, int64_t max_bytes) {
  Result<InputFile> file = InputFile::open(path);
  if (!file) return file.failure();
  if (file->size_bytes() > max_bytes)
    return fail("{}: is {}, more than the {} taken", path, format_bytes(file->size_bytes()),
                format_bytes(max_bytes));
  std::string text(static_cast<size_t>(file->size_bytes()), '\0');
  if (Result<void> read = file->read(0, std::as_writable_bytes(std::span(text))); !read)
    return read.failure();
  return text;
}

// --- AtomicFile --------------------------------------------------------------------------------

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  const OutputTarget target = output_target(path);
  if (target.in_place) {
    const int fd = open_retrying(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return system_failure(path);
    return AtomicFile(path, path, fd);
  }
  const std::string temporary = target.path + ".tmp";
  // What a killed run left under the temporary name is of no use to anyone.
  ::unlink(temporary.c_str());
  const int fd = open_retrying(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd < 0) return system_failure(temporary);
  AtomicFile file(target.path, temporary, fd);
  if (target.mode && ::fchmod(fd, *target.mode) != 0) return system_failure(temporary);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!in_place()) ::unlink(temporary_.c_str());
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
  return write_fully(fd_, bytes, temporary_);
}

Result<void> AtomicFile::commit(const std::string& path) {
  const std::string& target = path.empty() ? path_ : path;
  if (in_place()) return ::close(std::exchange(fd_, -1)) == 0 ? Result<void>() : system_failure(path_);
  if (::fsync(fd_) != 0) return system_failure(temporary_);
  // The descriptor stays open until the rename, so that a failure still removes the file.
  if (::rename(temporary_.c_str(), target.c_str()) != 0) return system_failure(target);
  if (::close(std::exchange(fd_, -1)) != 0) return system_failure(target);
  return sync_directory(parent_directory(target));
}

Result<void> write_file_atomically(const std::string& path, std::string_view text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.failure();
  if (Result<void> written = file->write(as_bytes(text)); !written) return written;
  return file->commit();
}

// --- folders -----------------------------------------------------------------------------------

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Result<void> sync_directory(const std::string& path) {
  const int fd = open_retrying(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return system_failure(path);
  const int status = ::fsync(fd);
  close_keeping_errno(fd);
  // Some file systems cannot sync a folder and say so; there is nothing more to be done there.
  if (status != 0 && errno != EINVAL) return system_failure(path);
  return {};
}

Result<void> ensure_directory(const std::string& path) {
  if (path.empty()) return fail("the name of a folder is empty");
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return {};
    return fail("{}: is there and is no folder", path);
  }
  if (errno != ENOENT) return system_failure(path);
  const std::string trimmed = path.substr(0, path.find_last_not_of('/') + 1);
  const std::string parent = parent_directory(trimmed);
  if (Result<void> made = ensure_directory(parent); !made) return made;
  if (::mkdir(trimmed.c_str(), 0777) != 0 && errno != EEXIST) return system_failure(path);
  return sync_directory(parent);
}

Result<void> remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_failure(path);
  return {};
}

bool file_exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

}  // namespace stow
