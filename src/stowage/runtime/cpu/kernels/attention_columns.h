// The keys that the query columns of a forward task see, and the pieces in which the task takes
// them.
// Not arithmetic; nothing here depends on the instruction set.
#pragma once

#include <algorithm>

#include "stowage/runtime/cpu/kernels/attention_finite.h"
#include "stowage/runtime/cpu/kernels/attention_thread.h"

namespace stow::cpu {

/// A column is a query: a position and a head of the group. Columns are processed in panels of
/// kWidth. Blocks of keys begin at multiples of kKeyBlock. The piece of a block is the range of its
/// keys that the panels see; each panel takes the part of the piece that its columns see. Taking
/// more keys would change no bit, as their probabilities are zeros.
template <int64_t kWidth>
class ForwardColumns {
 public:
  ForwardColumns(const AttentionForwardArgs& args, const AttentionForwardPlace& here)
      : n_panels_(blocks_of(here.columns, kWidth)) {
    for (int64_t p = 0; p < n_panels_; ++p) {
      Panel& panel = panels_[p];
      panel = {{0, 0}, 0, args.spec.kv_len};
      for (int64_t c = p * kWidth; c < (p + 1) * kWidth; ++c) {
        // Lanes beyond the last column repeat it.
        const KeyRange range = visible_range(args.spec, args.intervals, here.batch,
                                             here.position(std::min(c, here.columns - 1)))
                                   .within(here.keys);
        first_[c] = static_cast<int32_t>(range.first);
        last_[c] = static_cast<int32_t>(range.last);
        panel.any = panel.any.joined(range);
        panel.all_first = std::max(panel.all_first, range.first);
        panel.all_last = std::min(panel.all_last, range.last);
      }
      any_ = any_.joined(panel.any);
    }
  }

  /// Columns from c on: column c + i sees keys [first(c)[i], last(c)[i]), count(c + i) of them.
  const int32_t* first(int64_t c) const { return first_ + c; }
  const int32_t* last(int64_t c) const { return last_ + c; }
  int64_t count(int64_t c) const { return last_[c] - first_[c]; }
  /// The end of the keys that any column sees.
  int64_t end() const { return any_.last; }
  bool sees_any() const { return any_.size() > 0; }

  /// Calls piece(first_key, keys) for the piece of each block of keys, in order.
  template <typename F>
  void each_piece(F piece) const {
    for (int64_t block = any_.first / kKeyBlock * kKeyBlock; block < any_.last;
         block += kKeyBlock) {
      KeyRange seen{0, 0};
      for (int64_t p = 0; p < n_panels_; ++p)
        if (panels_[p].any.overlaps(block, block + kKeyBlock)) seen = seen.joined(panels_[p].any);
      if (seen.size() <= 0) continue;
      const int64_t from = std::max(seen.first, block) / kPanelCols * kPanelCols;
      piece(from, std::min(seen.last, block + kKeyBlock) - from);
    }
  }

  /// Returns the keys that the panel of column c takes of a piece, counted from first_key, from a
  /// multiple of `unit` on. Empty if it takes none.
  KeyRange part(int64_t c, int64_t first_key, int64_t keys, int64_t unit) const {
    const KeyRange& seen = panels_[c / kWidth].any;
    if (!seen.overlaps(first_key, first_key + keys)) return {0, 0};
    return {std::max<int64_t>(seen.first - first_key, 0) / unit * unit,
            std::min(seen.last - first_key, keys)};
  }

  /// Calls hide(from, to) for the ranges of the n keys from first_key on that some column of the
  /// panel of column c does not see. Ranges are counted from first_key.
  template <typename F>
  void each_hidden(int64_t c, int64_t first_key, int64_t n, F hide) const {
    const Panel& panel = panels_[c / kWidth];
    const int64_t left = std::clamp<int64_t>(panel.all_first - first_key, 0, n);
    const int64_t right = std::clamp<int64_t>(panel.all_last - first_key, 0, n);
    if (left >= right) return hide(int64_t{0}, n);
    if (left > 0) hide(int64_t{0}, left);
    if (right < n) hide(right, n);
  }

  /// Adds the numbers of v that are not finite to the outputs o [dims, kWidth] of the panel of
  /// column c, for the columns that see them. Of the n rows of v from first_key on, the marked ones
  /// have such numbers.
  void add_infinite(const AttentionForwardArgs& args, const AttentionForwardPlace& here, int64_t c,
                    int64_t first_key, int64_t n, const uint8_t* marks, float* o) const {
    const AttentionSpec& s = args.spec;
    const RowSource v{args.v, here.batch * s.v[0] + here.kv_head * s.v[2], s.v[3]};
    for (int64_t j = 0; j < n; ++j) {
      if (!marks[j]) continue;
      const int64_t key = first_key + j;
      each_infinite(s.dtype, v, key * s.v[1], s.head_dim, [&](int64_t d, float x) {
        for (int64_t lane = 0; lane < kWidth; ++lane)
          if (first_[c + lane] <= key && key < last_[c + lane]) o[d * kWidth + lane] += x;
      });
    }
  }

 private:
  struct Panel {
    KeyRange any;  // smallest range with all keys that some column sees
    int64_t all_first, all_last;  // range of the keys that every column sees; may be empty
  };
  int64_t n_panels_;
  KeyRange any_{0, 0};
  Panel panels_[kQueryColumns / kWidth];
  int32_t first_[kQueryColumns], last_[kQueryColumns];
};

}  // namespace stow::cpu
