#include <liburing.h>

#include <cerrno>

#include "stowage/base/error.h"
#include "stowage/runtime/disk/queue.h"

namespace stow {
namespace {

class UringQueue final : public DiskQueue {
 public:
  explicit UringQueue(int file) : file_(file) {
    ok_ = io_uring_queue_init(kDepth, &ring_, 0) == 0;
    if (!ok_) return;
    // Kernels before 5.6 have rings without plain reads and writes.
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                       io_uring_opcode_supported(probe, IORING_OP_WRITE);
    if (probe) io_uring_free_probe(probe);
    if (reads) return;
    io_uring_queue_exit(&ring_);
    ok_ = false;
  }
  ~UringQueue() override {
    if (ok_) io_uring_queue_exit(&ring_);
  }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  bool ok() const { return ok_; }

  void start(int number, const DiskPiece& piece) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    STOW_CHECK(entry, "more transfers in flight than the ring holds");
    const auto bytes = static_cast<unsigned>(piece.bytes);
    const auto offset = static_cast<uint64_t>(piece.offset);
    if (piece.write)
      io_uring_prep_write(entry, file_, piece.memory, bytes, offset);
    else
      io_uring_prep_read(entry, file_, piece.memory, bytes, offset);
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(number));
    int submitted;
    do submitted = io_uring_submit(&ring_);
    while (submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY);
    STOW_CHECK(submitted == 1, "io_uring_submit gives {}", submitted);
  }

  Ended wait() override {
    io_uring_cqe* entry = nullptr;
    int status;
    do status = io_uring_wait_cqe(&ring_, &entry);
    while (status == -EINTR || status == -EAGAIN);
    STOW_CHECK(status == 0, "io_uring_wait_cqe gives {}", status);
    const Ended ended{static_cast<int>(io_uring_cqe_get_data64(entry)), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return ended;
  }

 private:
  int file_;
  io_uring ring_{};
  bool ok_ = false;
};

}  // namespace

std::unique_ptr<DiskQueue> make_uring_queue(int file) {
  auto queue = std::make_unique<UringQueue>(file);
  if (!queue->ok()) return nullptr;
  return queue;
}

}  // namespace stow
