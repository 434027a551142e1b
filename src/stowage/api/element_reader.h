// ElementReader reads elements of concrete arrays; functions that write new arrays in place.
// Not public, and no conversion of dtypes; users call to_vector().
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "stowage/api/sharding.h"
#include "stowage/api/trace.h"

namespace stow {

/// True if the array is held in shards: over several devices, or on those of other processes.
inline bool is_sharded(const Array& x) {
  return x.is_concrete() && x.impl()->storage->shards != nullptr;
}
/// The sharding of an array for which is_sharded() holds.
const NamedSharding& mesh_sharding_of(const Array& x);
/// The NamedSharding of a sharding under which arrays are held in shards; null for any other
/// sharding.
const NamedSharding* sharding_over_mesh(const Sharding& sharding);

/// Reads elements by their row-major number. Shares the array's buffers.
class ElementReader {
 public:
  /// Errors: TraceError for an array without data; one that was donated.
  explicit ElementReader(const Array& x);

  /// True if every element lies in this process.
  bool is_complete() const;
  /// True if this tile of the array's sharding lies in this process. Tile 0 of an array that is not
  /// held in shards is the whole array.
  bool has_tile(int64_t tile) const { return tiles_[static_cast<size_t>(tile)].buffer || literal_; }
  const Tiling& tiling() const { return tiling_; }  ///< One tile if there are no shards.
  /// Copies consecutive elements, from number `first` on, until `out` is full. The size of `out` is
  /// a multiple of an element's. All of these elements must lie in this process.
  void read(int64_t first, std::span<std::byte> out) const;

 private:
  struct Tile {
    DeviceBufferPtr buffer;
  };
  Tiling tiling_;
  int64_t width_;
  std::vector<Tile> tiles_;
  std::shared_ptr<const Storage> literal_;  // set if there is no buffer
};

/// Fills `out` with consecutive elements of an array, from number `first` on, row-major.
using ReadElements = std::function<void(int64_t first, std::span<std::byte> out)>;

/// Returns a new buffer of `bytes` bytes that `write(offset, out)` fills; `offset` counts bytes.
/// `write` is called once if the host can address the buffer. Else it is called for one piece after
/// another, each a whole number of the disk's blocks and of elements; the device counts the
/// memory of a piece.
/// Errors: CapacityError; DiskError.
DeviceBufferPtr write_buffer(
    const DevicePtr& device, int64_t bytes, MemoryKind kind,
    const std::function<void(int64_t offset, std::span<std::byte> out)>& write);

/// Returns a new buffer with the part `box` of an array of `type`. `read` reads elements of that
/// array.
/// Errors: as write_buffer().
DeviceBufferPtr write_part(const DevicePtr& device, const ArrayType& type, const ShardIndex& box,
                           const ReadElements& read);

/// Returns an array over the mesh of `to`. `read` reads the elements of the whole array; it is
/// called for the shards of this process. `type.kind` equals the sharding's memory kind, and
/// check_sharding() has accepted the type.
Array put_in_shards(const ArrayType& type, const NamedSharding& to, const ReadElements& read);
/// Returns an array over the mesh of `to` whose shards in this process are `parts`.
Array array_of_shards(const ArrayType& type, const NamedSharding& to,
                      std::vector<Shards::Part> parts);

/// "processes 0 to 3", "processes 0 and 2".
std::string name_processes(std::vector<int> processes);
/// Throws TraceError if an element of x lies only in other processes. `what`: the function that
/// errors name.
void check_complete(const char* what, const Array& x, const ElementReader& reader);

}  // namespace stow
