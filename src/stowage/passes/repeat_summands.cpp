#include "stowage/passes/repeat_summands.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "stowage/ir/utilities.h"
#include "stowage/passes/sum_spaces.h"
#include "stowage/passes/tile_clusters.h"

namespace stow {
namespace {

// Repeated work reads its operands again, and they live until then. Together they are at most 1 /
// kReadShare of the bytes that are no longer stored.
constexpr int64_t kReadShare = 2;
// Most work per element, in additions, that is worth repeating, and its most nodes: a program has
// few.
constexpr int64_t kMostWork = 150;
constexpr size_t kMostNodes = 64;
// An array of at most kNearBytes, which near caches hold, is stored if repeating it costs a
// function such as an exponential.
constexpr int64_t kNearBytes = 64 << 10;
constexpr int64_t kFunctionWork = 24;

int64_t work_of(OpKind op) {
  switch (op) {
    case OpKind::kNeg:
    case OpKind::kAbs:
    case OpKind::kAdd:
    case OpKind::kSub:
    case OpKind::kMul:
    case OpKind::kMax:
    case OpKind::kMin:
    case OpKind::kSelect:
    case OpKind::kConvert:
      return 1;
    case OpKind::kDiv:
    case OpKind::kSqrt:
      return 6;
    default:
      return op >= OpKind::kEq && op <= OpKind::kGe ? 1 : kFunctionWork;
  }
}

class Repeater {
 public:
  explicit Repeater(const Graph& from)
      : from_(from),
        value_readers_(find_value_readers(from)),
        depths_(find_depths(from)),
        map_(from) {}

  // Returns none if the graph stays as it is.
  std::optional<Graph> run() {
    find_times();
    repeat_in_nested();
    const bool repeats = std::any_of(times_.begin(), times_.end(),
                                     [](const auto& times) { return times.size() > 1; });
    if (!repeats && !nested_changed_) return std::nullopt;
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    made_.resize(from_.n_values());
    for (size_t n = 0; n < from_.n_nodes(); ++n) emit(NodeId(n));
    to_.set_outputs(map_.images(from_.outputs()));
    return std::move(to_);
  }

 private:
  // The times at which a value is made, each for reductions of one space and depth. The first one
  // also serves all other readers.
  using Times = std::vector<SumReader>;

  static bool unite_sums(SumReader& into, const SumReader& other) {
    return into.depth == other.depth && unite(into.space, other.space);
  }
  static Times times_of(const ValueReaders& readers) {
    Times times;
    // The deepest reduction in its axes' own order serves other readers too, since they come after
    // it.
    const SumReader* last = nullptr;
    for (const SumReader& sum : readers.sums)
      if (readers.in_memory_downstream && sum.space.axes.empty() &&
          (last == nullptr || sum.depth > last->depth))
        last = &sum;
    if (last != nullptr)
      times.push_back(*last);
    else if (readers.in_memory_downstream)
      times.push_back({{}, -1});
    // Starts with the first reduction in the graph.
    for (size_t i = readers.sums.size(); i-- > 0;)
      if (std::none_of(times.begin(), times.end(),
                       [&](SumReader& other) { return unite_sums(other, readers.sums[i]); }))
        times.push_back(readers.sums[i]);
    return times;
  }

  void find_times() {
    times_.resize(from_.n_values());
    for (const Node& node : from_.nodes()) {
      if (op_class(node.op) != OpClass::kElementwise) continue;
      const ValueId v = node.first_result;
      const ValueReaders& readers = value_readers_[v.index()];
      if (readers.in_memory || from_.type(v).kind != MemoryKind::kDevice) continue;
      Times times = times_of(readers);
      if (times.size() > 1 && is_worth_repeating(v)) times_[v.index()] = std::move(times);
    }
  }

