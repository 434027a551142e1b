#include "stowage/passes/reshard.h"

#include <algorithm>

namespace stow {
namespace {

bool contains(const MeshAxes& list, int axis) {
  return std::find(list.begin(), list.end(), axis) != list.end();
}

size_t common_prefix(const MeshAxes& a, const MeshAxes& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

class Planner {
 public:
  Planner(const ArrayType& type, const AxisSharding& from, const AxisSharding& to,
          const MeshShape& mesh)
      : type_(type), to_(to), mesh_(mesh), at_(from) {
    plan_.most_bytes = std::max(local_bytes(from), local_bytes(to));
  }

  ReshardPlan run() {
    const int64_t ends = plan_.most_bytes;
    while (slice() || reduce_scatter()) {
    }
    all_reduce();
    while (slice() || all_to_all() || all_gather()) {
    }
    STOW_CHECK(at_ == to_, "resharding stops at {} on the way to {}", to_string(at_, mesh_),
               to_string(to_, mesh_));
    plan_.grows = plan_.most_bytes > ends;
    return std::move(plan_);
  }

 private:
  int64_t local_bytes(const AxisSharding& s) const { return local_type(type_, s, mesh_).bytes(); }
  size_t rank() const { return at_.axes.size(); }

  // Returns the mesh axes to append to those that cut array axis i; none if these are no prefix of
  // the wanted ones.
  MeshAxes extension(size_t i) const {
    const MeshAxes &have = at_.axes[i], &want = to_.axes[i];
    if (common_prefix(have, want) != have.size()) return {};
    return MeshAxes(want.begin() + static_cast<ptrdiff_t>(have.size()), want.end());
  }
  // Returns the leading axes for which the predicate holds.
  template <typename Holds>
  static MeshAxes leading(const MeshAxes& axes, Holds holds) {
    return MeshAxes(axes.begin(), std::find_if_not(axes.begin(), axes.end(), holds));
  }

  void add(ReshardStep step, double share) {
    const int64_t n = mesh_.extent_of(step.axes);
    const int64_t before = local_bytes(at_), after = local_bytes(step.after);
    plan_.bytes += share * static_cast<double>(std::max(before, after)) *
                   static_cast<double>(n - 1) / static_cast<double>(n);
    plan_.most_bytes = std::max(plan_.most_bytes, after);
    at_ = step.after;
    plan_.steps.push_back(std::move(step));
  }

  bool slice() {
    for (size_t i = 0; i < rank(); ++i) {
      const MeshAxes axes = leading(extension(i), [&](int axis) {
        return !at_.cuts_with(axis) && !contains(at_.partial, axis);
      });
      if (axes.empty()) continue;
      AxisSharding after = at_;
      after.axes[i].insert(after.axes[i].end(), axes.begin(), axes.end());
      add({.op = ReshardOp::kSlice, .axes = axes, .axis = static_cast<int>(i), .after = after}, 0);
      return true;
    }
    return false;
  }

  bool reduce_scatter() {
    if (at_.kind != ReduceKind::kSum) return false;
    for (size_t i = 0; i < rank(); ++i) {
      const MeshAxes axes =
          leading(extension(i), [&](int axis) { return contains(at_.partial, axis); });
      if (axes.empty()) continue;
      AxisSharding after = at_;
      after.axes[i].insert(after.axes[i].end(), axes.begin(), axes.end());
      std::erase_if(after.partial, [&](int axis) { return contains(axes, axis); });
      add({.op = ReshardOp::kReduceScatter,
           .axes = axes,
           .axis = static_cast<int>(i),
           .after = after},
          1);
      return true;
    }
    return false;
  }

  void all_reduce() {
    if (!at_.partial.empty()) {
      AxisSharding after = at_;
      after.partial.clear();
      add({.op = ReshardOp::kAllReduce, .axes = at_.partial, .kind = at_.kind, .after = after}, 2);
    }
    at_.kind = ReduceKind::kSum;
    if (!plan_.steps.empty()) plan_.steps.back().after.kind = ReduceKind::kSum;
  }

  // Moves mesh axes from the end of array axis i to array axis j, which needs them next.
  bool all_to_all() {
    for (size_t i = 0; i < rank(); ++i) {
      const MeshAxes& have = at_.axes[i];
      for (size_t first = common_prefix(have, to_.axes[i]); first < have.size(); ++first) {
        const MeshAxes tail(have.begin() + static_cast<ptrdiff_t>(first), have.end());
        for (size_t j = 0; j < rank(); ++j) {
          const MeshAxes wanted = extension(j);
          if (j == i || common_prefix(wanted, tail) != tail.size()) continue;
          AxisSharding after = at_;
          after.axes[i].resize(first);
          after.axes[j].insert(after.axes[j].end(), tail.begin(), tail.end());
          add({.op = ReshardOp::kAllToAll,
               .axes = tail,
               .axis = static_cast<int>(j),
               .concat_axis = static_cast<int>(i),
               .after = after},
              1);
          return true;
        }
      }
    }
    return false;
  }

  bool all_gather() {
    for (size_t i = 0; i < rank(); ++i) {
      const MeshAxes& have = at_.axes[i];
      const size_t first = common_prefix(have, to_.axes[i]);
      if (first == have.size()) continue;
      AxisSharding after = at_;
      after.axes[i].resize(first);
      const MeshAxes tail(have.begin() + static_cast<ptrdiff_t>(first), have.end());
      add({.op = ReshardOp::kAllGather, .axes = tail, .axis = static_cast<int>(i), .after = after},
          1);
      return true;
    }
    return false;
  }

  const ArrayType& type_;
  const AxisSharding& to_;
  const MeshShape& mesh_;
  AxisSharding at_;
  ReshardPlan plan_;
};

OpKind op_of(ReshardOp op) {
  switch (op) {
    case ReshardOp::kSlice:
      return OpKind::kDynamicSlice;
    case ReshardOp::kAllGather:
      return OpKind::kAllGather;
    case ReshardOp::kReduceScatter:
      return OpKind::kReduceScatter;
    case ReshardOp::kAllReduce:
      return OpKind::kAllReduce;
    case ReshardOp::kAllToAll:
      return OpKind::kAllToAll;
  }
  return OpKind::kAllGather;
}

}  // namespace

AxisSharding canonical_sharding(AxisSharding sharding, const MeshShape& mesh) {
  for (MeshAxes& axes : sharding.axes)
    std::erase_if(axes, [&](int axis) { return mesh.extents[static_cast<size_t>(axis)] == 1; });
  return sharding;
}

ReshardPlan plan_reshard(const ArrayType& type, const AxisSharding& from, const AxisSharding& to,
                         const MeshShape& mesh) {
  STOW_CHECK(to.partial.empty(), "nothing is resharded to {}", to_string(to, mesh));
  return Planner(type, from, to, mesh).run();
}

Val apply_reshard(const ReshardPlan& plan, const ArrayType& type, const Val& x,
                  const MeshShape& mesh, const std::function<Val(const MeshAxes&)>& index) {
  if (plan.steps.empty()) return x;
  GraphBuilder& b = x.builder();
  Val at = device_put(x, MemoryKind::kDevice);
  for (const ReshardStep& step : plan.steps) {
    if (step.op == ReshardOp::kSlice) {
      const Shape sizes = local_type(type, step.after, mesh).shape;
      std::vector<Val> starts(static_cast<size_t>(sizes.rank()), constant_int(b, DType::kI32, 0));
      const auto axis = static_cast<size_t>(step.axis);
      starts[axis] = index(step.axes) * constant_int(b, DType::kI32, sizes[step.axis]);
      at = dynamic_slice(at, starts, sizes.dims());
      continue;
    }
    CollectiveParams p{.mesh = mesh, .axes = step.axes, .kind = step.kind};
    if (step.op != ReshardOp::kAllReduce) p.axis = step.axis;
    if (step.op == ReshardOp::kAllToAll) p.concat_axis = step.concat_axis;
    at = b.add1(op_of(step.op), std::move(p), {at});
  }
  return device_put(at, x.type().kind);
}

}  // namespace stow
