// FileSizeLimit: while it lives, writes beyond a file size fail, like writes to a full disk.
// It does not truncate files that are larger already.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "stowage/base/error.h"

namespace stow {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    STOW_CHECK(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    STOW_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

}  // namespace stow
