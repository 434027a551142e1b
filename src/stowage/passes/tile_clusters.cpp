#include "stowage/passes/tile_clusters.h"

#include <algorithm>
#include <set>

#include "stowage/ir/utilities.h"

namespace stow {
namespace {

bool is_splat_constant(const Node& node) {
  return node.op == OpKind::kConstant && node.as<ConstantParams>().is_splat();
}

bool moves_off_device(const Graph& graph, const Node& node) {
  return node.op == OpKind::kDevicePut &&
         graph.type(node.operands[0]).kind == MemoryKind::kDevice &&
         graph.type(node.first_result).kind != MemoryKind::kDevice;
}

bool is_mark(const Node& node) {
  return node.op == OpKind::kName || node.op == OpKind::kStopGradient;
}

class Finder {
 public:
  Finder(const Graph& graph, int64_t tile_bytes, bool with_stores)
      : graph_(graph), tile_bytes_(tile_bytes), with_stores_(with_stores), users_(graph),
        cluster_(graph.n_nodes(), -1),
        below_(graph.n_nodes(), false), seen_(graph.n_nodes(), 0),
        returned_(graph.n_values(), false) {
    for (ValueId v : graph.outputs()) returned_[v.index()] = true;
  }

  std::vector<TileCluster> run() {
    for (size_t n = 0; n < graph_.n_nodes(); ++n) place(NodeId(n));
    for (size_t n = 0; n < graph_.n_nodes(); ++n) begin_at_store(NodeId(n));
    for (size_t n = graph_.n_nodes(); n-- > 0;) absorb(NodeId(n));
    std::vector<TileCluster> found;
    for (TileCluster& c : clusters_) {
      c.sums = sums_of(c);
      c.moves = moves(c);
      if (!computes(c) || !(c.moves || !c.sums.empty())) continue;
      std::sort(c.nodes.begin(), c.nodes.end());
      found.push_back(std::move(c));
    }
    find_bits(found);
    return found;
  }

 private:
  const Dims& dims(ValueId v) const { return graph_.type(v).shape.dims(); }
  // True for large values, by the number of elements: a comparison or a conversion counts as its
  // operand.
  bool is_big(ValueId v) const {
    return graph_.type(v).elems() * dtype_bytes(DType::kF32) > 2 * tile_bytes_;
  }
  // True for values that a cluster fetches, or makes, tile by tile.
  bool is_source(ValueId v) const { return is_fetch(graph_, v) || is_made_in_tiles(v); }
  bool is_made_in_tiles(ValueId v) const {
    return v.valid() && is_sum_of_rows(graph_, v) && is_read_in_tiles(v);
  }
  std::vector<ValueId> sums_of(const TileCluster& c) const {
    std::vector<ValueId> sums;
    for (NodeId id : c.nodes)
      for (ValueId v : graph_.node(id).operands)
        for (ValueId read : {v, round_trip_source(graph_, v)})
          if (is_made_in_tiles(read) && std::find(sums.begin(), sums.end(), read) == sums.end())
            sums.push_back(read);
    return sums;
  }
  // Each cluster makes its own random bits, which is little work compared with a move.
  void find_bits(std::vector<TileCluster>& clusters) const {
    std::set<NodeId> members;
    for (const TileCluster& c : clusters)
      if (c.moves) members.insert(c.nodes.begin(), c.nodes.end());
    const auto is_bits = [&](ValueId v) {
      return !graph_.is_input(v) && graph_.def(v).op == OpKind::kRandomBits &&
             graph_.def(v).operands.size() == 1 && !returned_[v.index()] &&
             std::all_of(users_.of(v).begin(), users_.of(v).end(),
                         [&](const Use& use) { return members.contains(use.node); });
    };
    for (TileCluster& c : clusters) {
      if (!c.moves) continue;
      std::set<ValueId> bits;
      for (NodeId id : c.nodes)
        for (ValueId v : graph_.node(id).operands)
          if (is_bits(v) && dims(v) == c.dims) bits.insert(v);
      c.bits.assign(bits.begin(), bits.end());
    }
  }
  // If other work needs the value whole, or in another memory, tiles gain nothing.
  bool is_read_in_tiles(ValueId v) const {
    if (returned_[v.index()]) return false;
    return std::all_of(users_.of(v).begin(), users_.of(v).end(), [&](const Use& use) {
      const Node& reader = graph_.node(use.node);
      const bool moves = moves_off_device(graph_, reader) || is_fetch(graph_, reader.first_result);
      return is_tileable(reader) || first_reduced_axis(reader) > 0 ||
             (moves && is_read_in_tiles(reader.first_result));
    });
  }
  int cluster_of(NodeId n) const { return n.valid() ? cluster_[n.index()] : -1; }
  int cluster_of(ValueId v) const { return cluster_of(graph_.value(v).node); }
  TileCluster& cluster(int c) { return clusters_[static_cast<size_t>(c)]; }

