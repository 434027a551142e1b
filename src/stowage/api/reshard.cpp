#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "stowage/api/placement.h"
#include "stowage/api/processes.h"

namespace stow {
namespace {

// Bytes that pass from one process to another at a time.
constexpr int64_t kPieceBytes = 1 << 18;

// Elements that one process needs of another: of `source_tile`, the part that `tile` shares with
// it.
struct Transfer {
  int from = 0, to = 0;
  int64_t source_tile = 0, tile = 0;
  ShardIndex box;
  int64_t done_elems = 0;
  int64_t left() const { return elems_of(box) - done_elems; }
};

// The processes that hold each tile.
std::vector<std::set<int>> holders_of(const NamedSharding& sharding, int64_t n_tiles) {
  const auto all = processes();
  std::vector<std::set<int>> holders(static_cast<size_t>(n_tiles));
  for (int64_t i = 0; i < sharding.mesh().size(); ++i)
    holders[static_cast<size_t>(sharding.tile_at(i))].insert(
        all->process_of(sharding.mesh().devices()[static_cast<size_t>(i)].get()));
  return holders;
}

// Every process computes the same list.
std::vector<Transfer> transfers_between(const NamedSharding& from, const Tiling& source,
                                        const NamedSharding& to, const Tiling& target) {
  const std::vector<std::set<int>> sources = holders_of(from, source.n_tiles());
  const std::vector<std::set<int>> targets = holders_of(to, target.n_tiles());
  std::vector<Transfer> transfers;
  for (int64_t tile = 0; tile < target.n_tiles(); ++tile)
    for (int64_t source_tile = 0; source_tile < source.n_tiles(); ++source_tile) {
      const ShardIndex box = intersection(target.index_of(tile), source.index_of(source_tile));
      if (elems_of(box) == 0) continue;
      const std::set<int>& have = sources[static_cast<size_t>(source_tile)];
      for (int process : targets[static_cast<size_t>(tile)]) {
        if (have.contains(process)) continue;
        // Those who need the same tile ask its holders in turn.
        const auto from_process =
            std::next(have.begin(), static_cast<std::ptrdiff_t>(process % have.size()));
        transfers.push_back({*from_process, process, source_tile, tile, box});
      }
    }
  return transfers;
}

void copy_runs(const Transfer& transfer, const Shape& shape, int64_t n_elems, int64_t width,
               const std::function<void(int64_t elem, int64_t n, int64_t at_bytes)>& copy) {
  for (int64_t at = 0; at < n_elems;) {
    const ElementRun run = run_in_box(shape, transfer.box, transfer.done_elems + at);
    const int64_t n = std::min(run.n_elems, n_elems - at);
    copy(run.elem, n, at * width);
    at += n;
  }
}

class Exchanger {
 public:
  Exchanger(const Array& x, const NamedSharding& to, const Tiling& target,
            const std::vector<Shards::Part>& parts)
      : reader_(x), shape_(x.shape()), dtype_(x.dtype()), to_(to), target_(target), parts_(parts) {}

  // In each round a process sends at most one piece and gets at most one.
  void run(std::vector<Transfer> transfers, const std::vector<int>& members) {
    const auto all = processes();
    comm::Communicator& communicator = all->communicator();
    const std::lock_guard lock(all->collectives_mutex());
    const comm::Group group = all->group_of(members);
    const auto index_of = [&](int process) {
      return static_cast<int32_t>(std::find(members.begin(), members.end(), process) -
                                  members.begin());
    };
    const int64_t width = dtype_bytes(dtype_), piece_elems = kPieceBytes / width;
    const std::string label = to_string(current_provenance());
    std::vector<std::byte> out, in;
    while (!transfers.empty()) {
      std::set<int> senders, receivers;
      std::vector<Transfer*> round;
      int64_t n_elems = 0;
      for (Transfer& transfer : transfers) {
        if (senders.contains(transfer.from) || receivers.contains(transfer.to)) continue;
        senders.insert(transfer.from);
        receivers.insert(transfer.to);
        round.push_back(&transfer);
        n_elems = std::max(n_elems, std::min(piece_elems, transfer.left()));
      }
      out.resize(static_cast<size_t>(n_elems * width));
      in.resize(out.size());
      std::vector<std::pair<int32_t, int32_t>> pairs;
      for (const Transfer* transfer : round) {
        pairs.emplace_back(index_of(transfer->from), index_of(transfer->to));
        if (transfer->from == all->index())
          copy_runs(*transfer, shape_, std::min(n_elems, transfer->left()), width,
                    [&](int64_t elem, int64_t n, int64_t at) {
                      reader_.read(elem, std::span(out).subspan(static_cast<size_t>(at),
                                                                static_cast<size_t>(n * width)));
                    });
      }
      communicator.permute(group, label.empty() ? "device_put" : label, dtype_, pairs, n_elems,
                           out.data(), in.data());
      for (Transfer* transfer : round) {
        const int64_t n_here = std::min(n_elems, transfer->left());
        if (transfer->to == all->index())
          copy_runs(*transfer, shape_, n_here, width, [&](int64_t elem, int64_t n, int64_t at) {
            store(transfer->tile, elem,
                  std::span(in).subspan(static_cast<size_t>(at), static_cast<size_t>(n * width)));
          });
        transfer->done_elems += n_here;
      }
      std::erase_if(transfers, [](const Transfer& t) { return t.left() == 0; });
    }
  }

