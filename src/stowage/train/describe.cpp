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

std::string describe_choice(const Job& job, const Choice& choice,
                            std::optional<int64_t> budget_bytes) {
  const JobPlan& plan = *choice.plan;
  const TrainConfig& c = job.config();
  std::string text = fmt::format(
      "model: {} parameters, {} layers of {}; {} sequences of {} tokens a step\n", job.n_parameters(),
      c.model.layers, c.model.dim, c.data.batch, c.data.seq);
  text += fmt::format("budget: {}\n",
                      budget_bytes ? format_bytes(*budget_bytes) : "none given, none assumed");
  for (const Rung& rung : choice.rungs) {
    const bool chosen = rung.policy == plan.policy;
    text += fmt::format("  {:<11} {:>11}  {}\n", rung.policy, format_bytes(rung.peak_bytes),
                        !chosen                          ? rung.verdict
                        : c.memory.policy != "auto"      ? "asked for"
                        : choice.rungs.size() == 1       ? "chosen: it fits and recomputes least"
                                                         : "chosen: the first that fits");
  }
  text += describe_peak(plan);
  text += fmt::format("lower bound of this order: {} (the plan is {:.2f} % above); planned in {:.0f} ms\n",
                      format_bytes(plan.lower_bound_bytes[0]),
                      100.0 * (static_cast<double>(plan.peak_bytes[0]) /
                                   static_cast<double>(plan.lower_bound_bytes[0]) -
                               1.0),
                      1e3 * plan.plan_s);
  return text;
}

std::string describe_refusal(const Job& job, const Choice& choice, int64_t budget_bytes,
                             int threads) {
  const JobPlan& least = choice.least;
  std::string text = fmt::format(
      "the least plan ({}) needs {} ({} bytes), {} more than the budget of {}\n", least.policy,
      format_bytes(least.peak_bytes[0]), least.peak_bytes[0],
      format_bytes(least.peak_bytes[0] - budget_bytes), format_bytes(budget_bytes));
  text += describe_peak(least);
  text += "what would lower it (each planned):\n";
  for (const Remedy& r : plan_remedies(job.config(), choice, threads))
    text += fmt::format("  {:>11}  {:<40} {}{}\n", format_bytes(r.peak_bytes), r.change,
                        r.peak_bytes <= budget_bytes ? "fits" : "still over",
                        r.changes_numbers ? "; changes the numbers" : "");
  return text;
}

}  // namespace stow
