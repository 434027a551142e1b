#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "stowage/runtime/disk/queue.h"

namespace stow {
namespace {

class ThreadQueue final : public DiskQueue {
 public:
  static constexpr int kThreads = 4;

  explicit ThreadQueue(int file) : file_(file) {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    asked_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  void start(int number, const DiskPiece& piece) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({number, piece});
    }
    asked_.notify_one();
  }

  Ended wait() override {
    std::unique_lock lock(mutex_);
    answered_.wait(lock, [&] { return !ended_.empty(); });
    const Ended ended = ended_.front();
    ended_.pop_front();
    return ended;
  }

 private:
  struct Request {
    int number;
    DiskPiece piece;
  };

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      asked_.wait(lock, [&] { return over_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const Request request = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const DiskPiece& p = request.piece;
      const auto bytes = static_cast<size_t>(p.bytes);
      const ssize_t n = p.write ? ::pwrite(file_, p.memory, bytes, p.offset)
                                : ::pread(file_, p.memory, bytes, p.offset);
      const int64_t result = n < 0 ? -errno : n;
      lock.lock();
      ended_.push_back({request.number, result});
      answered_.notify_one();
    }
  }

  int file_;
  std::mutex mutex_;
  std::condition_variable asked_, answered_;
  std::deque<Request> waiting_;
  std::deque<Ended> ended_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DiskQueue> make_thread_queue(int file) {
  return std::make_unique<ThreadQueue>(file);
}

}  // namespace stow
