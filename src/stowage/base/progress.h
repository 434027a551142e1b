// Progress notifications: a listener is told when long work begins and ends.
// Not the log: without a listener nothing is printed.
#pragma once

#include <string>

namespace stow {

/// Receives progress notifications. Called by the threads that do the work, possibly by several at
/// once.
class ProgressListener {
 public:
  virtual ~ProgressListener() = default;
  /// Work begins; `what` names it: "planning a program of 43360 nodes".
  virtual void begin(const std::string& what) = 0;
  virtual void end() = 0;  ///< The work that began last ends.
};

/// Sets the listener of this process; null removes it. A process starts without a listener. Must
/// not be called while a ProgressScope exists.
void set_progress_listener(ProgressListener* listener);
/// Returns the listener of this process; null if there is none.
ProgressListener* progress_listener();

/// Reports work to the listener, if there is one: the constructor its begin, the destructor its
/// end.
class ProgressScope {
 public:
  explicit ProgressScope(const std::string& what);
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;
};

}  // namespace stow
