// Placement of arrays that every process has over the devices of several processes; moves between
// shardings. Not public; users call device_put (memory.h).
#pragma once

#include <span>
#include <string>

#include "stowage/api/element_reader.h"
#include "stowage/runtime/comm/communicator.h"

namespace stow {

/// An array that each process is about to place from its own copy.
struct PlacedLeaf {
  std::string path;  ///< In its tree; empty for a lone array.
  ArrayType type;    ///< Its type, with the memory kind where it will lie.
  comm::Fingerprint fingerprint{};
};

/// A digest of `n_elems` elements of dtype `source` that `read` returns, and of `type`, the type
/// that the array will have.
comm::Fingerprint fingerprint_of(const ArrayType& type, DType source, int64_t n_elems,
                                 const ReadElements& read);

/// The leaf for x, which every process has whole, with the digest of its value and of the type that
/// it has under `to`.
/// Errors: TraceError for an array that was put on one device explicitly, or has no data.
PlacedLeaf placed_leaf_of(const Array& x, const NamedSharding& to, std::string path);

/// Checks in one collective, whose size is constant unless they differ, that the processes of the
/// mesh have equal leaves. A process without a device in the mesh returns at once.
/// Errors: TraceError, in all processes, that names leaves that differ and, for each, the processes
/// that have another value than most.
void check_same_on_processes(const NamedSharding& to, std::span<const PlacedLeaf> leaves);

/// Checks that the devices which hold the same part of x have the same bytes. Between processes
/// this is one collective of 16 bytes for each device. `what`: the function that errors name.
/// Errors: TraceError, in all processes, that names a part and the mesh positions that have another
/// value than most.
void check_same_parts(const char* what, const Array& x);

/// A copy of x under the sharding `to`; x or the copy, or both, are held in shards. Elements that
/// lie in no shard of this process come piece by piece from the processes that have them. Shards
/// that do not move share their memory with x.
/// Errors: TraceError if elements are missing in this process and the two shardings have different
/// devices.
Array reshard_over_mesh(const Array& x, const NamedSharding& to);

}  // namespace stow
