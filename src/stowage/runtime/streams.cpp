#include "stowage/runtime/streams.h"

#include "stowage/runtime/arena_guard.h"

namespace stow {

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  if (thread_.joinable()) thread_.join();
}

uint64_t Stream::start(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  queue_.push_back(std::move(work));
  const uint64_t number = ++n_given_;
  if (timing_ == StreamTiming::kAtStart) {
    run_one(lock);
  } else if (timing_ == StreamTiming::kConcurrent) {
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    given_.notify_one();
  }
  return number;
}

void Stream::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  if (timing_ != StreamTiming::kConcurrent)
    while (n_done_ < number) run_one(lock);
  done_.wait(lock, [&] { return n_done_ >= number; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Stream::drain() {
  std::unique_lock lock(mutex_);
  if (timing_ != StreamTiming::kConcurrent)
    while (n_done_ < n_given_) run_one(lock);
  done_.wait(lock, [&] { return n_done_ == n_given_; });
  error_ = nullptr;
}

// After an error nothing more is done: it may have read what was never written.
void Stream::run_one(std::unique_lock<std::mutex>& lock) {
  const std::function<void()> work = std::move(queue_.front());
  queue_.pop_front();
  const bool skip = error_ != nullptr;
  lock.unlock();
  std::exception_ptr error;
  try {
    if (!skip) work();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) error_ = error;
  ++n_done_;
  done_.notify_all();
}

void Stream::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    run_one(lock);
  }
}

void Streams::set_timing(StreamTiming timing) {
  for (Stream& stream : streams_)
    stream.set_timing(kPoisonsArena ? StreamTiming::kAtStart : timing);
}

}  // namespace stow
