#include "stowage/passes/rematerialize.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "stowage/ir/op_list.h"
#include "stowage/ir/utilities.h"
#include "stowage/passes/min_cut.h"

namespace stow {
namespace {

// Most ops in a chain that is recomputed again instead of being held.
constexpr int kShortChain = 8;
// Most ops in a chain that is recomputed a second time if nothing else helps.
constexpr int kLongChain = 1024;
// Number of nodes with kernels of their own, such as products, within which a layer needs a value
// again.
constexpr int kNearHeavyNodes = 4;

// The memory that a value of the graph stands for.
enum class Role : uint8_t {
  kOther,     // there anyway, or not looked at
  kResidual,  // of the forward part
  kAlias,     // the memory of its operand
  kLeaf,      // a constant or an iota, at no bytes
  kCheap,     // recomputed by one elementwise op
  kSolid      // recomputed by anything else: once
};

class Facts {
 public:
  Facts(const Graph& graph, const Recomputation& recomputation)
      : graph_(graph),
        clone_(recomputation.clone),
        original_(recomputation.original),
        kept_(graph.n_values()) {
    base_.reserve(graph.n_values());
    for (size_t v = 0; v < graph.n_values(); ++v) base_.push_back(find_base(ValueId(v)));
    is_output_.resize(graph.n_values());
    for (ValueId v : graph.outputs()) is_output_[base(v).index()] = true;
    role_.reserve(graph.n_values());
    for (size_t v = 0; v < graph.n_values(); ++v) role_.push_back(find_role(ValueId(v)));
  }

  const Graph& graph() const { return graph_; }
  bool is_clone(size_t node) const { return clone_[node]; }
  // Returns the value in whose memory `v` lies.
  ValueId base(ValueId v) const {
    const ValueId b = base_[v.index()];
    return is_kept(b) ? base_[original(b).index()] : b;
  }
  Role role(ValueId v) const { return role_[v.index()]; }
  bool is_recomputed(ValueId v) const { return role(v) == Role::kCheap || role(v) == Role::kSolid; }
  ValueId original(ValueId v) const { return original_[v.index()]; }
  size_t node_of(ValueId v) const { return graph_.value(v).node.index(); }
  int64_t bytes(ValueId v) const {
    const ArrayType& type = graph_.type(v);
    return type.kind == MemoryKind::kDevice ? type.bytes() : 0;
  }
  // Stops recomputing `v`: its readers read the original.
  void keep_original(ValueId v) { kept_[v.index()] = true; }
  bool is_kept(ValueId v) const { return kept_[v.index()]; }

 private:
  ValueId find_base(ValueId v) const {
    if (graph_.is_input(v)) return v;
    const Node& node = graph_.def(v);
    const OpClass c = op_class(node.op);
    const bool alias = (c == OpClass::kIdentity || c == OpClass::kView) &&
                       node.operands.size() == 1 && node.n_results == 1;
    return alias ? base_[node.operands[0].index()] : v;  // operands come first
  }
  Role find_role(ValueId v) const {
    if (graph_.is_input(v)) return Role::kOther;
    if (base(v) != v) return Role::kAlias;
    const Node& node = graph_.def(v);
    const OpClass c = op_class(node.op);
    if (c == OpClass::kLeaf) return Role::kLeaf;
    if (is_clone(node_of(v)))
      return c == OpClass::kElementwise && node.n_results == 1 ? Role::kCheap : Role::kSolid;
    if (node.backward || is_output_[v.index()]) return Role::kOther;
    // The body of a scan makes its stacks.
    if (node.op == OpKind::kScan &&
        graph_.value(v).index >= node.n_results - node.as<ScanParams>().n_residuals)
      return Role::kOther;
    return Role::kResidual;
  }