  // True for elementwise work that can be done on a tile, given the tiles of its operands.
  bool is_tileable(const Node& node) const {
    if (op_class(node.op) != OpClass::kElementwise || !is_big(node.first_result)) return false;
    return std::none_of(node.operands.begin(), node.operands.end(), [&](ValueId v) {
      return !graph_.is_input(v) && graph_.def(v).op == OpKind::kIota;
    });
  }

  // Returns the most leading axes that a node over row values of a cluster allows to cut. Such a
  // node is work on one value per row, or a broadcast of such values along the rows. 0 for any
  // other node.
  int row_work_axes(const Node& node, const Dims& of) const {
    if (node.n_results != 1) return 0;
    const OpClass kind = op_class(node.op);
    const Dims& made = dims(node.first_result);
    const int rows = row_axes(node.op == OpKind::kBroadcast ? dims(node.operands[0]) : made, of);
    if (kind == OpClass::kElementwise)
      return std::any_of(node.operands.begin(), node.operands.end(),
                         [&](ValueId v) {
                           return !graph_.is_input(v) && graph_.def(v).op == OpKind::kIota;
                         })
                 ? 0
                 : rows;
    if (moves_off_device(graph_, node)) return rows;
    if (node.op == OpKind::kReshape) return row_axes(dims(node.operands[0]), of) == rows ? rows : 0;
    // A value with two readers might be needed whole by one of them.
    if (node.op != OpKind::kBroadcast || (made != of && row_axes(made, of) != rows) ||
        users_.of(node.first_result).size() != 1)
      return 0;
    const Dims& axes = node.as<BroadcastParams>().axes;
    for (int i = 0; i < rows; ++i)
      if (axes[static_cast<size_t>(i)] != i) return 0;
    return rows;
  }
  // True if that leaves as many axes to cut, or all but the last.
  bool is_row_work(const Node& node, int c) {
    const int rows = row_work_axes(node, cluster(c).dims);
    return rows > 0 && rows >= std::min(cluster(c).n_axes,
                                        static_cast<int>(cluster(c).dims.size()) - 1);
  }

  void place(NodeId id) {
    const Node& node = graph_.node(id);
    bool fetches = false, on_rows = false;
    std::vector<int> candidates;
    for (ValueId v : node.operands) {
      if (const NodeId maker = graph_.value(v).node; maker.valid() && below_[maker.index()])
        below_[id.index()] = true;
      fetches |= is_source(v) && is_big(v);
      for (ValueId read : {v, round_trip_source(graph_, v)}) {
        const int c = read.valid() ? cluster_of(read) : -1;
        if (c < 0) continue;
        const bool of_row = dims(v) != cluster(c).dims && is_row_work(node, c);
        on_rows |= of_row;
        if ((of_row || dims(v) == cluster(c).dims) &&
            std::find(candidates.begin(), candidates.end(), c) == candidates.end())
          candidates.push_back(c);
      }
    }
    const bool elementwise = is_tileable(node);
    const int reduced = first_reduced_axis(node);
    const bool follows = moves_off_device(graph_, node) || is_mark(node);
    if (!elementwise && reduced == 0 && !follows && !on_rows) return;
    int home = -1;
    for (int c : candidates)
      if (home < 0) {
        if (can_join(node, c)) join(id, home = c);
      } else if (can_merge(c, home)) {
        merge(c, home);
      }
    if (home < 0 && fetches && !follows && (elementwise || reduced > 0))
      begin(id, dims(node.operands[0]));
  }

