#include "stowage/io/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

namespace stow {

// --- InputFile ---------------------------------------------------------------------------------

Result<InputFile> InputFile::open(const std::string& path) {
  // Without O_NONBLOCK the open of a pipe waits for its writer.
  FileDescriptor descriptor(open_file(path, O_RDONLY | O_NONBLOCK));
  if (descriptor.get() < 0) return system_failure(path);
  struct stat info;
  if (::fstat(descriptor.get(), &info) != 0) return system_failure(path);
  if (S_ISDIR(info.st_mode)) return fail("{}: is a folder, not a file", path);
  if (!S_ISREG(info.st_mode)) return fail("{}: is not a regular file", path);
  return InputFile(path, std::move(descriptor), info.st_size);
}

Result<void> InputFile::read(int64_t offset_bytes, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n =
        ::pread(file_.get(), out.data(), std::min(out.size(), kMaxTransferBytes), offset_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_failure(path_);
    if (n == 0) return fail("{}: ends at byte {}, {} bytes short", path_, offset_bytes, out.size());
    out = out.subspan(static_cast<size_t>(n));
    offset_bytes += n;
  }
  return {};
}

Result<std::string> read_regular_file(const std::string& path, int64_t max_bytes) {
  const Result<InputFile> file = InputFile::open(path);
  if (!file) return file.failure();
  if (file->size_bytes() > max_bytes)
    return fail("{}: expected at most {} bytes, got {}", path, max_bytes, file->size_bytes());
  std::string text(static_cast<size_t>(file->size_bytes()), '\0');
  if (Result<void> read = file->read(0, std::as_writable_bytes(std::span(text))); !read)
    return read.failure();
  return text;
}

// --- folders -----------------------------------------------------------------------------------

Result<void> ensure_directory(const std::string& path) {
  if (path.empty()) return fail("expected the name of a folder, got an empty one");
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return {};
    return fail("{}: is there and is not a folder", path);
  }
  if (errno != ENOENT) return system_failure(path);
  const std::string trimmed = path.substr(0, path.find_last_not_of('/') + 1);
  const std::string parent = parent_directory(trimmed);
  if (Result<void> made = ensure_directory(parent); !made) return made;
  if (::mkdir(trimmed.c_str(), 0777) != 0 && errno != EEXIST) return system_failure(path);
  return sync_directory(parent);
}

Result<void> check_writable_directory(const std::string& path) {
  if (path.empty()) return fail("expected the name of a folder, got an empty one");
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return system_failure(path);
    if (::lstat(path.c_str(), &info) == 0) return fail("{}: a link to nothing", path);
    return check_writable_directory(
        parent_directory(path.substr(0, path.find_last_not_of('/') + 1)));
  }
  if (!S_ISDIR(info.st_mode)) return fail("{}: is there and is not a folder", path);
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    return system_failure(path);
  return {};
}

Result<DirectoryLock> DirectoryLock::lock(const std::string& path) {
  FileDescriptor folder(open_file(path, O_RDONLY | O_DIRECTORY));
  if (folder.get() < 0) return system_failure(path);
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return fail("{}: another run is at work in this folder; end it or name another folder", path);
  return DirectoryLock(std::move(folder));
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
