// TemporaryFolder: a folder of a test's own, gone after it.
// Not shared between tests; each makes its own.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "stowage/base/error.h"

namespace stow {

class TemporaryFolder {
 public:
  /// In the folder of temporary files, or in memory where the machine has a folder there: for small
  /// files that are flushed many times.
  enum class In { kTemporary, kMemory };
  explicit TemporaryFolder(In where = In::kTemporary) {
    const std::filesystem::path memory = "/dev/shm";
    const bool in_memory = where == In::kMemory && ::access(memory.c_str(), W_OK | X_OK) == 0;
    path_ = ((in_memory ? memory : std::filesystem::temp_directory_path()) / "stowage-test-XXXXXX")
                .string();
    STOW_CHECK(::mkdtemp(path_.data()) != nullptr, "{}", path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

/// The bytes of a file; "" where there is none.
inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, std::string_view bytes) {
  // A new file: some file systems flush one that is truncated and written anew to the disk.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// How many entries a folder has.
inline size_t count_entries(const std::string& path) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path),
                                           std::filesystem::directory_iterator()));
}

}  // namespace stow
