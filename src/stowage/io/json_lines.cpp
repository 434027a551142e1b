#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "stowage/base/atomic_file.h"
#include "stowage/io/json.h"

namespace stow {

Result<JsonLines> JsonLines::open(const std::string& path) {
  if (path == "-") return JsonLines("standard output", STDOUT_FILENO);
  int fd;
  do fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return system_failure(path);
  return JsonLines(path, fd);
}

JsonLines::JsonLines(JsonLines&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), begun_(other.begun_) {}

JsonLines& JsonLines::operator=(JsonLines&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(begun_, other.begun_);
  return *this;
}

JsonLines::~JsonLines() {
  if (fd_ > STDERR_FILENO) ::close(fd_);
}

Result<void> JsonLines::write(const Json& value) {
  // Output that the program has printed so far must stand before this line.
  if (fd_ == STDOUT_FILENO) std::fflush(stdout);
  // A file without a length, such as a pipe, cannot be truncated.
  if (!std::exchange(begun_, true) && fd_ > STDERR_FILENO && ::ftruncate(fd_, 0) != 0 &&
      errno != EINVAL)
    return system_failure(path_);
  return write_fully(fd_, as_bytes(value.dump() + "\n"), path_);
}

}  // namespace stow
