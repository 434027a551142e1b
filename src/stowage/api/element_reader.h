// ElementReader: the elements of a concrete array, wherever they lie; and new arrays written in place.
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
/// The sharding where an array of it is held in shards; else null.
const NamedSharding* sharding_over_mesh(const Sharding& sharding);

/// Refers to buffers that it shares with the array.
class ElementReader {
 public:
  /// Errors: TraceError for an array without data; one that was donated.
  explicit ElementReader(const Array& x);

  /// True if every element lies in this process.
  bool is_complete() const;
  /// True if the tile of the array's sharding lies in this process; of an array not held in shards,
  /// tile 0 is all of it.
  bool has_tile(int64_t tile) const { return tiles_[static_cast<size_t>(tile)].buffer || literal_; }
  const Tiling& tiling() const { return tiling_; }  ///< One tile where there are no shards.
  /// Copies elements that follow one another, from number `first` on; `out` is a multiple of an
  /// element. All must lie in this process.
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

/// Fills `out` with the elements from number `first` on.
using ReadElements = std::function<void(int64_t first, std::span<std::byte> out)>;

/// A new buffer written by `write(offset, out)`: at once where the processor can address it, else
/// piece by piece through memory that the device meters, whatever its size. Pieces are whole blocks
/// of a disk, hence whole elements.
/// Errors: CapacityError; DiskError.
DeviceBufferPtr write_buffer(
    const DevicePtr& device, int64_t bytes, MemoryKind kind,
    const std::function<void(int64_t offset, std::span<std::byte> out)>& write);

/// A new buffer with the part `box` of an array of `type`, whose elements `read` gives.
DeviceBufferPtr write_part(const DevicePtr& device, const ArrayType& type, const ShardIndex& box,
                           const ReadElements& read);

/// An array over the mesh of `to`, whose shards of this process `read` fills. `type.kind` is that of
/// the sharding, and check_sharding() holds.
Array put_in_shards(const ArrayType& type, const NamedSharding& to, const ReadElements& read);
/// The same from ready parts.
Array array_of_shards(const ArrayType& type, const NamedSharding& to,
                      std::vector<Shards::Part> parts);

/// "processes 0 to 3", "processes 0 and 2".
std::string name_processes(std::vector<int> processes);
/// Throws where an element of the array lies in another process alone.
void check_complete(const char* what, const Array& x, const ElementReader& reader);

}  // namespace stow
