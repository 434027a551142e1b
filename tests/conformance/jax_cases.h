// Helpers to compare functions with values from JAX: reading arrays, and tables of functions.
// Not the functions; each test has a table of its own.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "stowage/stowage.h"

namespace stow::testing {

using Arrays = std::vector<Array>;
using Function = std::function<Arrays(const Arrays&)>;
using Table = std::map<std::string, Function>;

// A row of a table: name, and the results of the arrays x.
#define STOW_F(name, ...)                                         \
  {                                                               \
    name, [](const Arrays& x) -> Arrays { return {__VA_ARGS__}; } \
  }
#define STOW_1(f) STOW_F(#f, f(x.at(0)))
#define STOW_2(f) STOW_F(#f, f(x.at(0), x.at(1)))

/// Adds the functions of names.h and initializers.h to a table.
void add_names(Table& table);

inline Arrays pair_of(const std::pair<Array, Array>& p) {
  return {p.first, p.second};
}

inline std::vector<double> numbers(const nlohmann::json& array) {
  std::vector<double> values;
  for (const nlohmann::json& v : array["data"])
    values.push_back(v.is_string()    ? std::stod(v.get<std::string>())
                     : v.is_boolean() ? static_cast<double>(v.get<bool>())
                                      : v.get<double>());
  return values;
}

inline Array load(const nlohmann::json& array) {
  const Shape shape(array["shape"].get<Dims>());
  const DType dtype = *parse_dtype(array["dtype"].get<std::string>());
  if (dtype != DType::kU64) return Array::from(numbers(array), shape, dtype);
  return Array::from(array["data"].get<std::vector<uint64_t>>(), shape, dtype);
}

}  // namespace stow::testing
