#include "stowage/train/replication.h"

#include <algorithm>
#include <functional>
#include <thread>

#include <fmt/format.h>

#include "stowage/base/bytes.h"
#include "stowage/base/parallel_in_order.h"
#include "stowage/base/progress.h"

namespace stow {
namespace {

constexpr int64_t kLeastShare = 100;  // Values of less than a hundredth of the peak are not named.

// Returns the leaves of the state, then the frozen weights, in the order of the step's arguments.
std::vector<StateLeaf> leaves_of(const Job& job) {
  std::vector<StateLeaf> leaves = job.state();
  leaves.insert(leaves.end(), job.frozen().begin(), job.frozen().end());
  return leaves;
}

// A value of the state, and its sharding if `data` cut it.
struct Cuttable {
  WholeValue value;
  AxisSharding cut;
};

std::vector<Cuttable> cuttable_leaves(const Job& job, const JobPlan& plan) {
  TrainConfig changed = job.config();
  changed.mesh.parameters = changed.mesh.optimizer = "sharded";
  const Job sharded(changed, job.target(), job.factory());
  const std::vector<StateLeaf> now = leaves_of(job), then = leaves_of(sharded);
  const std::vector<ArrayType>& placed = plan.programs.step->input_types();
  std::vector<Cuttable> found;
  for (size_t i = 0; i < now.size(); ++i) {
    ArrayType type = now[i].type;
    type.kind = placed[i].kind;
    const int64_t bytes = now[i].part.bytes();
    if (then[i].part.bytes() >= bytes ||
        bytes * kLeastShare < plan.peak_bytes[static_cast<size_t>(type.kind)])
      continue;
    found.push_back({{now[i].name, type, bytes, now[i].sharding.is_whole(), {}}, then[i].sharding});
  }
  std::stable_sort(found.begin(), found.end(), [](const Cuttable& a, const Cuttable& b) {
    return a.value.bytes > b.value.bytes;
  });
  return found;
}

BytesByKind peak_with(const Job& job, const JobPlan& plan, const Budgets& budgets,
                      const LeafShardings& overrides) {
  const Job changed(job.config(), job.target(), job.factory(), overrides);
  return changed.plan(plan.placement, budgets, plan.moves_ahead).peak_bytes;
}

// Returns replicated values of the step alone, as noted by the partitioner.
std::vector<WholeValue> whole_intermediates(const JobPlan& plan) {
  constexpr size_t kMost = 4;
  std::vector<WholeValue> found;
  for (const ShardingNote& note : plan.programs.step->sharding_notes()) {
    if (found.size() == kMost) break;
    const bool is_argument = note.source.find('(') == std::string::npos;
    if (note.kind != ShardingNoteKind::kStaysWhole || is_argument ||
        note.bytes < note.type.bytes() || note.bytes * kLeastShare < plan.peak_bytes[0])
      continue;
    found.push_back({note.source, note.type, note.bytes, true, {}});
  }
  return found;
}

}  // namespace

Replication find_replication(const Job& job, const JobPlan& plan, const Budgets& budgets,
                             size_t most_planned) {
  Replication found{.devices = job.mesh().size(), .peak_bytes = plan.peak_bytes};
  if (job.mesh().rank() == 0) return found;
  const ProgressScope progress("planning with more values cut");
  std::vector<Cuttable> leaves = cuttable_leaves(job, plan);
  LeafShardings all;
  for (const Cuttable& leaf : leaves) all.emplace(leaf.value.name, leaf.cut);
  if (leaves.size() > 1)
    found.peak_if_all_cut = peak_with(job, plan, budgets, all)[0];
  if (leaves.size() > most_planned) {
    found.n_unplanned = leaves.size() - most_planned;
    leaves.resize(most_planned);
  }
  const auto begin = [&](size_t i) {
    return std::optional<std::function<BytesByKind()>>([&, i] {
      return peak_with(job, plan, budgets, {{leaves[i].value.name, leaves[i].cut}});
    });
  };
  parallel_in_order(leaves.size(), static_cast<int>(std::thread::hardware_concurrency()), begin,
                    [&](size_t i, const BytesByKind& peak_bytes) {
                      WholeValue& value = leaves[i].value;
                      value.peak_if_sharded = peak_bytes[static_cast<size_t>(value.type.kind)];
                      found.values.push_back(value);
                      return true;
                    });
  // Gradients and updates of replicated leaves are replicated too, and need no lines of their own.
  if (found.values.empty()) found.values = whole_intermediates(plan);
  return found;
}

std::vector<std::string> replication_lines(const Replication& r) {
  std::vector<std::string> lines;
  const auto from_to = [&](MemoryKind kind, int64_t to) {
    const int64_t from = r.peak_bytes[static_cast<size_t>(kind)];
    return to == from ? fmt::format("the peak stays at {}", format_bytes(from))
                      : fmt::format("the peak {} from {} to {}", to < from ? "falls" : "rises",
                                    format_bytes(from), format_bytes(to));
  };
  for (const WholeValue& value : r.values) {
    std::string line =
        fmt::format("{} {} is whole {}on each of {} devices: {}", value.name, to_string(value.type),
                    value.is_whole ? "" : "along data ", r.devices, format_bytes(value.bytes));
    if (value.peak_if_sharded)
      line += "; cut over data " + from_to(value.type.kind, *value.peak_if_sharded);
    lines.push_back(std::move(line));
  }
  if (r.peak_if_all_cut)
    lines.push_back(
        fmt::format("{}all of them cut over data (mesh.parameters = sharded, mesh.optimizer = "
                    "sharded), {}",
                    r.n_unplanned > 0 ? fmt::format("and {} more; ", r.n_unplanned) : "",
                    from_to(MemoryKind::kDevice, *r.peak_if_all_cut)));
  return lines;
}

Json to_json(const Replication& r) {
  Json values = Json::array();
  for (const WholeValue& v : r.values)
    values.push_back(Json::object(
        {{"name", v.name},
         {"type", to_string(v.type)},
         {"bytes", v.bytes},
         {"devices", r.devices},
         {"whole", v.is_whole},
         {"peak_bytes", r.peak_bytes[static_cast<size_t>(v.type.kind)]},
         {"peak_if_cut_bytes", v.peak_if_sharded ? Json(*v.peak_if_sharded) : Json()}}));
  return values;
}

void add_replication(Json& report, const Replication& r) {
  report.set("whole", to_json(r));
  report.set("whole_unplanned", static_cast<int64_t>(r.n_unplanned));
  report.set("peak_if_all_cut_bytes", r.peak_if_all_cut ? Json(*r.peak_if_all_cut) : Json());
}

}  // namespace stow
