// The keys of a TOML file as a flat list in the order of their lines.
// Not their meaning; callers check names and values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// The kind of a value that is neither a number, a boolean nor a string. kOther: an array or a
/// date.
enum class TomlOther : uint8_t { kTable, kOther };

struct TomlEntry {
  uint32_t line = 0;
  std::string name;  ///< Dotted: "model.dim".
  std::variant<int64_t, double, bool, std::string, TomlOther> value;
  /// Index of the table, from 0, if the entry is in a list of tables (`[[name]]`); else -1.
  int table = -1;
};

/// Returns the entries of a TOML text. The keys of a table become entries with dotted names. A
/// table for whose name `is_key` returns true, or without keys, is itself one entry, kTable. A list
/// of tables with the name `tables` gives an entry of kTable for each table, and the keys of the
/// table as entries ("network.devices").
/// Errors: "PATH:LINE: reason" for a syntax error.
Result<std::vector<TomlEntry>> read_toml_entries(
    std::string_view text, const std::string& path,
    const std::function<bool(const std::string&)>& is_key, std::string_view tables = {});

}  // namespace stow
