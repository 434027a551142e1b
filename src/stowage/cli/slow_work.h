// A line on standard error about work that takes more than a second.
// Not a progress bar: how long a search will take is not known.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "stowage/base/progress.h"

namespace stow {

/// Listens while it lives. Of each piece of work that takes longer than `after` it writes
/// "stowage: WHAT takes longer than a second" once.
class SlowWorkNotice : public ProgressListener {
 public:
  explicit SlowWorkNotice(std::chrono::milliseconds after = std::chrono::seconds(1));
  ~SlowWorkNotice() override;

  void begin(const std::string& what) override;
  void end() override;

 private:
  void wait();

  const std::chrono::milliseconds after_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  int depth_ = 0;       // of work inside work: the outermost counts
  bool stop_ = false;
  std::chrono::steady_clock::time_point begun_;
  bool pending_ = false;  // begun, and nothing written about it
  std::thread thread_;
};

}  // namespace stow
