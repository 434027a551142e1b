// Streams: queues of moves and collectives, one thread each, beside the thread that computes.
// Not a pool for kernels, and no order between streams but what is awaited.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "stowage/ir/schedule.h"

namespace stow {

/// When a stream does what it is given. The others than kBeside are for tests: what is right does
/// not depend on it.
enum class StreamTiming : uint8_t {
  kBeside,   ///< On its thread, as soon as it can.
  kAtStart,  ///< At once, before start() returns.
  kAtWait    ///< As late as can be: when it, or a later one, is awaited.
};

namespace runtime {

/// One thing after another, in the order given.
class Stream {
 public:
  Stream() = default;
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Gives it work; returns its number.
  uint64_t start(std::function<void()> work);
  /// Until that work and all before it are done. Throws what it threw, once.
  void wait(uint64_t number);
  /// Until it is idle; what was thrown is dropped.
  void drain();
  /// Only while idle.
  void set_timing(StreamTiming timing) { timing_ = timing; }

 private:
  void serve();
  void run_one(std::unique_lock<std::mutex>& lock);

  StreamTiming timing_ = StreamTiming::kBeside;
  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<std::function<void()>> queue_;
  uint64_t n_given_ = 0, n_done_ = 0;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

/// The streams of one device.
class Streams {
 public:
  Streams() { set_timing(StreamTiming::kBeside); }
  Stream& stream(StreamKind kind) { return streams_[static_cast<size_t>(kind)]; }
  void drain() {  ///< All of them.
    for (Stream& stream : streams_) stream.drain();
  }
  /// Sets the timing of all streams. If an arena is poisoned around the running instruction, the
  /// timing stays kAtStart.
  void set_timing(StreamTiming timing);

 private:
  std::array<Stream, kNumStreams> streams_;
};

}  // namespace runtime

/// Leaves no move under way at the end of a scope.
class Drain {
 public:
  explicit Drain(runtime::Streams& streams) : streams_(streams) {}
  ~Drain() { streams_.drain(); }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

 private:
  runtime::Streams& streams_;
};

}  // namespace stow
