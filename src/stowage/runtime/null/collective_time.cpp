#include "stowage/runtime/null/collective_time.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

namespace stow {
namespace {

// Members of a group over `axes` in a block of `devices`, where every block boundary and every axis
// divide one another; 0 where some do not.
int64_t aligned_members(const MeshShape& mesh, std::span<const int> axes, int64_t devices) {
  int64_t members = 1, stride = 1;
  for (int axis = mesh.rank() - 1; axis >= 0; --axis) {
    const int64_t extent = mesh.extents[static_cast<size_t>(axis)];
    const int64_t end = stride * extent;
    if (devices % stride != 0 && stride % devices != 0) return 0;
    if (devices % end != 0 && end % devices != 0) return 0;
    if (std::find(axes.begin(), axes.end(), axis) != axes.end())
      members *= std::clamp<int64_t>(devices / stride, 1, extent);
    stride = end;
  }
  return members;
}

// By group, how many of its members stand in each block of `devices`.
using Members = std::map<std::pair<int64_t, int64_t>, int64_t>;  // {group, block}
Members members_by_block(const MeshShape& mesh, const std::vector<int64_t>& group_of,
                         int64_t devices) {
  Members members;
  for (int64_t position = 0; position < mesh.size(); ++position)
    ++members[{group_of[static_cast<size_t>(position)], position / devices}];
  return members;
}

// `groups`: as of collective_seconds().
std::vector<GroupLevel> uneven_levels(const DeviceDescription& d, const MeshShape& mesh,
                                      std::span<const int> axes,
                                      std::span<const int64_t> groups = {}, int64_t n_groups = 1) {
  // By index along the axes, the list that holds it.
  std::vector<int64_t> list_of(static_cast<size_t>(mesh.extent_of(axes)), 0);
  for (size_t i = 0; i < groups.size(); ++i)
    list_of[static_cast<size_t>(groups[i])] =
        static_cast<int64_t>(i) / (static_cast<int64_t>(groups.size()) / n_groups);
  std::vector<int64_t> group_of(static_cast<size_t>(mesh.size()));
  for (int64_t position = 0; position < mesh.size(); ++position) {
    int64_t group = 0;
    const std::vector<int64_t> at = mesh.coordinates(position);
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (std::find(axes.begin(), axes.end(), axis) == axes.end())
        group = group * mesh.extents[static_cast<size_t>(axis)] + at[static_cast<size_t>(axis)];
    int64_t index = 0;
    for (const int axis : axes)
      index = index * mesh.extents[static_cast<size_t>(axis)] + at[static_cast<size_t>(axis)];
    group_of[static_cast<size_t>(position)] =
        group * n_groups + list_of[static_cast<size_t>(index)];
  }
  std::vector<GroupLevel> levels;
  int64_t inner_devices = 1;
  for (const auto& level : d.network) {
    const Members inner = members_by_block(mesh, group_of, inner_devices);
    GroupLevel found{1, mesh.size(), 1};
    Members parts, members;  // in blocks of this level
    for (const auto& [where, count] : inner) {
      const std::pair block = {where.first, where.second * inner_devices / level.devices};
      found.inside = std::min(found.inside, count);
      found.parts = std::max(found.parts, ++parts[block]);
      found.members = std::max(found.members, members[block] += count);
    }
    levels.push_back(found);
    inner_devices = level.devices;
  }
  return levels;
}

}  // namespace

std::vector<GroupLevel> group_levels(const DeviceDescription& d, const MeshShape& mesh,
                                     std::span<const int> axes) {
  std::vector<GroupLevel> levels;
  int64_t inside = 1;
  for (const auto& level : d.network) {
    const int64_t members = aligned_members(mesh, axes, level.devices);
    if (members == 0) return uneven_levels(d, mesh, axes);
    levels.push_back({members / inside, inside, members});
    inside = members;
  }
  return levels;
}

double collective_seconds(const DeviceDescription& d, OpKind op, const MeshShape& mesh,
                          std::span<const int> axes, double whole_bytes,
                          std::span<const int64_t> groups, int64_t n_groups) {
  const int64_t size = mesh.extent_of(axes) / n_groups;
  if (size == 1) return 0;
  if (!check_network(d, mesh)) return std::numeric_limits<double>::infinity();
  const std::vector<GroupLevel> levels =
      n_groups == 1 ? group_levels(d, mesh, axes) : uneven_levels(d, mesh, axes, groups, n_groups);
  double halving = 0, exchange = 0, hop = 0;
  for (size_t l = 0; l < levels.size(); ++l) {
    const auto [n, inside, members] = levels[l];
    if (n == 1) continue;
    const DeviceDescription::Network& level = d.network[l];
    const double bandwidth = level.bandwidth * level.achievable;
    const auto parts = static_cast<double>(n);
    const double steps = std::bit_width(static_cast<uint64_t>(n - 1));  // ceil(log2 n)
    halving += whole_bytes / static_cast<double>(inside) * (parts - 1) / parts / bandwidth +
               steps * level.latency_s;
    exchange += whole_bytes * static_cast<double>(members - inside) / static_cast<double>(size) /
                    bandwidth +
                level.latency_s;
    hop = whole_bytes / bandwidth + level.latency_s;
  }
  if (op == OpKind::kAllReduce) return 2 * halving;
  if (op == OpKind::kAllToAll) return exchange;
  if (op == OpKind::kPermute) return hop;
  STOW_CHECK(op == OpKind::kAllGather || op == OpKind::kReduceScatter, "{} is not a collective",
             op_name(op));
  return halving;
}

Result<void> check_network(const DeviceDescription& d, const MeshShape& mesh) {
  const int64_t size = mesh.size();
  if (size == 1 || (!d.network.empty() && d.network.back().devices >= size)) return {};
  if (d.network.empty())
    return fail(
        "{} has no [[network]]: the time of collectives over {} is not known; give a device "
        "description with its levels",
        d.name, to_string(mesh));
  std::vector<int64_t> devices;
  for (const auto& level : d.network) devices.push_back(level.devices);
  return fail(
      "expected a [[network]] of {} that joins the {} devices of {}, got levels of {}; add a "
      "level to the device description",
      d.name, size, to_string(mesh), fmt::join(devices, " and "));
}

}  // namespace stow
