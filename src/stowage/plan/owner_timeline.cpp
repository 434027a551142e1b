#include "stowage/plan/owner_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "stowage/plan/memory_plan.h"

namespace stow {
namespace {

OwnerUse use_of(const Buffer& buffer) {
  if (buffer.role == BufferRole::kInput) return OwnerUse::kArgument;
  if (buffer.role == BufferRole::kOutput) return OwnerUse::kResult;
  if (buffer.label == "residual") return OwnerUse::kResidual;
  if (buffer.label == "scratch") return OwnerUse::kScratch;
  return pass_of(buffer.provenance) == Pass::kVjp ? OwnerUse::kBackward : OwnerUse::kForward;
}

// The first of the fullest instants in each of at most `most` stretches.
std::vector<int64_t> fullest_instants(const std::vector<int64_t>& live, size_t most) {
  const size_t n = live.size(), columns = std::min(n, std::max<size_t>(most, 1));
  std::vector<int64_t> instants;
  for (size_t c = 0; c < columns; ++c) {
    const auto begin = live.begin() + static_cast<std::ptrdiff_t>(n * c / columns);
    const auto end = live.begin() + static_cast<std::ptrdiff_t>(n * (c + 1) / columns);
    instants.push_back(std::max_element(begin, end) - live.begin());
  }
  return instants;
}

}  // namespace

OwnerTimeline owner_timeline(const Schedule& schedule, MemoryKind kind, size_t max_columns) {
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  std::vector<int64_t> live = live_bytes(schedule, lifetimes, kind);
  live.resize(lifetimes.at.size() + 1);  // nothing is there behind the end
  OwnerTimeline timeline;
  timeline.n_instants = static_cast<int64_t>(lifetimes.at.size());
  timeline.instants = fullest_instants(live, max_columns);
  const std::vector<int64_t>& instants = timeline.instants;
  for (const int64_t t : instants) {
    if (t == timeline.n_instants) {
      timeline.running.emplace_back("the end");
      continue;
    }
    const Kernel& kernel = *lifetimes.at[static_cast<size_t>(t)];
    timeline.running.push_back(
        fmt::format("{} at {}", op_name(kernel.op), to_string(kernel.provenance)));
  }
  const auto column_of = [&](int64_t instant) {
    return static_cast<size_t>(std::lower_bound(instants.begin(), instants.end(), instant) -
                               instants.begin());
  };
  timeline.peak_column = column_of(std::max_element(live.begin(), live.end()) - live.begin());

  std::map<std::tuple<OwnerUse, std::string, std::string, int>, size_t> known;
  const auto add = [&](const Buffer& buffer, int64_t offset, int64_t bytes, size_t begin,
                       size_t end) {
    if (begin == end || bytes == 0) return;
    PeakOwner owner = owner_at(buffer, offset);
    if (buffer.outside_arena) owner.what = "output beside the arena";
    const OwnerUse use = use_of(buffer);
    const int input = use == OwnerUse::kArgument ? buffer.index : -1;
    const auto [at, is_new] =
        known.try_emplace({use, owner.source, owner.what, input}, timeline.lines.size());
    if (is_new) {
      OwnerLine& line = timeline.lines.emplace_back(OwnerLine{use, std::move(owner), input, {}});
      line.bytes.resize(instants.size());
    }
    OwnerLine& line = timeline.lines[at->second];
    for (size_t c = begin; c < end; ++c) line.bytes[c] += bytes;
    if (begin <= timeline.peak_column && timeline.peak_column < end) ++line.owner.count;
  };
  // Arguments, and results with memory of their own, are there all along.
  for (const Buffer& buffer : schedule.buffers)
    if (buffer.kind == kind && (buffer.role == BufferRole::kInput || buffer.outside_arena))
      add(buffer, 0, buffer.bytes, 0, instants.size());
  for (size_t e = 0; e < lifetimes.owner.size(); ++e) {
    const Buffer& buffer = schedule.buffers[lifetimes.owner[e].index()];
    if (buffer.kind != kind) continue;
    for (const pack::Rect& rect : lifetimes.problem.buffers[e].rects)
      add(buffer, rect.offset, rect.size, column_of(rect.lower), column_of(rect.upper));
  }
  for (OwnerLine& line : timeline.lines) {
    line.owner.bytes = line.bytes[timeline.peak_column];
    timeline.peak_live_bytes += line.owner.bytes;
  }
  return timeline;
}

}  // namespace stow
