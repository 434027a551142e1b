// The work of a long call, told to whoever asked.
// Not the log: a library that nobody listens to says nothing.
#pragma once

#include <string>

namespace stow {

/// Hears of long work. Called by the thread that does the work; may be called by several.
class ProgressListener {
 public:
  virtual ~ProgressListener() = default;
  virtual void begin(const std::string& what) = 0;  ///< "planning a program of 43360 nodes".
  virtual void end() = 0;                           ///< Ends the work begun last.
};

/// Sets who hears of long work in this process; null: nobody, as at the start. Not to be called while
/// such work runs.
void set_progress_listener(ProgressListener* listener);
/// The one who hears; null where nobody does.
ProgressListener* progress_listener();

/// Tells the listener, where there is one, that work goes on from its construction to its end.
class ProgressScope {
 public:
  explicit ProgressScope(const std::string& what);
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;
};

}  // namespace stow
