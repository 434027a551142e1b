#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "stowage/base/error.h"
#include "stowage/base/parallel_in_order.h"
#include "stowage/base/progress.h"
#include "stowage/core/sums.h"
#include "stowage/train/dtypes.h"
#include "stowage/train/fit.h"

namespace stow {

namespace {

// If moves run ahead, a form of the loss is worth naming only if it saves this share with every
// move by itself. Smaller gains are lost to moves, which fill the budget.
constexpr double kWorthLess = 0.99;

constexpr int64_t kFewestChunks = 8;

int64_t power_of_two_up_to(int64_t most) {
  return most < 1 ? 0 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
}

// Returns the tokens of a chunk of the loss whose logits take little compared with the hidden
// states of all tokens; 0 if the batch is not worth chunks.
int64_t sensible_loss_chunk(const TrainConfig& config, const ModelSizes& sizes) {
  if (sizes.vocab == 0) return 0;
  const int64_t tokens = config.microbatch_tokens_per_device();
  const int64_t most = std::min(tokens / kFewestChunks,
                                tokens * sizes.width / sizes.vocab);
  return power_of_two_up_to(most);
}
// Returns the words of a block whose logits take no more than the hidden states; 0 if the head is
// not large compared with a layer.
int64_t sensible_vocab_block(const ModelSizes& sizes) {
  constexpr int64_t kLargeHead = 4;  // words a dimension
  if (sizes.vocab < kLargeHead * sizes.width) return 0;
  return power_of_two_up_to(std::min(sizes.vocab / kFewestChunks, sizes.width));
}

// Returns ways to compute the loss in parts, with the settings that request them.
std::vector<std::pair<std::string, TrainConfig>> loss_changes(const TrainConfig& config,
                                                              const ModelSizes& sizes) {
  std::vector<std::pair<std::string, TrainConfig>> changes;
  const auto change = [&](const std::string& setting, int64_t chunk, int64_t block) {
    TrainConfig c = config;
    c.train.loss_chunk = chunk;
    c.train.vocab_block = block;
    c.memory.loss = "auto";
    changes.emplace_back(setting +
                             (config.train.loss_chunk > 0 ? " --set train.loss_chunk=0" : "") +
                             (config.memory.loss != "auto" ? " --set memory.loss=auto" : ""),
                         c);
  };
  // A loss in chunks that change no result is chosen anyway, so larger chunks are not proposed.
  if (const int64_t chunk = sensible_loss_chunk(config, sizes);
      chunk > 0 && !config.has_loss_in_parts() &&
      !(can_chunk_loss(config, sizes) && chunk >= kProductBlock))
    change(fmt::format("--set train.loss_chunk={}", chunk), chunk, 0);
  if (const int64_t block = sensible_vocab_block(sizes);
      block > 0 && sizes.has_vocab_blocks && config.train.vocab_block == 0 &&
      config.mesh.model == 1)
    change(fmt::format("--set train.vocab_block={}", block), 0, block);
  return changes;
}

constexpr const char* kAuto = "auto";

// Returns the configuration without requests about memory.
TrainConfig with_nothing_asked(TrainConfig c) {
  TrainConfig::Memory& m = c.memory;
  m.policy = m.activations = m.optimizer = m.parameters = m.gradients = m.frozen = m.feed_forward =
      m.loss = kAuto;
  return c;
}

// Returns the settings that request a placement of `changed`, in addition to those of the
// configuration.
std::string settings_for(const TrainConfig& config, const ModelSizes& sizes, const Placement& p,
                         const TrainConfig& changed) {
  std::string text = fmt::format("--set memory.policy={}", policy_name(p.policy));
  const auto add = [&](const char* key, const std::string& asked, MemoryKind kind,
                       MemoryKind by_itself) {
    const std::string_view name = memory_kind_name(kind);
    if (asked == kAuto ? kind != by_itself : asked != name)
      text += fmt::format(" --set memory.{}={}", key, name);
  };
  const TrainConfig::Memory& m = config.memory;
  if (traits_of(p.policy).offloads)
    text += fmt::format(" --set memory.activations={}", memory_kind_name(p.activations));
  else if (m.activations != kAuto)
    text += " --set memory.activations=auto";
  add("optimizer", m.optimizer, p.optimizer, MemoryKind::kDevice);
  add("parameters", m.parameters, p.parameters, MemoryKind::kDevice);
  add("gradients", m.gradients, p.gradients, p.parameters);
  add("frozen", m.frozen, p.frozen, MemoryKind::kDevice);
  TrainConfig free = with_nothing_asked(changed);
  free.memory.policy = policy_name(p.policy);
  const auto add_form = [&](const char* key, const std::string& asked, bool is_chunked,
                            const std::vector<bool>& forms) {
    const char* form = is_chunked ? "chunked" : "whole";
    if (asked == kAuto ? forms.size() > 1 : asked != form)
      text += fmt::format(" --set memory.{}={}", key, form);
  };
  add_form("feed_forward", m.feed_forward, p.chunked, chunked_forms(free, sizes, p.policy));
  if (!changed.has_loss_in_parts())
    add_form("loss", m.loss, p.chunked_loss, chunked_loss_forms(free, sizes, p));
  return text;
}

}  // namespace

std::vector<Remedy> plan_remedies(const Job& asked_for, const Choice& choice,
                                  const Budgets& budgets) {
  const TrainConfig& config = asked_for.config();
  const ModelFactory& factory = asked_for.factory();
  const ModelSizes sizes = asked_for.model().sizes();
  const int threads = asked_for.threads();
  const ProgressScope progress("planning losses in parts");
  std::vector<Remedy> remedies;
  const auto weigh = [&](const std::string& change, const BytesByKind& peak_bytes,
                         bool changes_numbers) {
    remedies.push_back({change, device_bytes(config, peak_bytes), changes_numbers,
                        first_over(config, peak_bytes, budgets)});
  };
  const TrainConfig open = with_nothing_asked(config);
  // True if a configuration may request a placement; for some there is nothing to place.
  const auto can_be_asked = [&](const Placement& p) {
    TrainConfig c = open;
    c.memory.policy = policy_name(p.policy);
    if (traits_of(p.policy).offloads) c.memory.activations = memory_kind_name(p.activations);
    if (p.optimizer != MemoryKind::kDevice) c.memory.optimizer = memory_kind_name(p.optimizer);
    if (p.parameters != MemoryKind::kDevice) c.memory.parameters = memory_kind_name(p.parameters);
    if (p.gradients != p.parameters) c.memory.gradients = memory_kind_name(p.gradients);
    if (p.frozen != MemoryKind::kDevice) c.memory.frozen = memory_kind_name(p.frozen);
    try {
      const Job asked(c, asked_for.target(), factory);
      return true;
    } catch (const TraceError&) {
      return false;
    }
  };
  // If nothing is requested, this is the same job, with its traces and plans.
  std::optional<Job> free_job;
  if (config.memory != open.memory) free_job.emplace(open, asked_for.target(), factory);
  const Job& job = free_job ? *free_job : asked_for;
  std::vector<std::pair<BytesByKind, Placement>> tried;
  OverBudgetPlacements over_budget(open, budgets);
  std::vector<Placement> placements = open_placements(open, sizes);
  // Adds forms that were asked for and that open_placements() does not give.
  for (const Candidate& candidate : choice.candidates)
    if (std::find(placements.begin(), placements.end(), candidate.placement) == placements.end())
      placements.push_back(candidate.placement);
  using Work = std::function<BytesByKind()>;
  const auto candidate_of = [&](const Placement& placement) {
    return std::find_if(choice.candidates.begin(), choice.candidates.end(),
                        [&](const Candidate& r) { return r.placement == placement; });
  };
  // True for placements that were planned. Of placements that differ only beside the device, one is
  // shown if the other memories have room for it.
  const auto is_shown = [&](const Placement& placement) {
    return candidate_of(placement) != choice.candidates.end() ||
           (!over_budget.is_known(placement) && has_room_for_state(job, placement, budgets));
  };
  const auto begin = [&](size_t i) -> std::optional<Work> {
    const Placement& placement = placements[i];
    if (!is_shown(placement) || !can_be_asked(placement)) return std::nullopt;
    if (const auto known = candidate_of(placement); known != choice.candidates.end())
      return [known] { return known->peak_bytes; };
    return [&] { return job.plan_to_fit(placement, budgets).peak_bytes; };
  };
  parallel_in_order(placements.size(), threads, begin,
                    [&](size_t i, const BytesByKind& peak_bytes) {
                      if (!is_shown(placements[i])) return true;  // by now
                      if (!first_over(open, peak_bytes, budgets, 1))
                        over_budget.note(placements[i], peak_bytes);
                      tried.emplace_back(peak_bytes, placements[i]);
                      weigh(settings_for(config, sizes, placements[i], config), peak_bytes, false);
                      return true;
                    });
  // Keeps the placement that takes least; the one that takes least under another policy, which
  // another job may prefer; and the one that takes least if the other memories have room for it.
  std::stable_sort(tried.begin(), tried.end(), [&](const auto& a, const auto& b) {
    return device_bytes(open, a.first) < device_bytes(open, b.first);
  });
  const auto has_room_beside = [&budgets](const TrainConfig& c, const BytesByKind& peak_bytes) {
    return !first_over(c, peak_bytes, budgets, 1);
  };
  std::vector<Placement> least = {tried.front().second};
  for (const auto& [peak, placement] : tried)
    if (least.size() < 2 && placement.policy != least[0].policy) least.push_back(placement);
  const auto roomy = std::find_if(tried.begin(), tried.end(), [&](const auto& one) {
    return has_room_beside(open, one.first);
  });
  if (roomy != tried.end() && std::find(least.begin(), least.end(), roomy->second) == least.end())
    least.push_back(roomy->second);
  std::vector<std::pair<std::string, TrainConfig>> changes;
  const auto change = [&](const std::string& setting, auto&& apply) {
    apply(changes.emplace_back(setting, config).second);
  };
  // Processes fewer tokens at a time, with loss chunks that these still fill.
  const auto change_tokens = [&](std::string setting, int64_t batch, int64_t accumulate,
                                 int64_t seq) {
    const int64_t tokens = batch / config.mesh.batch_parts() * seq;
    if (tokens == 0) return;  // a device would have no sequence
    const bool is_cut = config.train.loss_chunk > tokens;
    if (is_cut) setting += fmt::format(" --set train.loss_chunk={}", tokens);
    change(setting, [=](TrainConfig& c) {
      c.data.batch = batch;
      c.data.accumulate = accumulate;
      c.data.seq = seq;
      if (is_cut) c.train.loss_chunk = tokens;
    });
  };
  const TrainConfig::Data& data = config.data;
  if (const int64_t batch = data.batch / 2; batch > 0)
    change_tokens(fmt::format("--set data.batch={}", batch), batch, data.accumulate, data.seq);
  // Makes the same update of smaller microbatches.
  if (const int64_t parts = data.batch % 2 == 0 ? 2 : data.batch; parts > 1)
    change_tokens(fmt::format("--set data.batch={} --set data.accumulate={}", data.batch / parts,
                              data.accumulate * parts),
                  data.batch / parts, data.accumulate * parts, data.seq);
  if (const int64_t seq = data.seq / 2; seq > 0)
    change_tokens(fmt::format("--set data.seq={}", seq), data.batch, data.accumulate, seq);
  const int64_t least_batch = config.mesh.batch_parts();
  if (config.model.is_from_files() && asked_for.model().evaluates() &&
      config.eval_batch() > least_batch)
    change(fmt::format("--set eval.batch={}", least_batch),
           [=](TrainConfig& c) { c.eval.batch = least_batch; });
  for (const ModelChange& of_model : asked_for.model().changes())
    change(of_model.setting, of_model.apply);
  if (const TrainConfig::Mesh& mesh = config.mesh; mesh.size() > 1) {
    change(fmt::format("--set mesh.data={}", 2 * mesh.data),
           [](TrainConfig& c) { c.mesh.data *= 2; });
    if (mesh.model > 1 && !mesh.sequence && data.seq % mesh.model == 0)
      change("--set mesh.sequence=true", [](TrainConfig& c) { c.mesh.sequence = true; });
  }
  if (config.train.compute == "f32")
    change("--set train.compute=bf16", [](TrainConfig& c) { c.train.compute = "bf16"; });
  // bf16 weights help if weights and gradients are a large part of the bytes.
  if (const DTypePolicy dtypes = dtype_policy(config.train.compute);
      dtypes.params == DType::kF32 && !config.lora.is_used()) {
    const std::string policy = "p=bf16,c=bf16,o=f32";
    change("--set train.compute=" + policy, [&](TrainConfig& c) { c.train.compute = policy; });
  }
  for (auto& changed : loss_changes(config, sizes)) changes.push_back(std::move(changed));
  // The best of those placements, with feed-forward blocks in either form. None if the change
  // removes something that the configuration requests, such as a tied head that is frozen by name.
  struct Found {
    Placement placement;
    BytesByKind peak_bytes{};
    ModelSizes sizes;  // of the changed model
  };
  using Best = std::optional<Found>;
  const auto plan_change = [&](size_t i) -> std::optional<std::function<Best()>> {
    return [&least, &budgets, &open, &has_room_beside, &factory,
            &changed = changes[i].second, target = asked_for.target()]() -> Best {
      Best best;
      try {
        const Job changed_job(changed, target, factory);
        const ModelSizes sizes = changed_job.model().sizes();
        TrainConfig open_form = changed;
        open_form.memory = open.memory;
        // Loops of microbatches take long to plan, so only the leanest placement is planned for
        // them.
        const size_t n = changed.data.accumulate > 1 ? 1 : least.size();
        for (const Placement& one : std::span(least).first(n))
          for (const Placement& placement : chunk_forms_of(open_form, sizes, one)) {
            const BytesByKind peak_bytes = changed_job.plan_to_fit(placement, budgets).peak_bytes;
            const auto rank = [&](const BytesByKind& peak) {
              return std::pair(!has_room_beside(changed, peak), device_bytes(changed, peak));
            };
            if (!best || rank(peak_bytes) < rank(best->peak_bytes))
              best = {placement, peak_bytes, sizes};
          }
      } catch (const TraceError&) {
        return {};
      }
      return best;
    };
  };
  parallel_in_order(changes.size(), threads, plan_change, [&](size_t i, const Best& found) {
    if (!found) return true;
    const auto& best = *found;
    const auto& [setting, changed] = changes[i];
    // A placement that is chosen by itself is only named; another one gets the settings that
    // request it.
    weigh(config.memory == open.memory
              ? fmt::format("{} ({})", setting, to_string(best.placement))
              : fmt::format("{} {}", setting,
                            settings_for(config, best.sizes, best.placement, changed)),
          best.peak_bytes, true);
    return true;
  });
  // Remedies that another memory has no room for come last.
  std::stable_sort(remedies.begin(), remedies.end(), [](const Remedy& a, const Remedy& b) {
    const auto rank = [](const Remedy& r) {
      return std::pair(r.over && *r.over != MemoryKind::kDevice, r.peak_bytes);
    };
    return rank(a) < rank(b);
  });
  return remedies;
}

std::vector<Remedy> loss_remedies(const Job& asked_for, const JobPlan& plan,
                                  const Budgets& budgets) {
  const TrainConfig& config = asked_for.config();
  const ModelSizes sizes = asked_for.model().sizes();
  const ProgressScope progress("planning losses in parts");
  std::vector<Remedy> remedies;
  if (config.has_loss_in_parts()) return remedies;
  // The bytes of the plan with every move by itself, since moves ahead may fill the budget in any
  // form.
  std::optional<int64_t> by_itself;
  const auto least_of_plan = [&] {
    if (!by_itself)
      by_itself =
          device_bytes(config, asked_for.plan_to_fit(plan.placement, budgets).peak_bytes);
    return *by_itself;
  };
  const auto weigh = [&](const std::string& change, const TrainConfig& changed, bool chunked_loss) {
    Placement placement = plan.placement;
    placement.chunked_loss = chunked_loss;
    const Job job(changed, asked_for.target(), asked_for.factory());
    JobPlan parts = job.plan_to_fit(placement, budgets);
    // Without a budget, moves ahead do not raise the peak.
    if (budgets[0] && job.moves(placement)) {
      const auto least = static_cast<double>(device_bytes(changed, parts.peak_bytes));
      if (least > kWorthLess * static_cast<double>(least_of_plan())) return;
      parts = with_moves_ahead(job, std::move(parts), budgets);
    }
    const int64_t needs = device_bytes(changed, parts.peak_bytes);
    if (needs >= device_bytes(config, plan.peak_bytes)) return;
    // Another placement would be chosen by itself, so this one needs settings.
    const bool is_first = is_all_on_device(placement) &&
                          open_placements(changed, sizes).front() == placement;
    remedies.push_back(
        {is_first ? change : change + " " + settings_for(changed, sizes, placement, changed),
         needs,
         !chunked_loss,
         {}});
  };
  if (can_chunk_loss(config, sizes) && !plan.placement.chunked_loss) {
    TrainConfig changed = config;
    changed.memory.loss = "chunked";
    weigh("--set memory.loss=chunked", changed, true);
  }
  for (const auto& [change, changed] : loss_changes(config, sizes)) weigh(change, changed, false);
  return remedies;
}

}  // namespace stow
