#include "stowage/cli/slow_work.h"

#include <cstdio>

#include "stowage/base/printable.h"

namespace stow {

SlowWorkNotice::SlowWorkNotice(std::chrono::milliseconds after) : after_(after) {
  set_progress_listener(this);
}

SlowWorkNotice::~SlowWorkNotice() {
  set_progress_listener(nullptr);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SlowWorkNotice::begin(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (depth_++ > 0) return;
  what_ = what;
  begun_ = std::chrono::steady_clock::now();
  pending_ = true;
  // Commands that plan nothing have no thread more.
  if (!thread_.joinable()) thread_ = std::thread([this] { wait(); });
  changed_.notify_all();
}

void SlowWorkNotice::end() {
  const std::lock_guard lock(mutex_);
  if (--depth_ == 0) pending_ = false;
}

void SlowWorkNotice::wait() {
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
    const std::string text = "stowage: " + printable(what_) + " takes longer than a second\n";
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  }
}

}  // namespace stow
