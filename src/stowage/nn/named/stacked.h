// Stacked and ArrayStacked: layers of one type as one tree with an axis of layers, run by a loop.
// Not for layers of different types; use a std::vector of blocks.
#pragma once

#include "stowage/api/random.h"
#include "stowage/nn/named/scan.h"

namespace stow::named {

namespace stacked_detail {

/// Stacks the leaves of trees of one structure along a new first axis `axis`, into `into`, a copy
/// of one of them. Errors: TraceError naming the block and the leaf if structures differ.
void stack_blocks(const char* what, const TreeRef& into, const std::vector<TreeRef>& blocks,
                  const Axis& axis);
/// Replaces each leaf by its slice `i` along `axis`, which is dropped.
void take_layer(const char* what, const TreeRef& stacked, const Axis& axis, int64_t i);
/// Throws TraceError naming a leaf without the axis; an array without names must have it first.
void check_stacked(const char* what, const TreeRef& stacked, const Axis& axis);
/// Throws TraceError naming a leaf that is a NamedArray.
void reject_names(const char* what, const TreeRef& block);
std::string node_text(const Axis& axis, const ScanCheckpoint& checkpoint);

// Calls block(carry, args…); x is a tuple of the block and the arguments.
struct CallBlock {
  template <typename Carry, typename X>
  auto operator()(const Carry& carry, X& x) const {
    return std::apply([&](auto& block, auto&... args) { return block(carry, args...); }, x);
  }
};
// Calls f(block, carry, args…).
template <typename F>
struct CallWith {
  F& f;
  template <typename Carry, typename X>
  auto operator()(const Carry& carry, X& x) const {
    return std::apply([&](auto& block, auto&... args) { return f(block, carry, args...); }, x);
  }
};

}  // namespace stacked_detail

/// Layers of one type whose leaves have an axis of layers: `axis` in NamedArrays, the first axis in
/// other arrays. A block is any tree; fold and scan call it as block(carry, args…). Other arguments
/// than the carry are treated as `xs` of named::scan: those with the axis are sliced, arrays
/// without names along their first axis. Paths of leaves are those of a struct of stacked arrays
/// ("layers/wq"); a vector from unstacked() has paths like a state dict ("layers/0/wq").
/// Memory:  `checkpoint` says which residuals of each layer are kept.
/// Source:  Haliax's Stacked.
template <typename Block>
struct Stacked {
  Block stacked;
  Axis axis;
  ScanCheckpoint checkpoint = {};

  /// Layer i is init(key i), where the keys are random::split(key, axis.size). All layers are made
  /// at once, with the same values as one by one.
  template <typename Init>
  static Stacked init(const Axis& axis, Init init, const Array& key, ScanCheckpoint checkpoint = {},
                      STOW_AT) {
    const Array keys = stow::random::split_array(Operand(key, at.file, at.line), axis.size);
    return {named::vmap(init, axis, at)(keys), axis, std::move(checkpoint)};
  }
  /// Stacks existing layers. Errors: TraceError naming a block and leaf that differ from the first;
  /// TraceError if there are no blocks.
  static Stacked from_blocks(const std::string& axis, const std::vector<Block>& blocks,
                             ScanCheckpoint checkpoint = {}, STOW_AT);
  /// Wraps a tree whose leaves already have the axis of layers. Errors: TraceError naming a leaf
  /// without it.
  static Stacked from_stacked(const Axis& axis, Block stacked, ScanCheckpoint checkpoint = {}) {
    stacked_detail::check_stacked("Stacked", tree_ref(stacked), axis);
    return {std::move(stacked), axis, std::move(checkpoint)};
  }

  int64_t length() const { return axis.size; }  ///< The number of layers.
  /// Returns layer i; negative numbers count from the end.
  Block get_layer(int64_t i) const {
    Block layer = stacked;
    stacked_detail::take_layer("get_layer", tree_ref(layer), axis, i);
    return layer;
  }
  /// Returns all layers.
  std::vector<Block> unstacked() const {
    std::vector<Block> layers;
    for (int64_t i = 0; i < axis.size; ++i) layers.push_back(get_layer(i));
    return layers;
  }

  /// carry = block(carry, args…), layer by layer.
  template <typename Carry, typename... Args>
  auto fold(const Carry& carry, const Args&... args) const {
    return named::fold(stacked_detail::CallBlock{}, axis, carry, std::tuple(stacked, args...),
                       options());
  }
  /// (carry, y) = block(carry, args…), layer by layer; returns (carry, y stacked).
  template <typename Carry, typename... Args>
  auto scan(const Carry& carry, const Args&... args) const {
    return named::scan(stacked_detail::CallBlock{}, axis, carry, std::tuple(stacked, args...),
                       options());
  }
  /// As fold, with a function: carry = f(block, carry, args…). Arrays that f captures are not
  /// sliced.
  template <typename F, typename Carry, typename... Args>
  auto fold_via(F f, const Carry& carry, const Args&... args) const {
    return named::fold(stacked_detail::CallWith<F>{f}, axis, carry, std::tuple(stacked, args...),
                       options());
  }
  template <typename F, typename Carry, typename... Args>
  auto scan_via(F f, const Carry& carry, const Args&... args) const {  ///< As scan.
    return named::scan(stacked_detail::CallWith<F>{f}, axis, carry, std::tuple(stacked, args...),
                       options());
  }
  /// Returns f(block, args…) of all layers at once, for layers that do not depend on each other.
  template <typename F, typename... Args>
  auto vmap_via(F f, const Args&... args) const {
    return named::vmap(std::move(f), axis)(stacked, args...);
  }