  // True if v and the operands that are repeated with it are little work on few bytes.
  bool is_worth_repeating(ValueId v) const {
    std::vector<ValueId> made = {v}, read;
    int64_t bytes = 0, work = 0;
    for (size_t i = 0; i < made.size(); ++i) {
      const Node& node = from_.def(made[i]);
      const int64_t more = work_of(node.op);
      work += more;
      if (work > kMostWork || made.size() > kMostNodes) return false;
      if (more >= kFunctionWork && from_.type(made[i]).bytes() <= kNearBytes) return false;
      for (ValueId o : node.operands) {
        const bool again = times_[o.index()].size() > 1;
        const ValueId root = again ? o : behind_views(o);
        std::vector<ValueId>& seen = again ? made : read;
        if (std::find(seen.begin(), seen.end(), root) != seen.end()) continue;
        seen.push_back(root);
        if (!again && !is_leaf(root)) bytes += from_.type(root).bytes();
      }
    }
    return bytes <= from_.type(v).bytes() / kReadShare;
  }
  ValueId behind_views(ValueId v) const {
    while (!from_.is_input(v)) {
      const Node& node = from_.def(v);
      const OpClass cls = op_class(node.op);
      if (cls != OpClass::kView && cls != OpClass::kIdentity) break;
      v = node.operands[static_cast<size_t>(from_.value(v).index)];
    }
    return v;
  }
  bool is_leaf(ValueId v) const {
    return !from_.is_input(v) &&
           (from_.def(v).op == OpKind::kConstant || from_.def(v).op == OpKind::kIota);
  }

  void repeat_in_nested() {
    nested_.resize(from_.n_nodes());
    for (size_t n = 0; n < from_.n_nodes(); ++n) {
      nested_[n] = from_.nodes()[n].graphs;
      for (GraphPtr& graph : nested_[n])
        if (std::optional<Graph> changed = Repeater(*graph).run()) {
          graph = std::make_shared<const Graph>(std::move(*changed));
          nested_changed_ = true;
        }
    }
  }

  // Returns value v as made for a reduction. Any making but the first is added on first demand.
  ValueId image(ValueId v, const SumReader& sum) {
    const Times& times = times_[v.index()];
    std::vector<ValueId>& made = made_[v.index()];
    made.resize(times.size());
    for (size_t i = 0; i < times.size(); ++i) {
      SumReader both = times[i];
      if (!unite_sums(both, sum)) continue;
      if (i == 0) break;
      if (!made[i].valid())
        made[i] = to_.node(copy_of(from_.value(v).node, &times[i])).result();
      return made[i];
    }
    return map_[v];
  }
  NodeId copy_of(NodeId id, const SumReader* sum) {
    const Node& node = from_.node(id);
    Node copy = node;
    copy.graphs = nested_[id.index()];
    for (ValueId& v : copy.operands) v = sum != nullptr ? image(v, *sum) : map_[v];
    copy.region = node.region.valid() ? regions_[node.region.index()] : RegionId();
    std::vector<ArrayType> types;
    for (int i = 0; i < node.n_results; ++i) types.push_back(from_.type(node.result(i)));
    return to_.add_node(std::move(copy), types);
  }

  void emit(NodeId id) {
    const Node& node = from_.node(id);
    const OpClass cls = op_class(node.op);
    std::optional<SumReader> sum;
    if (cls == OpClass::kReduce)
      sum = {space_of(from_, node), depths_[node.operands[0].index()]};
    if (cls == OpClass::kElementwise) {
      // A value that is made only once reads operands made for the same reductions.
      const ValueId v = node.first_result;
      const ValueReaders& readers = value_readers_[v.index()];
      const Times times = times_of(readers);
      if (!readers.in_memory && (times.size() == 1 || times_[v.index()].size() > 1))
        sum = times[0];
    }
    const NodeId made = copy_of(id, sum ? &*sum : nullptr);
    for (int i = 0; i < node.n_results; ++i) map_.set(node.result(i), to_.node(made).result(i));
  }

  const Graph& from_;
  const std::vector<ValueReaders> value_readers_;
  const std::vector<int> depths_;
  std::vector<Times> times_;  // of values; more than one where they are repeated
  std::vector<std::vector<GraphPtr>> nested_;  // of nodes
  bool nested_changed_ = false;
  Graph to_;
  ValueMap map_;  // by value, the first making
  std::vector<std::vector<ValueId>> made_;  // the others, where there is demand
  std::vector<RegionId> regions_;
};

}  // namespace

Graph repeat_summands(const Graph& graph) {
  std::optional<Graph> changed = Repeater(graph).run();
  return changed ? std::move(*changed) : graph;
}

}  // namespace stow
