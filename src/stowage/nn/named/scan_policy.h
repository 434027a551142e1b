// ScanCheckpointPolicy: the residuals of a loop over layers, by Levanter's options.
// Not a policy for single values (api/policies.h); iteration_policy() makes one from it.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "stowage/api/nested_scan.h"

namespace stow::named {

/// The residuals of each iteration of a loop. The carry that enters an iteration is always kept, on
/// the device or on the host. Slices of scanned arrays are never copied, since the arrays stay
/// alive, so Haliax's `save_inputs` has no counterpart.
struct ScanCheckpointPolicy {
  bool disable = false;               ///< True for no checkpoint: all residuals are kept.
  bool offload_carries = false;       ///< True to keep carries in pinned host memory.
  bool save_block_internals = false;  ///< True to keep everything that iterations compute.
  std::vector<std::string> save_names =
      {};  ///< Keeps values that checkpoint_name gave these names.
  std::vector<std::string> offload_names = {};  ///< Moves values of these names to the host.
  /// True for blocks of iterations that keep only the carry that enters them; within a block the
  /// rest of this policy holds. Without one of the numbers below, the blocks are near √N iterations
  /// long.
  bool nested = false;
  int64_t outer_blocks = 0;  ///< Number of blocks (Haliax's nested=number); 0: not given.
  int64_t block_length = 0;  ///< Iterations of a block; 0: not given.
  bool prevent_cse = false;  ///< As CheckpointOptions.

  friend bool operator==(const ScanCheckpointPolicy&, const ScanCheckpointPolicy&) = default;
};

/// A ScanCheckpointPolicy, or a short form of one:
///   false, "save_all"           keeps everything; false without a checkpoint
///   true, "recompute", "full"   keeps only the carries and recomputes the rest
///   "offload"                   as "recompute", with the carries on the host
///   "nested"                    near √N blocks: keeps only the carries between blocks
///   a number                    as "nested", with blocks of that many iterations
class ScanCheckpoint {
 public:
  ScanCheckpoint() : policy_{.disable = true} {}  ///< false.
  template <std::same_as<bool> B>
  ScanCheckpoint(B recomputes) : policy_{.disable = !recomputes} {}  // NOLINT
  /// Errors: TraceError for a number below 1.
  template <std::integral I>
  requires(!std::same_as<I, bool>) ScanCheckpoint(I block_length)
      : policy_(of_number(block_length)) {}  // NOLINT
  /// Errors: TraceError for an unknown word, listing the known ones.
  ScanCheckpoint(const char* word) : policy_(of_word(word)) {}                 // NOLINT
  ScanCheckpoint(const std::string& word) : policy_(of_word(word)) {}          // NOLINT
  ScanCheckpoint(ScanCheckpointPolicy policy) : policy_(std::move(policy)) {}  // NOLINT

  const ScanCheckpointPolicy& policy() const { return policy_; }  ///< The policy of the word.
  friend bool operator==(const ScanCheckpoint&,
                         const ScanCheckpoint&) = default;  ///< The same policy.

 private:
  static ScanCheckpointPolicy of_number(int64_t block_length);
  static ScanCheckpointPolicy of_word(const std::string& word);
  ScanCheckpointPolicy policy_;
};
/// Returns all fields that differ from the default, as text.
std::string to_string(const ScanCheckpoint& checkpoint);

/// The name that an offloaded carry gets where it enters an iteration.
inline constexpr const char* kScanCarryName = "scan_carry";

/// Returns the policy for single values of an iteration; null keeps only its inputs.
/// Errors: TraceError if all internals are kept and some are to be offloaded too.
ir::PolicyPtr iteration_policy(const ScanCheckpointPolicy& policy);
/// Returns the division of `length` iterations into blocks.
/// Errors: TraceError if both numbers are given, or one is larger than the number of iterations.
NestedScanOptions nested_options(const ScanCheckpointPolicy& policy, int64_t length);

}  // namespace stow::named
