#include "stowage/ops/batch.h"

#include "stowage/ops/rule.h"

namespace stow {
namespace {

class Batcher {
 public:
  Batcher(const Graph& from, int64_t size)
      : from_(from), size_(size), builder_(to_), map_(from), axes_(from.n_values(), kUnbatched) {}

  BatchedGraph run(std::span<const int64_t> in_axes, std::span<const int64_t> out_axes) {
    for (size_t i = 0; i < in_axes.size(); ++i) {
      const ValueId v = from_.inputs()[i];
      axes_[v.index()] = in_axes[i];
      map_.set(
          v, to_.add_input(batched_type(from_.type(v), in_axes[i], size_), from_.input_names()[i]));
    }
    const std::vector<RegionId> regions = import_regions(from_, to_, RegionId());
    for (const Node& node : from_.nodes()) {
      if (!any_batched(node)) {
        copy_node(from_, node, to_, map_, regions);
        continue;
      }
      stamp(node);
      if (node.region.valid()) builder_.region = regions[node.region.index()];
      set_results(node, size_ == 0 ? nothing(node) : apply_rule(node));
    }
    BatchedGraph result;
    std::vector<ValueId> outputs;
    for (size_t i = 0; i < out_axes.size(); ++i) {
      const ValueId v = from_.outputs()[i];
      const int64_t axis = axes_[v.index()];
      result.out_axes.push_back(out_axes[i] == kAnyAxis ? axis : out_axes[i]);
      outputs.push_back(out_axes[i] == kAnyAxis ? map_[v] : placed(v, out_axes[i]));
    }
    to_.set_outputs(std::move(outputs));
    result.graph = std::move(to_);
    return result;
  }

 private:
  bool any_batched(const Node& node) const {
    for (ValueId v : node.operands)
      if (axes_[v.index()] != kUnbatched) return true;
    return false;
  }

  void stamp(const Node& node) {
    builder_.provenance = node.provenance;
    builder_.pass = pass_of(node.provenance) == Pass::kVjp ? Pass::kTraced : Pass::kVmap;
    builder_.backward = node.backward;
    builder_.region = RegionId();
  }

  Batched apply_rule(const Node& node) {
    BatchContext context{node, builder_, size_, {}, {}};
    for (ValueId v : node.operands) {
      context.operands.emplace_back(builder_, map_[v]);
      context.axes.push_back(axes_[v.index()]);
    }
    return op_def(node.op).batch.function(context);
  }

  // Every result of an empty batch is empty.
  Batched nothing(const Node& node) {
    Batched results;
    for (int i = 0; i < node.n_results; ++i) {
      results.values.push_back(
          full_anywhere(builder_, batched_type(from_.type(node.result(i)), 0, size_), 0));
      results.axes.push_back(0);
    }
    return results;
  }

  void set_results(const Node& node, const Batched& results) {
    for (int i = 0; i < node.n_results; ++i) {
      const Val& value = results.values[static_cast<size_t>(i)];
      const int64_t axis = results.axes[static_cast<size_t>(i)];
      const ValueId v = node.result(i);
      const ArrayType expected = batched_type(from_.type(v), axis, size_);
      STOW_CHECK(value.type() == expected, "batching of {} gives {} for {}", op_name(node.op),
                 to_string(value.type()), to_string(expected));
      map_.set(v, value.id());
      axes_[v.index()] = axis;
    }
  }

  ValueId placed(ValueId v, int64_t axis) {
    const int64_t from = axes_[v.index()];
    if (from == axis) return map_[v];
    STOW_CHECK(axis != kUnbatched, "an output with a batch is asked for without");
    builder_.region = RegionId();
    if (from_.is_input(v)) {
      builder_.provenance = nullptr;
      builder_.backward = false;
    } else {
      stamp(from_.def(v));
    }
    const Val x(builder_, map_[v]);
    if (from != kUnbatched) return ops::move_axis(x, from, axis).id();
    const ArrayType type = batched_type(x.type(), axis, size_);
    return broadcast_anywhere(x, type.shape,
                              ops::shifted_for_batch(ops::all_axes(x.rank()), axis))
        .id();
  }

  const Graph& from_;
  const int64_t size_;
  Graph to_;
  GraphBuilder builder_;
  ValueMap map_;
  std::vector<int64_t> axes_;  // of values of from_
};

}  // namespace

ArrayType batched_type(const ArrayType& type, int64_t axis, int64_t size) {
  ArrayType wide = type;
  if (axis != kUnbatched) wide.shape = Shape(ops::inserted(type.shape.dims(), axis, size));
  return wide;
}

BatchedGraph batch_graph(const Graph& graph, int64_t size, std::span<const int64_t> in_axes,
                         std::span<const int64_t> out_axes) {
  STOW_CHECK(in_axes.size() == graph.inputs().size() && out_axes.size() == graph.outputs().size(),
             "{} and {} axes for {} inputs and {} outputs", in_axes.size(), out_axes.size(),
             graph.inputs().size(), graph.outputs().size());
  return Batcher(graph, size).run(in_axes, out_axes);
}

}  // namespace stow
