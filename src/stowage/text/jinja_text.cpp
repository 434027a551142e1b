// Source: Python's documentation, "Text Sequence Type".
#include "stowage/text/jinja_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "stowage/text/unicode.h"

namespace stow::text::jinja {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

// Case of ASCII letters alone, with a word for others: their rules need Unicode's tables of special
// cases.
std::string cased(std::string text, bool upper) {
  for (char& c : text) {
    if (static_cast<uint8_t>(c) >= 0x80)
      throw Error("changing the case of letters outside ASCII is not supported");
    c = static_cast<char>(upper ? std::toupper(static_cast<unsigned char>(c))
                                : std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}
std::string capitalized(const std::string& text) {
  if (text.empty()) return text;
  return cased(text.substr(0, 1), true) + cased(text.substr(1), false);
}
std::string titled(const std::string& text) {
  std::string out = cased(text, false);
  bool begins = true;
  for (char& c : out) {
    if (begins) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    begins = !std::isalpha(static_cast<unsigned char>(c));
  }
  return out;
}

std::string stripped(const std::string& text, const Value* characters, bool left, bool right) {
  const bool blanks = !characters || characters->is_none();
  const List set = blanks ? List() : elements(*characters);
  const auto drops = [&](std::string_view c) {
    if (blanks) {
      const char32_t code = decode_char(c, 0);
      return is_space(code) || (code >= 0x1C && code <= 0x1F);  // as Python's str.isspace
    }
    return std::any_of(set.begin(), set.end(),
                       [&](const Value& v) { return v.string() && *v.string() == c; });
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const auto n = static_cast<size_t>(char_bytes(text, begin));
    if (!drops(std::string_view(text).substr(begin, n))) break;
    begin += n;
  }
  while (right && end > begin) {
    size_t at = end - 1;
    while (at > begin && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (!drops(std::string_view(text).substr(at, end - at))) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     int64_t count) {
  std::string out;
  size_t done = 0;
  for (; count != 0; --count) {
    if (from.empty()) {  // Python puts it around every character.
      out += to;
      if (done == text.size()) return out;
      const auto n = static_cast<size_t>(char_bytes(text, done));
      out.append(text, done, n);
      done += n;
      continue;
    }
    const size_t at = text.find(from, done);
    if (at == std::string::npos) break;
    out.append(text, done, at - done) += to;
    done = at + from.size();
  }
  return out.append(text, done);
}

List split(const std::string& text, const Value* separator, int64_t most, bool from_right) {
  List out;
  if (!separator || separator->is_none()) {
    if (from_right && most >= 0)
      throw Error("rsplit with a count and no separator is not supported");
    size_t at = text.find_first_not_of(kBlanks);
    while (at != std::string::npos) {
      if (most >= 0 && static_cast<int64_t>(out.size()) == most) {
        out.emplace_back(text.substr(at));
        return out;
      }
      const size_t end = text.find_first_of(kBlanks, at);
      out.emplace_back(text.substr(at, end - at));
      at = end == std::string::npos ? end : text.find_first_not_of(kBlanks, end);
    }
    return out;
  }
  if (!separator->string() || separator->string()->empty())
    throw Error("split: expected a separator that is not empty");
  const std::string& by = *separator->string();
  if (from_right) {
    size_t end = text.size();
    for (; most != 0; --most) {
      const size_t at = end < by.size() ? std::string::npos : text.rfind(by, end - by.size());
      if (at == std::string::npos) break;
      out.insert(out.begin(), Value(text.substr(at + by.size(), end - at - by.size())));
      end = at;
    }
    out.insert(out.begin(), Value(text.substr(0, end)));
    return out;
  }
  size_t begin = 0;
  for (; most != 0; --most) {
    const size_t at = text.find(by, begin);
    if (at == std::string::npos) break;
    out.emplace_back(text.substr(begin, at - begin));
    begin = at + by.size();
  }
  out.emplace_back(text.substr(begin));
  return out;
}

List split_lines(const std::string& text, bool keep) {
  List out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find_first_of("\r\n\v\f\x1c\x1d\x1e", at);
    if (end == std::string::npos) {
      out.emplace_back(text.substr(at));
      break;
    }
    const size_t n = text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n' ? 2 : 1;
    out.emplace_back(text.substr(at, end - at + (keep ? n : 0)));
    at = end + n;
  }
  return out;
}

const std::string& text_of(const Value& value, std::string_view what) {
  if (!value.string())
    throw Error(fmt::format("{}: expected a text, got {}", what, type_name(value)));
  return *value.string();
}
std::string text_argument(const Arguments& a, size_t i, std::string_view name,
                          std::string_view what) {
  const Value* v = argument(a, i, name);
  if (!v) throw Error(fmt::format("{}: expected the argument {}", what, name));
  return text_of(*v, what);
}

// startswith and endswith take a text or several.
bool matches_any(const Arguments& a, std::string_view what,
                 const std::function<bool(const std::string&)>& matches) {
  const Value* v = argument(a, 0, "prefix");
  if (!v) throw Error(fmt::format("{}: expected an argument", what));
  if (!v->list()) return matches(text_of(*v, what));
  return std::any_of(v->list()->begin(), v->list()->end(),
                     [&](const Value& e) { return matches(text_of(e, what)); });
}

int64_t n_chars(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

namespace {

using TextMethod = Value (*)(const std::string&, const Arguments&);
const std::map<std::string_view, TextMethod>& text_methods() {
  static const std::map<std::string_view, TextMethod> table = {
      {"strip",
       [](const std::string& s, const Arguments& a) {
         return Value(stripped(s, argument(a, 0, "chars"), true, true));
       }},
      {"lstrip",
       [](const std::string& s, const Arguments& a) {
         return Value(stripped(s, argument(a, 0, "chars"), true, false));
       }},
      {"rstrip",
       [](const std::string& s, const Arguments& a) {
         return Value(stripped(s, argument(a, 0, "chars"), false, true));
       }},
      {"upper", [](const std::string& s, const Arguments&) { return Value(cased(s, true)); }},
      {"lower", [](const std::string& s, const Arguments&) { return Value(cased(s, false)); }},
      {"capitalize", [](const std::string& s, const Arguments&) { return Value(capitalized(s)); }},
      {"title", [](const std::string& s, const Arguments&) { return Value(titled(s)); }},
      {"split",
       [](const std::string& s, const Arguments& a) {
         return Value(
             split(s, argument(a, 0, "sep"), integer_argument(a, 1, "maxsplit", -1), false));
       }},
      {"rsplit",
       [](const std::string& s, const Arguments& a) {
         return Value(
             split(s, argument(a, 0, "sep"), integer_argument(a, 1, "maxsplit", -1), true));
       }},
      {"splitlines",
       [](const std::string& s, const Arguments& a) {
         const Value* keep = argument(a, 0, "keepends");
         return Value(split_lines(s, keep && is_true(*keep)));
       }},
      {"startswith",
       [](const std::string& s, const Arguments& a) {
         return Value(
             matches_any(a, "startswith", [&](const std::string& p) { return s.starts_with(p); }));
       }},
      {"endswith",
       [](const std::string& s, const Arguments& a) {
         return Value(
             matches_any(a, "endswith", [&](const std::string& p) { return s.ends_with(p); }));
       }},
      {"replace",
       [](const std::string& s, const Arguments& a) {
         return Value(replaced(s, text_argument(a, 0, "old", "replace"),
                               text_argument(a, 1, "new", "replace"),
                               integer_argument(a, 2, "count", -1)));
       }},
      {"removeprefix",
       [](const std::string& s, const Arguments& a) {
         const std::string p = text_argument(a, 0, "prefix", "removeprefix");
         return Value(s.starts_with(p) ? s.substr(p.size()) : s);
       }},
      {"removesuffix",
       [](const std::string& s, const Arguments& a) {
         const std::string p = text_argument(a, 0, "suffix", "removesuffix");
         return Value(s.ends_with(p) ? s.substr(0, s.size() - p.size()) : s);
       }},
      {"find",
       [](const std::string& s, const Arguments& a) {
         const size_t at = s.find(text_argument(a, 0, "sub", "find"));
         return Value(at == std::string::npos ? int64_t{-1} : n_chars(s.substr(0, at)));
       }},
      {"rfind",
       [](const std::string& s, const Arguments& a) {
         const size_t at = s.rfind(text_argument(a, 0, "sub", "rfind"));
         return Value(at == std::string::npos ? int64_t{-1} : n_chars(s.substr(0, at)));
       }},
      {"count",
       [](const std::string& s, const Arguments& a) {
         const std::string sub = text_argument(a, 0, "sub", "count");
         if (sub.empty()) return Value(n_chars(s) + 1);
         int64_t n = 0;
         for (size_t at = 0; (at = s.find(sub, at)) != std::string::npos; at += sub.size()) ++n;
         return Value(n);
       }},
      {"join",
       [](const std::string& s, const Arguments& a) {
         const Value* v = argument(a, 0, "iterable");
         if (!v) throw Error("join: expected an argument");
         std::string out;
         bool first = true;
         for (const Value& e : elements(*v)) {
           if (!first) out += s;
           first = false;
           out += text_of(e, "join");
         }
         return Value(std::move(out));
       }},
      {"isdigit",
       [](const std::string& s, const Arguments&) {
         return Value(!s.empty() && s.find_first_not_of("0123456789") == std::string::npos);
       }},
      {"isspace",
       [](const std::string& s, const Arguments&) {
         return Value(!s.empty() && stripped(s, nullptr, true, false).empty());
       }},
      {"isalpha",
       [](const std::string& s, const Arguments&) {
         return Value(!s.empty() && std::all_of(s.begin(), s.end(), [](char c) {
           return std::isalpha(static_cast<unsigned char>(c));
         }));
       }},
      {"isupper",
       [](const std::string& s, const Arguments&) {
         return Value(cased(s, true) == s && cased(s, false) != s);
       }},
      {"islower",
       [](const std::string& s, const Arguments&) {
         return Value(cased(s, false) == s && cased(s, true) != s);
       }},
  };
  return table;
}

}  // namespace

Value text_method(const std::string& text, std::string_view name) {
  const auto found = text_methods().find(name);
  if (found == text_methods().end()) return {};
  return Value(
      Function([text, method = found->second](const Arguments& a) { return method(text, a); }));
}

}  // namespace stow::text::jinja
