// The checks of collectives that every transport must pass, as one rank runs them.
// Not the transports; collectives_test.cpp starts the ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stowage/runtime/comm/communicator.h"

namespace stow {

/// Which checks a rank runs. All ranks of a communicator run the same.
struct CaseOptions {
  bool large = false;  ///< Also pieces of several windows.
  bool few = false;    ///< One dtype of each width.
  uint64_t seed = 1;
  /// kNative: where the transport has a reduction of its own, float sums may have other bits, within the
  /// bound of a sum's rounding errors; all else is compared bit for bit.
  comm::ReduceOrder order = comm::ReduceOrder::kTree;
};

/// Runs every collective over all ranks and over the rows and columns of meshes of that many, in all
/// dtypes, and compares each bit with an oracle written apart. Returns what differs, or nothing.
std::string check_collectives(comm::Communicator& communicator, const CaseOptions& options);

/// bf16 sums that a tree and one rounding at the end give other bits for: whether the transport made them
/// under ReduceOrder::kNative, and the tree under kTree. Returns what is wrong, or nothing.
std::string check_who_reduces(comm::Communicator& communicator);

/// Fingerprints that differ at some ranks and items. Returns what is wrong, or nothing.
std::string check_compare(comm::Communicator& communicator);

/// Sums of random numbers over 8 ranks by every factoring of a 2 x 2 x 2 mesh. Returns what differs.
std::string check_factorings(comm::Communicator& communicator);

}  // namespace stow
