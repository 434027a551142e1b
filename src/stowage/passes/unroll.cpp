#include "stowage/passes/unroll.h"

#include <algorithm>
#include <map>

#include "stowage/ops/build.h"

namespace stow {
namespace {

bool asks(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return (node.op == OpKind::kScan && node.as<ScanParams>().unroll != 1) ||
           std::any_of(node.graphs.begin(), node.graphs.end(),
                       [](const GraphPtr& nested) { return asks(*nested); });
  });
}

Shape with_axis(const Shape& shape, int64_t axis, std::initializer_list<int64_t> extents) {
  Dims dims = shape.dims();
  dims.insert(dims.begin() + axis, extents);
  return Shape(std::move(dims));
}
Shape without_axis(const Shape& shape, int64_t axis) {
  Dims dims = shape.dims();
  dims.erase(dims.begin() + axis);
  return Shape(std::move(dims));
}

class Unroller {
 public:
  explicit Unroller(const Graph& from) : from_(from), builder_(to_), map_(from) {}

  Graph run() {
    copy_inputs(from_, to_, map_);
    const std::vector<RegionId> regions = import_regions(from_, to_, RegionId());
    for (const Node& node : from_.nodes()) {
      if (node.op == OpKind::kScan && node.as<ScanParams>().unroll != 1 &&
          node.as<ScanParams>().length > 0) {
        builder_.provenance = node.provenance;
        builder_.pass = Pass::kUnroll;
        builder_.region = node.region.valid() ? regions[node.region.index()] : RegionId();
        builder_.backward = node.backward;
        unroll(node);
        continue;
      }
      const NodeId id = copy_node(from_, node, to_, map_, regions);
      for (GraphPtr& nested : to_.mutable_node(id).graphs)
        nested = std::make_shared<const Graph>(unroll_scans(*nested));
    }
    to_.set_outputs(map_.images(from_.outputs()));
    return std::move(to_);
  }

 private:
  // Values of one scan while it is unrolled: in the program, or in the body of a loop over blocks.
  struct Values {
    std::vector<Val> consts, carries;
    std::vector<std::vector<Val>> ys;  // slices of each stacked result, by iteration
  };

  // Appends an iteration of the body.
  static void iterate(const Graph& body, Values& values, std::span<const Val> slices) {
    GraphBuilder& b = slices.empty() ? builder_of(values) : slices[0].builder();
    ValueMap map(body);
    size_t i = 0;
    for (const auto* list : {&values.consts, &values.carries})
      for (const Val& v : *list) map.set(body.inputs()[i++], v.id());
    for (const Val& v : slices) map.set(body.inputs()[i++], v.id());
    for (const Node& node : body.nodes()) {
      const NodeId id = copy_node(body, node, b.graph(), map, {});
      b.graph().mutable_node(id).region = b.region;
      b.graph().mutable_node(id).backward = b.backward;
    }
    const size_t n_carries = values.carries.size();
    for (size_t k = 0; k < n_carries; ++k) values.carries[k] = Val(b, map[body.outputs()[k]]);
    values.ys.resize(body.outputs().size() - n_carries);
    for (size_t j = 0; j < values.ys.size(); ++j)
      values.ys[j].emplace_back(b, map[body.outputs()[n_carries + j]]);
  }
  static GraphBuilder& builder_of(const Values& values) {
    return values.consts.empty() ? values.carries[0].builder() : values.consts[0].builder();
  }

  // Returns element `i` of an axis, without that axis.
  Val element(const Val& stack, int64_t axis, int64_t i) const {
    if (const auto known = slices_.find({stack.id(), axis}); known != slices_.end())
      return Val(stack.builder(), known->second[static_cast<size_t>(i)]);
    return reshape(slice_axis(stack, axis, i, i + 1), without_axis(stack.shape(), axis));
  }
  // Stacks slices, in the order of iterations, along an axis.
  static Val stacked(std::vector<Val> slices, int64_t axis, bool reverse) {
    if (reverse) std::reverse(slices.begin(), slices.end());
    for (Val& v : slices) v = reshape(v, with_axis(v.shape(), axis, {1}));
    return slices.size() == 1 ? slices[0] : concatenate(slices, axis);
  }

