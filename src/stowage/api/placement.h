// Placement: arrays that every process has, put over devices of several processes; and moves between
// shardings. Not public; device_put (memory.h) is the way here.
#pragma once

#include <span>
#include <string>

#include "stowage/api/element_reader.h"
#include "stowage/runtime/comm/communicator.h"

namespace stow {

/// An array that each process is about to place from its own copy.
struct PlacedLeaf {
  std::string path;  ///< In its tree; empty for a lone array.
  ArrayType type;    ///< As it will lie.
  comm::Fingerprint fingerprint{};
};

/// A digest of the elements that `read` gives, of dtype `source`, and of the type that they get.
comm::Fingerprint fingerprint_of(const ArrayType& type, DType source, int64_t n_elems,
                                 const ReadElements& read);

/// The leaf that x is, whose value each process has, put as `to` says.
/// Errors: TraceError for an array that was put on one device by name, or has no data.
PlacedLeaf placed_leaf_of(const Array& x, const NamedSharding& to, std::string path);

/// Checks in one collective, of constant bytes where all is well, that the processes of the mesh have
/// equal leaves. A process without a device in the mesh takes no part and returns at once.
/// Errors: TraceError that names each leaf and the odd processes.
void check_same_on_processes(const NamedSharding& to, std::span<const PlacedLeaf> leaves);

/// Checks that devices which hold the same part of x have the same bytes there. Between processes one
/// collective of 16 bytes a device. Errors: TraceError that names a part and who has another one, at all.
void check_same_parts(const char* what, const Array& x);

/// A copy of an array held in shards, or to be held so, under another sharding in memory `kind` of
/// it. Elements that lie in no shard of a process come from another one piece by piece; shards that
/// stay where they are share their memory.
/// Errors: TraceError where elements are missing here and the devices are not the same.
Array reshard_over_mesh(const Array& x, const NamedSharding& to);

}  // namespace stow