  void begin(NodeId id, const Dims& dims) {
    clusters_.push_back({{}, dims, static_cast<int>(dims.size())});
    join(id, static_cast<int>(clusters_.size()) - 1);
  }
  void join(NodeId id, int c) {
    TileCluster& home = cluster(c);
    home.nodes.push_back(id);
    if (const int axes = first_reduced_axis(graph_.node(id)); axes > 0)
      home.n_axes = std::min(home.n_axes, axes);
    if (const int axes = row_work_axes(graph_.node(id), home.dims); axes > 0)
      home.n_axes = std::min(home.n_axes, axes);
    for (ValueId v : graph_.node(id).operands)
      for (ValueId read : {v, round_trip_source(graph_, v)})
        if (is_made_in_tiles(read)) home.n_axes = 1;
    cluster_[id.index()] = c;
    below_[id.index()] = true;
  }
  void merge(int from, int into) {
    for (NodeId id : cluster(from).nodes) cluster_[id.index()] = into;
    TileCluster& home = cluster(into);
    home.nodes.insert(home.nodes.end(), cluster(from).nodes.begin(), cluster(from).nodes.end());
    home.n_axes = std::min(home.n_axes, cluster(from).n_axes);
    cluster(from) = {};
  }

  // Pushes the nodes that must run before `node` if it is a member of one of these clusters.
  void push_makers(const Node& node, std::initializer_list<int> clusters,
                   std::vector<NodeId>& stack) const {
    for (ValueId v : node.operands) {
      const ValueId back = round_trip_source(graph_, v);
      const auto inside = [&](ValueId x) {
        return std::find(clusters.begin(), clusters.end(), cluster_of(x)) != clusters.end();
      };
      if (graph_.is_input(v) || inside(v) || (back.valid() && inside(back))) continue;
      stack.push_back(graph_.value(v).node);
    }
  }

  // True if cluster c must run before one of these nodes, with each cluster taken as one node.
  bool reaches(std::vector<NodeId> stack, int c) {
    ++stamp_;
    std::set<int> seen_clusters;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (!below_[id.index()] || seen_[id.index()] == stamp_) continue;
      seen_[id.index()] = stamp_;
      const int at = cluster_of(id);
      if (at == c) return true;
      if (at < 0)
        push_makers(graph_.node(id), {}, stack);
      else if (seen_clusters.insert(at).second)
        for (NodeId member : cluster(at).nodes) push_makers(graph_.node(member), {at}, stack);
    }
    return false;
  }

  bool can_join(const Node& node, int c) {
    std::vector<NodeId> stack;
    push_makers(node, {c}, stack);
    return !reaches(std::move(stack), c);
  }
  bool can_merge(int a, int b) {
    if (cluster(a).dims != cluster(b).dims) return false;
    for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
      std::vector<NodeId> stack;
      for (NodeId member : cluster(from).nodes) push_makers(graph_.node(member), {a, b}, stack);
      if (reaches(std::move(stack), to)) return false;
    }
    return true;
  }

  // True for a move of equal elements, such as zeros, to another memory: one tile is moved as often
  // as there are tiles.
  bool is_uniform_store(const Node& node) const {
    return moves_off_device(graph_, node) && uniform_source(graph_, node.operands[0]).valid();
  }

