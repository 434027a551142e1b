#include "stowage/plan/condense.h"

#include <algorithm>
#include <tuple>

namespace stow {
namespace {

// When some bytes of an entry live: abutting rectangles joined, in order.
struct Area {
  std::vector<pack::Rect> spans;

  bool lives(int64_t lower, int64_t upper) const {
    const auto next = std::upper_bound(spans.begin(), spans.end(), lower,
                                       [](int64_t t, const pack::Rect& r) { return t < r.lower; });
    return next != spans.begin() && std::prev(next)->upper >= upper;
  }
};

std::vector<Area> areas_of(const pack::Problem& problem) {
  std::vector<Area> areas;
  for (const pack::Buffer& buffer : problem.buffers) {
    std::vector<pack::Rect> rects = buffer.rects;
    std::sort(rects.begin(), rects.end(), [](const pack::Rect& a, const pack::Rect& b) {
      return std::tie(a.offset, a.size, a.lower) < std::tie(b.offset, b.size, b.lower);
    });
    for (size_t r = 0; r < rects.size(); ++r) {
      if (r == 0 || std::tie(rects[r].offset, rects[r].size) !=
                        std::tie(rects[r - 1].offset, rects[r - 1].size))
        areas.emplace_back();
      std::vector<pack::Rect>& spans = areas.back().spans;
      if (!spans.empty() && spans.back().upper >= rects[r].lower)
        spans.back().upper = std::max(spans.back().upper, rects[r].upper);
      else
        spans.push_back(rects[r]);
    }
  }
  return areas;
}

// Finds the iterations of one run of a loop that constrain a layout no more than another does.
class RunCheck {
 public:
  explicit RunCheck(const LoopRun& run)
      : run_(run), n_(static_cast<int64_t>(run.starts.size()) - 1), later_(run.starts.size(), true),
        earlier_(run.starts.size(), true) {}

  // `span` begins or ends in the run. Elsewhere an iteration and its counterpart both hold all of
  // it.
  void check(const Area& area, const pack::Rect& span) {
    if (n_ <= run_.period) return;
    const int64_t first = iteration(span.lower), last = iteration(span.upper - 1);
    for (int64_t i = std::max(first, last - run_.period); i <= last; ++i)
      check(area, span, i, i + run_.period, later_);
    for (int64_t i = first; i <= std::min(last, first + run_.period); ++i)
      check(area, span, i, i - run_.period, earlier_);
  }

  void mark_dropped(std::vector<bool>& dropped) const {
    for (int64_t i = 0; i + run_.period < n_; ++i) {
      const int64_t k = i + run_.period;
      if (length(i) != length(k)) continue;
      if (later_[static_cast<size_t>(i)])
        drop(i, dropped);
      else if (earlier_[static_cast<size_t>(k)])
        drop(k, dropped);
    }
  }

 private:
  int64_t start(int64_t i) const { return run_.starts[static_cast<size_t>(i)]; }
  int64_t length(int64_t i) const { return start(i + 1) - start(i); }
  // The iteration of an instant, or the first or last.
  int64_t iteration(int64_t instant) const {
    const auto next = std::upper_bound(run_.starts.begin(), run_.starts.end(), instant);
    return std::clamp<int64_t>(next - run_.starts.begin() - 1, 0, n_ - 1);
  }
  void check(const Area& area, const pack::Rect& span, int64_t i, int64_t other,
             std::vector<bool>& covers) {
    if (other < 0 || other >= n_ || !covers[static_cast<size_t>(i)]) return;
    const int64_t lower = std::max(span.lower, start(i)),
                  upper = std::min(span.upper, start(i + 1));
    const int64_t shift = start(other) - start(i);
    if (lower < upper && !area.lives(lower + shift, upper + shift))
      covers[static_cast<size_t>(i)] = false;
  }
  void drop(int64_t i, std::vector<bool>& dropped) const {
    std::fill(dropped.begin() + start(i), dropped.begin() + start(i + 1), true);
  }

  const LoopRun& run_;
  int64_t n_;
  std::vector<bool> later_, earlier_;  // by iteration: all of it lives in that one, too
};

}  // namespace

// Left out in favour of another that may be left out in turn: that ends at one that is kept, as of
// two iterations of a run only one is ever left out in favour of the other.
std::vector<int64_t> kept_before(const Lifetimes& lifetimes) {
  const auto n = static_cast<int64_t>(lifetimes.at.size());
  std::vector<RunCheck> checks;
  checks.reserve(lifetimes.runs.size());
  for (const LoopRun& run : lifetimes.runs) checks.emplace_back(run);
  const auto innermost = [&](int64_t instant) {
    return instant < n ? lifetimes.run_at[static_cast<size_t>(instant)] : -1;
  };
  const auto parent = [&](int run) { return lifetimes.runs[static_cast<size_t>(run)].parent; };
  const auto holds = [&](int run, int64_t instant) {
    const LoopRun& r = lifetimes.runs[static_cast<size_t>(run)];
    return r.starts.front() <= instant && instant < r.starts.back();
  };
  for (const Area& area : areas_of(lifetimes.problem))
    for (const pack::Rect& span : area.spans) {
      for (int run = innermost(span.lower); run >= 0; run = parent(run))
        checks[static_cast<size_t>(run)].check(area, span);
      for (int run = innermost(span.upper - 1); run >= 0; run = parent(run))
        if (!holds(run, span.lower)) checks[static_cast<size_t>(run)].check(area, span);
    }
  std::vector<bool> dropped(static_cast<size_t>(n) + 1, false);
  for (const RunCheck& check : checks) check.mark_dropped(dropped);
  std::vector<int64_t> before = {0};
  for (const bool is_dropped : dropped) before.push_back(before.back() + !is_dropped);
  return before;
}

pack::Problem condense(const pack::Problem& problem, const std::vector<int64_t>& kept_before) {
  pack::Problem condensed = problem;
  for (pack::Buffer& buffer : condensed.buffers) {
    size_t n = 0;
    for (pack::Rect rect : buffer.rects) {
      rect.lower = kept_before[static_cast<size_t>(rect.lower)];
      rect.upper = kept_before[static_cast<size_t>(rect.upper)];
      if (rect.lower < rect.upper) buffer.rects[n++] = rect;
    }
    buffer.rects.resize(n);
  }
  return condensed;
}

}  // namespace stow
