#include "tests/support/evaluate_on_mesh.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "stowage/runtime/reference/reference.h"

namespace stow::testing {
namespace {

// Part `index` of `n` along `axis` of an array is copied out of it, or into it.
void copy_part(const ArrayType& whole_type, int64_t axis, int64_t index, int64_t n,
               std::byte* whole, std::byte* part, bool into_whole) {
  int64_t outer = 1, inner = dtype_bytes(whole_type.dtype);
  for (int i = 0; i < whole_type.shape.rank(); ++i)
    (i < axis ? outer : inner) *= whole_type.shape[i];
  inner /= n;  // of one part, a row of the outer axes
  if (inner == 0) return;
  for (int64_t o = 0; o < outer; ++o) {
    std::byte* const at = whole + (o * n + index) * inner;
    std::memcpy(into_whole ? at : part + o * inner, into_whole ? part + o * inner : at,
                static_cast<size_t>(inner));
  }
}

Bytes part_of(const ArrayType& type, const Bytes& whole, int64_t axis, int64_t index, int64_t n) {
  Bytes part(whole.size() / static_cast<size_t>(n));
  copy_part(type, axis, index, n, const_cast<std::byte*>(whole.data()), part.data(), false);
  return part;
}

Bytes joined(const ArrayType& whole_type, int64_t axis, const std::vector<Bytes>& parts) {
  Bytes whole(static_cast<size_t>(whole_type.bytes()));
  for (size_t i = 0; i < parts.size(); ++i)
    copy_part(whole_type, axis, static_cast<int64_t>(i), static_cast<int64_t>(parts.size()),
              whole.data(), const_cast<std::byte*>(parts[i].data()), true);
  return whole;
}

OpKind op_of(ReduceKind kind, DType dtype) {
  const bool is_bool = dtype == DType::kBool;
  switch (kind) {
    case ReduceKind::kSum:
      return OpKind::kAdd;
    case ReduceKind::kMax:
      return is_bool ? OpKind::kOr : OpKind::kMax;
    case ReduceKind::kMin:
      return is_bool ? OpKind::kAnd : OpKind::kMin;
    case ReduceKind::kAnd:
      return OpKind::kAnd;
    case ReduceKind::kOr:
      return OpKind::kOr;
  }
  return OpKind::kAdd;
}

bool has_collectives(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return is_collective(node.op) ||
           std::any_of(node.graphs.begin(), node.graphs.end(),
                       [](const auto& inner) { return has_collectives(*inner); });
  });
}

// Reads and writes values of all positions of one level of a graph.
class Level {
 public:
  Level(const MeshShape& mesh, MeshTraffic* traffic) : mesh_(mesh), traffic_(traffic) {}

  PerPosition run(const Graph& graph, const PerPosition& inputs) {
    PerPosition values(n(), std::vector<Bytes>(graph.n_values()));
    for (size_t p = 0; p < n(); ++p)
      for (size_t i = 0; i < graph.inputs().size(); ++i)
        values[p][graph.inputs()[i].index()] = inputs[p][i];
    for (const Node& node : graph.nodes()) {
      PerPosition operands(n());
      for (size_t p = 0; p < n(); ++p)
        for (ValueId v : node.operands) operands[p].push_back(values[p][v.index()]);
      PerPosition results = evaluate(graph, node, std::move(operands));
      for (size_t p = 0; p < n(); ++p)
        for (int i = 0; i < node.n_results; ++i) {
          Bytes& result = results[p][static_cast<size_t>(i)];
          STOW_CHECK(result.size() == static_cast<size_t>(graph.type(node.result(i)).bytes()),
                     "{} gives {} bytes", op_name(node.op), result.size());
          values[p][node.result(i).index()] = std::move(result);
        }
    }
    PerPosition outputs(n());
    for (size_t p = 0; p < n(); ++p)
      for (ValueId v : graph.outputs()) outputs[p].push_back(values[p][v.index()]);
    return outputs;
  }

