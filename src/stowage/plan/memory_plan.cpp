#include "stowage/plan/memory_plan.h"

#include <algorithm>
#include <map>

#include "stowage/base/bytes.h"
#include "stowage/pack/heuristics.h"

namespace stow {
namespace {

// Live bytes after each instant's begin, by the rectangles alone.
std::vector<int64_t> live_sums(const Lifetimes& lifetimes) {
  std::vector<int64_t> change(lifetimes.at.size() + 2, 0);
  for (const pack::Buffer& buffer : lifetimes.problem.buffers)
    for (const pack::Rect& rect : buffer.rects) {
      change[static_cast<size_t>(rect.lower)] += rect.size;
      change[static_cast<size_t>(rect.upper)] -= rect.size;
    }
  for (size_t t = 1; t < change.size(); ++t) change[t] += change[t - 1];
  return change;
}

void fill_owners(const Schedule& schedule, const Lifetimes& lifetimes, int64_t instant,
                 MemoryAnalysis& analysis) {
  std::map<std::pair<std::string, std::string>, PeakOwner> owners;
  const auto add = [&](const Buffer& buffer, int64_t offset, const std::string& what,
                       int64_t bytes) {
    ProvenancePtr whose = buffer.provenance;
    if (!buffer.part_provenance.empty()) {
      const int64_t inside = offset % buffer.slot_bytes;
      const auto part = std::upper_bound(buffer.parts.begin(), buffer.parts.end(), inside) - 1;
      whose = buffer.part_provenance[static_cast<size_t>(part - buffer.parts.begin())];
    }
    PeakOwner& owner = owners[{to_string(whose), what}];
    owner.bytes += bytes;
    ++owner.count;
  };
  for (size_t b = 0; b < schedule.buffers.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    if (buffer.role == BufferRole::kInput) {
      PeakOwner& owner = owners[{buffer.label.substr(0, buffer.label.find('/')), "argument"}];
      owner.bytes += buffer.bytes;
      ++owner.count;
      continue;
    }
    for (const pack::Rect& rect : lifetimes.problem.buffers[b].rects)
      if (rect.lower <= instant && instant < rect.upper)
        add(buffer, rect.offset, buffer.role == BufferRole::kOutput ? "output" : buffer.label,
            rect.size);
  }
  for (auto& [key, owner] : owners) {
    owner.source = key.first;
    owner.what = key.second;
    analysis.owners.push_back(owner);
  }
  std::stable_sort(analysis.owners.begin(), analysis.owners.end(),
                   [](const PeakOwner& a, const PeakOwner& b) { return a.bytes > b.bytes; });
}

MemoryPlan finish_plan(const Schedule& schedule, const Lifetimes& lifetimes,
                       const pack::Solution& solution) {
  const Result<void> valid = pack::validate(lifetimes.problem, solution);
  STOW_CHECK(valid.ok(), "{}", valid.error());
  MemoryPlan plan;
  plan.offsets = solution.offsets;
  plan.arena_bytes = solution.height;
  MemoryAnalysis& a = plan.analysis;
  KindAnalysis& k = a.kinds[0];
  for (const View& view : schedule.inputs)
    k.argument_bytes += schedule.buffers[view.buffer.index()].bytes;
  for (const View& view : schedule.outputs) {
    const Buffer& buffer = schedule.buffers[view.buffer.index()];
    k.output_bytes += buffer.bytes;
    if (buffer.role == BufferRole::kInput) k.alias_bytes += buffer.bytes;
  }
  int64_t separate_bytes = 0;
  for (const Buffer& buffer : schedule.buffers)
    if (is_separate_output(buffer)) separate_bytes += buffer.bytes;
  k.arena_bytes = plan.arena_bytes;
  k.total_bytes = k.argument_bytes + separate_bytes + k.arena_bytes;
  k.temp_bytes = k.total_bytes - k.argument_bytes - k.output_bytes + k.alias_bytes;
  k.lower_bound_bytes = k.argument_bytes + separate_bytes + pack::lower_bound(lifetimes.problem);

  const std::vector<int64_t> live = live_sums(lifetimes);
  a.n_instants = static_cast<int64_t>(lifetimes.at.size());
  a.peak_instant = std::max_element(live.begin(), live.end()) - live.begin();
  if (a.peak_instant < a.n_instants) {
    const Kernel& kernel = *lifetimes.at[static_cast<size_t>(a.peak_instant)];
    a.peak_at = fmt::format("{} at {}", op_name(kernel.op), to_string(kernel.provenance));
  }
  fill_owners(schedule, lifetimes, a.peak_instant, a);
  return plan;
}

}  // namespace

MemoryPlan make_plan(const Schedule& schedule, int64_t work) {
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  pack::Options options;
  options.work = work;
  return finish_plan(schedule, lifetimes, pack::pack_greedy(lifetimes.problem, options));
}

MemoryPlan make_plan_apart(const Schedule& schedule) {
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  pack::Solution solution;
  for (size_t b = 0; b < schedule.buffers.size(); ++b) {
    solution.offsets.push_back(solution.height);
    if (!lifetimes.problem.buffers[b].rects.empty())
      solution.height = align_up(solution.height + schedule.buffers[b].bytes, 64);
  }
  solution.height = pack::height_of(lifetimes.problem, solution.offsets);
  return finish_plan(schedule, lifetimes, solution);
}

std::string timeline_csv(const Schedule& schedule, const MemoryPlan& plan) {
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  const std::vector<int64_t> live = live_sums(lifetimes);
  std::string text = "instant,kernel,source,live_bytes\n";
  for (size_t t = 0; t < lifetimes.at.size(); ++t)
    text += fmt::format("{},{},\"{}\",{}\n", t, op_name(lifetimes.at[t]->op),
                        to_string(lifetimes.at[t]->provenance), live[t]);
  text += "\nid,lower,upper,size,offset,label,source\n";
  for (size_t b = 0; b < schedule.buffers.size(); ++b)
    for (const pack::Rect& rect : lifetimes.problem.buffers[b].rects)
      text += fmt::format("{},{},{},{},{},{},\"{}\"\n", b, rect.lower, rect.upper, rect.size,
                          plan.offsets[b] + rect.offset, schedule.buffers[b].label,
                          to_string(schedule.buffers[b].provenance));
  return text;
}

std::string to_string(const MemoryAnalysis& analysis, size_t max_owners) {
  std::string text;
  for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
    const KindAnalysis& k = analysis.kinds[static_cast<size_t>(kind)];
    if (k.total_bytes == 0) continue;
    text += fmt::format(
        "{}: total {} = argument {} + output {} - alias {} + temp {}; lower bound {}\n",
        memory_kind_name(static_cast<MemoryKind>(kind)), format_bytes(k.total_bytes),
        format_bytes(k.argument_bytes), format_bytes(k.output_bytes), format_bytes(k.alias_bytes),
        format_bytes(k.temp_bytes), format_bytes(k.lower_bound_bytes));
  }
  text += fmt::format("peak at instant {} of {}: {}\n", analysis.peak_instant, analysis.n_instants,
                      analysis.peak_at);
  for (size_t i = 0; i < std::min(max_owners, analysis.owners.size()); ++i) {
    const PeakOwner& o = analysis.owners[i];
    text += fmt::format("  {:>12}  {:<10} {}\n", format_bytes(o.bytes), o.what, o.source);
  }
  return text;
}

}  // namespace stow
