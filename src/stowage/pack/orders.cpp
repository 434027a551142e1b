#include "stowage/pack/orders.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace stow::pack {
namespace {

// The largest live sum of any range of sections, in constant time.
class RangeMax {
 public:
  explicit RangeMax(const std::vector<int64_t>& values) : levels_{values} {
    for (size_t width = 1; 2 * width <= values.size(); width *= 2) {
      const std::vector<int64_t>& below = levels_.back();
      std::vector<int64_t> next(values.size() - 2 * width + 1);
      for (size_t i = 0; i < next.size(); ++i) next[i] = std::max(below[i], below[i + width]);
      levels_.push_back(std::move(next));
    }
  }
  int64_t operator()(int32_t first, int32_t last) const {
    const size_t level = std::bit_width(static_cast<uint32_t>(last - first + 1)) - 1;
    return std::max(levels_[level][first], levels_[level][last + 1 - (size_t{1} << level)]);
  }

 private:
  std::vector<std::vector<int64_t>> levels_;
};

// The key that an order compares: ascending, so "largest first" is negated.
struct Key {
  double major = 0, minor = 0, size = 0, lifetime = 0;
  int32_t buffer = 0;
};

}  // namespace

Measures measure(const Sections& sections) {
  const RangeMax live(sections.live);
  const size_t n = sections.begin.size() - 1;
  Measures m{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n)};
  for (size_t b = 0; b < n; ++b) {
    for (int32_t i = sections.begin[b]; i < sections.begin[b + 1]; ++i) {
      const SectionRect& r = sections.rects[i];
      m.lifetime[b] += r.last - r.first + 1;
      m.size[b] = std::max(m.size[b], static_cast<double>(r.offset + r.size));
      m.pressure[b] = std::max(m.pressure[b], static_cast<double>(live(r.first, r.last)));
    }
  }
  return m;
}

std::vector<int32_t> make_order(const Sections& sections, const Measures& measures, Order order) {
  const auto peak = static_cast<int32_t>(
      std::max_element(sections.live.begin(), sections.live.end()) - sections.live.begin());
  std::vector<Key> keys;
  for (int32_t b = 0; b + 1 < static_cast<int32_t>(sections.begin.size()); ++b) {
    if (sections.begin[b] == sections.begin[b + 1]) continue;
    Key key{.size = measures.size[b], .lifetime = measures.lifetime[b], .buffer = b};
    double area = 0;
    int64_t distance = INT64_MAX, first = INT64_MAX;
    for (int32_t i = sections.begin[b]; i < sections.begin[b + 1]; ++i) {
      const SectionRect& r = sections.rects[i];
      area += static_cast<double>(r.size) * (r.last - r.first + 1);
      distance = std::min<int64_t>(distance, std::max({0, r.first - peak, peak - r.last}));
      first = std::min<int64_t>(first, r.first);
    }
    switch (order) {
      case Order::kPeakDistance:
        key.major = static_cast<double>(distance);
        break;
      case Order::kPressure:
        key.major = -measures.pressure[b];
        break;
      case Order::kPressureArea:
        key.major = -measures.pressure[b];
        key.minor = -area;
        break;
      case Order::kLifetime:
        key.major = -key.lifetime;
        break;
      case Order::kArea:
        key.major = -area;
        break;
      case Order::kSize:
        break;
      case Order::kProgram:
        key.major = static_cast<double>(first);
        break;
    }
    keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return std::tuple(a.major, a.minor, -a.size, -a.lifetime, a.buffer) <
           std::tuple(b.major, b.minor, -b.size, -b.lifetime, b.buffer);
  });
  std::vector<int32_t> out;
  out.reserve(keys.size());
  for (const Key& key : keys) out.push_back(key.buffer);
  return out;
}

}  // namespace stow::pack