 private:
  size_t n() const { return static_cast<size_t>(mesh_.size()); }

  PerPosition evaluate(const Graph& graph, const Node& node, PerPosition operands) {
    if (node.op == OpKind::kScan) return scan(graph, node, std::move(operands));
    if (node.op == OpKind::kCond) return cond(graph, node, std::move(operands));
    if (node.op == OpKind::kWhile) return open_loop(node, operands);
    if (node.op == OpKind::kCheckpoint || node.op == OpKind::kCustomVjp)
      return run(*node.graphs[0], operands);
    if (std::holds_alternative<CollectiveParams>(node.params))
      return collective(graph, node, operands);
    PerPosition results(n());
    for (size_t p = 0; p < n(); ++p) results[p] = evaluate_op(graph, node, std::move(operands[p]));
    return results;
  }

  PerPosition scan(const Graph& graph, const Node& node, PerPosition operands) {
    const auto& p = node.as<ScanParams>();
    const Graph& body = *node.graphs[0];
    const auto n_consts = static_cast<size_t>(p.n_consts),
               n_carries = static_cast<size_t>(p.n_carries);
    PerPosition inputs(n()), results(n());
    for (size_t d = 0; d < n(); ++d) {
      for (size_t i = 0; i < body.inputs().size(); ++i)
        inputs[d].push_back(i < n_consts + n_carries
                                ? operands[d][i]
                                : Bytes(static_cast<size_t>(body.type(body.inputs()[i]).bytes())));
      for (int i = 0; i < node.n_results; ++i)
        results[d].emplace_back(static_cast<size_t>(graph.type(node.result(i)).bytes()));
    }
    for (int64_t step = 0; step < p.length; ++step) {
      const int64_t index = p.reverse ? p.length - 1 - step : step;
      for (size_t i = 0; i < p.in_axes.size(); ++i)
        for (size_t d = 0; d < n(); ++d) {
          const size_t at = n_consts + n_carries + i;
          copy_slice(graph.type(node.operands[at]), p.in_axes[i], index, operands[d][at].data(),
                     inputs[d][at].data(), false);
        }
      PerPosition outputs = run(body, inputs);
      for (size_t d = 0; d < n(); ++d) {
        for (size_t i = 0; i < n_carries; ++i) inputs[d][n_consts + i] = outputs[d][i];
        for (size_t i = 0; i < p.out_axes.size(); ++i) {
          const size_t at = n_carries + i;
          copy_slice(graph.type(node.result(static_cast<int>(at))), p.out_axes[i], index,
                     results[d][at].data(), outputs[d][at].data(), true);
        }
      }
    }
    for (size_t d = 0; d < n(); ++d)
      for (size_t i = 0; i < n_carries; ++i) results[d][i] = inputs[d][n_consts + i];
    return results;
  }

  PerPosition cond(const Graph& graph, const Node& node, PerPosition operands) {
    const auto last = static_cast<int32_t>(node.graphs.size()) - 1;
    std::vector<size_t> taken;  // by position
    for (const std::vector<Bytes>& list : operands) {
      int32_t index = 0;
      if (graph.type(node.operands[0]).dtype == DType::kBool)
        index = list[0][0] != std::byte{0};
      else
        std::memcpy(&index, list[0].data(), sizeof index);
      taken.push_back(static_cast<size_t>(std::clamp(index, 0, last)));
    }
    for (std::vector<Bytes>& list : operands) list.erase(list.begin());
    PerPosition results = run(*node.graphs[taken[0]], operands);
    // Positions that take another branch meet no others there.
    for (size_t d = 1; d < n(); ++d) {
      if (taken[d] == taken[0]) continue;
      for (const size_t branch : {taken[0], taken[d]})
        STOW_CHECK(!has_collectives(*node.graphs[branch]),
                   "positions take different branches, and one has collectives");
      results[d] = run(*node.graphs[taken[d]], operands)[d];
    }
    return results;
  }

