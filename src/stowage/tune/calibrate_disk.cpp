// The disk's part of calibration.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "stowage/base/median.h"
#include "stowage/io/files.h"
#include "stowage/runtime/run_observer.h"
#include "stowage/tune/calibrate.h"

namespace stow {
namespace {

constexpr int64_t kBlockBytes = 4 << 20, kSmallBytes = 4096;
constexpr int kRounds = 3, kSmallReads = 64;

// A file of one measurement, without a name from the start, so that it goes whatever happens.
class ScratchFile {
 public:
  static Result<ScratchFile> create(const std::string& folder) {
    std::string path = folder + "/.stowage-calibrate-XXXXXX";
    const int fd = ::mkostemp(path.data(), O_CLOEXEC);
    if (fd < 0) return system_failure(folder);
    ScratchFile file(fd);
    file.direct_ = ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_DIRECT) == 0;
    if (::unlink(path.c_str()) != 0) return system_failure(path);
    return file;
  }
  ScratchFile(ScratchFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), direct_(other.direct_) {}
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  bool direct() const { return direct_; }

 private:
  explicit ScratchFile(int fd) : fd_(fd) {}
  int fd_;
  bool direct_ = false;
};

// All bytes of one transfer; false where the system refuses, with errno.
template <typename Transfer>
bool whole(Transfer transfer, int fd, char* data, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t n = transfer(fd, data, static_cast<size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;
    if (n <= 0) return false;
    data += n;
    offset += n;
    bytes -= n;
  }
  return true;
}

}  // namespace

Result<DiskRates> measure_disk(const std::string& folder, int64_t bytes) {
  bytes = std::max(bytes / kBlockBytes, int64_t{1}) * kBlockBytes;
  Result<ScratchFile> file = ScratchFile::create(folder);
  if (!file) return file.failure();
  const std::unique_ptr<char, decltype(&std::free)> block(
      static_cast<char*>(std::aligned_alloc(kSmallBytes, kBlockBytes)), &std::free);
  // Bytes that no disk can leave out or squeeze together.
  uint64_t x = 0x9e3779b97f4a7c15;
  for (int64_t i = 0; i + 8 <= kBlockBytes; i += 8) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    std::memcpy(block.get() + i, &x, 8);
  }
  const int fd = file->fd();
  // The page cache is no disk: without direct transfers what is written is waited for, and what is
  // read was dropped from the cache before.
  const auto past_cache = [&] {
    if (file->direct()) return true;
    return ::fdatasync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
  };
  const auto blocks_per_second = [&](auto transfer) -> Result<double> {
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) {
      const double begin = steady_seconds();
      for (int64_t at = 0; at < bytes; at += kBlockBytes)
        if (!whole(transfer, fd, block.get(), kBlockBytes, at)) return system_failure(folder);
      if (!past_cache()) return system_failure(folder);
      seconds.push_back(steady_seconds() - begin);
    }
    return static_cast<double>(bytes) / median(seconds);
  };
  DiskRates rates;
  rates.direct = file->direct();
  const Result<double> write = blocks_per_second(
      [](int f, const char* p, size_t n, int64_t at) { return ::pwrite(f, p, n, at); });
  if (!write) return write.failure();
  const Result<double> read =
      blocks_per_second([](int f, char* p, size_t n, int64_t at) { return ::pread(f, p, n, at); });
  if (!read) return read.failure();
  rates.write = *write;
  rates.read = *read;
  std::vector<double> small;
  for (int i = 0; i < kSmallReads; ++i) {
    const int64_t at = (int64_t{i} * 7919 * kSmallBytes) % bytes;
    const double begin = steady_seconds();
    if (!whole([](int f, char* p, size_t n, int64_t o) { return ::pread(f, p, n, o); }, fd,
               block.get(), kSmallBytes, at))
      return system_failure(folder);
    small.push_back(steady_seconds() - begin);
  }
  rates.latency_s = std::min(median(small), 1.0);
  return rates;
}

}  // namespace stow
