#include "stowage/passes/combine.h"

#include <unordered_map>

#include "stowage/ir/utilities.h"

namespace stow {
namespace {

class Combiner {
 public:
  explicit Combiner(const Graph& from) : from_(from), map_(from), users_(from) {
    n_uses_ = count_uses(from);
  }

  Graph run() {
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (const Node& node : from_.nodes()) {
      if (is_sum_over_positions(node) && only_added(node.result())) {
        waiting_.emplace(node.result().index(), Waiting{map_image(node.operands[0]), &node});
      } else if (const Waiting* const first = combinable(node)) {
        combine(node, *first);
      } else {
        copy(node);
      }
    }
    std::vector<ValueId> outputs;
    for (ValueId v : from_.outputs()) outputs.push_back(map_image(v));
    to_.set_outputs(std::move(outputs));
    return std::move(to_);
  }

 private:
  // A value whose collective has not been written yet: its parts, and the collective.
  struct Waiting {
    ValueId part;  // in to_
    const Node* collective;
  };

  static bool is_sum_over_positions(const Node& node) {
    return (node.op == OpKind::kAllReduce || node.op == OpKind::kReduceScatter) &&
           node.as<CollectiveParams>().kind == ReduceKind::kSum;
  }

  // True if the only reader is an addition.
  bool only_added(ValueId v) const {
    if (n_uses_[v.index()] != 1) return false;
    const auto uses = users_.of(v);
    return uses.size() == 1 && from_.node(uses[0].node).op == OpKind::kAdd;
  }

  // An addition of two values that wait for collectives alike: the first of them.
  const Waiting* combinable(const Node& node) const {
    if (node.op != OpKind::kAdd) return nullptr;
    const auto a = waiting_.find(node.operands[0].index()),
               b = waiting_.find(node.operands[1].index());
    if (a == waiting_.end() || b == waiting_.end() || a == b) return nullptr;
    const Node &first = *a->second.collective, &second = *b->second.collective;
    const bool alike = same_operation(first, second) && first.region == second.region &&
                       first.backward == second.backward;
    return alike ? &a->second : nullptr;
  }

  void combine(const Node& node, const Waiting& first) {
    const Node& collective = *first.collective;
    Node sum = node;
    sum.operands = {first.part, waiting_.at(node.operands[1].index()).part};
    sum.region = region(node);
    const ArrayType type = to_.type(first.part);
    const ValueId part = to_.node(to_.add_node(std::move(sum), std::span(&type, 1))).result();
    for (ValueId operand : node.operands) waiting_.erase(operand.index());
    const Waiting both{part, &collective};
    if (only_added(node.result()))
      waiting_.emplace(node.result().index(), both);
    else
      map_.set(node.result(), write(both));
  }

  ValueId write(const Waiting& waiting) {
    Node collective = *waiting.collective;
    collective.operands = {waiting.part};
    collective.region = region(collective);
    const ArrayType type = from_.type(waiting.collective->result());
    return to_.node(to_.add_node(std::move(collective), std::span(&type, 1))).result();
  }

  // The image of a value that is read otherwise than by a sum of its like.
  ValueId map_image(ValueId v) {
    if (const auto it = waiting_.find(v.index()); it != waiting_.end()) {
      map_.set(v, write(it->second));
      waiting_.erase(it);
    }
    return map_[v];
  }

  RegionId region(const Node& node) const {
    return node.region.valid() ? regions_[node.region.index()] : RegionId();
  }

  void copy(const Node& node) {
    for (ValueId v : node.operands) map_image(v);
    const NodeId id = copy_node(from_, node, to_, map_, regions_);
    for (GraphPtr& nested : to_.mutable_node(id).graphs)
      nested = std::make_shared<const Graph>(combine_sums(*nested));
  }

  const Graph& from_;
  Graph to_;
  ValueMap map_;
  Users users_;
  std::vector<int> n_uses_;
  std::vector<RegionId> regions_;
  std::unordered_map<size_t, Waiting> waiting_;  // by value of from_
};

}  // namespace

Graph combine_sums(const Graph& graph) { return Combiner(graph).run(); }

}  // namespace stow
