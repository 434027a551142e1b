#include "stowage/text/added_tokens.h"

#include <algorithm>

#include "stowage/text/unicode.h"

namespace stow::text {
namespace {

// The place of the character that ends at `end`.
size_t previous_char(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Pattern> patterns)
    : patterns_(std::move(patterns)) {
  std::erase_if(patterns_, [](const Pattern& p) { return p.text.empty(); });
  if (patterns_.empty()) return;
  std::sort(patterns_.begin(), patterns_.end(),
            [](const Pattern& a, const Pattern& b) { return a.text < b.text; });
  begin_of_.assign(257, 0);
  for (const Pattern& p : patterns_) ++begin_of_[static_cast<uint8_t>(p.text[0]) + 1u];
  for (size_t b = 0; b < 256; ++b) begin_of_[b + 1] += begin_of_[b];
}

// Sorted by text, a pattern stands behind its own prefixes, so the last that matches is the
// longest.
const AddedTokenMatcher::Pattern* AddedTokenMatcher::longest_at(std::string_view text,
                                                                size_t at) const {
  const auto first = static_cast<uint8_t>(text[at]);
  const auto begin = patterns_.begin() + begin_of_[first],
             end = patterns_.begin() + begin_of_[first + 1u];
  if (begin == end) return nullptr;
  const std::string_view rest = text.substr(at);
  auto low = begin, high = end;
  const Pattern* found = nullptr;
  // Narrows the range byte by byte: what is left shares the first `n` bytes with the text.
  for (size_t n = 1; low != high; ++n) {
    if (low->text.size() == n) found = &*low;
    if (n >= rest.size()) break;
    const auto byte = [n](const Pattern& p) {
      return p.text.size() > n ? static_cast<int>(static_cast<uint8_t>(p.text[n])) : -1;
    };
    const int wanted = static_cast<uint8_t>(rest[n]);
    low = std::lower_bound(low, high, wanted, [&](const Pattern& p, int b) { return byte(p) < b; });
    high =
        std::upper_bound(low, high, wanted, [&](int b, const Pattern& p) { return b < byte(p); });
  }
  return found;
}

std::vector<AddedTokenMatcher::Piece> AddedTokenMatcher::split(std::string_view text) const {
  std::vector<Piece> pieces;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !patterns_.empty();) {
    const Pattern* match = longest_at(text, at);
    if (!match) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + match->text.size();
    at = end;
    const AddedToken& token = match->token;
    if (token.single_word &&
        ((begin > 0 && is_word(decode_char(text, previous_char(text, begin)))) ||
         (end < text.size() && is_word(decode_char(text, end)))))
      continue;
    if (token.lstrip) {
      while (begin > done && is_space(decode_char(text, previous_char(text, begin))))
        begin = previous_char(text, begin);
      begin = std::max(begin, done);
    }
    if (token.rstrip)
      while (end < text.size() && is_space(decode_char(text, end)))
        end += static_cast<size_t>(char_bytes(text, end));
    if (done < begin) pieces.push_back({done, begin, -1});
    pieces.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({done, text.size(), -1});
  return pieces;
}

}  // namespace stow::text
