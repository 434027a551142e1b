#include "stowage/base/bytes.h"
#include "stowage/base/inside.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace stow {

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

Result<int64_t> parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                                   {"b", 1},
                                                   {"kb", 1e3},
                                                   {"mb", 1e6},
                                                   {"gb", 1e9},
                                                   {"tb", 1e12},
                                                   {"kib", 1024.0},
                                                   {"mib", 1048576.0},
                                                   {"gib", 1073741824.0},
                                                   {"tib", 1099511627776.0}}};
  const auto bad = [&](std::string_view why) {
    return fail("expected a size such as 64MiB, 1.5GB or a number of bytes, got '{}': {}", text,
                why);
  };
  double number = 0;
  const auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (code != std::errc() || end == text.data() || !std::isfinite(number))
    return bad("it does not begin with a number");
  std::string unit;
  for (const char* p = end; p != text.data() + text.size(); ++p)
    if (*p != ' ' || !unit.empty()) unit += static_cast<char>(std::tolower(*p));
  for (const Unit& u : kUnits) {
    if (u.name != unit) continue;
    const double bytes = number * u.bytes;
    if (!(bytes >= 0)) return bad("it is negative");
    if (bytes > 4611686018427387904.0) return bad("it is larger than any memory");
    if (u.bytes == 1 && bytes != std::floor(bytes)) return bad("it is a fraction of a byte");
    // A plain integer is taken digit by digit: a double would round beyond 2^53.
    int64_t exact = 0;
    const auto [last, ec] = std::from_chars(text.data(), end, exact);
    if (u.bytes == 1 && ec == std::errc() && last == end) return exact;
    return static_cast<int64_t>(bytes);
  }
  return bad(fmt::format("'{}' is not a unit", unit));
}

}  // namespace stow
