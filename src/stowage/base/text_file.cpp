#include "stowage/base/text_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "stowage/base/output_target.h"

namespace stow {
namespace {

Failure refused(const std::string& path) {
  return fail("{}: {}", path, std::strerror(errno));
}

// All that is left of a stream.
Result<std::string> read_all(std::FILE* file, const std::string& name) {
  std::string text;
  char block[1 << 16];
  errno = 0;
  while (const size_t n = std::fread(block, 1, sizeof block, file)) text.append(block, n);
  if (std::ferror(file) != 0) return refused(name);
  return text;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) return refused(path);
  Result<std::string> text = read_all(file, path);
  std::fclose(file);
  return text;
}

Result<std::string> read_text_or_stdin(const std::string& path) {
  return path == "-" ? read_all(stdin, "standard input") : read_text_file(path);
}

Result<void> write_text_file(const std::string& path, std::string_view text) {
  const OutputTarget target = output_target(path);
  const std::string temporary =
      target.in_place ? path : fmt::format("{}.{}.tmp", target.path, ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (!file) return refused(path);
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                 std::fflush(file) == 0;
  if (!target.in_place)
    written = written && (!target.mode || ::fchmod(::fileno(file), *target.mode) == 0) &&
              ::fsync(::fileno(file)) == 0;
  const int written_error = errno;
  const bool closed = std::fclose(file) == 0;
  if (target.in_place && written && closed) return {};
  if (written && closed && std::rename(temporary.c_str(), target.path.c_str()) == 0) return {};
  if (!written) errno = written_error;
  const Failure failure = refused(path);
  if (!target.in_place) std::remove(temporary.c_str());
  return failure;
}

Result<void> write_text_or_stdout(const std::string& path, std::string_view text) {
  if (path != "-") return write_text_file(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return refused("standard output");
  return {};
}

}  // namespace stow
