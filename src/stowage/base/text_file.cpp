#include "stowage/base/text_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace stow {
namespace {

Failure refused(const std::string& path) {
  return fail("{}: {}", path, std::strerror(errno));
}

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) return refused(path);
  std::string text;
  char block[1 << 16];
  errno = 0;
  while (const size_t n = std::fread(block, 1, sizeof block, file)) text.append(block, n);
  const bool broken = std::ferror(file) != 0;
  const Failure failure = refused(path);
  std::fclose(file);
  if (broken) return failure;
  return text;
}

Result<void> write_text_file(const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (!file) return refused(path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                       std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
  const int written_error = errno;
  const bool closed = std::fclose(file) == 0;
  if (written && closed && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  if (!written) errno = written_error;
  const Failure failure = refused(path);
  std::remove(temporary.c_str());
  return failure;
}

}  // namespace stow
