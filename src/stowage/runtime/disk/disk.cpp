#include "stowage/runtime/disk/disk.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"
#include "stowage/base/inside.h"
#include "stowage/runtime/disk/queue.h"
#include "stowage/runtime/disk/transfer_queue.h"
#include "stowage/runtime/disk/window.h"

namespace stow {
namespace {

std::string message(const std::string& folder, const std::string& what, int error) {
  return fmt::format("disk folder '{}': {}: {}", folder, what,
                     std::system_category().message(error));
}

template <typename Call>
auto retried(const Call& call) {
  decltype(call()) status;
  do status = call();
  while (status < 0 && errno == EINTR);
  return status;
}

// Memory for a bounce, on a block.
struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};
std::unique_ptr<std::byte[], Freed> allocate_blocks(int64_t bytes) {
  void* const memory = std::aligned_alloc(kDiskBlockBytes, static_cast<size_t>(bytes));
  if (!memory) throw std::bad_alloc();
  return std::unique_ptr<std::byte[], Freed>(static_cast<std::byte*>(memory));
}

int64_t moved_bytes(const DiskWindow& window) {
  int64_t bytes = window.width;
  for (const DiskAxis& axis : window.axes) bytes *= axis.extent;
  return bytes;
}

}  // namespace

std::string default_disk_folder() {
  const char* variable = std::getenv("TMPDIR");
  return variable && *variable ? variable : "/tmp";
}

DiskError::DiskError(const std::string& folder, const std::string& what, int error)
    : std::runtime_error(message(folder, what, error)), error_(error) {}

const char* disk_engine_name(DiskEngine engine) {
  switch (engine) {
    case DiskEngine::kUring:
      return "io_uring";
    case DiskEngine::kThreads:
      return "threads";
  }
  return "";
}

Disk::Disk(const DiskOptions& options)
    : folder_(options.folder.empty() ? default_disk_folder() : options.folder),
      direct_(options.direct),
      faults_(options.faults) {
  open_file();
  if (direct_ && !bypass_cache()) {
    direct_ = false;
    fmt::print(stderr,
               "stowage: disk folder '{}': the file system has no unbuffered access; transfers go "
               "through the page cache\n",
               folder_);
  }
  for (auto& queue : queue_)
    if (options.uring) queue = make_uring_queue(file_);
  if (!queue_[0] || !queue_[1]) {
    engine_ = DiskEngine::kThreads;
    for (auto& queue : queue_) queue = make_thread_queue(file_);
  }
}

Disk::~Disk() {
  for (auto& queue : queue_) queue.reset();
  ::close(file_);
}

// A file without a name, or where the file system has no such ones, one that loses it at once.
void Disk::open_file() {
  file_ = retried([&] { return ::open(folder_.c_str(), O_RDWR | O_CLOEXEC | O_TMPFILE, 0600); });
  if (file_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    std::string path = folder_ + "/stowage-XXXXXX";
    file_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (file_ >= 0) ::unlink(path.c_str());
  }
  if (file_ < 0) refuse("no file can be made there", errno);
}

void Disk::refuse(const std::string& what, int error) const {
  throw CapacityError(message(folder_, what, error));
}

// Asks for direct access and tries it: file systems that want larger blocks allow it and fail then.
bool Disk::bypass_cache() {
  const int flags = ::fcntl(file_, F_GETFL);
  if (::fcntl(file_, F_SETFL, flags | O_DIRECT) != 0) return false;
  const auto block = allocate_blocks(kDiskBlockBytes);
  std::fill_n(block.get(), kDiskBlockBytes, std::byte{0});
  const auto whole = [](ssize_t n) { return n == kDiskBlockBytes; };
  const bool works =
      whole(retried([&] { return ::pwrite(file_, block.get(), kDiskBlockBytes, 0); })) &&
      whole(retried([&] { return ::pread(file_, block.get(), kDiskBlockBytes, 0); }));
  const int error = works ? 0 : errno;
  if (::ftruncate(file_, 0) != 0 || (!works && error != EINVAL)) {
    ::close(file_);
    refuse("no block can be written there", works ? errno : error);
  }
  if (!works) (void)::fcntl(file_, F_SETFL, flags);
  return works;
}