  // Begins a cluster at a value that is computed only to be moved to another memory.
  void begin_at_store(NodeId id) {
    const Node& node = graph_.node(id);
    if (!moves_off_device(graph_, node) || cluster_of(id) >= 0) return;
    const ValueId v = node.operands[0];
    if (is_uniform_store(node) && is_big(v)) return begin(id, dims(v));
    if (graph_.is_input(v) || cluster_of(v) >= 0 || returned_[v.index()] ||
        users_.of(v).size() != 1 || !is_tileable(graph_.def(v)))
      return;
    begin(graph_.value(v).node, dims(v));
    join(id, cluster_of(v));
    if (with_stores_) merge_into_reader(node.first_result);
  }
  // Merges the cluster of a stored value into the cluster that fetches it.
  void merge_into_reader(ValueId stored) {
    // The readers were examined before the value belonged to a cluster.
    for (size_t n = graph_.value(stored).node.index(); n < graph_.n_nodes(); ++n)
      for (ValueId v : graph_.node(NodeId(n)).operands)
        if (!graph_.is_input(v) && below_[graph_.value(v).node.index()]) below_[n] = true;
    for (const Use& fetch : users_.of(stored)) {
      const ValueId back = graph_.node(fetch.node).first_result;
      if (!is_fetch(graph_, back) || users_.of(back).empty()) continue;
      const int reader = cluster_of(users_.of(back).front().node), own = cluster_of(stored);
      if (reader >= 0 && reader != own && can_merge(own, reader)) merge(own, reader);
    }
  }

  // Returns the whole device arrays that a node reads.
  std::set<ValueId> whole_operands(const Node& node, int c) const {
    std::set<ValueId> whole;
    for (ValueId v : node.operands)
      if (cluster_of(v) != c && !is_source(v) && !uniform_source(graph_, v).valid())
        whole.insert(v);
    return whole;
  }

  // Adds work that only one cluster reads to that cluster, unless more arrays would then have to
  // wait for the cluster.
  void absorb(NodeId id) {
    const Node& node = graph_.node(id);
    const bool may_be_of_rows = node.op == OpKind::kBroadcast || node.op == OpKind::kReshape ||
                                op_class(node.op) == OpClass::kElementwise;
    if (cluster_of(id) >= 0 || (!may_be_of_rows && !is_mark(node))) return;
    const ValueId v = node.first_result;
    if (returned_[v.index()] || users_.of(v).empty() || uniform_source(graph_, v).valid()) return;
    const int c = cluster_of(users_.of(v).front().node);
    if (c < 0) return;
    const bool whole = dims(v) == cluster(c).dims && (is_tileable(node) || is_mark(node));
    if (!whole && !is_row_work(node, c)) return;
    for (const Use& use : users_.of(v))
      if (cluster_of(use.node) != c) return;
    std::set<ValueId> read_already;
    for (NodeId member : cluster(c).nodes)
      read_already.merge(whole_operands(graph_.node(member), c));
    size_t more = 0;
    for (ValueId operand : whole_operands(node, c)) more += read_already.count(operand) == 0;
    if (more <= 1) join(id, c);
  }

  bool computes(const TileCluster& c) const {
    return std::any_of(c.nodes.begin(), c.nodes.end(), [&](NodeId id) {
      const Node& node = graph_.node(id);
      const OpClass kind = op_class(node.op);
      return kind == OpClass::kElementwise || kind == OpClass::kReduce || is_uniform_store(node);
    });
  }
  bool moves(const TileCluster& c) const {
    return std::any_of(c.nodes.begin(), c.nodes.end(), [&](NodeId id) {
      const Node& node = graph_.node(id);
      return node.op == OpKind::kDevicePut ||
             std::any_of(node.operands.begin(), node.operands.end(),
                         [&](ValueId v) { return is_fetch(graph_, v); });
    });
  }