  const Graph& graph_;
  const std::vector<bool>& clone_;
  const std::vector<ValueId>& original_;
  std::vector<ValueId> base_;
  std::vector<bool> kept_, is_output_;
  std::vector<Role> role_;
};

// By node, the nodes that are recomputed before it, in order.
using Emissions = std::vector<std::vector<size_t>>;

// One walk through the graph, which makes, holds and drops recomputed values. Time is the number of
// the running node.
class Walk {
 public:
  Walk(const Facts& facts, const std::vector<bool>& spared, bool keep_all)
      : facts_(facts),
        graph_(facts.graph()),
        keep_all_(keep_all),
        needs_(graph_.n_values()),
        alive_(graph_.n_values()),
        held_(spared),
        emissions_(graph_.n_nodes() + 1) {
    collect_needs();
    prolong_spared();
    find_limit();
  }

  // Returns recomputed values whose originals are to be kept; none if the walk succeeds.
  std::vector<ValueId> run() {
    for (Time t = 0; t < graph_.n_nodes() && keep_.empty(); ++t) step(t);
    for (ValueId v : graph_.outputs())
      if (const ValueId b = facts_.base(v); facts_.is_recomputed(b) && !alive_[b.index()])
        emit(b, graph_.n_nodes());
    return keep_;
  }
  Emissions take_emissions() { return std::move(emissions_); }

 private:
  using Time = size_t;

  template <typename F>
  void for_bases(const Node& node, F f) const {
    for (ValueId v : node.operands) f(facts_.base(v));
  }
  bool is_tracked(ValueId v) const {
    return facts_.role(v) == Role::kResidual || facts_.is_recomputed(v);
  }
  const Node& def(ValueId v) const { return graph_.def(v); }

  void collect_needs() {
    const std::vector<Node>& nodes = graph_.nodes();
    for (Time t = 0; t < nodes.size(); ++t)
      if (!facts_.is_clone(t))
        for_bases(nodes[t], [&](ValueId v) {
          if (facts_.is_recomputed(v) || (facts_.role(v) == Role::kResidual && nodes[t].backward))
            needs_[v.index()].insert(t);
        });
    for (ValueId v : graph_.outputs())
      if (facts_.is_recomputed(facts_.base(v))) needs_[facts_.base(v).index()].insert(nodes.size());
    // Operands of recomputed values are needed when these are first needed.
    for (size_t n = nodes.size(); n-- > 0;) {
      if (!facts_.is_clone(n)) continue;
      std::optional<Time> first;
      for (int i = 0; i < nodes[n].n_results; ++i) {
        const ValueId v = nodes[n].result(i);
        if (!facts_.is_recomputed(v) || facts_.base(v) != v || needs_[v.index()].empty()) continue;
        const Time t = *needs_[v.index()].begin();
        first = first ? std::min(*first, t) : t;
      }
      if (first)
        for_bases(nodes[n], [&](ValueId v) {
          if (is_tracked(v)) needs_[v.index()].insert(*first);
        });
    }
  }

  // Keeps stand-ins for residuals while any value that cheap work makes of them may be needed.
  void prolong_spared() {
    std::vector<Time> last(graph_.n_values());
    for (size_t n = graph_.n_nodes(); n-- > 0;) {
      if (!facts_.is_clone(n)) continue;
      const Node& node = graph_.nodes()[n];
      for (int i = 0; i < node.n_results; ++i) {
        const ValueId v = node.result(i);
        if (!facts_.is_recomputed(v) || needs_[v.index()].empty()) continue;
        Time& own = last[v.index()];
        own = std::max(own, last_need(v));
        if (held_[v.index()]) needs_[v.index()].insert(own);
        if (facts_.role(v) == Role::kCheap && !held_[v.index()])
          for_bases(node, [&](ValueId o) { last[o.index()] = std::max(last[o.index()], own); });
      }
    }
  }

