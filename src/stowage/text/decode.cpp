#include <charconv>

#include "stowage/text/tokenizer_impl.h"

namespace stow::text {
namespace {

using Tokens = std::vector<std::string>;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The byte of a token <0x00> to <0xFF>, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 ? static_cast<int>(byte) : -1;
}

struct Apply {
  Tokens tokens;

  void operator()(const DecodeByteLevel&) {
    std::string all, bytes;
    for (const std::string& token : tokens) all += byte_level_bytes(token, bytes) ? bytes : token;
    tokens = {to_utf8_lossy(all)};
  }

  void operator()(const DecodeByteFallback&) {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_utf8_text(bytes))
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), std::string(kReplacement));
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = fallback_byte(token); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }

  void operator()(const DecodeFuse&) {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {std::move(all)};
  }

  void operator()(const DecodeStrip& s) {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (size_t i = 0; i < s.start && left.starts_with(s.content); ++i)
        left.remove_prefix(s.content.size());
      for (size_t i = 0; i < s.stop && left.ends_with(s.content); ++i)
        left.remove_suffix(s.content.size());
      token = std::string(left);
    }
  }

  void operator()(const DecodeMetaspace& m) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string text;
      size_t done = 0;
      for (size_t at; (at = tokens[i].find(m.replacement, done)) != std::string::npos;) {
        text.append(tokens[i], done, at - done);
        if (i > 0 || !m.drops_first) text += ' ';
        done = at + m.replacement.size();
      }
      tokens[i] = text.append(tokens[i], done);
    }
  }

  void operator()(const Replace& r) {
    for (std::string& token : tokens) {
      // A token is valid UTF-8, as JSON is; a pattern beyond its limits leaves the token as it is.
      Result<std::string> done = normalize_text({Normalizer(r)}, token);
      if (done) token = std::move(*done);
    }
  }

  static bool is_utf8_text(std::string_view bytes) { return to_utf8_lossy(bytes) == bytes; }
};

}  // namespace

std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens) {
  Apply apply{std::move(tokens)};
  for (const DecoderStep& step : steps) std::visit(apply, step);
  std::string text;
  for (size_t i = 0; i < apply.tokens.size(); ++i) {
    if (steps.empty() && i > 0) text += ' ';
    text += apply.tokens[i];
  }
  return text;
}

}  // namespace stow::text
