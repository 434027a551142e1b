#include "stowage/session/checkpoint_cost.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "stowage/base/bytes.h"
#include "stowage/ir/op_list.h"

namespace stow {
namespace {

// A plain plan is judged by its largest live sum, which a layout nearly reaches.
constexpr double kNearlyReached = 0.01;
// Share of the peak, 1 / kLeastOfPeak. If recomputed values take less of it, they are one layer's
// recomputation beside values that others keep.
constexpr int64_t kLeastOfPeak = 4;

bool is_recomputed(const ProvenancePtr& provenance) {
  return pass_of(provenance) == Pass::kResiduals;
}

// True if anything is recomputed outside of loops that is not elementwise.
bool recomputes_kernels(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    const OpClass c = op_class(node.op);
    return node.backward && is_recomputed(node.provenance) && node.op != OpKind::kDevicePut &&
           (c == OpClass::kOther || c == OpClass::kStructure);
  });
}

int64_t recomputed_at_peak(const Planned& planned) {
  const Schedule& schedule = planned.schedule;
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  int64_t bytes = 0;
  for (size_t e = 0; e < lifetimes.owner.size(); ++e) {
    const Buffer& buffer = schedule.buffers[lifetimes.owner[e].index()];
    if (buffer.kind != MemoryKind::kDevice || !is_recomputed(buffer.provenance)) continue;
    for (const pack::Rect& rect : lifetimes.problem.buffers[e].rects)
      if (rect.lower <= planned.plan.analysis.peak_instant &&
          planned.plan.analysis.peak_instant < rect.upper)
        bytes += rect.size;
  }
  return bytes;
}

// Returns the places where the outermost checkpoints are called, each once.
std::vector<std::string> places_of(const Graph& graph) {
  std::vector<std::string> places;
  for (const Region& region : graph.regions()) {
    const std::string place = source_path(region.made);
    if (!region.parent.valid() && !place.empty() &&
        std::find(places.begin(), places.end(), place) == places.end())
      places.push_back(place);
  }
  return places;
}

}  // namespace

std::optional<std::string> checkpoint_cost(const Graph& residuals, const Planned& planned,
                                           const LowerOptions& lowering,
                                           const std::function<Graph()>& kept) {
  const MemoryAnalysis& a = planned.plan.analysis;
  if (a.host().total_bytes + a.disk().total_bytes > 0 || !recomputes_kernels(residuals))
    return std::nullopt;
  const int64_t recomputed = recomputed_at_peak(planned);
  if (kLeastOfPeak * recomputed < a.device().arena_bytes) return std::nullopt;
  const int64_t plain = OrderedGraph(kept(), lowering).least_device_bytes();
  const int64_t more = a.device().total_bytes - plain;
  if (static_cast<double>(more) < kNearlyReached * static_cast<double>(plain)) return std::nullopt;
  const std::vector<std::string> places = places_of(residuals);
  return fmt::format(
      "checkpoint{}{} raises the peak by about {}, against keeping every value: {} of the peak are computed "
      "again, while what is given to it and the gradients of its results stay",
      places.empty() ? "" : " at ", fmt::join(places, ", "), format_bytes(more),
      format_bytes(recomputed));
}

}  // namespace stow
