// nested_scan: a scan in nested blocks, whose gradient keeps only the carries between blocks.
// Not another result: the iterations, their order and the bits of gradients are those of scan.
#pragma once

#include "stowage/api/checkpoint.h"
#include "stowage/api/scan.h"

namespace stow {

struct NestedScanOptions {
  /// The number of blocks on each level, the outermost first: {4} cuts the scan into 4 blocks, {4,
  /// 3} cuts each of these into 3. 0 chooses the number that makes all levels as equal as possible.
  /// With k - 1 entries of 0, N iterations keep about k·N^(1/k) carries. If a number does not
  /// divide evenly, block sizes differ by one.
  std::vector<int64_t> blocks = {0};
  /// Checkpoint policy of each iteration; null: only its carry is kept, all else is recomputed.
  ir::PolicyPtr policy = nullptr;
  /// Checkpoint policy of each block on every level; null: only the carry that enters the block is
  /// kept. That carry is named "block_in" within the block, so that a policy can offload it.
  ir::PolicyPtr block_policy = nullptr;
  /// As in ScanOptions.
  int64_t length = -1;
  bool reverse = false;
};

/// The sizes of the outermost blocks into which `count` iterations are cut, the larger first. There
/// are at most `count` blocks. `blocks`: as in NestedScanOptions.
std::vector<int64_t> nested_block_sizes(int64_t count, std::span<const int64_t> blocks);

/// A type-erased nested_scan. Errors: as nested_scan.
ScanResult run_nested_scan(const ScanRequest& request, const NestedScanOptions& options);

/// scan(checkpoint(body, policy), init, xs) with its iterations cut into nested blocks. Each block
/// is a checkpoint that keeps only the carry that enters it (see block_policy). A backward pass
/// runs the forward part of each iteration once more for every level.
/// Shapes, forms: as scan.
/// Errors:  as scan; TraceError if `blocks` asks for more blocks than there are iterations.
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