  // Finds the most bytes that residuals and their stand-ins take at a time. The work on one layer
  // may take more.
  void find_limit() {
    std::vector<int64_t> change(graph_.n_nodes() + 1);
    for (size_t i = 0; i < graph_.n_values(); ++i) {
      const ValueId v(i);
      if (needs_[i].empty() || facts_.base(v) != v) continue;
      const bool residual = facts_.role(v) == Role::kResidual;
      if (!residual && !held_[i]) continue;
      change[residual ? facts_.node_of(v) : *needs_[i].begin()] += facts_.bytes(v);
      change[*needs_[i].rbegin()] -= facts_.bytes(v);
    }
    int64_t live = 0, with_work = 0;
    for (Time t = 0; t < graph_.n_nodes(); ++t) {
      live += change[t];
      limit_ = std::max(limit_, live);
      with_work = std::max(with_work, live + work_bytes(t));
    }
    work_bytes_ = with_work - limit_;
    for (const Node& node : graph_.nodes()) {
      const OpClass c = op_class(node.op);
      heavy_before_.push_back((heavy_before_.empty() ? 0 : heavy_before_.back()) +
                              (c == OpClass::kOther || c == OpClass::kStructure));
    }
  }

  // Returns the bytes that a backward node reads and makes, without residuals.
  int64_t work_bytes(Time t) const {
    const Node& node = graph_.nodes()[t];
    if (!node.backward) return 0;
    std::set<ValueId> values;
    for_bases(node, [&](ValueId v) { values.insert(v); });
    for (int i = 0; i < node.n_results; ++i) values.insert(facts_.base(node.result(i)));
    int64_t bytes = 0;
    for (ValueId v : values)
      if (!graph_.is_input(v) && facts_.role(v) != Role::kResidual && facts_.role(v) != Role::kLeaf)
        bytes += facts_.bytes(v);
    return bytes;
  }

  void step(Time t) {
    const Node& node = graph_.nodes()[t];
    if (facts_.is_clone(t)) return;
    touched_.clear();
    for_bases(node, [&](ValueId v) {
      if (!is_tracked(v)) return;
      if (facts_.is_recomputed(v) && !alive_[v.index()]) emit(v, t);
      touched_.push_back(v);
    });
    for (ValueId v : touched_) release(v, t);
    for (int i = 0; i < node.n_results; ++i)
      if (const ValueId v = node.result(i);
          facts_.role(v) == Role::kResidual && facts_.base(v) == v && !needs_[v.index()].empty())
        come_alive(v);
    now_ = t;
    if (is_over()) reduce();
  }

  void come_alive(ValueId v) {
    alive_[v.index()] = true;
    live_ += facts_.bytes(v);
    if (facts_.is_recomputed(v)) waiting_.insert(v);
  }
  void die(ValueId v) {
    alive_[v.index()] = false;
    live_ -= facts_.bytes(v);
    if (facts_.is_recomputed(v)) waiting_.erase(v);
  }
  void release(ValueId v, Time t) {
    std::set<Time>& needs = needs_[v.index()];
    needs.erase(needs.begin(), needs.upper_bound(t));
    if (needs.empty() && alive_[v.index()]) die(v);
  }

  // Recomputes `v` and the operands that are missing for it.
  void emit(ValueId v, Time t) {
    std::set<size_t> nodes;
    std::vector<size_t> stack = {facts_.node_of(v)};
    while (!stack.empty()) {
      const size_t n = stack.back();
      stack.pop_back();
      if (!nodes.insert(n).second) continue;
      for_bases(graph_.nodes()[n], [&](ValueId o) {
        if (facts_.is_recomputed(o) && !alive_[o.index()]) stack.push_back(facts_.node_of(o));
      });
    }
    for (size_t n : nodes) {
      const Node& node = graph_.nodes()[n];
      for (int i = 0; i < node.n_results; ++i) {
        const ValueId r = node.result(i);
        if (!alive_[r.index()]) come_alive(r);
        touched_.push_back(r);
      }
      for_bases(node, [&](ValueId o) {
        if (is_tracked(o)) touched_.push_back(o);
      });
      emissions_[t].push_back(n);
      ++n_emitted_;
    }
  }