  PerPosition open_loop(const Node& node, const PerPosition& operands) {
    const auto& p = node.as<WhileParams>();
    const auto n_cond = static_cast<ptrdiff_t>(p.n_cond_consts),
               n_body = static_cast<ptrdiff_t>(p.n_body_consts);
    PerPosition carries(n());
    for (size_t d = 0; d < n(); ++d)
      carries[d].assign(operands[d].begin() + n_cond + n_body, operands[d].end());
    const auto with = [&](ptrdiff_t first, ptrdiff_t count) {
      PerPosition all(n());
      for (size_t d = 0; d < n(); ++d) {
        all[d].assign(operands[d].begin() + first, operands[d].begin() + first + count);
        all[d].insert(all[d].end(), carries[d].begin(), carries[d].end());
      }
      return all;
    };
    for (;;) {
      const PerPosition goes_on = run(*node.graphs[0], with(0, n_cond));
      for (size_t d = 1; d < n(); ++d)
        STOW_CHECK(goes_on[d][0] == goes_on[0][0], "positions leave a loop at different times");
      if (goes_on[0][0][0] == std::byte{0}) return carries;
      carries = run(*node.graphs[1], with(n_cond, n_body));
    }
  }

  PerPosition collective(const Graph& graph, const Node& node, const PerPosition& operands) {
    const auto& p = node.as<CollectiveParams>();
    STOW_CHECK(p.mesh == mesh_, "a collective over {}", to_string(p.mesh));
    const ArrayType& type = graph.type(node.result());
    if (traffic_ && is_collective(node.op)) {
      ++traffic_->count[node.op];
      int64_t& most = traffic_->largest_bytes[node.op];
      most = std::max({most, type.bytes(), graph.type(node.operands[0]).bytes()});
    }
    PerPosition results(n());
    for (size_t d = 0; d < n(); ++d) {
      const auto position = static_cast<int64_t>(d);
      std::vector<int64_t> group = mesh_.group(position, p.axes);
      int64_t index = mesh_.index_in_group(position, p.axes);
      if (!p.groups.empty()) {
        const std::vector<int64_t> whole = std::move(group);
        for (int64_t first = 0; first < static_cast<int64_t>(whole.size());
             first += p.group_size()) {
          std::vector<int64_t> some;
          for (int64_t i = 0; i < p.group_size(); ++i)
            some.push_back(whole[static_cast<size_t>(p.groups[static_cast<size_t>(first + i)])]);
          const auto own = std::find(some.begin(), some.end(), position);
          if (own == some.end()) continue;
          index = own - some.begin();
          group = some;
          break;
        }
      }
      std::vector<Bytes> terms;
      for (int64_t member : group)
        if (node.op != OpKind::kAxisIndex)
          terms.push_back(operands[static_cast<size_t>(member)][0]);
      results[d] = {one_position(graph, node, terms, index)};
    }
    return results;
  }

  // `terms` are the operands of the group, by index.
  static Bytes one_position(const Graph& graph, const Node& node, std::span<const Bytes> terms,
                            int64_t index) {
    const auto& p = node.as<CollectiveParams>();
    const ArrayType& type = graph.type(node.result());
    if (node.op == OpKind::kAxisIndex) {
      Bytes bytes(sizeof(int32_t));
      const auto value = static_cast<int32_t>(index);
      std::memcpy(bytes.data(), &value, sizeof value);
      return bytes;
    }
    const ArrayType& from = graph.type(node.operands[0]);
    const int64_t n = p.group_size();
    if (node.op == OpKind::kAllGather) return joined(type, p.axis, {terms.begin(), terms.end()});
    if (node.op == OpKind::kAllReduce) return tree_reduce(from, terms, p.kind);
    if (node.op == OpKind::kReduceScatter)
      return part_of(from, tree_reduce(from, terms, p.kind), p.axis, index, n);
    if (node.op == OpKind::kAllToAll) {
      std::vector<Bytes> parts;
      for (const Bytes& term : terms) parts.push_back(part_of(from, term, p.axis, index, n));
      return joined(type, p.concat_axis, parts);
    }
    STOW_CHECK(node.op == OpKind::kPermute, "{} is no collective", op_name(node.op));
    for (size_t i = 0; i + 1 < p.pairs.size(); i += 2)
      if (p.pairs[i + 1] == index) return terms[static_cast<size_t>(p.pairs[i])];
    return Bytes(static_cast<size_t>(type.bytes()));
  }

