#include "stowage/base/slow_work.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "stowage/base/printable.h"

namespace stow {

// A thread that waits beside the work.
class SlowWorkNotice::Clock {
 public:
  explicit Clock(std::chrono::milliseconds after) : after_(after) {}
  ~Clock() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void begin(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (depth_++ > 0) return;
    what_ = what;
    begun_ = std::chrono::steady_clock::now();
    pending_ = true;
    // Who plans nothing has no thread more.
    if (!thread_.joinable()) thread_ = std::thread([this] { wait(); });
    changed_.notify_all();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (depth_ > 0 && --depth_ == 0) pending_ = false;
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (!pending_) {
        changed_.wait(lock);
        continue;
      }
      const auto due = begun_ + after_;
      if (std::chrono::steady_clock::now() < due) {
        changed_.wait_until(lock, due);
        continue;
      }
      pending_ = false;
      const std::string limit =
          after_ == std::chrono::seconds(1) ? "a second" : fmt::format("{} ms", after_.count());
      const std::string text =
          fmt::format("stowage: {} takes longer than {}\n", printable(what_), limit);
      std::fputs(text.c_str(), stderr);
      std::fflush(stderr);
    }
  }

  const std::chrono::milliseconds after_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  int depth_ = 0;  // of work inside work: the outermost counts
  bool stop_ = false;
  std::chrono::steady_clock::time_point begun_;
  bool pending_ = false;  // begun, and nothing written about it
  std::thread thread_;
};

SlowWorkNotice::SlowWorkNotice(std::chrono::milliseconds after)
    : clock_(std::make_unique<Clock>(after)) {
  set_progress_listener(this);
}
SlowWorkNotice::~SlowWorkNotice() {
  if (progress_listener() == this) set_progress_listener(nullptr);
}
void SlowWorkNotice::begin(const std::string& what) {
  clock_->begin(what);
}
void SlowWorkNotice::end() {
  clock_->end();
}

}  // namespace stow
