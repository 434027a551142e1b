// nested_scan: a scan in blocks of blocks, of which only the carries between blocks are kept.
// Not another result: the same iterations in the same order, and gradients of the same bits.
#pragma once

#include "stowage/api/checkpoint.h"
#include "stowage/api/scan.h"

namespace stow {

struct NestedScanOptions {
  /// How many blocks, from the outermost level in; one entry more than there are levels of blocks
  /// within blocks. 0 chooses: blocks and what they hold as equal as can be. N iterations keep near
  /// k·N^(1/k) carries with k - 1 entries; sizes that do not divide N give blocks of two sizes that
  /// differ by one.
  std::vector<int64_t> blocks = {0};
  /// Policy of each iteration; null recomputes everything but its carry.
  ir::PolicyPtr policy = nullptr;
  /// Policy of each block of every level; null keeps what enters the block and nothing else. The
  /// carry that enters a block is named "block_in" in it, so that a policy can move it elsewhere.
  ir::PolicyPtr block_policy = nullptr;
  /// As in ScanOptions.
  int64_t length = -1;
  bool reverse = false;
};

/// The sizes of the outermost blocks that `count` iterations are cut into, the larger first.
/// More blocks than iterations are as many as there are iterations.
std::vector<int64_t> nested_block_sizes(int64_t count, std::span<const int64_t> blocks);

ScanResult run_nested_scan(const ScanRequest& request, const NestedScanOptions& options);

/// scan(checkpoint(body, policy), init, xs), its iterations cut into nested blocks, each a
/// checkpoint that keeps nothing but the carry that enters it (see block_policy): a backward pass runs
/// each iteration's forward part once more for every level.
/// Shapes, forms: as scan.
/// Errors:  as scan; TraceError where more blocks are asked for than there are iterations.
/// Source:  Chen et al. 2016 (arXiv 1604.06174), section 4; Griewank 1992 for many levels.
template <typename Body, typename Init, typename Xs = None>
auto nested_scan(Body body, const Init& init, const Xs& xs = {}, NestedScanOptions options = {},
                 STOW_AT) {
  using Carry = AsTree<Init>;
  static_assert(is_tree<Carry>() && is_tree<Xs>(),
                "stowage: the carry and what is scanned must be trees of arrays");
  using R = BodyResult<Body, Carry, Xs>;
  if constexpr (check_scan_body<R, Carry>()) {
    const std::tuple<Carry, Xs> arguments(init, xs);
    const auto& [carry, scanned] = arguments;
    ScanResult result = run_nested_scan(
        {tree_ref(carry), tree_ref(scanned), {}, leaf_function(body, arguments), at}, options);
    return scan_results<R>(carry, result, at);
  }
}

}  // namespace stow
