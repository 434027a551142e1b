#include "stowage/base/toml_entries.h"

#include <toml++/toml.h>

#include <algorithm>

namespace stow {
namespace {

constexpr int kMaxDots = 64;  // in a line

void collect(const toml::table& table, const std::string& prefix,
             const std::function<bool(const std::string&)>& is_key, std::vector<TomlEntry>& out) {
  for (const auto& [key, node] : table) {
    TomlEntry entry{key.source().begin.line, prefix + std::string(key.str()), TomlOther::kOther};
    if (const toml::table* inner = node.as_table()) {
      if (!inner->empty() && !is_key(entry.name)) {
        collect(*inner, entry.name + ".", is_key, out);
        continue;
      }
      entry.value = TomlOther::kTable;
    } else if (const auto* integer = node.as_integer()) {
      entry.value = integer->get();
    } else if (const auto* number = node.as_floating_point()) {
      entry.value = number->get();
    } else if (const auto* boolean = node.as_boolean()) {
      entry.value = boolean->get();
    } else if (const auto* string = node.as_string()) {
      entry.value = string->get();
    }
    out.push_back(std::move(entry));
  }
}

// The line in which a key may have more parts than the stack has room for, or 0: the parser, and
// whoever takes its tables apart, goes down part by part. "..." counts as one dot.
uint32_t line_of_many_dots(std::string_view text) {
  uint32_t line = 1;
  int n_dots = 0;
  char before = 0;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      n_dots = 0;
    }
    if (c == '.' && before != '.' && ++n_dots > kMaxDots) return line;
    before = c;
  }
  return 0;
}

}  // namespace

Result<std::vector<TomlEntry>> read_toml_entries(
    std::string_view text, const std::string& path,
    const std::function<bool(const std::string&)>& is_key) {
  if (const uint32_t line = line_of_many_dots(text))
    return fail("{}:{}: has more than {} dots: keys do not nest that deep", path, line, kMaxDots);
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return fail("{}:{}: {}", path, error.source().begin.line, error.description());
  }
  std::vector<TomlEntry> entries;
  collect(table, "", is_key, entries);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TomlEntry& a, const TomlEntry& b) { return a.line < b.line; });
  return entries;
}

}  // namespace stow
