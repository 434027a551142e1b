#include <algorithm>
#include <numeric>
#include <optional>

#include "stowage/base/bytes.h"
#include "stowage/base/progress.h"
#include "stowage/runtime/target.h"
#include "stowage/train/trainer.h"

namespace stow {
namespace {

std::string describe_peak(const JobPlan& plan) {
  const MemoryAnalysis& a = plan.peak_analysis();
  std::string text = fmt::format("peak of the run: {} in {}, at instant {} of {}: {}\n",
                                 format_bytes(plan.peak_bytes[0]), plan.peak_phase, a.peak_instant,
                                 a.n_instants, a.peak_at);
  const std::vector<PeakOwner> owners = plan.peak_owners();
  for (size_t i = 0; i < std::min<size_t>(8, owners.size()); ++i) {
    const PeakOwner& o = owners[i];
    text += fmt::format("  {:>11}  {:<14} {}\n", format_bytes(o.bytes), o.what, o.source);
  }
  return text;
}

// Returns the key of the configuration that bounds a memory.
const char* budget_key(size_t kind) {
  static constexpr std::array<const char*, kNumMemoryKinds> kKeys = {"memory.device", "memory.host",
                                                                     "memory.disk"};
  return kKeys[kind];
}

Shortfall shortfall_of(const Job& job, const Placement& placement, const BytesByKind& peak_bytes,
                       const Budgets& budgets) {
  Shortfall s{.placement = placement,
              .needed_bytes = budgeted_bytes(job.config(), peak_bytes),
              .peak_bytes = peak_bytes};
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (budgets[kind])
      s.over_bytes[kind] = std::max<int64_t>(0, s.needed_bytes[kind] - *budgets[kind]);
  return s;
}

// Lowers sufficient budgets while a plan with less fits. Tries one byte less first, then the bytes
// that this plan takes, and bisects if these are too few.
void lower_to_the_least(const Job& job, Shortfall& s, const Budgets& budgets) {
  constexpr int kMostTries = 12;
  // Returns the bytes of a plan that may take `bytes` bytes of a kind; none if it exceeds a budget.
  const auto taken = [&](size_t kind, int64_t bytes) -> std::optional<BytesByKind> {
    Budgets lowered = budgets;
    for (size_t k = 0; k < lowered.size(); ++k)
      if (s.over_bytes[k] > 0) lowered[k] = k == kind ? bytes : s.needed_bytes[k];
    const BytesByKind peak_bytes = job.plan_to_fit(s.placement, lowered).peak_bytes;
    if (shortfall_of(job, s.placement, peak_bytes, lowered).total() > 0) return std::nullopt;
    return peak_bytes;
  };
  for (size_t kind = 0; kind < budgets.size(); ++kind) {
    if (s.over_bytes[kind] <= 0) continue;
    int64_t& needed = s.needed_bytes[kind];
    int64_t too_little = *budgets[kind], next = needed - 1;
    for (int tries = 0; tries < kMostTries && needed - too_little > 1; ++tries) {
      if (next <= too_little) next = too_little + (needed - too_little) / 2;
      if (const std::optional<BytesByKind> less = taken(kind, next)) {
        needed = next;
        s.over_bytes[kind] = next - *budgets[kind];
        s.peak_bytes = *less;
        next = std::min(budgeted_bytes(job.config(), *less)[kind], next - 1);
      } else {
        if (tries == 0) break;
        too_little = next;
      }
    }
  }
}

// Raises budgets to what a plan takes until one fits. Tiles and moves ahead grow with budgets, so
// from the third try on the budgets also exceed what the last plan took.
Shortfall enough(const Job& job, Shortfall s, const Budgets& budgets) {
  constexpr int kMostTries = 8;
  for (int tries = 0; tries < kMostTries && !s.is_enough; ++tries) {
    Budgets raised = budgets;
    for (size_t kind = 0; kind < raised.size(); ++kind) {
      if (s.over_bytes[kind] == 0) continue;
      if (tries > 1) s.needed_bytes[kind] += s.needed_bytes[kind] >> (kMostTries - tries);
      raised[kind] = s.needed_bytes[kind];
      s.over_bytes[kind] = *raised[kind] - *budgets[kind];
    }
    const BytesByKind peak_bytes = job.plan_to_fit(s.placement, raised).peak_bytes;
    if (shortfall_of(job, s.placement, peak_bytes, raised).total() == 0)
      s.is_enough = true, s.peak_bytes = peak_bytes;
    else
      s = shortfall_of(job, s.placement, peak_bytes, budgets);
  }
  if (s.is_enough) lower_to_the_least(job, s, budgets);
  return s;
}

// Returns "43.53 MiB (45645824 bytes) of disk, 3.53 MiB more than memory.disk = 40.00 MiB".
std::string describe_over(const Shortfall& s, const Budgets& budgets) {
  std::string text;
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (s.over_bytes[kind] > 0)
      text += fmt::format("{}{} ({} bytes) of {}, {} more than {} = {}",
                          text.empty() ? "" : ", and ", format_bytes(s.needed_bytes[kind]),
                          s.needed_bytes[kind], memory_kind_name(static_cast<MemoryKind>(kind)),
                          format_bytes(s.over_bytes[kind]), budget_key(kind),
                          format_bytes(*budgets[kind]));
  return text;
}

// Says so if evaluation takes more than any step, since other settings lower it.
std::string describe_evaluation(const TrainConfig& config, const JobPlan& plan) {
  if (program_kind(plan.peak_phase) != ProgramKind::kEval || !config.model.is_from_files())
    return {};
  int64_t step_bytes = 0;
  for (const JobPlan::Phase& phase : plan.phases)
    if (program_kind(phase.name) == ProgramKind::kStep)
      step_bytes = std::max(step_bytes, phase.peak_bytes[0]);
  return fmt::format(
      "evaluation, not training, is what fills the device: {} against {} of a step; a smaller "
      "eval.batch or eval.seq lowers it\n",
      format_bytes(plan.peak_bytes[0]), format_bytes(step_bytes));
}

constexpr size_t kShown = 12;

std::string describe_remedies(std::span<const Remedy> remedies) {
  std::string text = "what would lower it (each planned for this budget):\n";
  const std::span<const Remedy> shown = remedies.first(std::min(kShown, remedies.size()));
  size_t width = 0;
  for (const Remedy& r : shown) width = std::max(width, r.change.size());
  for (const Remedy& r : shown)
    text += fmt::format("  {:>11}  {:<{}}  {}{}\n", format_bytes(r.peak_bytes), r.change, width,
                        verdict_of(r), r.changes_numbers ? "; changes the numbers" : "");
  if (remedies.size() <= kShown) return text;
  const int64_t most = shown.back().peak_bytes;
  const bool need_more = std::all_of(remedies.begin() + kShown, remedies.end(),
                                     [&](const Remedy& r) { return r.peak_bytes >= most; });
  return text + fmt::format("  and {} more{}\n", remedies.size() - kShown,
                            need_more ? " that need over " + format_bytes(most) : "");
}

std::string describe_candidates(const Job& job, const Choice& choice) {
  std::string text = "what was tried, by its peak on the device:\n";
  for (size_t i = 0; i < std::min(kShown, choice.candidates.size()); ++i)
    text += fmt::format("  {:>11}  {}: {}\n",
                        format_bytes(device_bytes(job.config(), choice.candidates[i].peak_bytes)),
                        to_string(choice.candidates[i].placement), choice.candidates[i].verdict);
  if (choice.candidates.size() > kShown)
    text += fmt::format("  and {} more\n", choice.candidates.size() - kShown);
  return text;
}

// Returns the candidates with the peaks of the shortfalls that are shown.
Choice with_named_peaks(Choice choice, std::span<const Shortfall> near) {
  for (const Shortfall& s : near)
    for (Candidate& candidate : choice.candidates)
      if (s.is_enough && candidate.placement == s.placement) candidate.peak_bytes = s.peak_bytes;
  return choice;
}

}  // namespace

std::string settings_for(const Shortfall& shortfall) {
  std::string text;
  for (size_t kind = 0; kind < shortfall.over_bytes.size(); ++kind)
    if (shortfall.over_bytes[kind] > 0)
      // --memory takes precedence over its key.
      text +=
          (text.empty() ? "" : " ") +
          (kind == 0 ? fmt::format("--memory {}", shortfall.needed_bytes[kind])
                     : fmt::format("--set {}={}", budget_key(kind), shortfall.needed_bytes[kind]));
  return text;
}

std::string verdict_of(const Remedy& remedy) {
  if (!remedy.over) return "fits";
  return *remedy.over == MemoryKind::kDevice
             ? "still over"
             : fmt::format("too much for {}", memory_kind_name(*remedy.over));
}

std::string verdict_of(const Job& job, const Choice& choice, const Candidate& candidate) {
  if (!choice.plan || candidate.placement != choice.plan->placement) return candidate.verdict;
  if (job.config().memory.policy != "auto") return "asked for";
  if (choice.candidates.size() == 1) return "chosen: it fits and recomputes least";
  return choice.is_fastest ? fmt::format("chosen: the shortest step, simulated on {}",
                                         job.target()->description()->name)
                           : "chosen: the first that fits";
}

std::vector<Remedy> refusal_remedies(const Job& job, const Choice& choice,
                                     std::span<const Shortfall> near, const Budgets& budgets) {
  if (near[0].over_bytes[0] <= 0) return {};
  return plan_remedies(job, with_named_peaks(choice, near), budgets);
}

int64_t Shortfall::total() const {
  return std::accumulate(over_bytes.begin(), over_bytes.end(), int64_t{0});
}

std::vector<Shortfall> shortfalls(const Job& job, const Choice& choice, const Budgets& budgets) {
  const ProgressScope progress("planning jobs that need less");
  constexpr size_t kMostBeside = 3;
  // By memory kind, the nearest of the plans that exceed that memory alone; last, the nearest of
  // all.
  std::array<std::optional<Shortfall>, kNumMemoryKinds + 1> nearest;
  std::vector<Shortfall> on_device;
  for (const Candidate& candidate : choice.candidates) {
    const Shortfall s = shortfall_of(job, candidate.placement, candidate.peak_bytes, budgets);
    const auto keep = [&](std::optional<Shortfall>& kept) {
      if (!kept || s.total() < kept->total()) kept = s;
    };
    keep(nearest.back());
    for (size_t kind = 0; kind < budgets.size(); ++kind)
      if (s.over_bytes[kind] == s.total()) keep(nearest[kind]);
    if (is_all_on_device(candidate.placement)) on_device.push_back(s);
  }
  std::vector<Shortfall> all;
  for (const std::optional<Shortfall>& s : nearest)
    if (s && std::none_of(all.begin(), all.end(), [&](const Shortfall& other) {
          return other.placement == s->placement;
        }))
      all.push_back(enough(job, *s, budgets));
  const auto by_total = [](const Shortfall& a, const Shortfall& b) {
    return a.total() < b.total();
  };
  std::stable_sort(on_device.begin(), on_device.end(), by_total);
  // A memory may be too small for all of these without any of them exceeding it alone. Finds the
  // size that it would need.
  const TrainConfig& config = job.config();
  for (const MemoryKind kind : {MemoryKind::kPinnedHost, MemoryKind::kDisk}) {
    const auto k = static_cast<size_t>(kind);
    const bool is_there = kind == MemoryKind::kDisk ? config.memory.disk.has_value()
                                                    : config.is_virtual() && budgets[k];
    if (!is_there || std::any_of(all.begin(), all.end(),
                                 [&](const Shortfall& s) { return s.over_bytes[k] > 0; }))
      continue;
    Budgets open = budgets;
    open[k] = std::nullopt;
    const Choice other = find_fit(job, open);
    if (!other.plan) continue;
    const Shortfall s = shortfall_of(job, other.plan->placement, other.plan->peak_bytes, budgets);
    if (s.over_bytes[k] > 0) all.push_back(enough(job, s, budgets));
  }
  std::stable_sort(all.begin(), all.end(), by_total);
  // Placements that take a little more of the device alone may take less under a budget near the
  // one shown.
  if (!is_all_on_device(all[0].placement) || !all[0].is_enough) return all;
  on_device.resize(std::min(on_device.size(), kMostBeside));
  for (const Shortfall& other : on_device) {
    Budgets lowered = budgets;
    lowered[0] = all[0].needed_bytes[0] - 1;
    if (other.placement == all[0].placement) continue;
    const BytesByKind peak_bytes = job.plan_to_fit(other.placement, lowered).peak_bytes;
    if (shortfall_of(job, other.placement, peak_bytes, lowered).total() > 0) continue;
    const Shortfall s =
        enough(job, shortfall_of(job, other.placement, peak_bytes, budgets), budgets);
    if (s.is_enough && s.total() < all[0].total()) all[0] = s;
  }
  return all;
}

Json refusal_json(const std::string& why, const Shortfall& shortfall, const Budgets& budgets) {
  Json allowed = Json::object();
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    allowed.set(memory_kind_name(static_cast<MemoryKind>(kind)),
                budgets[kind] ? Json(*budgets[kind]) : Json());
  return Json::object({{"summary", true},
                       {"refused", why},
                       {"placement", to_string(shortfall.placement)},
                       {"needed_bytes", bytes_json(shortfall.needed_bytes)},
                       {"allowed_bytes", allowed},
                       {"over_bytes", bytes_json(shortfall.over_bytes)}});
}

std::string Job::describe() const {
  const std::string over =
      frozen_.empty() ? "" : fmt::format(" over {} that are frozen", n_frozen());
  const std::string times =
      config_.data.accumulate == 1 ? ""
                                   : fmt::format("{} microbatches of ", config_.data.accumulate);
  return fmt::format("{} parameters{}, {}; {}{} a step", n_parameters(), over, model_->describe(),
                     times, model_->describe_batch());
}

namespace {

std::string describe_collectives(const JobPlan& plan) {
  const std::vector<CollectiveCount>& counts = plan.programs.step->collectives();
  if (counts.empty()) return "";
  double bytes = 0;
  std::string kinds;
  for (const CollectiveCount& one : counts) {
    bytes += one.bytes;
    kinds += fmt::format("{}{} {} ({})", kinds.empty() ? "" : ", ", one.count, op_name(one.op),
                         format_bytes(static_cast<int64_t>(one.bytes)));
  }
  return fmt::format("a step sends {} a device: {}\n", format_bytes(static_cast<int64_t>(bytes)),
                     kinds);
}

}  // namespace

std::string describe_mesh(const Job& job) {
  const MeshShape& mesh = job.mesh();
  if (mesh.rank() == 0) return "";
  std::string axes;
  for (size_t i = 0; i < mesh.names.size(); ++i)
    axes += fmt::format("{}{} {}", i == 0 ? "" : " x ", mesh.names[i], mesh.extents[i]);
  return fmt::format("mesh: {}; sizes are those of one of {} devices", axes, mesh.size());
}

std::string describe_choice(const Job& job, const Choice& choice, const Budgets& budgets) {
  if (!choice.plan)
    return describe_refusal(job, choice, shortfalls(job, choice, budgets), {}, budgets);
  const JobPlan& plan = *choice.plan;
  const TrainConfig& c = job.config();
  std::string text = fmt::format("model: {}\n", job.describe());
  if (const std::string mesh = describe_mesh(job); !mesh.empty()) text += mesh + "\n";
  text += fmt::format("budget: {}\n",
                      budgets[0] ? format_bytes(*budgets[0]) : "none given, none assumed");
  size_t width = 11;
  for (const Candidate& candidate : choice.candidates)
    width = std::max(width, to_string(candidate.placement).size());
  for (const Candidate& candidate : choice.candidates) {
    text += fmt::format("  {:<{}} {:>11}  {}\n", to_string(candidate.placement), width,
                        format_bytes(device_bytes(c, candidate.peak_bytes)),
                        verdict_of(job, choice, candidate));
  }
  for (size_t kind = 1; kind < plan.peak_bytes.size(); ++kind)
    if (plan.peak_bytes[kind] > 0)
      text += fmt::format("{}: {}{}\n", memory_kind_name(static_cast<MemoryKind>(kind)),
                          format_bytes(plan.peak_bytes[kind]),
                          budgets[kind] ? " of " + format_bytes(*budgets[kind]) : "");
  text += describe_peak(plan);
  text += describe_evaluation(c, plan);
  text += describe_collectives(plan);
  text += fmt::format(
      "lower bound of this order: {} (the plan is {:.2f} % above); planned in {:.0f} ms\n",
      format_bytes(plan.lower_bound_bytes[0]),
      100.0 * (static_cast<double>(plan.peak_bytes[0]) /
                   static_cast<double>(plan.lower_bound_bytes[0]) -
               1.0),
      1e3 * plan.plan_s);
  if (plan.programs.step) {
    const MemoryAnalysis& analysis = plan.programs.step->memory_analysis();
    for (const std::string& limit : analysis.limits) text += fmt::format("limit: {}\n", limit);
    for (const std::string& note : analysis.notes) text += fmt::format("note: {}\n", note);
  }
  return text;
}

std::string describe_loss(const Job& job, const JobPlan& plan, std::span<const Remedy> remedies) {
  std::string text;
  for (const Remedy& r : remedies)
    text += fmt::format("{}: {}, {} less, the loss a part at a time{}\n", r.change,
                        format_bytes(r.peak_bytes),
                        format_bytes(device_bytes(job.config(), plan.peak_bytes) - r.peak_bytes),
                        r.changes_numbers ? "; changes the numbers" : "");
  return text;
}

std::string describe_refusal(const Job& job, const Choice& choice, std::span<const Shortfall> near,
                             std::span<const Remedy> remedies, const Budgets& budgets) {
  const Shortfall& first = near[0];
  std::string text;
  if (first.over_bytes[0] == first.total()) {
    text = fmt::format("the least plan ({}) needs {} ({} bytes), {} more than the budget of {}\n",
                       to_string(first.placement), format_bytes(first.needed_bytes[0]),
                       first.needed_bytes[0], format_bytes(first.over_bytes[0]),
                       format_bytes(*budgets[0]));
    Budgets raised = budgets;  // to what it needs
    raised[0] = first.needed_bytes[0];
    text += describe_peak(job.plan_to_fit(first.placement, raised));
  } else {
    text = fmt::format("no plan fits every memory; the nearest ({}) needs {}\n",
                       to_string(first.placement), describe_over(first, budgets));
  }
  if (near.size() > 1 || first.over_bytes[0] < first.total()) {
    std::string settings;
    for (const Shortfall& s : near)
      if (s.is_enough)
        settings += fmt::format("  {:<32}  for {}\n", settings_for(s), to_string(s.placement));
    if (!settings.empty()) text += "what would be enough (each planned):\n" + settings;
  }
  return text + (first.over_bytes[0] > 0
                     ? describe_remedies(remedies)
                     : describe_candidates(job, with_named_peaks(choice, near)));
}

}  // namespace stow
