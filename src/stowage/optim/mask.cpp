#include "stowage/optim/mask.h"

#include <algorithm>

#include "stowage/api/trace.h"
#include "stowage/base/nearest.h"

namespace stow::optim {
namespace {

// True if the pattern fits the beginning of the path, up to its end or a slash.
bool matches_from(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty() || path[0] == '/';
  const bool star = pattern[0] == '*';
  if (star) {
    const bool any = pattern.starts_with("**");
    const std::string_view rest = pattern.substr(any ? 2 : 1);
    for (size_t n = 0;; ++n) {
      if (matches_from(rest, path.substr(n))) return true;
      if (n == path.size() || (!any && path[n] == '/')) return false;
    }
  }
  if (path.empty() || (pattern[0] == '?' ? path[0] == '/' : path[0] != pattern[0])) return false;
  return matches_from(pattern.substr(1), path.substr(1));
}

}  // namespace

bool path_matches(std::string_view pattern, std::string_view path) {
  return !pattern.empty() && matches_from(pattern, path);
}

Mask::Mask(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {
  // No pattern at all fits nothing, which is another thing than no mask.
  if (patterns_.empty()) function_ = [](const std::string&, const Array&) { return false; };
}

Mask Mask::operator!() const {
  Mask other = *this;
  other.inverted_ = !inverted_;
  if (!given()) other.function_ = [](const std::string&, const Array&) { return true; };
  return other;
}

Mask Mask::operator&&(const Mask& other) const {
  Mask result;
  result.both_ = {*this, other};
  return result;
}

bool Mask::operator()(const Leaf& leaf) const {
  if (!given()) return true;
  if (!both_.empty()) return (both_[0](leaf) && both_[1](leaf)) != inverted_;
  const bool meant = function_ ? function_(leaf.path, leaf.value)
                               : std::any_of(patterns_.begin(), patterns_.end(),
                                             [&](const std::string& pattern) {
                                               return path_matches(pattern, leaf.path);
                                             });
  return meant != inverted_;
}

void Mask::check(const Leaves& leaves, std::string_view what) const {
  for (const Mask& mask : both_) mask.check(leaves, what);
  for (const std::string& pattern : patterns_) {
    if (std::any_of(leaves.begin(), leaves.end(),
                    [&](const Leaf& leaf) { return path_matches(pattern, leaf.path); }))
      continue;
    if (leaves.empty())
      trace_error_here("{} pattern '{}' fits no leaf: there are none", what, pattern);
    std::vector<std::string> names;  // of leaves and of folders
    for (const Leaf& leaf : leaves)
      for (size_t end = 0; end != std::string::npos; ++end) {
        end = leaf.path.find('/', end);
        names.push_back(leaf.path.substr(0, end));
        if (end == std::string::npos) break;
      }
    trace_error_here("{} pattern '{}' fits no leaf; the nearest is '{}'", what, pattern,
                     nearest_name(pattern, names));
  }
}

}  // namespace stow::optim
