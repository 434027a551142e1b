#include "stowage/api/element_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "stowage/api/processes.h"
#include "stowage/core/disk_blocks.h"
#include "stowage/runtime/host_address.h"

namespace stow {
namespace {

// Bytes of the host's memory through which data goes to a disk at a time.
constexpr int64_t kPieceBytes = 1 << 20;

Tiling tiling_of(const Array& x) {
  if (is_sharded(x)) return mesh_sharding_of(x).tiling(x.shape());
  return Tiling(x.shape(), Dims(static_cast<size_t>(x.rank()), 1));
}

}  // namespace

const NamedSharding& mesh_sharding_of(const Array& x) {
  const Sharding* sharding = x.impl()->sharding.get();
  STOW_CHECK(sharding && sharding->named(), "an array in shards has a sharding over a mesh");
  return *sharding->named();
}

const NamedSharding* sharding_over_mesh(const Sharding& sharding) {
  const NamedSharding* named = sharding.named();
  if (!named) return nullptr;
  const sharding::Mesh& mesh = named->mesh();
  return mesh.size() > 1 || is_of_other_process(mesh.devices()[0].get()) ? named : nullptr;
}

ElementReader::ElementReader(const Array& x)
    : tiling_(tiling_of(x)),
      width_(dtype_bytes(x.dtype())),
      tiles_(static_cast<size_t>(tiling_.n_tiles())) {
  if (!x.is_concrete()) trace_error_here("[array] {} has no data", describe(x));
  const std::shared_ptr<Storage>& storage = x.impl()->storage;
  if (!storage->donated.empty())
    trace_error_here("[array] {} was donated to {} and cannot be used again", describe(x),
                     storage->donated);
  if (storage->shards) {
    const NamedSharding& sharding = mesh_sharding_of(x);
    for (const Shards::Part& part : storage->shards->parts)
      tiles_[static_cast<size_t>(sharding.tile_at(part.position))].buffer = part.buffer;
  } else if (storage->buffer) {
    tiles_[0].buffer = storage->buffer;
  } else {
    literal_ = storage;
  }
}

bool ElementReader::is_complete() const {
  return literal_ || std::all_of(tiles_.begin(), tiles_.end(),
                                 [](const Tile& t) { return t.buffer != nullptr; });
}

void ElementReader::read(int64_t first, std::span<std::byte> out) const {
  if (literal_) {
    std::memcpy(out.data(), literal_->literal.data() + first * width_, out.size());
    return;
  }
  while (!out.empty()) {
    const Tiling::Spot spot = tiling_.locate(first);
    const int64_t n = std::min(spot.n_elems, static_cast<int64_t>(out.size()) / width_);
    const DeviceBufferPtr& buffer = tiles_[static_cast<size_t>(spot.tile)].buffer;
    STOW_CHECK(buffer && n > 0, "element {} is in another process", first);
    buffer->read(spot.offset * width_, out.first(static_cast<size_t>(n * width_)));
    out = out.subspan(static_cast<size_t>(n * width_));
    first += n;
  }
}

DeviceBufferPtr write_buffer(
    const DevicePtr& device, int64_t bytes, MemoryKind kind,
    const std::function<void(int64_t offset, std::span<std::byte> out)>& write) {
  DeviceBufferPtr buffer = device->allocate(bytes, kind);
  const Place place = buffer->place();
  std::byte* const data = host_address(*buffer);
  if (data) write(0, {data, static_cast<size_t>(bytes)});
  if (bytes > 0 && !data && !place.disk) {
    std::vector<std::byte> piece(static_cast<size_t>(std::min(kPieceBytes, bytes)));
    for (int64_t at = 0; at < bytes; at += kPieceBytes) {
      const auto part =
          std::span(piece).first(static_cast<size_t>(std::min(kPieceBytes, bytes - at)));
      write(at, part);
      buffer->write(at, part);
    }
  }
  if (bytes > 0 && place.disk) {
    const int64_t piece_bytes = std::min(kPieceBytes, align_up(bytes, kDiskBlockBytes));
    const int64_t bounce_bytes = disk_bounce_bytes(piece_bytes);
    const DeviceBufferPtr staging =
        device->allocate(piece_bytes + bounce_bytes, MemoryKind::kPinnedHost);
    const std::span<std::byte> piece(staging->data(), static_cast<size_t>(piece_bytes));
    const std::span<std::byte> bounce(staging->data() + piece_bytes,
                                      static_cast<size_t>(bounce_bytes));
    for (int64_t at = 0; at < bytes; at += piece_bytes) {
      const auto part = piece.first(static_cast<size_t>(std::min(piece_bytes, bytes - at)));
      write(at, part);
      place.disk->write(place.offset + at, part, bounce);
    }
  }
  return buffer;
}

DeviceBufferPtr write_part(const DevicePtr& device, const ArrayType& type, const ShardIndex& box,
                           const ReadElements& read) {
  const int64_t width = dtype_bytes(type.dtype);
  return write_buffer(
      device, elems_of(box) * width, type.kind, [&](int64_t offset, std::span<std::byte> out) {
        int64_t at = offset / width;
        while (!out.empty()) {
          const ElementRun run = run_in_box(type.shape, box, at);
          const int64_t n = std::min(run.n_elems, static_cast<int64_t>(out.size()) / width);
          read(run.elem, out.first(static_cast<size_t>(n * width)));
          out = out.subspan(static_cast<size_t>(n * width));
          at += n;
        }
      });
}

Array put_in_shards(const ArrayType& type, const NamedSharding& to, const ReadElements& read) {
  const Tiling tiling = to.tiling(type.shape);
  const auto all = processes();
  std::vector<Shards::Part> parts;
  for (int64_t position = 0; position < to.mesh().size(); ++position) {
    const DevicePtr& device = to.mesh().devices()[static_cast<size_t>(position)];
    if (all->process_of(device.get()) != all->index()) continue;
    parts.push_back(
        {position, write_part(device, type, tiling.index_of(to.tile_at(position)), read)});
  }
  return array_of_shards(type, to, std::move(parts));
}

Array array_of_shards(const ArrayType& type, const NamedSharding& to,
                      std::vector<Shards::Part> parts) {
  auto shards = std::make_shared<Shards>();
  shards->parts = std::move(parts);
  Array array = make_concrete(type, nullptr);
  array.impl()->storage->shards = std::move(shards);
  array.impl()->sharding = std::make_shared<const Sharding>(to);
  return array;
}

std::string name_processes(std::vector<int> processes) {
  if (processes.size() == 1) return fmt::format("process {}", processes[0]);
  const int n = static_cast<int>(processes.size());
  if (n > 2 && processes.back() - processes.front() == n - 1)
    return fmt::format("processes {} to {}", processes.front(), processes.back());
  const int last = processes.back();
  processes.pop_back();
  return fmt::format("processes {} and {}", fmt::join(processes, ", "), last);
}

void check_complete(const char* what, const Array& x, const ElementReader& reader) {
  if (reader.is_complete()) return;
  const NamedSharding& sharding = mesh_sharding_of(x);
  trace_error_here(
      "[{}] expected an array that lies whole in this process, got {} cut over {} ({}); put it "
      "replicated with device_put(x, NamedSharding(mesh, P())) in all of them, or read "
      "addressable_shards(x)",
      what, describe(x),
      name_processes(processes()->processes_of(sharding.mesh().devices())),
      to_string(Sharding(sharding)));
}

}  // namespace stow