  // True if more bytes wait than there is room for. Values that the current layer needs again soon
  // may take as much as its work.
  bool is_over() const {
    if (live_ <= limit_) return false;
    if (live_ > limit_ + work_bytes_) return true;
    int64_t near = 0;
    for (ValueId v : waiting_)
      if (is_near(v)) near += facts_.bytes(v);
    return live_ - near > limit_;
  }
  bool is_near(ValueId v) const { return heavy_between(now_, next_need(v)) <= kNearHeavyNodes; }
  int heavy_between(Time from, Time to) const {
    const Time end = graph_.n_nodes() - 1;
    return heavy_before_[std::min(to, end)] - heavy_before_[std::min(from, end)];
  }

  Time next_need(ValueId v) const { return *needs_[v.index()].begin(); }
  Time last_need(ValueId v) const { return *needs_[v.index()].rbegin(); }

  // Returns the number of nodes that recompute `v` at a later time. None if one of them cannot be
  // recomputed, or if operands that would have to live much longer take as much as `v`.
  std::optional<int> chain_length(ValueId v, Time later, int most) const {
    int n_nodes = 0;
    int64_t prolonged = 0;
    std::set<ValueId> seen = {v};
    std::vector<ValueId> stack = {v};
    while (!stack.empty()) {
      const ValueId top = stack.back();
      stack.pop_back();
      if (++n_nodes > most || facts_.role(top) != Role::kCheap) return std::nullopt;
      bool possible = true;
      for_bases(def(top), [&](ValueId o) {
        if (!is_tracked(o) || !seen.insert(o).second) return;
        const bool planned = !needs_[o.index()].empty() && next_need(o) <= later;
        if (alive_[o.index()] || (planned && facts_.is_recomputed(o))) {
          if (heavy_between(last_need(o), later) > kNearHeavyNodes) prolonged += facts_.bytes(o);
        } else if (facts_.role(o) == Role::kResidual) {
          possible = false;  // it has been dropped
        } else {
          stack.push_back(o);
        }
      });
      if (!possible) return std::nullopt;
    }
    if (prolonged >= facts_.bytes(v)) return std::nullopt;
    return n_nodes;
  }

  void add_need(ValueId v, Time t) {
    std::vector<ValueId> stack = {v};
    while (!stack.empty()) {
      const ValueId top = stack.back();
      stack.pop_back();
      std::set<Time>& needs = needs_[top.index()];
      const bool earlier = needs.empty() || t < *needs.begin();
      needs.insert(t);
      if (!facts_.is_recomputed(top) || alive_[top.index()] || !earlier) continue;
      for_bases(def(top), [&](ValueId o) {
        if (is_tracked(o)) stack.push_back(o);
      });
    }
  }
  void drop(ValueId v) {
    die(v);
    const Time later = next_need(v);
    for_bases(def(v), [&](ValueId o) {
      if (is_tracked(o)) add_need(o, later);
    });
  }

  // Drops waiting values, the one needed last first, while chains of at most `most` nodes can
  // recompute them.
  void drop_cheap(int most) {
    std::vector<ValueId> order;
    for (ValueId v : waiting_)
      if (facts_.role(v) == Role::kCheap && !held_[v.index()] && facts_.bytes(v) > 0)
        order.push_back(v);
    std::stable_sort(order.begin(), order.end(),
                     [&](ValueId a, ValueId b) { return next_need(a) > next_need(b); });
    for (ValueId v : order) {
      if (!is_over()) return;
      if (chain_length(v, next_need(v), most)) drop(v);
    }
  }

