// Mask: which leaves of a tree of parameters are meant, by path.
// Not a tree of booleans; the same mask serves any tree.
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

/// Leaves by their path: from patterns ("embed", "layers/*/norm?"), or a function of the path, or of
/// the path and the leaf. In a pattern `*` stands for any characters but a slash, `?` for one of
/// them, `**` for any at all; a pattern that fits a folder means all that is in it.
class Mask {
 public:
  /// True if the leaf is selected.
  using Function = std::function<bool(const std::string& path, const Array& leaf)>;

  /// Every leaf.
  Mask() = default;
  Mask(std::initializer_list<const char*> patterns)
      : Mask(std::vector<std::string>(patterns.begin(), patterns.end())) {}
  Mask(std::vector<std::string> patterns);  // NOLINT: converts by design
  template <std::predicate<const std::string&> F>
  Mask(F f)  // NOLINT: converts by design
      : function_([f = std::move(f)](const std::string& path, const Array&) { return f(path); }) {}
  template <std::predicate<const std::string&, const Array&> F>
  Mask(F f) : function_(std::move(f)) {}  // NOLINT: converts by design

  /// The other leaves.
  Mask operator!() const;
  /// The leaves that both mean.
  Mask operator&&(const Mask& other) const;

  /// True if anything was given; without, every leaf is selected.
  bool given() const { return function_ != nullptr || !patterns_.empty() || !both_.empty(); }
  bool operator()(const Leaf& leaf) const;  ///< True if it is selected.
  /// Errors: TraceError naming a pattern that fits no leaf, with the nearest path. `what` names the
  /// one who asks: "[adamw] the mask".
  void check(const Leaves& leaves, std::string_view what) const;

 private:
  std::vector<std::string> patterns_;
  Function function_;
  std::vector<Mask> both_;
  bool inverted_ = false;
};

/// True if the pattern fits a path or a folder that it lies in.
bool path_matches(std::string_view pattern, std::string_view path);

}  // namespace stow::optim
