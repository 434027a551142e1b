#include "stowage/base/output_target.h"

#include <sys/stat.h>

#include <cstdlib>
#include <memory>

namespace stow {

OutputTarget output_target(const std::string& path) {
  OutputTarget target{path, false, {}};
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    // A link to nothing: what is written makes its target.
    target.in_place = ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
    return target;
  }
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (!S_ISREG(info.st_mode) || !real) {
    target.in_place = true;
    return target;
  }
  target.path = real.get();
  target.mode = info.st_mode & 07777;
  return target;
}

}  // namespace stow
