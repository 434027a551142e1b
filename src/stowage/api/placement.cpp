#include "stowage/api/placement.h"

#include <algorithm>

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
  const std::vector<std::vector<int32_t>> odd =
      all->communicator().compare(all->group_of(members), label.empty() ? "device_put" : label, items);
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
    fail_here("[device_put] expected the same value on each process, got {}; make the inputs equal, or "
              "give each process its part with make_array_from_process_local_data",
              text);
}

}  // namespace stow
