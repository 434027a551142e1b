#include "stowage/base/progress.h"

#include <atomic>

namespace stow {
namespace {

std::atomic<ProgressListener*> listener = nullptr;

}  // namespace

void set_progress_listener(ProgressListener* next) { listener = next; }
ProgressListener* progress_listener() { return listener; }

ProgressScope::ProgressScope(const std::string& what) {
  if (ProgressListener* l = listener) l->begin(what);
}
ProgressScope::~ProgressScope() {
  if (ProgressListener* l = listener) l->end();
}

}  // namespace stow
