// ScanCheckpointPolicy: what the gradient of a loop over layers keeps, in Levanter's words.
// Not a policy of single values; those are in api/policies.h, and these are made of them.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "stowage/api/nested_scan.h"

namespace stow::named {

/// The residuals of each iteration of a loop for its backward pass. The carry that enters an
/// iteration is always there, on the device or on the host; slices of what is scanned are parts of
/// arrays that live anyway and are never copied, so there is no `save_inputs` of Haliax's.
struct ScanCheckpointPolicy {
  bool disable = false;               ///< No checkpoint: all that the gradient needs is kept.
  bool offload_carries = false;       ///< Carries wait in pinned host memory, else on the device.
  bool save_block_internals = false;  ///< Keeps everything that iterations compute.
  std::vector<std::string> save_names =
      {};  ///< Keeps values that checkpoint_name gave these names.
  std::vector<std::string> offload_names = {};  ///< Moves values of these names to the host.
  /// Blocks of iterations that keep only the carry that enters them; within a block the rest of
  /// this policy holds. With one of the numbers below, or as even as can be.
  bool nested = false;
  int64_t outer_blocks = 0;  ///< Number of blocks (Haliax's nested=number); 0: by another rule.
  int64_t block_length = 0;  ///< Blocks of so many iterations; 0: by another rule.
  bool prevent_cse = false;  ///< As CheckpointOptions.

  friend bool operator==(const ScanCheckpointPolicy&, const ScanCheckpointPolicy&) = default;
};

/// A ScanCheckpointPolicy, or one of the words for it:
///   false, "save_all"           keeps everything; false without a checkpoint
///   true, "recompute", "full"   keeps the carries alone and recomputes the rest
///   "offload"                   the same with the carries on the host
///   "nested"                    near √N blocks: keeps the carries between blocks alone
///   a number                    the same with blocks of so many iterations
class ScanCheckpoint {
 public:
  ScanCheckpoint() : policy_{.disable = true} {}  ///< false.
  template <std::same_as<bool> B>
  ScanCheckpoint(B recomputes) : policy_{.disable = !recomputes} {}  // NOLINT
  /// Errors: TraceError for a number below 1.
  template <std::integral I>
  requires(!std::same_as<I, bool>) ScanCheckpoint(I block_length)
      : policy_(of_number(block_length)) {}  // NOLINT
  /// Errors: TraceError for another word, listing them.
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
/// All fields that differ from the default, as text.
std::string to_string(const ScanCheckpoint& checkpoint);

/// The name of the carry that enters an iteration, where a policy moves it.
inline constexpr const char* kScanCarryName = "scan_carry";

/// The policy of single values for an iteration; null: keeps its inputs alone.
/// Errors: TraceError where all internals are kept and some are to be moved too.
ir::PolicyPtr iteration_policy(const ScanCheckpointPolicy& policy);
/// How `length` iterations are cut into blocks.
/// Errors: TraceError where both numbers are given, or one is larger than the number of iterations.
NestedScanOptions nested_options(const ScanCheckpointPolicy& policy, int64_t length);

}  // namespace stow::named
