#include "stowage/passes/access.h"

#include <algorithm>
#include <optional>

namespace stow {

Access access_of(const View& view, bool write) {
  const auto [low, high] = reach_of(view);
  return {view.buffer, write, false, low, high, view.terms};
}

void fix_iteration(View& view, LoopId loop, int64_t iteration) {
  std::erase_if(view.terms, [&](const LoopTerm& term) {
    if (term.loop != loop) return false;
    view.offset_bytes += term.bytes_at(iteration);
    return true;
  });
}

namespace {

// Splits terms into the term of one loop and the others; returns false if the loop has several.
bool part(const Access& a, LoopId loop, std::vector<LoopTerm>& rest, std::optional<LoopTerm>& own) {
  for (const LoopTerm& term : a.terms) {
    if (!loop.valid() || term.loop != loop) {
      rest.push_back(term);
    } else if (own) {
      return false;
    } else {
      own = term;
    }
  }
  return true;
}

bool same_steps(const LoopTerm& a, const LoopTerm& b) {
  return a.step == b.step && a.modulo == b.modulo && a.stride_bytes == b.stride_bytes;
}
bool same_terms(const std::vector<LoopTerm>& a, const std::vector<LoopTerm>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const LoopTerm& x, const LoopTerm& y) {
                      return x.loop == y.loop && x.start == y.start && same_steps(x, y);
                    });
}
// True if the bytes lie in one slot of a stride.
bool in_one_slot(const Access& a, int64_t stride) {
  return stride > 0 && a.low % stride + (a.high - a.low) <= stride;
}

}  // namespace

bool may_alias(const Access& a, const Access& b, int shift, LoopId loop) {
  if (a.buffer != b.buffer || (!a.whole && a.low == a.high) || (!b.whole && b.low == b.high))
    return false;
  if (a.whole || b.whole) return true;
  std::vector<LoopTerm> rest_a, rest_b;
  std::optional<LoopTerm> own_a, own_b;
  if (!part(a, loop, rest_a, own_a) || !part(b, loop, rest_b, own_b) ||
      !same_terms(rest_a, rest_b) || own_a.has_value() != own_b.has_value() ||
      (own_a && !same_steps(*own_a, *own_b)))
    return true;
  int64_t delta = 0;
  if (own_a) {
    const int64_t slots = own_a->start + own_a->step * shift - own_b->start;
    if (own_a->modulo == 0) {
      delta = slots * own_a->stride_bytes;
    } else if (slots % own_a->modulo != 0) {  // other slots of a ring
      const int64_t stride = std::abs(own_a->stride_bytes);
      return !(in_one_slot(a, stride) && in_one_slot(b, stride));
    }
  }
  return a.low + delta < b.high && b.low < a.high + delta;
}

}  // namespace stow
