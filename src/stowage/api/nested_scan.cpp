#include "stowage/api/nested_scan.h"

#include <algorithm>
#include <cmath>

#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"

namespace stow {
namespace {

using Leaves = std::vector<Array>;
using Step = std::function<std::pair<Leaves, Leaves>(const Leaves& carry, const Leaves& slice)>;

// [m * s, …] -> [m, s, …], and back.
Array fold_blocks(const Array& x, int64_t blocks) {
  Dims dims = x.shape().dims();
  dims[0] /= blocks;
  dims.insert(dims.begin(), blocks);
  return x.reshape(dims);
}
Array unfold_blocks(const Array& x) {
  Dims dims(x.shape().begin() + 1, x.shape().end());
  dims[0] *= x.dim(0);
  return x.reshape(dims);
}

std::pair<Leaves, Leaves> run_level(const Step& step, Leaves carry, const Leaves& xs, int64_t count,
                                    std::span<const int64_t> blocks, const PolicyPtr& policy,
                                    bool reverse) {
  if (blocks.empty() || count == 0)
    return scan(step, carry, xs, {.length = count, .reverse = reverse});
  const std::vector<int64_t> sizes = nested_block_sizes(count, blocks);
  // Runs of blocks of one size, each one scan over checkpointed blocks.
  struct Run {
    int64_t begin, blocks, size;
  };
  std::vector<Run> runs;
  int64_t at = 0;
  for (int64_t size : sizes) {
    if (runs.empty() || runs.back().size != size) runs.push_back({at, 0, size});
    ++runs.back().blocks;
    at += size;
  }
  std::vector<Leaves> stacked(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    const size_t r = reverse ? runs.size() - 1 - i : i;
    const Run& run = runs[r];
    auto block = checkpoint(
        [&](const Leaves& c, const Leaves& x) {
          Leaves entering;
          for (const Array& a : c) entering.push_back(checkpoint_name(a, "block_in"));
          return run_level(step, entering, x, run.size, blocks.subspan(1), policy, reverse);
        },
        policy, {.prevent_cse = false});
    Leaves parts;
    for (const Array& x : xs) {
      const Array part = runs.size() == 1
                             ? x
                             : x.slice(0, run.begin, run.begin + run.blocks * run.size);
      parts.push_back(run.blocks == 1 ? part : fold_blocks(part, run.blocks));
    }
    if (run.blocks == 1) {
      std::tie(carry, stacked[r]) = block(carry, parts);
      continue;
    }
    Leaves ys;
    std::tie(carry, ys) = scan(block, carry, parts, {.length = run.blocks, .reverse = reverse});
    for (const Array& y : ys) stacked[r].push_back(unfold_blocks(y));
  }
  Leaves all;
  for (size_t j = 0; j < stacked[0].size(); ++j) {
    Leaves parts;
    for (const Leaves& s : stacked) parts.push_back(s[j]);
    all.push_back(parts.size() == 1 ? parts[0] : concatenate(parts));
  }
  return {std::move(carry), std::move(all)};
}

int64_t count_iterations(const ScanRequest& request, int64_t length) {
  const Leaves xs = leaves_of(request.xs);
  const std::vector<std::string> paths = paths_of(request.xs);
  for (size_t i = 0; i < xs.size(); ++i) {
    const std::string name = paths[i].empty() ? "what is scanned" : "'" + paths[i] + "'";
    if (xs[i].rank() == 0)
      trace_error_here("[nested_scan] expected an axis to scan over, got {} for {}",
                       to_string(xs[i].type()), name);
    if (length < 0) length = xs[i].dim(0);
    if (xs[i].dim(0) != length)
      trace_error_here("[nested_scan] {} has {} slices, not {}", name, xs[i].dim(0), length);
  }
  if (length < 0) trace_error_here("[nested_scan] nothing is scanned; give a length");
  return length;
}

}  // namespace

std::vector<int64_t> nested_block_sizes(int64_t count, std::span<const int64_t> blocks) {
  if (count <= 0 || blocks.empty()) return {};
  int64_t n = blocks[0];
  if (n <= 0) {
    const double levels = 1.0 + static_cast<double>(blocks.size());
    n = std::llround(std::pow(static_cast<double>(count), 1.0 / levels));
  }
  n = std::clamp<int64_t>(n, 1, count);
  std::vector<int64_t> sizes(static_cast<size_t>(n), count / n);
  for (int64_t i = 0; i < count % n; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

ScanResult run_nested_scan(const ScanRequest& request, const NestedScanOptions& options) {
  const CallSiteScope site(request.at);
  ScanResult result;
  size_t n_carries = 0;
  Leaves all = traced_or_run("nested_scan", [&]() -> Leaves {
    const Leaves init = leaves_of(request.init), xs = leaves_of(request.xs);
    n_carries = init.size();
    const int64_t count = count_iterations(request, options.length);
    for (int64_t n : options.blocks)
      if (n < 0 || n > count)
        trace_error_here("[nested_scan] expected 0 to {} blocks, the number of iterations, got {}",
                         count, n);
    const Step step = [&](const Leaves& carry, const Leaves& slice) {
      Leaves inputs = carry;
      inputs.insert(inputs.end(), slice.begin(), slice.end());
      result.result = request.body(inputs);
      Leaves out = leaves_of(result.result.ref);
      if (out.size() < n_carries)
        trace_error_here("[nested_scan] the body returns {} arrays, the carry has {}", out.size(),
                         n_carries);
      const auto split = out.begin() + static_cast<std::ptrdiff_t>(n_carries);
      return std::pair(Leaves(out.begin(), split), Leaves(split, out.end()));
    };
    auto [carry, ys] = run_level(checkpoint(step, options.policy, {.prevent_cse = false}), init, xs,
                                 count, options.blocks, options.block_policy, options.reverse);
    carry.insert(carry.end(), ys.begin(), ys.end());
    return carry;
  });
  const auto split = all.begin() + static_cast<std::ptrdiff_t>(n_carries);
  result.carry.assign(all.begin(), split);
  result.ys.assign(split, all.end());
  return result;
}

}  // namespace stow
