#include "stowage/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace stow {
namespace {

// The file that is to be replaced.
struct Target {
  std::string path;  // behind symbolic links, where a regular file stands there
  bool in_place = false;
  std::optional<mode_t> mode;  // of the regular file that is there
};

Target target_at(const std::string& path) {
  Target target{path, false, {}};
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    // A link to nothing: what is written makes its target.
    target.in_place = ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
    return target;
  }
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (!S_ISREG(info.st_mode) || !real) {
    target.in_place = true;
    return target;
  }
  target.path = real.get();
  target.mode = info.st_mode & 07777;
  return target;
}

void close_keeping_errno(int fd) {
  const int saved = errno;
  ::close(fd);
  errno = saved;
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  const Target target = target_at(path);
  if (target.in_place) {
    FileDescriptor file(open_file(path, O_WRONLY | O_CREAT | O_TRUNC));
    if (file.get() < 0) return system_failure(path);
    return AtomicFile(path, "", std::move(file));
  }
  std::string temporary;
  int fd = -1;
  for (int n = 0; fd < 0; ++n) {
    temporary = fmt::format("{}.{}-{}.tmp", target.path, ::getpid(), n);
    fd = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0 && errno != EEXIST) return system_failure(path);
  }
  AtomicFile file(target.path, temporary, FileDescriptor(fd));
  if (target.mode && ::fchmod(fd, *target.mode) != 0) return system_failure(path);
  return file;
}

AtomicFile::~AtomicFile() {
  if (file_.get() >= 0 && !in_place()) ::unlink(temporary_.c_str());
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
  return write_fully(file_.get(), bytes, path_);
}

Result<void> AtomicFile::commit(const std::string& path) {
  const std::string& target = path.empty() ? path_ : path;
  if (in_place()) return file_.close() ? Result<void>() : system_failure(path_);
  if (::fsync(file_.get()) != 0) return system_failure(target);
  // The descriptor stays open until the rename, so that a failure still removes the file.
  if (::rename(temporary_.c_str(), target.c_str()) != 0) return system_failure(target);
  if (!file_.close()) return system_failure(target);
  return sync_directory(parent_directory(target));
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

bool FileDescriptor::close() {
  return ::close(std::exchange(fd_, -1)) == 0;
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Result<void> sync_directory(const std::string& path) {
  const int fd = open_file(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return system_failure(path);
  const int status = ::fsync(fd);
  close_keeping_errno(fd);
  // Some file systems cannot sync a folder and say so; there is nothing more to be done there.
  if (status != 0 && errno != EINVAL) return system_failure(path);
  return {};
}

int open_file(const std::string& path, int flags) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

Result<void> write_fully(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kMaxTransferBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_failure(path);
    // A write of nothing would repeat for ever; the kernel gives it only where no more fits.
    if (n == 0) return fail("{}: nothing more could be written", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Failure system_failure(const std::string& path) {
  return fail("{}: {}", path, std::system_category().message(errno));
}

}  // namespace stow
