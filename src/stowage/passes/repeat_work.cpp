#include "stowage/passes/repeat_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "stowage/ir/utilities.h"
#include "stowage/passes/tile_clusters.h"

namespace stow {
namespace {

// A value this many times smaller than its broadcast may be kept.
constexpr int64_t kSmallShare = 16;

class Repeater {
 public:
  explicit Repeater(const Graph& from) : from_(from), users_(from), map_(from) { find_streamed(); }

  // Returns the graph, unchanged and with `changed` left alone if nothing is to be repeated.
  Graph run(bool& changed) {
    for (size_t n = 0; n < from_.n_nodes(); ++n) find_late_readers(NodeId(n));
    if (late_.empty()) return from_;
    changed = true;
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (size_t n = 0; n < from_.n_nodes(); ++n) emit(NodeId(n));
    to_.set_outputs(map_.images(from_.outputs()));
    return std::move(to_);
  }

 private:
  // The way in which a node reads a value: not at all, through elementwise work only, or through
  // other work.
  enum class Reach : uint8_t { kNone, kNear, kFar };

  // Finds elementwise work whose operands are moves to the device, small values, or other such
  // work.
  void find_streamed() {
    streamed_.assign(from_.n_values(), false);
    for (const Node& node : from_.nodes()) {
      if (op_class(node.op) != OpClass::kElementwise) continue;
      const ValueId v = node.first_result;
      bool moves = false;
      const bool all = std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId x) {
        moves |= is_fetch(from_, x) || streamed_[x.index()];
        return is_fetch(from_, x) || streamed_[x.index()] || is_small(x, from_.type(v).elems());
      });
      streamed_[v.index()] = all && moves;
    }
  }
  bool is_small(ValueId x, int64_t beside) const {
    if (uniform_source(from_, x).valid()) return true;
    if (!from_.is_input(x) && from_.def(x).op == OpKind::kBroadcast) x = from_.def(x).operands[0];
    return from_.type(x).elems() * kSmallShare <= beside;
  }

  // Finds readers of streamed work that also wait for something other than elementwise work over
  // it.
  void find_late_readers(NodeId id) {
    const ValueId v = from_.node(id).first_result;
    if (from_.node(id).n_results != 1 || !streamed_[v.index()] || users_.of(v).size() < 2) return;
    NodeId last = id;
    for (const Use& use : users_.of(v)) last = std::max(last, use.node);
    std::vector<Reach> reach(last.index() + 1 - id.index(), Reach::kNone);
    const auto reach_of = [&](ValueId x) {
      const NodeId maker = from_.value(x).node;
      return maker.valid() && maker >= id ? reach[maker.index() - id.index()] : Reach::kNone;
    };
    reach[0] = Reach::kNear;
    for (size_t n = id.index() + 1; n <= last.index(); ++n) {
      const Node& node = from_.node(NodeId(n));
      Reach from = Reach::kNone;
      for (ValueId x : node.operands) from = std::max(from, reach_of(x));
      if (from == Reach::kFar && std::count(node.operands.begin(), node.operands.end(), v) > 0)
        late_.emplace(v, NodeId(n));
      const bool passes = from == Reach::kNear && op_class(node.op) != OpClass::kElementwise;
      reach[n - id.index()] = passes ? Reach::kFar : from;
    }
  }

  void emit(NodeId id) {
    const Node& node = from_.node(id);
    const NodeId made = copy_with(node, [&](ValueId v) {
      return late_.contains({v, id}) ? again(v, again_[v]) : map_[v];
    });
    for (int i = 0; i < node.n_results; ++i) map_.set(node.result(i), to_.node(made).result(i));
  }
  template <typename Operand>
  NodeId copy_with(const Node& node, Operand&& operand_of) {
    Node copy = node;
    for (ValueId& v : copy.operands) v = operand_of(v);
    copy.region = node.region.valid() ? regions_[node.region.index()] : RegionId();
    std::vector<ArrayType> types;
    for (int i = 0; i < node.n_results; ++i) types.push_back(from_.type(node.result(i)));
    return to_.add_node(std::move(copy), types);
  }
  // Repeats streamed work completely; the late readers of one value share the copy.
  ValueId again(ValueId v, std::map<ValueId, ValueId>& made_again) {
    if (!streamed_[v.index()]) return map_[v];
    if (const auto it = made_again.find(v); it != made_again.end()) return it->second;
    const NodeId made =
        copy_with(from_.def(v), [&](ValueId x) { return again(x, made_again); });
    return made_again[v] = to_.node(made).result();
  }

  const Graph& from_;
  const Users users_;
  std::vector<bool> streamed_;                 // values
  std::set<std::pair<ValueId, NodeId>> late_;  // streamed work and its reader
  Graph to_;
  ValueMap map_;
  std::vector<RegionId> regions_;
  std::map<ValueId, std::map<ValueId, ValueId>> again_;  // by the value that is read late
};

}  // namespace

Graph repeat_work(const Graph& graph, std::vector<std::string>& limits, int most_rounds) {
  Graph result = graph;
  for (int round = 0;; ++round) {
    bool changed = false;
    Graph next = Repeater(result).run(changed);
    if (!changed) return next;
    if (round == most_rounds) {
      limits.push_back(fmt::format(
          "repeat: work that waits for sums was repeated for {} sums in turn; for later ones it waits",
          most_rounds));
      return result;
    }
    result = std::move(next);
  }
}

}  // namespace stow