  void unroll(const Node& node) {
    const auto& p = node.as<ScanParams>();
    const Graph body = unroll_scans(*node.graphs[0]);
    const int64_t n = p.unroll == 0 ? p.length : std::min(p.unroll, p.length);
    Values values;
    std::vector<Val> xs;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Val v(builder_, map_[node.operands[i]]);
      const auto at = static_cast<int>(i);
      (at < p.n_consts                 ? values.consts
       : at < p.n_consts + p.n_carries ? values.carries
                                       : xs)
          .push_back(v);
    }
    // A loop whose body has no operands stays a loop.
    if (node.operands.empty()) return copy_as_it_is(node);
    const int64_t n_blocks = n == p.length ? 0 : p.length / n, done = n_blocks * n;
    std::vector<Val> blocks;
    if (n_blocks > 0) blocks = loop_over_blocks(p, body, n, n_blocks, values, xs);
    for (int64_t i = done; i < p.length; ++i) {
      std::vector<Val> slices;
      for (size_t x = 0; x < xs.size(); ++x)
        slices.push_back(element(xs[x], p.in_axes[x], p.reverse ? p.length - 1 - i : i));
      iterate(body, values, slices);
    }
    for (int k = 0; k < p.n_carries; ++k)
      map_.set(node.result(k), values.carries[static_cast<size_t>(k)].id());
    for (size_t j = 0; j < p.out_axes.size(); ++j) {
      const ValueId result = node.result(p.n_carries + static_cast<int>(j));
      std::vector<Val> parts;
      if (!blocks.empty()) parts.push_back(blocks[j]);
      if (j < values.ys.size() && !values.ys[j].empty()) {
        parts.push_back(stacked(values.ys[j], p.out_axes[j], p.reverse));
        if (n_blocks == 0) remember(parts.back(), values.ys[j], p.out_axes[j], p.reverse);
      }
      if (p.reverse) std::reverse(parts.begin(), parts.end());
      map_.set(result, (parts.size() == 1 ? parts[0] : concatenate(parts, p.out_axes[j])).id());
    }
  }

  void copy_as_it_is(const Node& node) { copy_node(from_, node, to_, map_, {}); }

  void remember(const Val& stack, const std::vector<Val>& slices, int64_t axis, bool reverse) {
    std::vector<ValueId>& known = slices_[{stack.id(), axis}];
    for (const Val& v : slices) known.push_back(v.id());
    if (reverse) std::reverse(known.begin(), known.end());
  }

  // Writes the first n_blocks * n iterations as a scan over blocks, and sets the carries to its
  // results. Returns the stacks.
  std::vector<Val> loop_over_blocks(const ScanParams& p, const Graph& body, int64_t n,
                                    int64_t n_blocks, Values& values, const std::vector<Val>& xs) {
    auto block = std::make_shared<Graph>();
    GraphBuilder b(*block);
    ScanParams params = p;
    params.length = n_blocks;
    params.unroll = 1;
    std::vector<Val> operands;
    Values inner;
    for (const Val& v : values.consts) {
      operands.push_back(v);
      inner.consts.emplace_back(b, block->add_input(v.type()));
    }
    for (const Val& v : values.carries) {
      operands.push_back(v);
      inner.carries.emplace_back(b, block->add_input(v.type()));
    }
    std::vector<Val> blocks;
    const int64_t first = p.reverse ? p.length - n_blocks * n : 0;
    for (size_t x = 0; x < xs.size(); ++x) {
      const int64_t axis = p.in_axes[x];
      const Val part = slice_axis(xs[x], axis, first, first + n_blocks * n);
      const Shape slice = without_axis(part.shape(), axis);
      operands.push_back(reshape(part, with_axis(slice, axis, {n_blocks, n})));
      ArrayType type = part.type();
      type.shape = with_axis(slice, axis, {n});
      blocks.emplace_back(b, block->add_input(type));
    }
    for (int64_t i = 0; i < n; ++i) {
      std::vector<Val> slices;
      for (size_t x = 0; x < xs.size(); ++x) {
        const int64_t at = p.reverse ? n - 1 - i : i, axis = p.in_axes[x];
        slices.push_back(reshape(slice_axis(blocks[x], axis, at, at + 1),
                                 without_axis(blocks[x].shape(), axis)));
      }
      iterate(body, inner, slices);
    }
    std::vector<ValueId> outputs;
    for (const Val& v : inner.carries) outputs.push_back(v.id());
    for (size_t j = 0; j < inner.ys.size(); ++j)
      outputs.push_back(stacked(inner.ys[j], p.out_axes[j], p.reverse).id());
    block->set_outputs(std::move(outputs));
    const std::vector<Val> results = builder_.add(OpKind::kScan, params, operands, {block});
    for (size_t k = 0; k < values.carries.size(); ++k) values.carries[k] = results[k];
    std::vector<Val> stacks;
    for (size_t j = 0; j < inner.ys.size(); ++j) {
      const Val& y = results[values.carries.size() + j];
      Dims dims = y.shape().dims();
      const auto axis = static_cast<size_t>(p.out_axes[j]);
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
      dims[axis] = n_blocks * n;
      stacks.push_back(reshape(y, Shape(std::move(dims))));
    }
    return stacks;
  }

  const Graph& from_;
  Graph to_;
  GraphBuilder builder_;
  ValueMap map_;
  std::map<std::pair<ValueId, int64_t>, std::vector<ValueId>> slices_;  // of stacks made here
};

}  // namespace

Graph unroll_scans(const Graph& graph) {
  if (!asks(graph)) return graph;
  return Unroller(graph).run();
}

}  // namespace stow