 private:
  // A run of the whole array that lies in a tile, to all copies of the tile here.
  void store(int64_t tile, int64_t elem, std::span<const std::byte> bytes) {
    const int64_t width = dtype_bytes(dtype_);
    while (!bytes.empty()) {
      const Tiling::Spot spot = target_.locate(elem);
      STOW_CHECK(spot.tile == tile, "element {} is in tile {}, not in {}", elem, spot.tile, tile);
      const int64_t n = std::min(spot.n_elems, static_cast<int64_t>(bytes.size()) / width);
      for (const Shards::Part& part : parts_)
        if (to_.tile_at(part.position) == tile)
          part.buffer->write(spot.offset * width, bytes.first(static_cast<size_t>(n * width)));
      bytes = bytes.subspan(static_cast<size_t>(n * width));
      elem += n;
    }
  }

  ElementReader reader_;
  const Shape& shape_;
  DType dtype_;
  const NamedSharding& to_;
  const Tiling& target_;
  const std::vector<Shards::Part>& parts_;
};

std::set<const Device*> device_set(const NamedSharding& sharding) {
  std::set<const Device*> devices;
  for (const DevicePtr& device : sharding.mesh().devices()) devices.insert(device.get());
  return devices;
}

// The buffer of x on that device if it holds the same part in the same memory; else null.
DeviceBufferPtr kept_buffer(const Array& x, const Tiling& source, const DevicePtr& device,
                            MemoryKind kind, const ShardIndex& index) {
  if (!is_sharded(x) || x.type().kind != kind) return nullptr;
  const NamedSharding& from = mesh_sharding_of(x);
  for (const Shards::Part& part : x.impl()->storage->shards->parts)
    if (from.mesh().devices()[static_cast<size_t>(part.position)] == device &&
        source.index_of(from.tile_at(part.position)) == index)
      return part.buffer;
  return nullptr;
}

// A part of x on that device, as far as its elements are here; zeros for those that come later.
DeviceBufferPtr copied_part(const ElementReader& reader, const DevicePtr& device,
                            const ArrayType& type, const ShardIndex& index) {
  const Tiling& source = reader.tiling();
  return write_part(device, type, index, [&](int64_t first, std::span<std::byte> out) {
    const int64_t width = dtype_bytes(type.dtype);
    while (!out.empty()) {
      const Tiling::Spot spot = source.locate(first);
      const int64_t n = std::min(spot.n_elems, static_cast<int64_t>(out.size()) / width);
      const auto part = out.first(static_cast<size_t>(n * width));
      if (reader.has_tile(spot.tile))
        reader.read(first, part);
      else
        std::fill(part.begin(), part.end(), std::byte{0});
      out = out.subspan(part.size());
      first += n;
    }
  });
}

}  // namespace

Array reshard_over_mesh(const Array& x, const NamedSharding& to) {
  const ElementReader reader(x);
  const Tiling& source = reader.tiling();
  const Tiling target = to.tiling(x.shape());
  ArrayType type = x.type();
  type.kind = to.memory_kind();
  std::vector<Transfer> transfers;
  std::vector<int> members;
  const auto all = processes();
  if (is_sharded(x)) {
    const NamedSharding& from = mesh_sharding_of(x);
    members = all->processes_of(from.mesh().devices());
    if (members.size() > 1 || members[0] != all->index()) {
      if (device_set(from) != device_set(to))
        trace_error_here(
            "[device_put] expected a sharding over the same devices, since {} lies in {}: it is on "
            "{} and asked for on {}",
            describe(x), name_processes(members),
            to_string(Sharding(from)), to_string(Sharding(to)));
      transfers = transfers_between(from, source, to, target);
    } else if (all->processes_of(to.mesh().devices()) != members) {
      trace_error_here(
          "[device_put] expected host data or a sharding over devices of {}, since {} lies there "
          "alone: it is asked for on {}; use make_array_from_process_local_data",
          name_processes(members), describe(x), to_string(Sharding(to)));
    }
  }
  const bool takes_part = !transfers.empty() &&
                          std::find(members.begin(), members.end(), all->index()) != members.end();
  std::vector<Shards::Part> parts;
  const auto make_parts = [&] {
    for (int64_t position = 0; position < to.mesh().size(); ++position) {
      const DevicePtr& device = to.mesh().devices()[static_cast<size_t>(position)];
      if (all->process_of(device.get()) != all->index()) continue;
      const ShardIndex index = target.index_of(to.tile_at(position));
      DeviceBufferPtr buffer = kept_buffer(x, source, device, type.kind, index);
      if (buffer)
        x.impl()->storage->shares_buffer = true;
      else
        buffer = copied_part(reader, device, type, index);
      parts.push_back({position, std::move(buffer)});
    }
    if (takes_part) Exchanger(x, to, target, parts).run(std::move(transfers), members);
  };
  try {
    make_parts();
  } catch (const comm::CommunicationError&) {
    throw;
  } catch (const std::exception& error) {
    // Others wait for the elements that this process has, or would send it some.
    if (takes_part)
      all->communicator().abort(fmt::format("process {}: {}", all->index(), error.what()));
    throw;
  }
  Array array = array_of_shards(type, to, std::move(parts));
  array.impl()->storage->shares_buffer = true;  // parts that stayed where they are
  return array;
}

}  // namespace stow
