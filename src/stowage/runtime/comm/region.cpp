#include "stowage/runtime/comm/region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>

namespace stow::comm {
namespace {

constexpr uint64_t kMagic = 0x31'6d6d'6f63'776f'74u;  // "towcomm1"

std::string system_message() {
  return std::system_category().message(errno);
}

}  // namespace

// Zero bytes are the initial state of everything behind it.
struct Region::Header {
  uint64_t magic;
  int64_t bytes;
  int32_t n_ranks, devices_per_process;
  std::atomic<uint32_t> abort_state;  // 0: none, 1: the message is being written, 2: it is there
  SharedText<128> abort_message;
};

template <int kWords>
void SharedText<kWords>::set(std::string_view text) {
  for (size_t word = 0; word < kWords; ++word) {
    uint64_t bits = 0;
    const size_t begin = std::min(word * 8, text.size());
    // The last byte stays zero.
    const size_t most = word + 1 == kWords ? 7 : 8;
    std::memcpy(&bits, text.data() + begin, std::min(most, text.size() - begin));
    words_[word].store(bits, std::memory_order_relaxed);
  }
}

template <int kWords>
std::string SharedText<kWords>::get() const {
  char text[kWords * 8 + 1] = {};
  for (size_t word = 0; word < kWords; ++word) {
    const uint64_t bits = words_[word].load(std::memory_order_relaxed);
    std::memcpy(text + word * 8, &bits, 8);
  }
  return text;
}

template class SharedText<128>;
template class SharedText<32>;
template class SharedText<16>;

int64_t Region::bytes_for(int64_t n_ranks, bool has_windows) {
  constexpr int64_t kPage = 4096;
  const auto pages = [](int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; };
  return pages(sizeof(Header)) + pages(n_ranks * int64_t{sizeof(RankState)}) +
         pages(n_ranks * n_ranks * int64_t{sizeof(Pair)}) +
         (has_windows ? n_ranks * 2 * kHalfWindowBytes : 0);
}

Region::Region(std::byte* base, int64_t bytes, int fd, int32_t n_ranks, int32_t devices_per_process)
    : base_(base),
      bytes_(bytes),
      fd_(fd),
      n_ranks_(n_ranks),
      devices_per_process_(devices_per_process) {}

Region::~Region() {
  ::munmap(base_, static_cast<size_t>(bytes_));
  if (fd_ >= 0) ::close(fd_);
}

Result<std::shared_ptr<Region>> Region::create(int32_t n_ranks, int32_t devices_per_process,
                                               bool inherited, bool has_windows) {
  if (n_ranks < 1 || n_ranks > kMostRanks)
    return fail("expected 1 to {} ranks on a host, got {}", kMostRanks, n_ranks);
  const int64_t bytes = bytes_for(n_ranks, inherited || has_windows);
  int fd = -1, flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
  if (inherited) {
    fd = ::memfd_create("stowage collectives", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, bytes) != 0) {
      const std::string reason = system_message();
      if (fd >= 0) ::close(fd);
      return fail("the memory in which {} ranks meet: {}", n_ranks, reason);
    }
    flags = MAP_SHARED | MAP_NORESERVE;
  }
  void* const base =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) {
    const std::string reason = system_message();
    if (fd >= 0) ::close(fd);
    return fail("the memory in which {} ranks meet: {}", n_ranks, reason);
  }
  std::shared_ptr<Region> region(
      new Region(static_cast<std::byte*>(base), bytes, fd, n_ranks, devices_per_process));
  auto* const header = reinterpret_cast<Header*>(region->base_);
  header->bytes = bytes;
  header->n_ranks = n_ranks;
  header->devices_per_process = devices_per_process;
  header->magic = kMagic;
  for (int32_t rank = 0; rank < n_ranks; ++rank) region->state(rank).waits_for.store(-1);
  return region;
}