  const Graph& graph_;
  const int64_t tile_bytes_;
  const bool with_stores_;
  const Users users_;
  std::vector<TileCluster> clusters_;  // those merged away are empty
  std::vector<int> cluster_;           // of each node, or -1
  std::vector<bool> below_;            // a node that is of a cluster or depends on one
  std::vector<int> seen_;
  int stamp_ = 0;
  std::vector<bool> returned_;
};

}  // namespace

bool is_sum_of_rows(const Graph& graph, ValueId v) {
  if (graph.is_input(v) || graph.def(v).op != OpKind::kScatterAdd) return false;
  const Node& node = graph.def(v);
  const ValueId onto = uniform_source(graph, node.operands[0]);
  if (!onto.valid() || graph.is_input(onto) || !is_splat_constant(graph.def(onto)) ||
      2 * graph.type(node.operands[2]).elems() > graph.type(v).elems())
    return false;
  return takes_whole_rows(node.as<GatherParams>(), graph.type(v).shape);
}

bool takes_whole_rows(const GatherParams& p, const Shape& shape) {
  return p.start_index_map == Dims{0} && p.batch_axes.empty() && p.slice_sizes[0] == 1 &&
         std::equal(shape.begin() + 1, shape.end(), p.slice_sizes.begin() + 1);
}

int first_reduced_axis(const Node& node) {
  if (op_class(node.op) != OpClass::kReduce) return 0;
  const Dims& axes = node.as<AxesParams>().axes;
  return axes.empty() ? 0 : static_cast<int>(*std::min_element(axes.begin(), axes.end()));
}

int row_axes(const Dims& shape, const Dims& dims) {
  size_t n = 0;
  while (n < shape.size() && n < dims.size() && shape[n] == dims[n]) ++n;
  const bool others = std::any_of(shape.begin() + static_cast<int64_t>(n), shape.end(),
                                  [](int64_t d) { return d != 1; });
  return n == dims.size() || others || shape.size() > dims.size() ? 0 : static_cast<int>(n);
}

bool is_fetch(const Graph& graph, ValueId v) {
  if (graph.is_input(v) || graph.def(v).op != OpKind::kDevicePut) return false;
  return graph.type(v).kind == MemoryKind::kDevice &&
         graph.type(graph.def(v).operands[0]).kind != MemoryKind::kDevice;
}

ValueId round_trip_source(const Graph& graph, ValueId v) {
  if (!is_fetch(graph, v)) return ValueId();
  const ValueId there = graph.def(v).operands[0];
  const bool moved = !graph.is_input(there) && moves_off_device(graph, graph.def(there));
  return moved ? graph.def(there).operands[0] : ValueId();
}

ValueId uniform_source(const Graph& graph, ValueId v) {
  ValueId at = v;
  while (true) {
    if (graph.is_input(at))
      return graph.type(at).elems() == 1 && at != v ? at : ValueId();
    const Node& node = graph.def(at);
    if (is_splat_constant(node)) return at;
    const bool passes =
        node.op == OpKind::kBroadcast || node.op == OpKind::kReshape || is_mark(node);
    if (!passes) return graph.type(at).elems() == 1 && at != v ? at : ValueId();
    at = node.operands[0];
  }
}

bool is_uniform_constant(const Graph& graph, ValueId v) {
  const ValueId source = uniform_source(graph, v);
  return source.valid() && !graph.is_input(source) && graph.def(source).op == OpKind::kConstant;
}

Val uniform_constant(GraphBuilder& b, const Graph& graph, ValueId v, const Shape& shape) {
  ConstantParams constant = graph.def(uniform_source(graph, v)).as<ConstantParams>();
  constant.type = {graph.type(v).dtype, {}};
  return broadcast_scalar(b.add1(OpKind::kConstant, std::move(constant), {}), shape);
}

std::vector<TileCluster> find_tile_clusters(const Graph& graph, int64_t tile_bytes,
                                            bool with_stores) {
  return Finder(graph, tile_bytes, with_stores).run();
}

}  // namespace stow