  void reduce() {
    drop_cheap(kShortChain);
    if (!is_over()) return;
    // The last values of the chains fit in the room that residuals have left. The value before them
    // is the one from which to begin.
    std::vector<ValueId> stuck;
    int64_t room = limit_ - live_;
    for (ValueId v : waiting_)
      if (facts_.role(v) == Role::kCheap && !held_[v.index()] && facts_.bytes(v) > 0) {
        stuck.push_back(v);
        room += facts_.bytes(v);
      }
    if (stuck.empty()) {
      limit_ = live_;
      return;
    }
    size_t first = stuck.size();
    while (first > 0 && facts_.bytes(stuck[first - 1]) <= room)
      room -= facts_.bytes(stuck[--first]);
    if (first == 0) first = 1;
    const auto may_keep = [&](ValueId v) { return facts_.original(v).valid(); };
    if (keep_all_) {
      std::copy_if(stuck.begin(), stuck.end(), std::back_inserter(keep_), may_keep);
      if (!keep_.empty()) return;
    }
    for (size_t i = first; i-- > 0;)
      if (may_keep(stuck[i])) return keep_.push_back(stuck[i]);
    for (size_t i = first; i < stuck.size(); ++i)
      if (may_keep(stuck[i])) return keep_.push_back(stuck[i]);
    held_[stuck[first - 1].index()] = true;
    limit_ += facts_.bytes(stuck[first - 1]);
    const int64_t left = static_cast<int64_t>(graph_.n_nodes()) - n_emitted_;
    drop_cheap(static_cast<int>(std::clamp<int64_t>(left, 0, kLongChain)));
    limit_ = std::max(limit_, live_);  // nothing more to be done about it
  }

  const Facts& facts_;
  const Graph& graph_;
  bool keep_all_;
  std::vector<std::set<Time>> needs_;  // of each value, from now on
  std::vector<bool> alive_, held_;
  Emissions emissions_;
  std::vector<int> heavy_before_;  // nodes up to each that have kernels of their own
  Time now_ = 0;
  int64_t live_ = 0, limit_ = 0, work_bytes_ = 0, n_emitted_ = 0;
  std::set<ValueId> waiting_;  // recomputed values that are alive
  std::vector<ValueId> touched_, keep_;
};

// Chooses the values that stand for residuals after an expensive recomputation: the fewest bytes
// from which cheap work can make all other recomputed values.
std::vector<bool> choose_spared(const Facts& facts) {
  const Graph& graph = facts.graph();
  std::vector<bool> spared(graph.n_values());
  std::vector<int> vertex(graph.n_values(), -1);
  std::vector<ValueId> queue;
  const auto add = [&](ValueId v) {
    if (!facts.is_recomputed(v) || vertex[v.index()] >= 0) return;
    vertex[v.index()] = static_cast<int>(queue.size());
    queue.push_back(v);
  };
  std::vector<ValueId> crossing;
  bool any_solid = false;
  for (size_t n = 0; n < graph.n_nodes(); ++n) {
    if (facts.is_clone(n)) continue;
    for (ValueId v : graph.nodes()[n].operands) {
      add(facts.base(v));
      if (facts.is_recomputed(facts.base(v))) crossing.push_back(facts.base(v));
    }
  }
  struct Edge {
    int from, to;
  };
  std::vector<Edge> edges;
  for (size_t i = 0; i < queue.size(); ++i) {
    const ValueId v = queue[i];
    if (facts.role(v) == Role::kSolid) {
      any_solid = true;
      continue;
    }
    for (ValueId o : graph.def(v).operands) {
      add(facts.base(o));
      if (facts.is_recomputed(facts.base(o)))
        edges.push_back({vertex[facts.base(o).index()], static_cast<int>(i)});
    }
  }
  if (!any_solid) return spared;
  MinCut cut(2 * queue.size() + 2);
  const int source = static_cast<int>(2 * queue.size()), sink = source + 1;
  for (size_t i = 0; i < queue.size(); ++i) {
    const int in = static_cast<int>(2 * i);
    cut.add_edge(in, in + 1, std::max<int64_t>(1, facts.bytes(queue[i])));
    if (facts.role(queue[i]) == Role::kSolid) cut.add_edge(source, in, MinCut::kInfinite);
  }
  for (const Edge& e : edges) cut.add_edge(2 * e.from + 1, 2 * e.to, MinCut::kInfinite);
  for (ValueId v : crossing) cut.add_edge(2 * vertex[v.index()] + 1, sink, MinCut::kInfinite);
  cut.solve(source, sink);
  for (size_t i = 0; i < queue.size(); ++i) {
    const int in = static_cast<int>(2 * i);
    spared[queue[i].index()] = !cut.on_sink_side(in) && cut.on_sink_side(in + 1);
  }
  return spared;
}

// Writes the graph with its clones in the places that the walk chose.
class Writer {
 public:
  Writer(const Facts& facts, const Emissions& emissions)
      : facts_(facts),
        from_(facts.graph()),
        emissions_(emissions),
        map_(from_),
        made_of_(from_.n_values()) {}

