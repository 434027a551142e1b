// The checks of collectives that every transport must pass, as one rank runs them.
// Not the transports; collectives_test.cpp starts the ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stowage/runtime/comm/communicator.h"

namespace stow {

/// Options of the checks. All ranks of a communicator must use the same.
struct CaseOptions {
  bool large = false;  ///< True: also exchanges pieces larger than several windows.
  bool few = false;    ///< True: checks one dtype of each width; false: all dtypes.
  uint64_t seed = 1;
  /// kNative: if the transport has a reduction of its own, float sums may differ within the bound
  /// of rounding errors; all other results are compared bit for bit.
  comm::ReduceOrder order = comm::ReduceOrder::kTree;
};

/// Runs every collective over all ranks, and over the rows and columns of meshes of all ranks, in
/// all dtypes, and compares each bit with an independent oracle. Returns a description of the first
/// differences, or "".
std::string check_collectives(comm::Communicator& communicator, const CaseOptions& options);

/// Checks that the transport reduces under ReduceOrder::kNative and the tree under kTree, by bf16
/// sums whose bits differ between the two. Returns what is wrong, or "".
std::string check_reduce_order(comm::Communicator& communicator);

/// Checks Communicator::compare() with fingerprints that differ at some ranks and items. Returns
/// what is wrong, or "".
std::string check_compare(comm::Communicator& communicator);

/// Checks that sums of random numbers over 8 ranks have the same bits for every factoring of a 2 x
/// 2 x 2 mesh. Returns what differs, or "".
std::string check_factorings(comm::Communicator& communicator);

}  // namespace stow
