#include "stowage/base/toml_entries.h"

#include <toml++/toml.h>

#include <algorithm>

namespace stow {
namespace {

constexpr int kMaxDots = 64;  // in a key

struct Collector {
  const std::function<bool(const std::string&)>& is_key;
  std::string_view tables;
  std::vector<TomlEntry> entries;

  void take_table(const toml::table& table, const std::string& prefix, int number);
};

void Collector::take_table(const toml::table& table, const std::string& prefix, int number) {
  for (const auto& [key, node] : table) {
    TomlEntry entry{key.source().begin.line, prefix + std::string(key.str()), TomlOther::kOther,
                    number};
    if (const toml::array* list = node.as_array();
        list && entry.name == tables && list->is_homogeneous(toml::node_type::table)) {
      entry.value = TomlOther::kTable;
      for (const toml::node& element : *list) {
        ++entry.table;
        entry.line = element.source().begin.line;
        entries.push_back(entry);
        take_table(*element.as_table(), entry.name + ".", entry.table);
      }
      continue;
    }
    if (const toml::table* inner = node.as_table()) {
      if (!inner->empty() && !is_key(entry.name)) {
        take_table(*inner, entry.name + ".", number);
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
    entries.push_back(std::move(entry));
  }
}

// Length of the string that begins `text`, quotes included. An unterminated string extends to the
// end of its line, or of the text.
size_t string_length(std::string_view text) {
  const char quote = text[0];
  const std::string three(3, quote);
  const bool lines = text.starts_with(three);
  for (size_t i = lines ? 3 : 1; i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (lines && text.substr(i).starts_with(three)) {
      i += 3;
      for (int more = 0; more < 2 && i < text.size() && text[i] == quote; ++more) ++i;
      return i;
    } else if (!lines && (text[i] == quote || text[i] == '\n')) {
      return text[i] == quote ? i + 1 : i;
    }
  }
  return text.size();
}

// The line in which a key may have more parts than the stack has room for, or 0: the parser, and
// whoever takes its tables apart, goes down part by part. What stands in strings and comments is
// none.
uint32_t line_of_many_dots(std::string_view text) {
  uint32_t line = 1;
  int n_dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const size_t n = string_length(text.substr(i));
      line += static_cast<uint32_t>(std::count(text.begin() + i, text.begin() + i + n, '\n'));
      i += n - 1;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '\n') {
      ++line;
      n_dots = 0;
    } else if (c == ',' || c == '=' || c == '{' || c == '[') {
      n_dots = 0;
    } else if (c == '.' && ++n_dots > kMaxDots) {
      return line;
    }
  }
  return 0;
}

}  // namespace

Result<std::vector<TomlEntry>> read_toml_entries(
    std::string_view text, const std::string& path,
    const std::function<bool(const std::string&)>& is_key, std::string_view tables) {
  if (const uint32_t line = line_of_many_dots(text))
    return fail("{}:{}: has more than {} dots: keys do not nest that deep", path, line, kMaxDots);
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return fail("{}:{}: {}", path, error.source().begin.line, error.description());
  }
  Collector collector{is_key, tables, {}};
  collector.take_table(table, "", -1);
  std::vector<TomlEntry>& entries = collector.entries;
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TomlEntry& a, const TomlEntry& b) { return a.line < b.line; });
  return std::move(entries);
}

}  // namespace stow
