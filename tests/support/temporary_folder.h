// TemporaryFolder: a new folder that the destructor removes.
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
  /// kTemporary: the system's folder for temporary files. kMemory: /dev/shm if it exists, for small
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

/// Returns the bytes of a file; "" if there is none.
inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, std::string_view bytes) {
  // Removes the file first: some file systems flush a file that is truncated and rewritten.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Returns the number of entries of a folder.
inline size_t count_entries(const std::string& path) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path),
                                           std::filesystem::directory_iterator()));
}

}  // namespace stow
