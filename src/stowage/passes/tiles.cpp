#include "stowage/passes/tiles.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>

#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "stowage/passes/merge_independent_scans.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/tile_clusters.h"

namespace stow {
namespace {

// An array of more than kManyTiles tiles gets larger ones, of up to kLargestTile times the
// requested bytes.
constexpr int64_t kManyTiles = 64, kLargestTile = 4;
// Sums of rows read all rows once per tile, so smaller tiles are not used.
constexpr int64_t kSmallestTile = 32 << 10;

// The cut of a cluster: the first `n_axes` axes count as one, of n_tiles * rows + rest rows.
struct Tiling {
  int n_axes = 1;
  int64_t rows = 1, n_tiles = 1, rest = 0;
};

struct Cluster : TileCluster {
  Tiling tiling;
  /// A value of the device that members read moved away and back: they read the original instead.
  ValueId direct;
};

int64_t product(const Dims& dims, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t i = begin; i < end; ++i) n *= dims[i];
  return n;
}

// Returns the largest divisor of n up to `most`.
int64_t divisor_up_to(int64_t n, int64_t most) {
  for (int64_t d = std::min(n, most); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

// True if a value's rows are adjacent in memory, so that leading axes can be taken as one.
bool rows_follow(const Graph& graph, ValueId v) {
  while (!graph.is_input(v) && op_class(graph.def(v).op) == OpClass::kView) {
    const Node& node = graph.def(v);
    if (node.op != OpKind::kReshape && node.op != OpKind::kSlice) return false;
    if (node.op == OpKind::kSlice) {
      const auto& p = node.as<SliceParams>();
      const Dims& dims = graph.type(node.operands[0]).shape.dims();
      for (size_t i = 0; i < dims.size(); ++i)
        if (p.stride[i] != 1 || (i > 0 && (p.start[i] != 0 || p.limit[i] != dims[i]))) return false;
    }
    v = node.operands[0];
  }
  return true;
}

class Streamer {
 public:
  Streamer(const Graph& from, const TileOptions& options)
      : from_(from), options_(options), users_(from), builder_(to_), map_(from) {
    returned_.resize(from.n_values());
    for (ValueId v : from.outputs()) returned_[v.index()] = true;
  }

  // Clusters that are independent of this scan are cut into as many tiles as it has iterations.
  void match_scan(NodeId scan) {
    scan_length_ = from_.node(scan).as<ScanParams>().length;
    may_merge_ = independent_of(from_, {scan});
  }

  Graph run() {
    std::vector<TileCluster> all = find_tile_clusters(from_, options_.bytes, scan_length_ > 0);
    for (const TileCluster& found : all) members_.insert(found.nodes.begin(), found.nodes.end());
    const std::vector<bool> whole = left_whole(all);
    for (size_t i = 0; i < all.size(); ++i) {
      Cluster c{std::move(all[i]), {}, {}};
      if (const std::optional<Tiling> tiling = tiling_of_scan(c)) {
        c.tiling = *tiling;
        clusters_.push_back(std::move(c));
        continue;
      }
      if (whole[i]) continue;
      c.direct = choose_direct(c);
      std::optional<Tiling> tiling = choose_tiling(c);
      if (!tiling && c.moves && !c.sums.empty()) {
        c.sums.clear();  // made whole
        tiling = choose_tiling(c);
      }
      if (!tiling) continue;
      c.tiling = *tiling;
      clusters_.push_back(std::move(c));
    }
    if (clusters_.empty()) return from_;
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    emit_all();
    to_.set_outputs(map_.images(from_.outputs()));
    return remove_dead_code(to_);
  }

 private:
  // ---- where to cut ----

  // Marks the clusters that stay whole under TileOptions.
  std::vector<bool> left_whole(const std::vector<TileCluster>& all) const {
    std::vector<bool> whole(all.size(), false);
    std::set<ValueId> fetched;  // by those
    const auto leave = [&](size_t i) {
      whole[i] = true;
      for (NodeId id : all[i].nodes)
        for (ValueId v : from_.node(id).operands)
          if (is_fetch(from_, v)) fetched.insert(v);
    };
    const auto may_be_left = [&](const TileCluster& c) {
      return product(c.dims, 0, c.dims.size()) * dtype_bytes(DType::kF32) <= options_.whole_bytes &&
             c.sums.empty() && c.bits.empty() &&
             std::none_of(c.nodes.begin(), c.nodes.end(),
                          [&](NodeId id) { return from_.node(id).op == OpKind::kDevicePut; });
    };
    for (size_t i = 0; i < all.size(); ++i) {
      if (!may_be_left(all[i])) continue;
      const std::vector<ValueId> results = results_of(all[i]);
      if (std::any_of(results.begin(), results.end(),
                      [&](ValueId v) { return from_.type(v).shape.dims() == all[i].dims; }))
        leave(i);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (whole[i] || !may_be_left(all[i])) continue;
      for (NodeId id : all[i].nodes)
        for (ValueId v : from_.node(id).operands)
          if (fetched.contains(v)) whole[i] = true;
    }
    return whole;
  }

  // Returns the value that a member reads for operand v: its original before a round trip through
  // another memory, if that is at hand.
  ValueId read_by(const Cluster& c, ValueId v) const {
    const ValueId back = round_trip_source(from_, v);
    return back.valid() && (back == c.direct || is_member(c, back) || is_made(c, back)) ? back : v;
  }

  // A round trip through another memory is unnecessary if the value is whole on the device and is
  // the last one for which the cluster waits, such as a gradient that is added to another one
  // elsewhere.
  ValueId choose_direct(const Cluster& c) const {
    ValueId last;
    const auto maker = [&](ValueId v) { return from_.value(v).node; };
    for (NodeId id : c.nodes)
      for (ValueId v : from_.node(id).operands) {
        const ValueId back = round_trip_source(from_, v);
        if (!back.valid() || from_.is_input(back) || members_.contains(maker(back))) continue;
        if (!last.valid() || maker(last) < maker(back)) last = back;
      }
    if (!last.valid()) return last;
    for (NodeId id : c.nodes)
      for (ValueId v : from_.node(id).operands) {
        const ValueId back = round_trip_source(from_, v);
        if (is_member(c, v) || back == last || (back.valid() && is_member(c, back))) continue;
        const ValueId uniform = uniform_source(from_, v);
        const ValueId source = uniform.valid()       ? uniform
                               : is_fetch(from_, v) ? from_.def(v).operands[0]
                                                    : v;
        const bool made = !from_.is_input(source) && from_.def(source).op != OpKind::kConstant;
        if (made && maker(last) < maker(source)) return ValueId();
      }
    return last;
  }

  // Returns the whole arrays that members read and that are cut, in order, each once.
  std::vector<ValueId> cut_values(const Cluster& c) const {
    std::vector<ValueId> values;
    for (NodeId id : c.nodes)
      for (ValueId operand : from_.node(id).operands) {
        const ValueId v = read_by(c, operand);
        if (is_member(c, v) || uniform_source(from_, v).valid() || is_made(c, v)) continue;
        const ValueId source = is_fetch(from_, v) ? from_.def(v).operands[0] : v;
        if (std::find(values.begin(), values.end(), source) == values.end())
          values.push_back(source);
      }
    return values;
  }
  // True for values made tile by tile: sums of rows, which members read directly or after a round
  // trip, and random bits.
  static bool is_made(const Cluster& c, ValueId v) {
    return std::find(c.sums.begin(), c.sums.end(), v) != c.sums.end() ||
           std::find(c.bits.begin(), c.bits.end(), v) != c.bits.end();
  }
  bool is_member(const TileCluster& c, ValueId v) const {
    const NodeId maker = from_.value(v).node;
    return maker.valid() && std::binary_search(c.nodes.begin(), c.nodes.end(), maker);
  }

  // Returns how many leading axes can be cut as one.
  int most_axes(const Cluster& c, const std::vector<ValueId>& cut) const {
    const bool flat =
        std::all_of(cut.begin(), cut.end(), [&](ValueId v) { return rows_follow(from_, v); });
    return flat ? c.n_axes : 1;
  }

  std::optional<Tiling> choose_tiling(const Cluster& c) const {
    int64_t width = 1;
    const std::vector<ValueId> cut = cut_values(c);
    for (ValueId v : cut) width = std::max(width, dtype_bytes(from_.type(v).dtype));
    for (NodeId id : c.nodes)
      width = std::max(width, dtype_bytes(from_.type(from_.node(id).first_result).dtype));
    const int64_t whole_bytes = product(c.dims, 0, c.dims.size()) * width;
    const int64_t target = std::max<int64_t>(1, tile_of(whole_bytes) / width);
    const std::optional<Tiling> tiling = tiling_near(c, target, most_axes(c, cut));
    if (!tiling || tiling->n_tiles < 2) return std::nullopt;
    const auto axes = static_cast<size_t>(tiling->n_axes);
    const int64_t tile_bytes = tiling->rows * product(c.dims, axes, c.dims.size()) * width;
    if (!c.sums.empty() && tile_bytes < kSmallestTile) return std::nullopt;
    return tiling;
  }
  // Returns a tiling whose tiles have about `target` elements.
  static std::optional<Tiling> tiling_near(const Cluster& c, int64_t target, int most) {
    // The first cut with tiles near the target; else one of smaller tiles, or an uneven one.
    for (int n = 1; n <= most; ++n) {
      const auto axes = static_cast<size_t>(n);
      const int64_t all = product(c.dims, 0, axes), row = product(c.dims, axes, c.dims.size());
      if (row > target) continue;
      const int64_t rows = divisor_up_to(all, target / row);
      if (4 * rows * row >= target) return Tiling{n, rows, all / rows, 0};
    }
    for (int n = 1; n <= most; ++n) {
      const auto axes = static_cast<size_t>(n);
      const int64_t all = product(c.dims, 0, axes), row = product(c.dims, axes, c.dims.size());
      if (row > target && n < most) continue;
      const int64_t rows = std::clamp<int64_t>(target / row, 1, all);
      return Tiling{n, rows, all / rows, all % rows};
    }
    return std::nullopt;
  }
  // Returns one tile for each iteration of the scan of match_scan(); none if the cluster cannot be
  // merged.
  std::optional<Tiling> tiling_of_scan(const Cluster& c) const {
    const bool can = scan_length_ > 1 && c.moves && c.sums.empty() &&
                     std::all_of(c.nodes.begin(), c.nodes.end(),
                                 [&](NodeId id) { return may_merge_[id.index()]; });
    if (!can) return std::nullopt;
    for (int n = 1, most = most_axes(c, cut_values(c)); n <= most; ++n)
      if (const int64_t all = product(c.dims, 0, static_cast<size_t>(n)); all % scan_length_ == 0)
        return Tiling{n, all / scan_length_, scan_length_, 0};
    return std::nullopt;
  }
  // Many small tiles wait longer for the latency of moves than for the bytes.
  int64_t tile_of(int64_t whole_bytes) const {
    return std::clamp(whole_bytes / kManyTiles, options_.bytes, kLargestTile * options_.bytes);
  }

  // ---- an order in which each cluster is one node ----

  void emit_all() {
    const size_t n = from_.n_nodes();
    std::vector<int> cluster(n, -1);
    for (size_t c = 0; c < clusters_.size(); ++c)
      for (NodeId id : clusters_[c].nodes) cluster[id.index()] = static_cast<int>(c);
    // Items: nodes, then clusters. An item stands where its last node stood.
    const auto item_of = [&](NodeId id) {
      const int c = cluster[id.index()];
      return c < 0 ? id.index() : n + static_cast<size_t>(c);
    };
    std::vector<std::vector<size_t>> readers(n + clusters_.size());
    std::vector<int> waiting(readers.size(), 0);
    std::vector<size_t> place(readers.size());
    for (size_t i = 0; i < n; ++i) {
      const size_t item = item_of(NodeId(i));
      place[item] = i;
      std::set<size_t> makers;
      for (ValueId operand : from_.nodes()[i].operands) {
        const ValueId v = item < n ? operand : read_by(clusters_[item - n], operand);
        if (const NodeId maker = from_.value(v).node; maker.valid() && item_of(maker) != item)
          makers.insert(item_of(maker));
      }
      for (size_t maker : makers) {
        readers[maker].push_back(item);
        ++waiting[item];
      }
    }
    const auto later = [&](size_t a, size_t b) { return place[a] > place[b]; };
    std::priority_queue<size_t, std::vector<size_t>, decltype(later)> ready(later);
    for (size_t i = 0; i < n; ++i)
      if (const size_t item = item_of(NodeId(i)); place[item] == i && waiting[item] == 0)
        ready.push(item);
    size_t done = 0;
    while (!ready.empty()) {
      const size_t item = ready.top();
      ready.pop();
      if (item < n)
        copy_node(from_, from_.nodes()[item], to_, map_, regions_);
      else
        emit_cluster(item - n);
      done += item < n ? 1 : clusters_[item - n].nodes.size();
      for (size_t reader : readers[item])
        if (--waiting[reader] == 0) ready.push(reader);
    }
    STOW_CHECK(done == n, "clusters of tiles depend on each other in a circle");
  }

  // ---- one cluster as scans ----

  // Returns values of members that other nodes read.
  std::vector<ValueId> results_of(const TileCluster& c) const {
    std::vector<ValueId> results;
    for (NodeId id : c.nodes)
      for (int i = 0; i < from_.node(id).n_results; ++i) {
        const ValueId v = from_.node(id).result(i);
        const auto is_outside = [&](const Use& use) {
          return !std::binary_search(c.nodes.begin(), c.nodes.end(), use.node);
        };
        const std::span<const Use> uses = users_.of(v);
        if (returned_[v.index()] || std::any_of(uses.begin(), uses.end(), is_outside))
          results.push_back(v);
      }
    std::sort(results.begin(), results.end());
    return results;
  }

  void emit_cluster(size_t at) {
    const Cluster& c = clusters_[at];
    const Tiling& tiling = c.tiling;
    const std::vector<ValueId> results = results_of(c);
    if (results.empty()) {  // nothing reads it; dead code has been removed, so this is no loss
      for (NodeId id : c.nodes) copy_node(from_, from_.node(id), to_, map_, regions_);
      return;
    }
    const Node& last = from_.node(c.nodes.back());
    builder_.provenance = last.provenance;
    builder_.pass = Pass::kTiles;
    builder_.backward = last.backward;
    std::vector<Val> whole = scan_rows(c, 0, tiling.n_tiles, tiling.rows, results);
    if (tiling.rest == 0) {
      for (size_t j = 0; j < results.size(); ++j) {
        const Val full = reshape(whole[j], from_.type(results[j]).shape);
        stacks_.emplace(full.id(), whole[j].id());
        map_.set(results[j], full.id());
      }
      return;
    }
    const int64_t even = tiling.n_tiles * tiling.rows;
    const std::vector<Val> rest = scan_rows(c, even, 1, tiling.rest, results);
    for (size_t j = 0; j < results.size(); ++j) {
      const std::vector<Val> parts = {as_rows(whole[j]), as_rows(rest[j])};
      map_.set(results[j], reshape(concatenate(parts, 0), from_.type(results[j]).shape).id());
    }
  }

  // Returns [tiles, rows, …] as [tiles * rows, …].
  static Val as_rows(const Val& stack) {
    Dims dims(stack.shape().begin() + 1, stack.shape().end());
    dims[0] *= stack.shape()[0];
    return reshape(stack, Shape(std::move(dims)));
  }

  // Returns rows [first, first + n_tiles * rows) of a value as [n_tiles, rows, …].
  Val cut(const Val& v, const Tiling& tiling, int64_t first, int64_t n_tiles, int64_t rows) {
    const Dims& dims = v.shape().dims();
    const auto n = static_cast<size_t>(tiling.n_axes);
    Dims tiles(dims.begin() + tiling.n_axes, dims.end());
    tiles.insert(tiles.begin(), {n_tiles, rows});
    if (const auto stack = stacks_.find(v.id()); stack != stacks_.end())
      if (const Val known(builder_, stack->second); known.shape().dims() == tiles) return known;
    Dims flat(tiles.begin() + 1, tiles.end());
    flat[0] = product(dims, 0, n);
    const Val part = slice_axis(reshape(v, Shape(flat)), 0, first, first + n_tiles * rows);
    return reshape(part, Shape(tiles));
  }

  // Returns the shape of a tile of `rows` rows of an array with these dims.
  static Shape tile_shape(const Cluster& c, const Dims& dims, int64_t rows) {
    Dims tile(dims.begin() + c.tiling.n_axes, dims.end());
    tile.insert(tile.begin(), rows);
    return Shape(std::move(tile));
  }

  // Returns the stacked results of the cluster over some of its rows.
  std::vector<Val> scan_rows(const Cluster& c, int64_t first, int64_t n_tiles,
                             int64_t rows, const std::vector<ValueId>& results) {
    auto body = std::make_shared<Graph>();
    GraphBuilder b(*body);
    const Tiling& tiling = c.tiling;
    const Shape tile = tile_shape(c, c.dims, rows);
    std::vector<Val> operands;
    std::map<ValueId, Val> inner;
    // Scalars are the scan's constants; they come before what is cut.
    for (NodeId id : c.nodes)
      for (ValueId operand : from_.node(id).operands) {
        const ValueId v = read_by(c, operand);
        const ValueId source = is_member(c, v) ? ValueId() : uniform_source(from_, v);
        if (!source.valid() || inner.contains(v)) continue;
        inner.emplace(v, uniform(b, source, tile_shape(c, from_.type(v).shape.dims(), rows),
                                 operands, inner));
      }
    // Summed rows and keys are constants too; a tile's place tells which part of them it takes.
    std::map<ValueId, std::vector<Val>> made_of;
    const auto make_of = [&](ValueId made, std::initializer_list<ValueId> from) {
      for (ValueId v : from) {
        operands.push_back(Val(builder_, map_[v]));
        made_of[made].push_back(Val(b, body->add_input(operands.back().type())));
      }
    };
    for (ValueId sum : c.sums)
      make_of(sum, {from_.def(sum).operands[1], from_.def(sum).operands[2]});
    for (ValueId bits : c.bits) make_of(bits, {from_.def(bits).operands[0]});
    ScanParams params;
    params.length = n_tiles;
    params.n_consts = static_cast<int>(operands.size());
    for (ValueId v : cut_values(c)) {
      operands.push_back(cut(Val(builder_, map_[v]), tiling, first, n_tiles, rows));
      ArrayType type = operands.back().type();
      type.shape = Shape(Dims(type.shape.begin() + 1, type.shape.end()));
      inner.emplace(v, Val(b, body->add_input(type)));
      params.in_axes.push_back(0);
    }
    if (!made_of.empty()) {
      const ArrayType places{DType::kI64, Shape{n_tiles}};
      operands.push_back(iota(builder_, places, 0) * full(builder_, places, rows) +
                         full(builder_, places, first));
      params.in_axes.push_back(0);
      const Val place(b, body->add_input(ArrayType{DType::kI64, {}}));
      for (const auto& [made, of] : made_of) {
        const Node& node = from_.def(made);
        b.provenance = node.provenance;
        b.backward = node.backward;
        inner.emplace(made, node.op == OpKind::kRandomBits
                                ? part_of_bits(of[0], place, tile)
                                : sum_of_rows(node, of[0], of[1], place, tile));
      }
    }
    for (NodeId id : c.nodes) add_member(b, c, from_.node(id), rows, inner);
    std::vector<ValueId> outputs;
    for (ValueId v : results) outputs.push_back(inner.at(v).id());
    params.out_axes.assign(results.size(), 0);
    body->set_outputs(std::move(outputs));
    return builder_.add(OpKind::kScan, params, operands, {body});
  }

  // Returns the tile of a sum of rows that begins at `place`: rows of other tiles are out of range.
  Val sum_of_rows(const Node& node, const Val& indices, const Val& updates, const Val& place,
                  const Shape& tile) const {
    GraphBuilder& b = place.builder();
    GatherParams params = node.as<GatherParams>();
    params.slice_sizes.assign(tile.begin(), tile.end());
    params.slice_sizes[0] = 1;
    params.n_tiles = from_.type(node.operands[0]).shape[0] / tile[0];
    const Val near = convert(indices, DType::kI64) - broadcast_scalar(place, indices.shape());
    return scatter_add(uniform_constant(b, from_, node.operands[0], tile), near, updates, params);
  }

  // Returns the tile of random bits that begins with the row `place`.
  static Val part_of_bits(const Val& key, const Val& place, const Shape& tile) {
    const int64_t row = product(tile.dims(), 1, tile.dims().size());
    return random_bits(key, place * full(place.builder(), place.type(), static_cast<double>(row)),
                       tile);
  }

  // Returns a tile of a value whose elements are all equal.
  Val uniform(GraphBuilder& b, ValueId source, const Shape& tile, std::vector<Val>& operands,
              std::map<ValueId, Val>& scalars) {
    if (is_uniform_constant(from_, source)) return uniform_constant(b, from_, source, tile);
    auto known = scalars.find(source);
    if (known == scalars.end()) {
      operands.push_back(reshape(Val(builder_, map_[source]), {}));
      known = scalars.emplace(source, Val(b, b.graph().add_input(operands.back().type()))).first;
    }
    return broadcast_scalar(known->second, tile);
  }

  void add_member(GraphBuilder& b, const Cluster& c, const Node& node, int64_t rows,
                  std::map<ValueId, Val>& inner) {
    b.provenance = node.provenance;
    b.backward = node.backward;
    std::vector<Val> operands;
    for (ValueId operand : node.operands) {
      const ValueId v = read_by(c, operand);
      if (!inner.contains(v)) {
        STOW_CHECK(is_fetch(from_, v), "a tile lacks an operand");
        inner.emplace(v, device_put(inner.at(from_.def(v).operands[0]), MemoryKind::kDevice));
      }
      operands.push_back(inner.at(v));
    }
    const ValueId made = node.first_result;
    if (node.op == OpKind::kReshape || node.op == OpKind::kBroadcast) {  // of values of rows
      const Shape tile = tile_shape(c, from_.type(made).shape.dims(), rows);
      inner.emplace(made, node.op == OpKind::kReshape
                              ? reshape(operands[0], tile)
                              : broadcast(operands[0], tile, axes_in_tile(c, node)));
      return;
    }
    Params params = node.params;
    if (op_class(node.op) == OpClass::kReduce)
      for (int64_t& axis : std::get<AxesParams>(params).axes) axis += 1 - c.tiling.n_axes;
    inner.emplace(made, b.add(node.op, std::move(params), operands).front());
  }
  // Returns the axes of a broadcast of row values if the leading axes of the tile are one.
  static Dims axes_in_tile(const Cluster& c, const Node& node) {
    Dims axes = {0};
    const Dims& whole = node.as<BroadcastParams>().axes;
    for (size_t i = static_cast<size_t>(c.tiling.n_axes); i < whole.size(); ++i)
      axes.push_back(whole[i] + 1 - c.tiling.n_axes);
    return axes;
  }

  const Graph& from_;
  const TileOptions options_;
  const Users users_;
  std::vector<bool> returned_;  // by value
  Graph to_;
  GraphBuilder builder_;
  ValueMap map_;
  std::vector<RegionId> regions_;
  std::set<NodeId> members_;  // of any cluster
  std::vector<Cluster> clusters_;
  std::map<ValueId, ValueId> stacks_;  // of to_: what a scan stacked, by the whole that it makes
  int64_t scan_length_ = 0;
  std::vector<bool> may_merge_;
};

}  // namespace

Graph stream_tiles(const Graph& graph, const TileOptions& options) {
  if (options.bytes <= 0) return graph;
  Streamer streamer(graph, options);
  const NodeId scan = options.match_backward_scan ? busiest_backward_scan(graph) : NodeId();
  if (!scan.valid()) return streamer.run();
  streamer.match_scan(scan);
  return merge_independent_scans(streamer.run());
}

}  // namespace stow