int64_t Disk::reserve(int64_t bytes) {
  STOW_CHECK(bytes > 0);
  const std::lock_guard lock(extents_mutex_);
  const int64_t offset = extents_.allocate(bytes), size = align_up(bytes, kDiskBlockBytes);
  int error = 0;
  // Beyond the limit on file sizes the system would send a signal too.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<uint64_t>(offset + size) > limit.rlim_cur)
    error = EFBIG;
  else if (retried([&] { return ::fallocate(file_, 0, offset, size); }) != 0)
    error = errno;
  if (error != 0) {
    extents_.release(offset, bytes);
    refuse(format_bytes(bytes) + " cannot be reserved", error);
  }
  return offset;
}

void Disk::release(int64_t offset, int64_t bytes) {
  discard(offset, offset + align_up(bytes, kDiskBlockBytes));
  const std::lock_guard lock(extents_mutex_);
  extents_.release(offset, bytes);
}

void Disk::discard(int64_t begin, int64_t end) {
  const int64_t first = align_up(begin, kDiskBlockBytes),
                last = end / kDiskBlockBytes * kDiskBlockBytes;
  if (first >= last) return;
  // On a file system that cannot punch holes the bytes stay until the file goes.
  (void)retried([&] {
    return ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, last - first);
  });
}

void Disk::read(int64_t offset, std::span<std::byte> to, std::span<std::byte> bounce) {
  if (!to.empty()) read({offset, to.data(), static_cast<int64_t>(to.size()), {}}, bounce);
}

void Disk::write(int64_t offset, std::span<const std::byte> from, std::span<std::byte> bounce) {
  // A write only reads its memory.
  auto* const memory = const_cast<std::byte*>(from.data());
  if (!from.empty()) write({offset, memory, static_cast<int64_t>(from.size()), {}}, bounce);
}

void Disk::read(const DiskWindow& window, std::span<std::byte> bounce) {
  transfer(false, window, bounce);
}

void Disk::write(const DiskWindow& window, std::span<std::byte> bounce) {
  transfer(true, window, bounce);
}

void Disk::transfer(bool write, const DiskWindow& window, std::span<std::byte> bounce) {
  const int64_t bytes = moved_bytes(window);
  if (bytes == 0) return;
  std::unique_ptr<std::byte[], Freed> own;
  if (bounce.empty()) {
    const int64_t wanted = disk_bounce_bytes(bytes);
    own = allocate_blocks(wanted);
    bounce = {own.get(), static_cast<size_t>(wanted)};
  }
  // Bounce pieces must begin on blocks.
  const auto address = reinterpret_cast<uintptr_t>(bounce.data());
  bounce = bounce.subspan(std::min(bounce.size(), static_cast<size_t>(-address % kDiskBlockBytes)));

  const std::lock_guard lock(mutex_[write]);
  {
    // Through the page cache any byte can be moved.
    TransferQueue transfers(*queue_[write], faults_.get(), folder_, direct_ ? kDiskBlockBytes : 1);
    move_window(transfers, write, window, bounce, direct_ ? kDiskBlockBytes : 1);
  }
  if (direct_) return;
  int64_t begin = window.offset, end = window.offset + window.width;
  for (const DiskAxis& axis : window.axes)
    (axis.disk_bytes < 0 ? begin : end) += (axis.extent - 1) * axis.disk_bytes;
  drop_from_cache(write, begin, end);
}

// Keeps the page cache from filling up with what it would only hold for nobody.
void Disk::drop_from_cache(bool wrote, int64_t begin, int64_t end) const {
  if (wrote)
    (void)::sync_file_range(
        file_, begin, end - begin,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  (void)::posix_fadvise(file_, begin, end - begin, POSIX_FADV_DONTNEED);
}

int64_t Disk::bytes_on_disk() const {
  struct stat info {};
  if (::fstat(file_, &info) != 0) throw DiskError(folder_, "the file cannot be asked", errno);
  return static_cast<int64_t>(info.st_blocks) * 512;
}

}  // namespace stow
