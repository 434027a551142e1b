#include "stowage/nn/named/axis.h"

#include <algorithm>
#include <limits>

namespace stow::named {

std::string to_string(const Axis& axis) {
  return fmt::format("{}: {}", axis.name, axis.size);
}

std::string to_string(const std::vector<Axis>& axes) {
  std::string text = "{";
  for (const Axis& axis : axes) {
    if (text.size() > 1) text += ", ";
    text += to_string(axis);
  }
  return text + "}";
}

int64_t total_size(const AxisSpec& axes) {
  int64_t size = 1;
  for (const Axis& axis : axes.list())
    if (__builtin_mul_overflow(size, axis.size, &size)) return std::numeric_limits<int64_t>::max();
  return size;
}

std::optional<size_t> find_axis(const std::vector<Axis>& axes, std::string_view name) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == name) return i;
  return std::nullopt;
}

bool same_axes(const std::vector<Axis>& a, const std::vector<Axis>& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const Axis& axis) {
           return std::find(b.begin(), b.end(), axis) != b.end();
         });
}

std::vector<Axis> without_axes(const std::vector<Axis>& axes, const std::vector<Axis>& removed) {
  std::vector<Axis> rest;
  for (const Axis& axis : axes)
    if (!find_axis(removed, axis.name)) rest.push_back(axis);
  return rest;
}

}  // namespace stow::named
