#include "stowage/plan/memory_plan.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>

#include "stowage/base/bytes.h"
#include "stowage/base/scoped_cache.h"
#include "stowage/core/disk_blocks.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/pack/exact.h"
#include "stowage/pack/heuristics.h"
#include "stowage/plan/condense.h"
#include "stowage/plan/packing_cache.h"
#include "stowage/plan/owner_timeline.h"

namespace stow {
namespace {

// The alignment of each buffer. The ends of disk moves and their bounce buffers are marked: a
// transfer to or from a disk needs no copy if both ends lie on blocks.
std::vector<int64_t> alignments_of(const Schedule& schedule) {
  std::vector<bool> marked(schedule.buffers.size(), false);
  for_each_kernel(schedule.instructions, [&](const Kernel& kernel) {
    if (kernel.op != OpKind::kDevicePut) return;
    const size_t from = kernel.inputs[0].buffer.index(), to = kernel.outputs[0].buffer.index();
    if (schedule.buffers[from].kind == MemoryKind::kDisk ||
        schedule.buffers[to].kind == MemoryKind::kDisk)
      marked[from] = marked[to] = true;
    if (kernel.scratch.valid()) marked[kernel.scratch.index()] = marked[from];
  });
  std::vector<int64_t> alignments;
  for (size_t b = 0; b < marked.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    const int64_t on_disk =
        disk_alignment(buffer.independent_slots ? buffer.slot_bytes : buffer.bytes);
    alignments.push_back(std::max(schedule.alignment_bytes, marked[b] ? on_disk : 0));
  }
  return alignments;
}

// The entries of one kind as a problem of their own.
struct KindProblem {
  MemoryKind kind;
  pack::Problem problem;
  std::vector<size_t> entries;
};
KindProblem problem_of(const Schedule& schedule, const Lifetimes& lifetimes,
                       const pack::Problem& problem, const std::vector<int64_t>& alignments,
                       MemoryKind kind) {
  KindProblem result{kind, {}, {}};
  for (size_t e = 0; e < lifetimes.owner.size(); ++e) {
    if (schedule.buffers[lifetimes.owner[e].index()].kind != kind) continue;
    result.problem.buffers.push_back(problem.buffers[e]);
    result.problem.buffers.back().alignment = alignments[lifetimes.owner[e].index()];
    result.entries.push_back(e);
  }
  return result;
}

void fill_owners(const Schedule& schedule, const Lifetimes& lifetimes, int64_t instant,
                 MemoryAnalysis& analysis) {
  std::map<std::pair<std::string, std::string>, PeakOwner> owners;
  const auto add = [&](const Buffer& buffer, int64_t offset, int64_t bytes) {
    const PeakOwner whose = owner_at(buffer, offset);
    PeakOwner& owner = owners[{whose.source, whose.what}];
    owner.bytes += bytes;
    ++owner.count;
  };
  for (const Buffer& buffer : schedule.buffers)
    if (buffer.role == BufferRole::kInput && buffer.kind == MemoryKind::kDevice)
      add(buffer, 0, buffer.bytes);
  for (size_t e = 0; e < lifetimes.owner.size(); ++e) {
    const Buffer& buffer = schedule.buffers[lifetimes.owner[e].index()];
    if (buffer.kind != MemoryKind::kDevice) continue;
    for (const pack::Rect& rect : lifetimes.problem.buffers[e].rects)
      if (rect.lower <= instant && instant < rect.upper) add(buffer, rect.offset, rect.size);
  }
  for (auto& [key, owner] : owners) {
    owner.source = key.first;
    owner.what = key.second;
    analysis.owners.push_back(owner);
  }
  std::stable_sort(analysis.owners.begin(), analysis.owners.end(),
                   [](const PeakOwner& a, const PeakOwner& b) { return a.bytes > b.bytes; });
}

int64_t max_in_flight_bytes(const Schedule& schedule, const Lifetimes& lifetimes) {
  std::map<int, std::deque<int64_t>> started;  // by transfer
  int64_t now = 0, most = 0;
  for (const Kernel* kernel : lifetimes.at) {
    if (kernel->phase == MovePhase::kWhole) continue;
    std::deque<int64_t>& moves = started[kernel->transfer];
    if (kernel->phase == MovePhase::kDone) {
      if (moves.empty()) continue;  // of an iteration that was not walked
      now -= moves.front();
      moves.pop_front();
      continue;
    }
    int64_t bytes = 0;
    for (const View* view : {&kernel->inputs[0], &kernel->outputs[0]})
      if (schedule.buffers[view->buffer.index()].kind == MemoryKind::kDevice)
        bytes += view->elems() * dtype_bytes(view->dtype);
    moves.push_back(bytes);
    most = std::max(most, now += bytes);
  }
  return most;
}

// The rectangle around all rectangles of a buffer; its size is a multiple of the alignment.
pack::Rect hull(const std::vector<pack::Rect>& rects, int64_t alignment) {
  pack::Rect all{0, 0, rects[0].lower, rects[0].upper};
  for (const pack::Rect& rect : rects) {
    all.lower = std::min(all.lower, rect.lower);
    all.upper = std::max(all.upper, rect.upper);
    all.size = std::max(all.size, rect.offset + rect.size);
  }
  return {0, align_up(all.size, alignment), all.lower, all.upper};
}

// Search where greedy packing left a gap, for `enough` bytes or the least: exact of few buffers,
// raising skylines of many. Returns false if there are too many buffers for any of it.
bool search_further(const pack::Problem& problem, const PackEffort& effort, int64_t enough,
                    pack::Solution& best) {
  const auto is_good = [&](int64_t bound) {
    return best.height <= enough ||
           static_cast<double>(best.height) <= (1 + kGoodGap) * static_cast<double>(bound);
  };
  if (effort.search_s <= 0 || is_good(pack::lower_bound(problem))) return true;
  if (problem.buffers.size() > effort.max_searched_buffers) return false;
  // Plain rectangles, sizes in whole alignments, as the search wants them; offsets for those do for
  // the buffers.
  pack::Problem plain = problem;
  int64_t alignment = 1;
  for (const pack::Buffer& b : problem.buffers) alignment = std::max(alignment, b.alignment);
  for (pack::Buffer& b : plain.buffers)
    if (!b.rects.empty()) b.rects = {hull(b.rects, alignment)};
  const int64_t bound = pack::lower_bound(plain);
  if (is_good(bound)) return true;
  pack::ExactOptions options{.time_limit_s = effort.search_s, .counted = true};
  if (enough >= bound) options.capacity = enough;
  const Result<pack::ExactResult> found = pack::pack_exact(plain, options);
  STOW_CHECK(found.ok(), "{}", found.error());
  const int64_t height = pack::height_of(problem, found->solution.offsets);
  if (height < best.height) best = {found->solution.offsets, height};
  return true;
}

// The solver of one kind's problem, which every layout is given.
using Packer = std::function<pack::Solution(const KindProblem&)>;

MemoryPlan lay_out(const Schedule& schedule, const Packer& packer) {
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  const std::vector<int64_t> alignments = alignments_of(schedule);
  // Short timelines are quickly packed as they are.
  constexpr size_t kLong = 10'000;
  const bool is_long = lifetimes.at.size() >= kLong && !lifetimes.runs.empty();
  const pack::Problem condensed =
      is_long ? condense(lifetimes.problem, kept_before(lifetimes)) : pack::Problem();
  const pack::Problem& asked = is_long ? condensed : lifetimes.problem;
  MemoryPlan plan;
  MemoryAnalysis& a = plan.analysis;
  plan.offsets.resize(schedule.buffers.size());
  for (int i = 0; i < kNumMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    const KindProblem p = problem_of(schedule, lifetimes, asked, alignments, kind);
    const pack::Solution solution = packer(p);
    // On the whole timeline: condensing may leave out nothing that matters.
    const KindProblem whole =
        is_long ? problem_of(schedule, lifetimes, lifetimes.problem, alignments, kind)
                : KindProblem{kind, {}, {}};
    const Result<void> valid = pack::validate(is_long ? whole.problem : p.problem, solution);
    STOW_CHECK(valid.ok(), "{}", valid.error());
    for (size_t e = 0; e < p.entries.size(); ++e)
      plan.offsets[lifetimes.owner[p.entries[e]].index()].push_back(solution.offsets[e]);

    KindAnalysis& k = a.kinds[static_cast<size_t>(i)];
    int64_t separate_bytes = 0;
    for (const View& view : schedule.inputs)
      if (const Buffer& b = schedule.buffers[view.buffer.index()]; b.kind == kind)
        k.argument_bytes += b.bytes;
    for (const View& view : schedule.outputs) {
      const Buffer& b = schedule.buffers[view.buffer.index()];
      if (b.kind != kind) continue;
      k.output_bytes += b.bytes;
      if (b.role == BufferRole::kInput) k.alias_bytes += b.bytes;
    }
    for (const Buffer& b : schedule.buffers)
      if (b.kind == kind && b.outside_arena) separate_bytes += b.bytes;
    plan.arena_bytes[static_cast<size_t>(i)] = k.arena_bytes = solution.height;
    k.total_bytes = k.argument_bytes + separate_bytes + k.arena_bytes;
    k.temp_bytes = k.total_bytes - k.argument_bytes - k.output_bytes + k.alias_bytes;
    k.lower_bound_bytes = k.argument_bytes + separate_bytes + pack::lower_bound(p.problem);
  }
  const std::vector<int64_t> live = live_bytes(schedule, lifetimes, MemoryKind::kDevice);
  a.n_instants = static_cast<int64_t>(lifetimes.at.size());
  a.in_flight_bytes = max_in_flight_bytes(schedule, lifetimes);
  a.peak_instant = std::max_element(live.begin(), live.end()) - live.begin();
  if (a.peak_instant < a.n_instants) {
    const Kernel& kernel = *lifetimes.at[static_cast<size_t>(a.peak_instant)];
    a.peak_at = fmt::format("{} at {}", op_name(kernel.op), to_string(kernel.provenance));
  }
  fill_owners(schedule, lifetimes, a.peak_instant, a);
  for (const std::vector<std::string>* limits : {&schedule.limits, &lifetimes.limits})
    for (const std::string& limit : *limits)
      if (std::find(a.limits.begin(), a.limits.end(), limit) == a.limits.end())
        a.limits.push_back(limit);
  return plan;
}

}  // namespace

PeakOwner owner_at(const Buffer& buffer, int64_t offset) {
  PeakOwner owner;
  if (buffer.role == BufferRole::kInput) {
    owner.source = buffer.label.substr(0, buffer.label.find('/'));
    owner.what = "argument";
    return owner;
  }
  ProvenancePtr whose = buffer.provenance;
  if (!buffer.part_provenance.empty()) {
    const int64_t inside = offset % buffer.slot_bytes;
    const auto part = std::upper_bound(buffer.parts.begin(), buffer.parts.end(), inside) - 1;
    whose = buffer.part_provenance[static_cast<size_t>(part - buffer.parts.begin())];
  }
  owner.source = source_path(whose);
  owner.what = buffer.role == BufferRole::kOutput ? "output" : buffer.label;
  return owner;
}

std::vector<int64_t> live_bytes(const Schedule& schedule, const Lifetimes& lifetimes,
                                MemoryKind kind) {
  std::vector<int64_t> change(lifetimes.at.size() + 2, 0);
  for (size_t e = 0; e < lifetimes.owner.size(); ++e) {
    if (schedule.buffers[lifetimes.owner[e].index()].kind != kind) continue;
    for (const pack::Rect& rect : lifetimes.problem.buffers[e].rects) {
      change[static_cast<size_t>(rect.lower)] += rect.size;
      change[static_cast<size_t>(rect.upper)] -= rect.size;
    }
  }
  for (size_t t = 1; t < change.size(); ++t) change[t] += change[t - 1];
  return change;
}

double gap(const MemoryPlan& plan) {
  constexpr int64_t kNegligibleBytes = 1024;
  const KindAnalysis& k = plan.analysis.device();
  const int64_t over = k.total_bytes - k.lower_bound_bytes;
  return over <= kNegligibleBytes
             ? 0
             : static_cast<double>(over) / static_cast<double>(k.total_bytes);
}

std::array<int64_t, kNumMemoryKinds> bytes_outside_arena(const Schedule& schedule) {
  std::array<int64_t, kNumMemoryKinds> bytes{};
  for (const Buffer& b : schedule.buffers)
    if (b.role == BufferRole::kInput || b.outside_arena)
      bytes[static_cast<size_t>(b.kind)] += b.bytes;
  return bytes;
}

PeakBound peak_bound(const Schedule& schedule) {
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  PeakBound bound;
  bound.n_instants = static_cast<int64_t>(lifetimes.at.size());
  bound.bytes = bytes_outside_arena(schedule);
  for (size_t kind = 0; kind < bound.bytes.size(); ++kind) {
    const std::vector<int64_t> live =
        live_bytes(schedule, lifetimes, static_cast<MemoryKind>(kind));
    bound.bytes[kind] += *std::max_element(live.begin(), live.end());
  }
  return bound;
}

namespace {

// Reordering gains nothing after so many steps a buffer without a gain: none of 2700 plans of
// random programs and of training jobs did. It is half of what planning a small program takes.
constexpr int64_t kPatience = 20'000;

ScopedCache<pack::Solution>& packing_cache() {
  static ScopedCache<pack::Solution> cache;
  return cache;
}

std::vector<int64_t> numbers_of(const pack::Problem& problem, int64_t work) {
  std::vector<int64_t> numbers{work};
  for (const pack::Buffer& b : problem.buffers) {
    numbers.insert(numbers.end(), {b.alignment, static_cast<int64_t>(b.rects.size())});
    for (const pack::Rect& r : b.rects)
      numbers.insert(numbers.end(), {r.offset, r.size, r.lower, r.upper});
  }
  return numbers;
}

pack::Solution pack_greedily(const pack::Problem& problem, int64_t work) {
  // Compiling must not take longer than a step: a small program's windows are quickly packed.
  pack::Options options;
  options.work = work;
  options.patience = kPatience;
  options.window_buffers = 256;
  return packing_cache().find([&] { return numbers_of(problem, work); },
                              [&] { return pack::pack_greedy(problem, options); });
}

}  // namespace

PackingCacheScope::PackingCacheScope() { packing_cache().begin_scope(); }
PackingCacheScope::~PackingCacheScope() { packing_cache().end_scope(); }
size_t PackingCacheScope::n_reused() { return packing_cache().n_reused(); }

MemoryPlan make_plan(const Schedule& schedule, const PackEffort& effort) {
  std::vector<std::string> limits;
  MemoryPlan plan = lay_out(schedule, [&](const KindProblem& p) {
    pack::Solution solution = pack_greedily(p.problem, effort.work);
    const int64_t enough = p.kind == MemoryKind::kDevice ? effort.sufficient_arena_bytes : 0;
    if (!search_further(p.problem, effort, enough, solution))
      limits.push_back(fmt::format(
          "pack: {} buffers on {} were packed greedily; up to {} are searched further",
          p.problem.buffers.size(), memory_kind_name(p.kind), effort.max_searched_buffers));
    return solution;
  });
  plan.analysis.limits.insert(plan.analysis.limits.end(), limits.begin(), limits.end());
  return plan;
}

MemoryPlan make_plan_without_reuse(const Schedule& schedule) {
  return lay_out(schedule, [](const KindProblem& p) {
    pack::Solution solution;
    int64_t at = 0;
    for (const pack::Buffer& buffer : p.problem.buffers) {
      int64_t bytes = 0;
      for (const pack::Rect& rect : buffer.rects) bytes = std::max(bytes, rect.offset + rect.size);
      at = align_up(at, buffer.alignment);
      solution.offsets.push_back(at);
      at += bytes;
    }
    solution.height = pack::height_of(p.problem, solution.offsets);
    return solution;
  });
}

std::string timeline_csv(const Schedule& schedule, const MemoryPlan& plan) {
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  const std::vector<int64_t> live = live_bytes(schedule, lifetimes, MemoryKind::kDevice);
  std::string text = "instant,kernel,source,pass,live_bytes\n";
  for (size_t t = 0; t < lifetimes.at.size(); ++t)
    text += fmt::format("{},{},\"{}\",{},{}\n", t, op_name(lifetimes.at[t]->op),
                        source_path(lifetimes.at[t]->provenance),
                        pass_name(pass_of(lifetimes.at[t]->provenance)), live[t]);
  text += "\nid,lower,upper,size,offset,kind,label,source,pass\n";
  for (size_t e = 0; e < lifetimes.owner.size(); ++e) {
    const size_t b = lifetimes.owner[e].index();
    const Buffer& buffer = schedule.buffers[b];
    const int64_t base = plan.offsets[b][static_cast<size_t>(lifetimes.slot(e))];
    for (const pack::Rect& rect : lifetimes.problem.buffers[e].rects)
      text += fmt::format("{},{},{},{},{},{},{},\"{}\",{}\n", e, rect.lower, rect.upper, rect.size,
                          base + rect.offset, memory_kind_name(buffer.kind), buffer.label,
                          source_path(buffer.provenance), pass_name(pass_of(buffer.provenance)));
  }
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
  if (analysis.in_flight_bytes > 0)
    text += fmt::format("moves under way: at most {} of the device\n",
                        format_bytes(analysis.in_flight_bytes));
  if (analysis.kept_resident_bytes > 0)
    text += fmt::format("not moved: {} a run, kept on the device\n",
                        format_bytes(analysis.kept_resident_bytes));
  text += fmt::format("peak at instant {} of {}: {}\n", analysis.peak_instant, analysis.n_instants,
                      analysis.peak_at);
  for (size_t i = 0; i < std::min(max_owners, analysis.owners.size()); ++i) {
    const PeakOwner& o = analysis.owners[i];
    text += fmt::format("  {:>12}  {:<10} {}\n", format_bytes(o.bytes), o.what, o.source);
  }
  for (const std::string& limit : analysis.limits) text += fmt::format("limit: {}\n", limit);
  for (const std::string& note : analysis.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace stow
