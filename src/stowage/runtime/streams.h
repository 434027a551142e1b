// Streams: queues of moves, collectives and submitted kernels, each with a thread of its own.
// Not a thread pool; work on different streams is ordered only by waits.
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

/// When a stream runs its work. All but kConcurrent are for tests; results do not depend on it.
enum class StreamTiming : uint8_t {
  kConcurrent,  ///< On the stream's thread, as soon as possible.
  kAtStart,     ///< On the calling thread, before start() returns.
  kAtWait       ///< On the thread that waits for it or for later work.
};

namespace runtime {

/// A queue that runs its work in order, one item at a time.
class Stream {
 public:
  Stream() = default;
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Enqueues work and returns its number, counted from 1.
  uint64_t start(std::function<void()> work);
  /// Waits until this work and all before it are done. Rethrows, once, what any work has thrown;
  /// after an exception the stream skips its work until the exception is rethrown or drained.
  void wait(uint64_t number);
  /// Waits until the stream is idle, and drops what was thrown.
  void drain();
  /// Sets the timing; the stream must be idle.
  void set_timing(StreamTiming timing) { timing_ = timing; }

 private:
  void serve();
  void run_one(std::unique_lock<std::mutex>& lock);

  StreamTiming timing_ = StreamTiming::kConcurrent;
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
  Streams() { set_timing(StreamTiming::kConcurrent); }
  Stream& stream(StreamKind kind) { return streams_[static_cast<size_t>(kind)]; }
  void drain() {  ///< Drains all streams.
    for (Stream& stream : streams_) stream.drain();
  }
  /// Sets the timing of all streams. In builds that poison arenas (kPoisonsArena) it stays
  /// kAtStart.
  void set_timing(StreamTiming timing);

 private:
  std::array<Stream, kNumStreams> streams_;
};

}  // namespace runtime

/// Drains the streams at the end of a scope.
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
