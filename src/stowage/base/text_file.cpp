#include "stowage/base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "stowage/base/atomic_file.h"
#include "stowage/base/bytes.h"

namespace stow {
namespace {

// All that is left of a descriptor.
Result<std::string> read_all(int fd, const std::string& name, int64_t max_bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_failure(name);
  if (S_ISDIR(info.st_mode)) return fail("{}: is a folder, not a file", name);
  const bool regular = S_ISREG(info.st_mode);
  if (regular && info.st_size > max_bytes)
    return fail("{}: is {}, more than the {} taken", name, format_bytes(info.st_size),
                format_bytes(max_bytes));
  std::string text;
  size_t used = 0;
  // A byte more than a file has, so that its end is met at once.
  size_t ahead = regular ? static_cast<size_t>(info.st_size) + 1 : size_t{1} << 16;
  while (true) {
    if (used == text.size()) text.resize(used + ahead);
    ahead = std::max(ahead, text.size());
    const ssize_t n =
        ::read(fd, text.data() + used, std::min(text.size() - used, kMaxTransferBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_failure(name);
    if (n == 0) break;
    used += static_cast<size_t>(n);
    if (static_cast<int64_t>(used) > max_bytes)
      return fail("{}: is more than the {} taken", name, format_bytes(max_bytes));
  }
  text.resize(used);
  return text;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, int64_t max_bytes) {
  const FileDescriptor file(open_file(path, O_RDONLY));
  if (file.get() < 0) return system_failure(path);
  return read_all(file.get(), path, max_bytes);
}

Result<std::string> read_text_or_stdin(const std::string& path, int64_t max_bytes) {
  return path == "-" ? read_all(STDIN_FILENO, "standard input", max_bytes)
                     : read_text_file(path, max_bytes);
}

Result<void> write_text_file(const std::string& path, std::string_view text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.failure();
  if (Result<void> written = file->write(as_bytes(text)); !written) return written;
  return file->commit();
}

Result<void> write_text_or_stdout(const std::string& path, std::string_view text) {
  if (path != "-") return write_text_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return system_failure("standard output");
  return {};
}

}  // namespace stow
