// The keys of a TOML file in the order in which people read them, with the line of each.
// Not what they mean; each table of keys judges its own.
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

/// The kind of a value that is neither a number, a boolean nor a text.
enum class TomlOther : uint8_t { kTable, kOther };

struct TomlEntry {
  uint32_t line = 0;
  std::string name;  ///< Dotted: "model.dim".
  std::variant<int64_t, double, bool, std::string, TomlOther> value;
  int table = -1;  ///< In a list of tables (`[[name]]`): which of them, from 0.
};

/// Tables are opened but for those that `is_key` claims and empty ones, which come as entries.
/// A list of tables with the name `tables` is opened too: an entry of kTable for each table, then
/// its keys ("network.devices").
/// Errors: "PATH:LINE: what the syntax lacks".
Result<std::vector<TomlEntry>> read_toml_entries(
    std::string_view text, const std::string& path,
    const std::function<bool(const std::string&)>& is_key, std::string_view tables = {});

}  // namespace stow