  Graph run() {
    copy_inputs(from_, to_, map_);
    regions_ = import_regions(from_, to_, RegionId());
    for (size_t n = 0; n < from_.n_nodes(); ++n) {
      if (facts_.is_clone(n)) continue;
      for (size_t c : emissions_[n]) write(from_.nodes()[c]);
      write(from_.nodes()[n]);
    }
    for (size_t c : emissions_.back()) write(from_.nodes()[c]);
    std::vector<ValueId> outputs;
    for (ValueId v : from_.outputs()) outputs.push_back(read(v));
    to_.set_outputs(std::move(outputs));
    return std::move(to_);
  }

 private:
  // Returns the current image of `v`. Aliases and leaves of the backward part are made when they
  // are read.
  ValueId read(ValueId v) {
    std::vector<ValueId> path;  // aliases, from the last one back to what holds the memory
    while (facts_.role(v) == Role::kAlias && facts_.is_clone(facts_.node_of(v))) {
      path.push_back(v);
      v = from_.def(v).operands[0];
    }
    if (facts_.is_kept(v)) v = facts_.original(v);
    if (facts_.role(v) == Role::kLeaf && !map_.has(v)) write(from_.def(v));
    ValueId image = map_[v];
    while (!path.empty()) {
      const ValueId alias = path.back();
      path.pop_back();
      if (made_of_[alias.index()] != image) {
        made_of_[alias.index()] = image;
        write(from_.def(alias), image);
      }
      image = map_[alias];
    }
    return image;
  }
  void write(const Node& node, ValueId operand = {}) {
    Node copy = node;
    for (ValueId& v : copy.operands) v = operand.valid() ? operand : read(v);
    copy.region = node.region.valid() ? regions_[node.region.index()] : RegionId();
    std::vector<ArrayType> types;
    for (int i = 0; i < node.n_results; ++i) types.push_back(from_.type(node.result(i)));
    const NodeId id = to_.add_node(std::move(copy), types);
    for (int i = 0; i < node.n_results; ++i) map_.set(node.result(i), to_.node(id).result(i));
  }

  const Facts& facts_;
  const Graph& from_;
  const Emissions& emissions_;
  Graph to_;
  ValueMap map_;
  std::vector<ValueId> made_of_;  // of an alias: the image that it was last made of
  std::vector<RegionId> regions_;
};

}  // namespace

Graph shorten_lives(const Graph& graph, const Recomputation& recomputation,
                    std::vector<std::string>& limits, int most_kept_in_turn) {
  const std::vector<bool>& clone = recomputation.clone;
  if (std::find(clone.begin(), clone.end(), true) == clone.end()) return graph;
  Facts facts(graph, recomputation);
  const std::vector<bool> spared = choose_spared(facts);
  for (int round = 0;; ++round) {
    Walk walk(facts, spared, round >= most_kept_in_turn);
    const std::vector<ValueId> keep = walk.run();
    if (round == most_kept_in_turn && !keep.empty())
      limits.push_back(fmt::format(
          "residuals: {} values were kept one by one in place of recomputed ones; {} more at once, of which "
          "fewer might have done",
          round, keep.size()));
    if (keep.empty()) return Writer(facts, walk.take_emissions()).run();
    for (ValueId v : keep) facts.keep_original(v);
  }
}

}  // namespace stow
