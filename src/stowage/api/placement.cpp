#include "stowage/api/placement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "stowage/api/processes.h"
#include "stowage/io/digest.h"

namespace stow {
namespace {

constexpr int64_t kDigestPieceBytes = 1 << 18;
constexpr size_t kMostNamed = 3;

std::string name_leaf(const PlacedLeaf& leaf) {
  return leaf.path.empty() ? "the array " + to_string(leaf.type)
                           : fmt::format("the leaf '{}' {}", leaf.path, to_string(leaf.type));
}

}  // namespace

comm::Fingerprint fingerprint_of(const ArrayType& type, DType source, int64_t n_elems,
                                 const ReadElements& read) {
  Digest content, header;
  const int64_t width = dtype_bytes(source), piece_elems = kDigestPieceBytes / width;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(n_elems, piece_elems) * width));
  for (int64_t at = 0; at < n_elems; at += piece_elems) {
    const auto part =
        std::span(piece).first(static_cast<size_t>(std::min(piece_elems, n_elems - at) * width));
    read(at, part);
    content.update(part);
  }
  const std::string text = fmt::format("{} from {}", to_string(type), dtype_name(source));
  header.update(std::as_bytes(std::span(text)));
  return {content.value(), header.value()};
}

void check_same_on_processes(const NamedSharding& to, std::span<const PlacedLeaf> leaves) {
  const auto all = processes();
  const std::vector<int> members = all->processes_of(to.mesh().devices());
  if (leaves.empty() || members.size() < 2 ||
      std::find(members.begin(), members.end(), all->index()) == members.end())
    return;
  std::vector<comm::Fingerprint> items;
  for (const PlacedLeaf& leaf : leaves) items.push_back(leaf.fingerprint);
  const std::string label = to_string(current_provenance());
  std::vector<std::vector<int32_t>> odd;
  {
    const std::lock_guard lock(all->collectives_mutex());
    odd = all->communicator().compare(all->group_of(members), label.empty() ? "device_put" : label,
                                      items);
  }
  std::string text;
  size_t n_odd = 0;
  for (size_t i = 0; i < odd.size(); ++i) {
    if (odd[i].empty() || ++n_odd > kMostNamed) continue;
    std::vector<int> differ;
    for (int32_t rank : odd[i]) differ.push_back(all->process_of_rank(rank));
    std::sort(differ.begin(), differ.end());
    text += fmt::format("{}{}: {} {} another value than most", text.empty() ? "" : "; ",
                        name_leaf(leaves[i]), name_processes(differ),
                        differ.size() == 1 ? "has" : "have");
  }
  if (n_odd > kMostNamed) text += fmt::format("; and {} more leaves", n_odd - kMostNamed);
  if (n_odd > 0)
    trace_error_here(
        "[device_put] expected the same value on each process, got {}; make the inputs equal, or "
        "give each process its part with make_array_from_process_local_data",
        text);
}

void check_same_parts(const char* what, const Array& x) {
  if (!is_sharded(x)) return;
  const NamedSharding& sharding = mesh_sharding_of(x);
  const std::vector<DevicePtr>& devices = sharding.mesh().devices();
  const Tiling tiling = sharding.tiling(x.shape());
  // By position; zeros for those of other processes, until the maximum is taken.
  std::vector<comm::Fingerprint> all_parts(devices.size());
  for (const Shards::Part& part : x.impl()->storage->shards->parts) {
    Digest content, length;
    std::vector<std::byte> piece(
        static_cast<size_t>(std::min(part.buffer->bytes(), kDigestPieceBytes)));
    for (int64_t at = 0; at < part.buffer->bytes(); at += kDigestPieceBytes) {
      const auto some = std::span(piece).first(
          static_cast<size_t>(std::min(kDigestPieceBytes, part.buffer->bytes() - at)));
      part.buffer->read(at, some);
      content.update(some);
    }
    const std::string type = to_string(x.type());
    length.update(std::as_bytes(std::span(type)));
    all_parts[static_cast<size_t>(part.position)] = {content.value(), length.value()};
  }
  const auto all = processes();
  const std::vector<int> members = all->processes_of(devices);
  if (std::find(members.begin(), members.end(), all->index()) == members.end()) return;
  if (members.size() > 1) {
    const std::string label = to_string(current_provenance());
    auto* const words = reinterpret_cast<std::byte*>(all_parts.data());
    const std::lock_guard lock(all->collectives_mutex());
    all->communicator().all_reduce(all->group_of(members), label.empty() ? what : label,
                                   ReduceKind::kMax, DType::kU64,
                                   2 * static_cast<int64_t>(devices.size()), words, words);
  }
  std::map<int64_t, std::map<comm::Fingerprint, int>> counts;  // by tile
  for (size_t i = 0; i < devices.size(); ++i)
    ++counts[sharding.tile_at(static_cast<int64_t>(i))][all_parts[i]];
  for (const auto& [tile, of_tile] : counts) {
    if (of_tile.size() == 1) continue;
    const comm::Fingerprint* usual = nullptr;
    std::vector<std::string> odd;
    // If two values are equally frequent, that of the first device counts.
    for (size_t i = 0; i < devices.size(); ++i) {
      if (sharding.tile_at(static_cast<int64_t>(i)) != tile) continue;
      if (!usual || of_tile.at(all_parts[i]) > of_tile.at(*usual)) usual = &all_parts[i];
    }
    for (size_t i = 0; i < devices.size(); ++i)
      if (sharding.tile_at(static_cast<int64_t>(i)) == tile && all_parts[i] != *usual)
        odd.push_back(members.size() == 1
                          ? fmt::format("position {} of the mesh", i)
                          : fmt::format("position {} of the mesh (process {})", i,
                                        all->process_of(devices[i].get())));
    trace_error_here(
        "[{}] expected the same part on each device that holds it, got {} whose part {} differs: "
        "{} {} another value than most; let the part depend on its index alone",
        what, to_string(x.type()), to_string(tiling.index_of(tile)), fmt::join(odd, ", "),
        odd.size() == 1 ? "has" : "have");
  }
}

}  // namespace stow
