#include "stowage/nn/named/scan_policy.h"

#include <fmt/ranges.h>

#include "stowage/api/trace.h"

namespace stow::named {

ScanCheckpointPolicy ScanCheckpoint::of_number(int64_t block_length) {
  if (block_length < 1)
    trace_error_here("[checkpoint] expected blocks of at least 1 iteration, got {}", block_length);
  return {.nested = true, .block_length = block_length};
}

ScanCheckpointPolicy ScanCheckpoint::of_word(const std::string& word) {
  if (word == "save_all") return {.save_block_internals = true};
  if (word == "recompute" || word == "full") return {};
  if (word == "offload") return {.offload_carries = true};
  if (word == "nested") return {.nested = true};
  trace_error_here(
      "[checkpoint] expected true, false, a number, \"save_all\", \"recompute\", \"full\", "
      "\"offload\" or \"nested\", got \"{}\"",
      word);
}

std::string to_string(const ScanCheckpoint& checkpoint) {
  const ScanCheckpointPolicy& p = checkpoint.policy();
  std::vector<std::string> parts;
  if (p.disable) parts.emplace_back("disable");
  if (p.offload_carries) parts.emplace_back("offload_carries");
  if (p.save_block_internals) parts.emplace_back("save_block_internals");
  if (!p.save_names.empty()) parts.push_back(fmt::format("save {}", fmt::join(p.save_names, " ")));
  if (!p.offload_names.empty())
    parts.push_back(fmt::format("offload {}", fmt::join(p.offload_names, " ")));
  if (p.nested) parts.emplace_back("nested");
  if (p.outer_blocks) parts.push_back(fmt::format("outer_blocks {}", p.outer_blocks));
  if (p.block_length) parts.push_back(fmt::format("block_length {}", p.block_length));
  if (p.prevent_cse) parts.emplace_back("prevent_cse");
  return parts.empty() ? "recompute" : fmt::format("{}", fmt::join(parts, ", "));
}

ir::PolicyPtr iteration_policy(const ScanCheckpointPolicy& policy) {
  std::vector<std::string> offloaded = policy.offload_names;
  // In nested scans the carry that enters a block is offloaded, under a name of its own.
  if (policy.offload_carries && !policy.nested) offloaded.emplace_back(kScanCarryName);
  if (policy.save_block_internals) {
    if (!offloaded.empty())
      trace_error_here(
          "[checkpoint] everything is to be saved, and {} moved to the host; list what is saved "
          "in save_names",
          fmt::join(offloaded, ", "));
    return everything_saveable();
  }
  if (offloaded.empty() && policy.save_names.empty()) return nullptr;
  if (offloaded.empty()) return save_only_these_names(policy.save_names);
  return save_and_offload_only_these_names(policy.save_names, std::move(offloaded));
}

NestedScanOptions nested_options(const ScanCheckpointPolicy& policy, int64_t length) {
  if (policy.outer_blocks && policy.block_length)
    trace_error_here("[checkpoint] expected outer_blocks or block_length, got both ({} and {})",
                     policy.outer_blocks, policy.block_length);
  if (policy.outer_blocks < 0 || policy.outer_blocks > length || policy.block_length < 0 ||
      policy.block_length > length)
    trace_error_here("[checkpoint] expected blocks of 1 to {} iterations, got {}", length,
                     policy.outer_blocks ? fmt::format("{} blocks", policy.outer_blocks)
                                         : fmt::format("blocks of {}", policy.block_length));
  NestedScanOptions options{.policy = iteration_policy(policy), .length = length};
  options.blocks = {policy.block_length ? (length + policy.block_length - 1) / policy.block_length
                                        : policy.outer_blocks};
  if (policy.offload_carries)
    options.block_policy = save_and_offload_only_these_names({}, {"block_in"});
  return options;
}

}  // namespace stow::named
