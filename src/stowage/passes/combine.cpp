#include "stowage/passes/combine.h"

#include <algorithm>
#include <optional>
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
      if (is_sum_over_positions(node) && only_added(node.result()))
        sums_.emplace(node.result().index(), Sum{{}, {{&node, map_[node.operands[0]]}}});
      else if (node.op == OpKind::kAdd && (is_open(node.operands[0]) || is_open(node.operands[1])))
        add(node);
      else
        copy(node);
    }
    std::vector<ValueId> outputs;
    for (ValueId v : from_.outputs()) outputs.push_back(map_[v]);
    to_.set_outputs(std::move(outputs));
    return std::move(to_);
  }

 private:
  // A sum that is not written yet: of a value, and of parts, by the collective that reduces them.
  struct Sum {
    std::optional<ValueId> value;  // in to_, as parts are
    std::vector<std::pair<const Node*, ValueId>> parts;
  };

  static bool is_sum_over_positions(const Node& node) {
    return node.op == OpKind::kAllReduce && node.as<CollectiveParams>().kind == ReduceKind::kSum;
  }
  static bool alike(const Node& a, const Node& b) {
    return same_operation(a, b) && a.region == b.region && a.backward == b.backward;
  }

  // True if the only reader is an addition.
  bool only_added(ValueId v) const {
    const auto uses = users_.of(v);
    return n_uses_[v.index()] == 1 && uses.size() == 1 &&
           from_.node(uses[0].node).op == OpKind::kAdd;
  }
  bool is_open(ValueId v) const { return sums_.contains(v.index()); }

  Sum take(ValueId v) {
    const auto it = sums_.find(v.index());
    if (it == sums_.end()) return {map_[v], {}};
    Sum sum = std::move(it->second);
    sums_.erase(it);
    return sum;
  }

  void add(const Node& node) {
    Sum sum = take(node.operands[0]), more = take(node.operands[1]);
    if (more.value) sum.value = sum.value ? added(node, *sum.value, *more.value) : *more.value;
    for (const auto& [collective, part] : more.parts) {
      const auto same = std::find_if(sum.parts.begin(), sum.parts.end(),
                                     [&](const auto& p) { return alike(*p.first, *collective); });
      if (same == sum.parts.end())
        sum.parts.emplace_back(collective, part);
      else
        same->second = added(node, same->second, part);
    }
    if (only_added(node.result())) {
      sums_.emplace(node.result().index(), std::move(sum));
      return;
    }
    const ValueId written = write(sum, node);
    if (node.escapes_region) to_.mutable_node(to_.value(written).node).escapes_region = true;
    map_.set(node.result(), written);
  }

  // Returns the sum of two values in place of `node`.
  ValueId added(const Node& node, ValueId a, ValueId b) {
    Node sum = node;
    sum.operands = {a, b};
    sum.region = region(node);
    const ArrayType type = to_.type(a);
    return to_.node(to_.add_node(std::move(sum), std::span(&type, 1))).result();
  }

  ValueId write(const Sum& sum, const Node& node) {
    std::optional<ValueId> value = sum.value;
    for (const auto& [from, part] : sum.parts) {
      Node collective = *from;
      collective.operands = {part};
      collective.region = region(collective);
      const ArrayType type = to_.type(part);
      const ValueId whole =
          to_.node(to_.add_node(std::move(collective), std::span(&type, 1))).result();
      value = value ? added(node, *value, whole) : whole;
    }
    return *value;
  }

  RegionId region(const Node& node) const {
    return node.region.valid() ? regions_[node.region.index()] : RegionId();
  }

  void copy(const Node& node) {
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
  std::unordered_map<size_t, Sum> sums_;  // by value of from_; each is read by an addition alone
};

}  // namespace

Graph combine_sums(const Graph& graph) {
  return Combiner(graph).run();
}

}  // namespace stow