 private:
  NamedScanOptions options() const { return {.checkpoint = checkpoint}; }
};

template <typename Block>
Stacked<Block> Stacked<Block>::from_blocks(const std::string& axis,
                                           const std::vector<Block>& blocks,
                                           ScanCheckpoint checkpoint, SourceLocation at) {
  Stacked result{blocks.empty() ? Block{} : blocks[0],
                 {axis, static_cast<int64_t>(blocks.size())},
                 std::move(checkpoint)};
  std::vector<TreeRef> trees;
  for (const Block& block : blocks) trees.push_back(tree_ref(block));
  const TreeRef into = tree_ref(result.stacked);
  for (size_t i = 1; i < blocks.size(); ++i)
    check_same_structure(trees[0], trees[i], fmt::format("[Stacked] blocks 0 and {}:", i), at);
  stacked_detail::stack_blocks("Stacked", into, trees, result.axis);
  return result;
}

template <typename Block>
void stow_visit_leaf(Stacked<Block>& x, TreeVisitor& visitor) {
  visitor.node(stacked_detail::node_text(x.axis, x.checkpoint), -1);
  visit_tree(x.stacked, visitor);
}

/// Stacked for blocks without NamedArrays; it takes a number of layers instead of an axis.
/// Errors:  TraceError for a block that has a NamedArray; Stacked takes those.
/// Source:  Haliax's ArrayStacked.
template <typename Block>
struct ArrayStacked {
  Stacked<Block> layers;

  template <typename Init>
  static ArrayStacked init(int64_t n_layers, Init init, const Array& key,
                           ScanCheckpoint checkpoint = {}, STOW_AT) {  ///< As Stacked::init.
    const Array keys = stow::random::split_array(Operand(key, at.file, at.line), n_layers);
    return from_stacked(stow::vmap(init, 0, 0, n_layers, at)(keys), std::move(checkpoint));
  }
  static ArrayStacked from_blocks(const std::vector<Block>& blocks, ScanCheckpoint checkpoint = {},
                                  STOW_AT) {  ///< As Stacked::from_blocks.
    for (const Block& block : blocks) stacked_detail::reject_names("ArrayStacked", tree_ref(block));
    return {Stacked<Block>::from_blocks("", blocks, std::move(checkpoint), at)};
  }
  /// Wraps a tree whose leaves have the axis of layers first. Errors: TraceError naming a leaf of
  /// another extent.
  static ArrayStacked from_stacked(Block stacked, ScanCheckpoint checkpoint = {}) {
    const std::vector<Array> leaves = tree_leaves(stacked);
    stacked_detail::reject_names("ArrayStacked", tree_ref(stacked));
    const int64_t n = leaves.empty() || leaves[0].rank() == 0 ? 0 : leaves[0].dim(0);
    stacked_detail::check_stacked("ArrayStacked", tree_ref(stacked), {"", n});
    return {{std::move(stacked), {"", n}, std::move(checkpoint)}};
  }

  const Block& stacked() const { return layers.stacked; }              ///< With the axis of layers.
  int64_t length() const { return layers.length(); }                   ///< The number of layers.
  Block get_layer(int64_t i) const { return layers.get_layer(i); }     ///< As Stacked's.
  std::vector<Block> unstacked() const { return layers.unstacked(); }  ///< All layers.
  template <typename Carry, typename... Args>
  auto fold(const Carry& carry, const Args&... args) const {  ///< As Stacked's.
    return layers.fold(carry, args...);
  }
  template <typename Carry, typename... Args>
  auto scan(const Carry& carry, const Args&... args) const {  ///< As Stacked's.
    return layers.scan(carry, args...);
  }
  template <typename F, typename Carry, typename... Args>
  auto fold_via(F f, const Carry& carry, const Args&... args) const {  ///< As Stacked's.
    return layers.fold_via(std::move(f), carry, args...);
  }
  template <typename F, typename Carry, typename... Args>
  auto scan_via(F f, const Carry& carry, const Args&... args) const {  ///< As Stacked's.
    return layers.scan_via(std::move(f), carry, args...);
  }
};

template <typename Block>
void stow_visit_leaf(ArrayStacked<Block>& x, TreeVisitor& visitor) {
  stow_visit_leaf(x.layers, visitor);
}

}  // namespace stow::named