  const MeshShape& mesh_;
  MeshTraffic* traffic_;
};

}  // namespace

PerPosition evaluate_on_mesh(const Graph& local, const MeshShape& mesh, const PerPosition& inputs,
                             MeshTraffic* traffic) {
  return Level(mesh, traffic).run(local, inputs);
}

Bytes tree_reduce(const ArrayType& type, std::span<const Bytes> terms, ReduceKind kind) {
  if (terms.size() == 1) return terms[0];
  const size_t half = std::bit_floor(terms.size() - 1);
  Bytes a = tree_reduce(type, terms.first(half), kind);
  Bytes b = tree_reduce(type, terms.subspan(half), kind);
  Bytes sum(a.size());
  const auto view = [&](Bytes& bytes) {
    return TensorView{bytes.data(), type.dtype, type.shape.dims(), contiguous_strides(type.shape)};
  };
  const TensorView in[] = {view(a), view(b)}, out[] = {view(sum)};
  reference_eval(op_of(kind, type.dtype), NoParams(), in, out);
  return sum;
}

std::vector<Bytes> cut(const ArrayType& type, const Bytes& whole, const AxisSharding& sharding,
                       const MeshShape& mesh) {
  std::vector<Bytes> parts;
  for (int64_t position = 0; position < mesh.size(); ++position) {
    ArrayType from = type;
    Bytes part = whole;
    for (int axis = 0; axis < sharding.rank(); ++axis) {
      const int64_t n = mesh.extent_of(sharding.axes[static_cast<size_t>(axis)]);
      part = part_of(from, part, axis, part_index(sharding, axis, mesh, position), n);
      from.shape[axis] /= n;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::optional<Bytes> join(const ArrayType& type, const std::vector<Bytes>& parts,
                          const AxisSharding& sharding, const MeshShape& mesh) {
  // Reduced over the partial axes first, then the copies of each part compared.
  const ArrayType local = local_type(type, sharding, mesh);
  std::map<std::vector<int64_t>, Bytes> by_place;
  for (int64_t position = 0; position < mesh.size(); ++position) {
    std::vector<Bytes> terms;
    for (int64_t member : mesh.group(position, sharding.partial))
      terms.push_back(parts[static_cast<size_t>(member)]);
    Bytes part = tree_reduce(local, terms, sharding.kind);
    std::vector<int64_t> place;
    for (int axis = 0; axis < sharding.rank(); ++axis)
      place.push_back(part_index(sharding, axis, mesh, position));
    const auto [it, is_new] = by_place.try_emplace(place, part);
    if (!is_new && it->second != part) return std::nullopt;
  }
  // From the last axis inwards: parts along one axis are joined, for each place along the others.
  ArrayType grown = local;
  for (int axis = sharding.rank(); axis-- > 0;) {
    const int64_t n = mesh.extent_of(sharding.axes[static_cast<size_t>(axis)]);
    grown.shape[axis] *= n;
    std::map<std::vector<int64_t>, std::vector<Bytes>> rows;
    for (auto& [place, part] : by_place) {  // in order of the last entry
      std::vector<int64_t> outer(place.begin(), place.end() - 1);
      rows[outer].push_back(std::move(part));
    }
    by_place.clear();
    for (auto& [outer, row] : rows) by_place[outer] = joined(grown, axis, row);
  }
  return by_place.begin()->second;
}

}  // namespace stow::testing