Result<std::shared_ptr<Region>> Region::attach(int fd) {
  struct stat status {};
  Header header_copy[1];
  const auto refuse = [&] {
    return fail("file descriptor {} is not the memory of a launcher", fd);
  };
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size < static_cast<off_t>(sizeof(Header)))
    return refuse();
  if (::pread(fd, static_cast<void*>(header_copy), sizeof(Header), 0) !=
      static_cast<ssize_t>(sizeof(Header)))
    return refuse();
  const Header& header = header_copy[0];
  if (header.magic != kMagic || header.n_ranks < 1 || header.n_ranks > kMostRanks ||
      header.devices_per_process < 1 || header.n_ranks % header.devices_per_process != 0 ||
      header.bytes != bytes_for(header.n_ranks, true) || header.bytes != status.st_size)
    return refuse();
  void* const base = ::mmap(nullptr, static_cast<size_t>(header.bytes), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return fail("the memory in which ranks meet: {}", system_message());
  // What this process starts has no part in it.
  (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return std::shared_ptr<Region>(new Region(static_cast<std::byte*>(base), header.bytes, fd,
                                            header.n_ranks, header.devices_per_process));
}

RankState& Region::state(int32_t rank) const {
  constexpr int64_t kBegin = (int64_t{sizeof(Header)} + 4095) / 4096 * 4096;
  return reinterpret_cast<RankState*>(base_ + kBegin)[rank];
}

Pair& Region::pair(int32_t writer, int32_t reader) const {
  constexpr int64_t kStates = (int64_t{sizeof(Header)} + 4095) / 4096 * 4096;
  const int64_t begin = kStates + (n_ranks_ * int64_t{sizeof(RankState)} + 4095) / 4096 * 4096;
  return reinterpret_cast<Pair*>(base_ + begin)[int64_t{writer} * n_ranks_ + reader];
}

bool Region::is_chunk_done(int32_t writer, int32_t reader, uint64_t number, bool read) const {
  const Pair& chunks = pair(writer, reader);
  return (read ? chunks.read : chunks.sent).load(std::memory_order_acquire) >= number;
}

std::byte* Region::window(int32_t rank) const {
  STOW_CHECK(bytes_ == bytes_for(n_ranks_, true),
             "a region without windows has been asked for one");
  return base_ + bytes_ - (n_ranks_ - int64_t{rank}) * 2 * kHalfWindowBytes;
}

// The bell is rung before it is seen whether the rank sleeps, and the rank says that it sleeps
// before it looks at the bell: so one of the two sees the other, and no ring is lost.
void Region::ring(int32_t rank) const {
  RankState& to = state(rank);
  to.bell.fetch_add(1);
  if (to.sleeping.load() != 0)
    ::syscall(SYS_futex, &to.bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Region::sleep(int32_t rank, uint32_t seen, int64_t at_most_ns) const {
  const timespec limit = {at_most_ns / 1'000'000'000, at_most_ns % 1'000'000'000};
  ::syscall(SYS_futex, &state(rank).bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

bool Region::abort(std::string_view message) const {
  auto* const header = reinterpret_cast<Header*>(base_);
  uint32_t none = 0;
  const bool is_first = header->abort_state.compare_exchange_strong(none, 1);
  if (is_first) {
    header->abort_message.set(message);
    header->abort_state.store(2);
  }
  for (int32_t rank = 0; rank < n_ranks_; ++rank) ring(rank);
  return is_first;
}

bool Region::is_aborted() const {
  return reinterpret_cast<const Header*>(base_)->abort_state.load() == 2;
}

std::string Region::abort_message() const {
  return reinterpret_cast<const Header*>(base_)->abort_message.get();
}

std::string record_name(const RankState& state, uint64_t call) {
  const CallRecord& record = state.records[call % RankState::kRecords];
  return record.call.load() == call ? record.name.get() : "another collective";
}

std::string record_detail(const RankState& state, uint64_t call) {
  const CallRecord& record = state.records[call % RankState::kRecords];
  return record.call.load() == call ? record.detail.get() : "";
}

}  // namespace stow::comm
