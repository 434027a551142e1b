#include "stowage/base/printable.h"

#include <array>
#include <cstdint>

namespace stow {
namespace {

// The bytes of the character that the text begins with, or 0 where it is none that may be shown.
size_t shown_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first == '\n' || first == '\t' || (first >= ' ' && first != 127);
  const size_t n = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (n == 0 || text.size() < n) return 0;
  uint32_t code = first & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0xa0, 0x800, 0x10000};  // C1 controls lie below
  const bool surrogate = code >= 0xd800 && code < 0xe000, no_character = (code & 0xfffe) == 0xfffe;
  return code < kLeast[n] || code > 0x10ffff || surrogate || no_character ? 0 : n;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t n = shown_bytes(text);
    out += n ? text.substr(0, n) : "?";
    text.remove_prefix(n ? n : 1);
  }
  return out;
}

}  // namespace stow
