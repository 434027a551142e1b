#include "stowage/passes/combine_all_reduces.h"

#include <algorithm>

#include "stowage/ops/build.h"

namespace stow {
namespace {

class Combiner {
 public:
  explicit Combiner(const Graph& from) : from_(from), map_(from), of_node_(from.n_nodes(), kNone) {}

  Graph run() {
    find_sets();
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (size_t n = 0; n < from_.n_nodes(); ++n) {
      if (of_node_[n] == kNone || sets_[of_node_[n]].size() == 1) {
        const NodeId id = copy_node(from_, from_.nodes()[n], to_, map_, regions_);
        for (GraphPtr& nested : to_.mutable_node(id).graphs)
          nested = std::make_shared<const Graph>(combine_all_reduces(*nested));
      } else if (const std::vector<size_t>& set = sets_[of_node_[n]]; set.back() == n) {
        write(set);
      }
    }
    std::vector<ValueId> outputs;
    for (ValueId v : from_.outputs()) outputs.push_back(map_[v]);
    to_.set_outputs(std::move(outputs));
    return std::move(to_);
  }

 private:
  static constexpr size_t kNone = ~size_t{0};
  static constexpr size_t kMostOpen = 16;  // kinds of all_reduces that wait for more at a time

  // Finds for every all_reduce that may join a set the number of that set.
  void find_sets() {
    size_t last_backward = 0;
    for (size_t n = 0; n < from_.n_nodes(); ++n)
      if (from_.nodes()[n].backward) last_backward = n;
    std::vector<size_t> open;  // sets whose results nobody has read
    std::vector<int64_t> bytes;
    for (size_t n = 0; n < from_.n_nodes(); ++n) {
      const Node& node = from_.nodes()[n];
      for (ValueId v : node.operands) {
        const size_t made = from_.is_input(v) ? kNone : of_node_[from_.value(v).node.index()];
        if (made != kNone) std::erase(open, made);
      }
      const bool is_forward_of_backward = !node.backward && n < last_backward;
      if (!is_small(node) || is_forward_of_backward) continue;
      const int64_t own = from_.type(node.result()).bytes();
      const auto fits = std::find_if(open.begin(), open.end(), [&](size_t set) {
        return alike(from_.nodes()[sets_[set][0]], node) &&
               bytes[set] + own <= kCombinedReduceBytes;
      });
      if (fits != open.end()) {
        of_node_[n] = *fits;
      } else {
        // Full sets are closed, and so is the oldest of too many open ones.
        std::erase_if(open, [&](size_t set) { return alike(from_.nodes()[sets_[set][0]], node); });
        if (open.size() == kMostOpen) open.erase(open.begin());
        of_node_[n] = sets_.size();
        open.push_back(sets_.size());
        sets_.emplace_back();
        bytes.push_back(0);
      }
      sets_[of_node_[n]].push_back(n);
      bytes[of_node_[n]] += own;
    }
  }

  bool is_small(const Node& node) const {
    if (node.op != OpKind::kAllReduce) return false;
    const ArrayType& type = from_.type(node.result());
    return type.kind == MemoryKind::kDevice && type.bytes() > 0 &&
           type.bytes() <= kSmallReduceBytes &&
           node.as<CollectiveParams>().group_size() > 1;
  }
  bool alike(const Node& a, const Node& b) const {
    return a.as<CollectiveParams>() == b.as<CollectiveParams>() && a.region == b.region &&
           a.backward == b.backward && from_.type(a.result()).dtype == from_.type(b.result()).dtype;
  }

  // Writes the combined reduction in place of the last one of the set.
  void write(const std::vector<size_t>& set) {
    const Node& last = from_.nodes()[set.back()];
    GraphBuilder b(to_);
    b.backward = last.backward;
    b.region = last.region.valid() ? regions_[last.region.index()] : RegionId();
    b.provenance = last.provenance;
    std::vector<Val> parts;
    for (const size_t n : set) {
      const Val part(b, map_[from_.nodes()[n].operands[0]]);
      parts.push_back(reshape(part, {part.type().elems()}));
    }
    const Val sum = b.add1(OpKind::kAllReduce, last.params, {concatenate(parts, 0)});
    int64_t at = 0;
    for (const size_t n : set) {
      const Node& node = from_.nodes()[n];
      b.provenance = node.provenance;
      const ArrayType& type = from_.type(node.result());
      const Val own = reshape(slice_axis(sum, 0, at, at + type.elems()), type.shape);
      at += type.elems();
      map_.set(node.result(), own.id());
      if (node.escapes_region) to_.mutable_node(to_.value(own.id()).node).escapes_region = true;
    }
  }

  const Graph& from_;
  Graph to_;
  ValueMap map_;
  std::vector<RegionId> regions_;
  std::vector<size_t> of_node_;            // the set of a node, or kNone
  std::vector<std::vector<size_t>> sets_;  // nodes, in order
};

}  // namespace

Graph combine_all_reduces(const Graph& graph) { return Combiner(graph).run(); }

}  // namespace stow
