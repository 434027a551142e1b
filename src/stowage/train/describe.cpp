#include "stowage/base/bytes.h"
#include "stowage/train/trainer.h"

namespace stow {
namespace {

std::string describe_peak(const JobPlan& plan) {
  const MemoryAnalysis& a = plan.peak_analysis();
  std::string text = fmt::format("peak of the run: {} in {}, at instant {} of {}: {}\n",
                                 format_bytes(plan.peak_bytes[0]), plan.peak_phase, a.peak_instant,
                                 a.n_instants, a.peak_at);
  for (size_t i = 0; i < std::min<size_t>(8, a.owners.size()); ++i) {
    const PeakOwner& o = a.owners[i];
    text += fmt::format("  {:>11}  {:<14} {}\n", format_bytes(o.bytes), o.what, o.source);
  }
  return text;
}

}  // namespace

std::string describe_choice(const Job& job, const Choice& choice, const Budgets& budgets) {
  const JobPlan& plan = *choice.plan;
  const TrainConfig& c = job.config();
  std::string text = fmt::format(
      "model: {} parameters, {} layers of {}; {} sequences of {} tokens a step\n", job.n_parameters(),
      c.model.layers, c.model.dim, c.data.batch, c.data.seq);
  text += fmt::format("budget: {}\n",
                      budgets[0] ? format_bytes(*budgets[0]) : "none given, none assumed");
  size_t width = 11;
  for (const Rung& rung : choice.rungs) width = std::max(width, to_string(rung.placement).size());
  for (const Rung& rung : choice.rungs) {
    const bool chosen = rung.placement == plan.placement;
    text += fmt::format("  {:<{}} {:>11}  {}\n", to_string(rung.placement), width,
                        format_bytes(device_bytes(c, rung.peak_bytes)),
                        !chosen                     ? rung.verdict
                        : c.memory.policy != "auto" ? "asked for"
                        : choice.rungs.size() == 1  ? "chosen: it fits and recomputes least"
                                                    : "chosen: the first that fits");
  }
  for (size_t kind = 1; kind < plan.peak_bytes.size(); ++kind)
    if (plan.peak_bytes[kind] > 0)
      text += fmt::format("{}: {}{}\n", memory_kind_name(static_cast<MemoryKind>(kind)),
                          format_bytes(plan.peak_bytes[kind]),
                          budgets[kind] ? " of " + format_bytes(*budgets[kind]) : "");
  text += describe_peak(plan);
  text += fmt::format("lower bound of this order: {} (the plan is {:.2f} % above); planned in {:.0f} ms\n",
                      format_bytes(plan.lower_bound_bytes[0]),
                      100.0 * (static_cast<double>(plan.peak_bytes[0]) /
                                   static_cast<double>(plan.lower_bound_bytes[0]) -
                               1.0),
                      1e3 * plan.plan_s);
  return text;
}

std::string describe_refusal(const Job& job, const Choice& choice, const Budgets& budgets,
                             int threads) {
  constexpr size_t kShown = 12;
  const JobPlan& least = choice.least;
  const int64_t needed = device_bytes(job.config(), least.peak_bytes);
  const int64_t budget_bytes = budgets[0].value_or(needed);
  if (needed <= budget_bytes) {
    std::string text = fmt::format("no plan fits every memory; the least on the device ({}):\n",
                                   to_string(least.placement));
    for (const Rung& rung : choice.rungs)
      text += fmt::format("  {}: {} on the device; {}\n", to_string(rung.placement),
                          format_bytes(rung.peak_bytes[0]), rung.verdict);
    return text;
  }
  std::string text = fmt::format(
      "the least plan ({}) needs {} ({} bytes), {} more than the budget of {}\n",
      to_string(least.placement), format_bytes(needed), needed, format_bytes(needed - budget_bytes),
      format_bytes(budget_bytes));
  text += describe_peak(least);
  text += "what would lower it (each planned):\n";
  const std::vector<Remedy> remedies = plan_remedies(job.config(), choice, threads);
  for (size_t i = 0; i < std::min(kShown, remedies.size()); ++i) {
    const Remedy& r = remedies[i];
    text += fmt::format("  {:>11}  {:<40} {}{}\n", format_bytes(r.peak_bytes), r.change,
                        r.peak_bytes <= budget_bytes ? "fits" : "still over",
                        r.changes_numbers ? "; changes the numbers" : "");
  }
  if (remedies.size() > kShown)
    text += fmt::format("  and {} more that need over {}\n", remedies.size() - kShown,
                        format_bytes(remedies[kShown - 1].peak_bytes));
  return text;
}

}  // namespace stow
