// Mask: selects leaves of a tree of parameters by path.
// Not a tree of booleans; the same mask applies to any tree.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/api/array.h"

namespace stow::optim {

/// A leaf of a tree with its path ("layers/0/w1").
struct Leaf {
  std::string path;
  Array value;
};
using Leaves = std::vector<Leaf>;  ///< In the order of the tree.

/// A selection of leaves by patterns ("embed", "layers/*/norm?"), by a function of the path, or by
/// a function of the path and the leaf. In a pattern `*` matches any characters except a slash, `?`
/// one such character, and `**` any characters. A pattern that matches a prefix of a path which
/// ends before a slash selects all leaves below that prefix.
class Mask {
 public:
  /// True if the leaf is selected.
  using Function = std::function<bool(const std::string& path, const Array& leaf)>;

  /// Selects every leaf.
  Mask() = default;
  Mask(std::initializer_list<const char*> patterns)
      : Mask(std::vector<std::string>(patterns.begin(), patterns.end())) {}
  Mask(std::vector<std::string> patterns);  // NOLINT: converts by design
  template <std::predicate<const std::string&> F>
  Mask(F f)  // NOLINT: converts by design
      : function_([f = std::move(f)](const std::string& path, const Array&) { return f(path); }) {}
  template <std::predicate<const std::string&, const Array&> F>
  Mask(F f) : function_(std::move(f)) {}  // NOLINT: converts by design

  /// Selects the leaves that this mask does not select.
  Mask operator!() const;
  /// Selects the leaves that both masks select.
  Mask operator&&(const Mask& other) const;

  /// False for a default mask, which selects every leaf.
  bool given() const { return function_ != nullptr || !patterns_.empty() || !both_.empty(); }
  bool operator()(const Leaf& leaf) const;  ///< True if it is selected.
  /// Checks that each pattern matches a leaf. `what`: the mask's name in errors: "[adamw] the
  /// mask".
  /// Errors: TraceError that names a pattern without a leaf, and the nearest path.
  void check(const Leaves& leaves, std::string_view what) const;

 private:
  std::vector<std::string> patterns_;
  Function function_;
  std::vector<Mask> both_;
  bool inverted_ = false;
};

/// True if the pattern matches the path, or a prefix of it that ends before a slash.
bool path_matches(std::string_view pattern, std::string_view path);

}  // namespace stow::optim
