// PartitionSpec: which axes of a mesh cut each axis of an array.
// Not a placement; a NamedSharding (api/sharding.h) joins it with a mesh and a memory kind.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

namespace stow {

/// One entry for each axis of the array, from axis 0 on; axes without an entry are whole. An entry
/// is the name of a mesh axis, several names (major first), or nullptr for a whole axis:
/// P("data", nullptr, P::Axes{"x", "y"}).
class PartitionSpec {
 public:
  /// The mesh axes that cut one axis of the array; an axis without any is whole.
  class Axes {
   public:
    Axes(std::nullptr_t) {}  ///< A whole axis. NOLINT
    Axes(const char* name) : names_{name} {}  ///< One. NOLINT
    Axes(std::string name) : names_{std::move(name)} {}  ///< One. NOLINT
    /// Any number, major first.
    explicit Axes(std::vector<std::string> names) : names_(std::move(names)) {}
    /// Several.
    Axes(std::initializer_list<const char*> names) : names_(names.begin(), names.end()) {}

    const std::vector<std::string>& names() const { return names_; }  ///< Major first.
    friend bool operator==(const Axes&, const Axes&) = default;  ///< The same names.

   private:
    std::vector<std::string> names_;
  };

  PartitionSpec() = default;  ///< Every axis is whole: replicated.
  /// From entries by axis of the array.
  explicit PartitionSpec(std::vector<Axes> entries) : entries_(std::move(entries)) {}
  /// From one argument for each axis.
  template <typename... Entries>
  requires(sizeof...(Entries) > 0 && (std::constructible_from<Axes, Entries> && ...))
  explicit PartitionSpec(Entries&&... entries)
      : entries_{Axes(std::forward<Entries>(entries))...} {}

  const std::vector<Axes>& entries() const { return entries_; }  ///< By axis of the array.
  /// Compares the entries as written: P("x") and P("x", nullptr) differ, as in JAX.
  friend bool operator==(const PartitionSpec&, const PartitionSpec&) = default;

 private:
  std::vector<Axes> entries_;
};

namespace sharding {
using P = PartitionSpec;  ///< JAX's short name, for `using stow::sharding::P`.
}  // namespace sharding

/// "P('data', None, ('x', 'y'))".
std::string to_string(const PartitionSpec& spec);

}  // namespace stow
