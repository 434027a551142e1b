#include "stowage/pack/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "stowage/base/bytes.h"
#include "stowage/base/inside.h"
#include "stowage/base/printable.h"

namespace stow::pack {
namespace {

constexpr double kWidth = 1200, kHeight = 800, kMargin = 20;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

std::string draw_svg(const Problem& problem, const Solution& solution,
                     const std::vector<std::string>& names) {
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (const Buffer& b : problem.buffers) {
    for (const Rect& r : b.rects) {
      first = std::min(first, r.lower);
      last = std::max(last, r.upper);
    }
  }
  const double per_tick = kWidth / std::max(1.0, static_cast<double>(last) - first);
  const double per_byte = kHeight / std::max(1.0, static_cast<double>(solution.height));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<text x=\"{}\" y=\"14\">{} bytes at the peak ({})</text>\n",
      kWidth + 2 * kMargin, kHeight + 2 * kMargin, kMargin, solution.height,
      format_bytes(solution.height));
  for (size_t b = 0; b < problem.buffers.size(); ++b) {
    for (const Rect& r : problem.buffers[b].rects) {
      if (r.size == 0 || r.lower == r.upper) continue;
      const int64_t begin = solution.offsets[b] + r.offset;
      fmt::format_to(std::back_inserter(out),
                     "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
                     "fill=\"hsl({},60%,70%)\" stroke=\"#333\" stroke-width=\"0.3\">"
                     "<title>{}: [{}, {}) bytes, [{}, {}) time</title></rect>\n",
                     kMargin + static_cast<double>(r.lower - first) * per_tick,
                     kMargin + kHeight - static_cast<double>(begin + r.size) * per_byte,
                     static_cast<double>(r.upper - r.lower) * per_tick,
                     static_cast<double>(r.size) * per_byte, b * 137 % 360,
                     names.empty() ? std::to_string(b) : escaped(names[b]), begin, begin + r.size,
                     r.lower, r.upper);
    }
  }
  return out + "</svg>\n";
}

}  // namespace stow::pack
