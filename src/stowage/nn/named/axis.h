// Axis: a name and a size; and the argument types by which functions take axes by name.
// Not an array; see named_array.h.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/api/array.h"

namespace stow::named {

/// One axis of an array: Axis{"Embed", 512}. Names are of letters, digits, '_', '-' and '.'.
struct Axis {
  std::string name;
  int64_t size = 0;

  Axis resize(int64_t new_size) const { return {name, new_size}; }  ///< An axis of another size.
  /// Returns an axis of this size with another name.
  Axis alias(std::string new_name) const { return {std::move(new_name), size}; }
  friend bool operator==(const Axis&, const Axis&) = default;  ///< Name and size.
};

/// Axes of a new array, as an argument: one axis or a list, with sizes.
class AxisSpec {
 public:
  AxisSpec() = default;                                         ///< None: a scalar.
  AxisSpec(Axis axis) : axes_{std::move(axis)} {}               // NOLINT: converts by design
  AxisSpec(std::initializer_list<Axis> axes) : axes_(axes) {}   ///< In order.
  AxisSpec(std::vector<Axis> axes) : axes_(std::move(axes)) {}  // NOLINT
  const std::vector<Axis>& list() const { return axes_; }       ///< In order.

 private:
  std::vector<Axis> axes_;
};

/// An axis of an existing array, by name. If it is given as an Axis, its size must match too.
class AxisSelector {
 public:
  AxisSelector(const char* name) : name_(name) {}             // NOLINT: converts by design
  AxisSelector(std::string name) : name_(std::move(name)) {}  // NOLINT
  AxisSelector(const Axis& axis) : name_(axis.name), size_(axis.size) {}  // NOLINT
  const std::string& name() const { return name_; }                       ///< Its name.
  const std::optional<int64_t>& size() const { return size_; }            ///< If it was given.

 private:
  std::string name_;
  std::optional<int64_t> size_;
};

/// Axes of an existing array: all of them, one, or a list.
class AxisSelection {
 public:
  AxisSelection() = default;                                                               ///< All.
  AxisSelection(const char* name) : given_(true), axes_{AxisSelector(name)} {}             // NOLINT
  AxisSelection(std::string name) : given_(true), axes_{AxisSelector(std::move(name))} {}  // NOLINT
  AxisSelection(const Axis& axis) : given_(true), axes_{AxisSelector(axis)} {}             // NOLINT
  AxisSelection(std::initializer_list<AxisSelector> axes) : given_(true), axes_(axes) {}
  AxisSelection(std::vector<AxisSelector> axes)  // NOLINT
      : given_(true), axes_(std::move(axes)) {}
  AxisSelection(const std::vector<Axis>& axes)  // NOLINT
      : given_(true), axes_(axes.begin(), axes.end()) {}

  bool given() const { return given_; }                            ///< False for "all".
  const std::vector<AxisSelector>& list() const { return axes_; }  ///< In the order given.

 private:
  bool given_ = false;
  std::vector<AxisSelector> axes_;
};
/// Every axis of an array, as an argument.
inline const AxisSelection all_axes;
/// No axis at all, as an argument: dot(a, b, no_axes) is an outer product.
inline const AxisSelection no_axes{std::vector<AxisSelector>{}};

std::string to_string(const Axis& axis);               ///< "Embed: 8".
std::string to_string(const std::vector<Axis>& axes);  ///< "{Batch: 4, Embed: 8}".

/// Returns the product of the sizes; the largest int64_t if it overflows.
int64_t total_size(const AxisSpec& axes);
/// Returns the index of the axis of that name, or none.
std::optional<size_t> find_axis(const std::vector<Axis>& axes, std::string_view name);
/// True if these are the same axes, in any order.
bool same_axes(const std::vector<Axis>& a, const std::vector<Axis>& b);
/// Returns `axes` without those whose names are in `removed`.
std::vector<Axis> without_axes(const std::vector<Axis>& axes, const std::vector<Axis>& removed);

}  // namespace stow::named
