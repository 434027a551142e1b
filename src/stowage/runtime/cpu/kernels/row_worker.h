// RowWorker: one thread's run of its share of a row plan, kernel call after kernel call.
// Not the threads; row_executor.cpp has those, and row_calls.cpp records the calls of small plans.
#pragma once

#include <algorithm>
#include <cstring>
#include <cstdlib>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/row_addresses.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"
#include "stowage/runtime/cpu/kernels/team_edge.h"

namespace stow::cpu {

/// The `Calls` of a run: calls each kernel at once.
struct CallKernels {
  static constexpr bool kCallsAtOnce = true;
  void operator()(MapKernel kernel, const KernelCall& call) const { kernel(call); }
  void operator()(MoveKernel kernel, const MoveCall& call) const { kernel(call); }
  void operator()(IotaKernel kernel, const IotaCall& call) const { kernel(call); }
  void operator()(ReduceRowsKernel kernel, const ReduceRowsCall& call) const { kernel(call); }
  void operator()(ReduceColumnsKernel kernel, const ReduceColumnsCall& call) const { kernel(call); }
  void operator()(FillKernel kernel, std::byte* acc, int64_t n) const { kernel(acc, n); }
};

/// One thread's worker. It passes every kernel call to `Calls`. It accesses no memory itself except
/// its bookkeeping, and the partial results of rows that threads share.
template <class Calls>
class RowWorker {
 public:
  /// `shared` is the scratch that all threads share, `own` the thread's scratch. `bookkeeping` has
  /// bookkeeping_bytes(plan); it may be the start of `own`, which no step uses. `may_stream`:
  /// outputs may be written with non-temporal stores.
  RowWorker(const RowPlan& plan, const std::byte* const* inputs, std::byte* const* outputs,
            std::byte* shared, std::byte* own, std::byte* bookkeeping, bool may_stream,
            Calls calls = {})
      : plan_(plan),
        inputs_(inputs),
        outputs_(outputs),
        shared_(shared),
        own_(own),
        at_(plan, inputs, outputs, own, bookkeeping),
        calls_(calls) {
    if (may_stream) choose_streamed();
    map_call_.ahead = reduce_call_.ahead = columns_call_.ahead = &ahead_;
  }

  /// True if the worker writes outputs with non-temporal stores.
  bool streams() const { return streamed_ != 0; }

  // Computes the values of Span::kOne. Has to be called before all other runs.
  void run_once() {
    at_.set_row(0);
    for (const PlanStep& s : plan_.once_steps) run_step(s, {0, 1, 0, 1});
  }

  // Runs chunk `chunk` of a group's rows and columns [col, col_end). Its partial column sums go to
  // the shared scratch.
  void run_chunk(int64_t group, int64_t chunk, int64_t col, int64_t col_end) {
    chunk_ = group * plan_.chunks() + chunk;
    for (const PlanStep& s : plan_.column_stores) {
      if (s.partial_cols == 1 && col != 0) continue;
      const int64_t first = s.partial_cols == 1 ? 0 : col;
      const int64_t n = s.partial_cols == 1 ? 1 : col_end - col;
      calls_(s.reduce.fill_identity, partial(s, chunk_) + first * s.out.elem_bytes, n);
    }
    const int64_t first_row = group * plan_.group_rows, row = chunk * plan_.unit_rows;
    run_unit(first_row + row, first_row + std::min(plan_.group_rows, row + plan_.unit_rows), col,
             col_end);
  }

  // Runs all rows of a group and columns [col, col_end), and writes the results of column
  // reductions.
  void run_group(int64_t group, int64_t col, int64_t col_end) {
    in_order_ = true;
    group_row_ = group * plan_.group_rows;
    first_col_ = col;
    if (plan_.group_rows == 0)
      for (const PlanStep& s : plan_.column_stores)
        calls_(s.reduce.fill_identity, own_ + s.sums_offset,
               s.partial_cols == 1 ? 1 : col_end - col);
    run_unit(group_row_, group_row_ + plan_.group_rows, col, col_end);
    for (const PlanStep& s : plan_.column_stores)
      write_sums(s, own_ + s.sums_offset, group, col, col_end);
  }

  // Runs rows [row, row_end) x columns [col, col_end).
  void run_unit(int64_t row, int64_t row_end, int64_t col, int64_t col_end) {
    const int64_t inner = plan_.inner_rows();
    for (int64_t r = row; r < row_end;) {
      const int64_t n = std::min({plan_.r_tile, row_end - r, inner - r % inner});
      at_.set_row(r);
      if (plan_.fetch_rows) aim_at_rows(n, col, col_end);
      for (const PlanPhase& phase : plan_.phases) {
        for (const PlanStep& s : phase.row_steps) run_step(s, {r, n, 0, 1});
        for (int64_t c = col; c < col_end; c += plan_.c_tile) {
          const RowTile tile = {r, n, c, std::min(plan_.c_tile, col_end - c)};
          at_.set_column(c);
          if (!plan_.fetch_rows) aim_at_strip(phase, tile, col, col_end);
          for (const PlanStep& s : phase.strip_steps) run_strip_step(s, tile);
        }
        if (plan_.cols == 0) empty_rows(phase, n);
      }
      for (const PlanStep& s : plan_.row_stores) run_step(s, {r, n, 0, 1});
      r += n;
    }
  }

  // Runs this thread's blocks, of kReduceBlock columns, of one row that all threads share.
  void run_wide_row(int64_t row, int thread, int threads) {
    at_.set_row(row);
    const int64_t blocks = (plan_.cols + kReduceBlock - 1) / kReduceBlock;
    const int64_t first = blocks * thread / threads, last = blocks * (thread + 1) / threads;
    for (const PlanPhase& phase : plan_.phases) {
      for (const PlanStep& s : phase.row_steps) run_step(s, {row, 1, 0, 1});
      wide_ = true;
      for (int64_t c = first * kReduceBlock; c < std::min(plan_.cols, last * kReduceBlock);
           c += plan_.c_tile) {
        const RowTile tile = {row, 1, c, std::min(plan_.c_tile, plan_.cols - c)};
        at_.set_column(c);
        aim_at_strip(phase, tile, c, plan_.cols);
        for (const PlanStep& s : phase.strip_steps) run_strip_step(s, tile);
      }
      wide_ = false;
      team_barrier();
      for (const PlanStep& s : phase.strip_steps)
        if (s.kind == PlanStep::kReduceRows) fold_blocks(s, blocks);
    }
    team_barrier();
    if (thread == 0)
      for (const PlanStep& s : plan_.row_stores) run_step(s, {row, 1, 0, 1});
  }

  // Folds the partial sums of a group's chunks and writes columns [col, col_end) of the result of
  // column reduction s.
  void finish_columns(const PlanStep& s, int64_t group, int64_t col, int64_t col_end) {
    const int64_t chunks = plan_.chunks(), size = s.out.elem_bytes;
    const bool alike = s.partial_cols == 1;
    if (alike) {
      if (col != 0) return;  // one thread does it all
      col_end = plan_.cols;
    }
    std::byte* acc = partial(s, group * chunks) + (alike ? 0 : col * size);
    const int64_t n = alike ? 1 : col_end - col;
    if (plan_.group_rows == 0) calls_(s.reduce.fill_identity, acc, n);
    ReduceColumnsCall call;
    call.rows = chunks - 1;
    call.cols = n;
    call.arg.data = acc + s.partial_cols * size;
    call.arg.row_step = s.partial_cols * size;
    call.acc = acc;
    if (call.rows > 0) calls_(s.reduce.columns, call);
    write_sums(s, acc, group, col, col_end);
  }

 private:
  // Writes columns [col, col_end) of a group's result of column reduction s. acc[0] is that of
  // `col`.
  void write_sums(const PlanStep& s, const std::byte* acc, int64_t group, int64_t col,
                  int64_t col_end) {
    const bool alike = s.partial_cols == 1;
    const PlanOperand& out = at_.operand(s.out.index);
    int64_t first = 0;
    for (size_t i = static_cast<size_t>(plan_.n_group_dims); i-- > 0;) {
      first += group % plan_.row_dims[i] * out.row_strides[i];
      group /= plan_.row_dims[i];
    }
    if (!has_column(out.span)) col_end = std::min(col_end, col + 1);
    at_.for_each_run({0, 1, col, col_end - col}, [&](int64_t c, int64_t n_run) {
      MoveCall move;
      move.rows = 1;
      move.cols = n_run;
      move.from = acc + (alike ? 0 : (c - col) * s.out.elem_bytes);
      move.from_col_step = alike ? 0 : s.out.elem_bytes;
      move.to = outputs_[s.out.index - plan_.n_inputs] +
                (first + at_.column_offset(out, c)) * out.elem_bytes;
      move.to_col_step = out.inner_col * out.elem_bytes;
      calls_(s.move, move);
    });
  }

  const Register& reg(int32_t index) const {
    return plan_.registers[static_cast<size_t>(index)];
  }
  // Returns the partial sums of a chunk, counted over all groups, in the shared scratch.
  std::byte* partial(const PlanStep& s, int64_t chunk) const {
    return shared_ + s.partials_offset + chunk * s.partial_cols * s.out.elem_bytes;
  }

  // Chooses the outputs that are written with non-temporal stores: those that may be, if together
  // they have at least least_streamed_bytes(). Outputs in the memory of an input are not, as it is
  // in cache.
  void choose_streamed() {
    int64_t bytes = 0;
    for (int32_t k : plan_.direct) {
      if (!at_.operand(k).may_stream || bit(k) == 0) continue;
      const std::byte* out = outputs_[k - plan_.n_inputs];
      if (reinterpret_cast<uintptr_t>(out) % 64 != 0 ||
          std::find(inputs_, inputs_ + plan_.n_inputs, out) != inputs_ + plan_.n_inputs)
        continue;
      streamed_ |= bit(k);
      bytes += plan_.rows * plan_.cols * at_.operand(k).elem_bytes;
    }
    if (bytes < least_streamed_bytes()) streamed_ = 0;
  }
  // Returns the bit in streamed_ of operand k if it is among the first 64 outputs; else 0.
  uint64_t bit(int32_t k) const {
    const int32_t output = k - plan_.n_inputs;
    return output >= 0 && output < 64 ? uint64_t{1} << output : 0;
  }
  bool streams(int32_t k) const { return (streamed_ & bit(k)) != 0; }

  // Sets the memory to prefetch: the rows x cols elements of `operands` that are d_rows rows and
  // d_cols columns after the tile of the bases, if contiguous. Includes outputs only if `outputs`.
  void aim(const std::vector<int32_t>& operands, bool outputs, int64_t rows, int64_t cols,
           int64_t d_rows, int64_t d_cols) {
    ahead_.clear();
    if (!plan_.fetches) return;
    for (int32_t k : operands) {
      const PlanOperand& o = at_.operand(k);
      if (!has_row(o.span) && d_rows != 0) continue;  // the same columns again
      if (k >= plan_.n_inputs && (!outputs || streams(k))) continue;
      const int64_t n = has_row(o.span) ? rows : 1;
      const bool in_one = n == 1 || o.inner_row == cols;  // a range of memory
      const bool in_gaps = !in_one && lies_between(o, cols);
      if (!in_one && !in_gaps && !plan_.in_blocks) continue;
      const std::byte* base = at_.strip(k);
      // True if an operand before k already prefetches this memory, or the gaps in which it lies.
      const bool is_there = std::any_of(operands.begin(), operands.end(), [&](int32_t j) {
        const ptrdiff_t apart = at_.strip(j) - base;
        return j < k && (apart == 0 || (in_gaps && at_.operand(j).inner_row == o.inner_row &&
                                        lies_between(at_.operand(j), cols) &&
                                        std::abs(apart) < o.inner_row * o.elem_bytes));
      });
      if (is_there || is_product(k)) continue;
      const int64_t ranges = in_one || in_gaps ? 1 : n;
      for (int64_t i = 0; i < ranges; ++i)
        ahead_.add(base, ((d_rows + i) * o.inner_row + d_cols) * o.elem_bytes,
                   n / ranges * (in_gaps ? o.inner_row : cols) * o.elem_bytes);
    }
  }
  // True if the gaps between the operand's rows have room for the rows of one more operand, as in
  // the halves of heads. Both operands together are a range of memory.
  bool lies_between(const PlanOperand& o, int64_t cols) const {
    return !plan_.in_blocks && o.unit_columns && o.inner_row > cols && o.inner_row <= 2 * cols;
  }
  // True for the input of a program in blocks whose memory is that of output 0: a product has just
  // written it, so it is in cache.
  bool is_product(int32_t k) const {
    return plan_.in_blocks && k == 0 && plan_.n_inputs > 0 && inputs_[0] == outputs_[0];
  }
  // Set the memory to prefetch for a run of a phase over a tile, or of all phases over `rows` rows.
  void aim_at_strip(const PlanPhase& phase, const RowTile& t, int64_t col, int64_t col_end) {
    const bool same_rows = t.col + plan_.c_tile < col_end;
    // Stores do not wait for memory, but prefetches can use the time of the steps before them.
    const bool outputs = phase.strip_steps.size() > 1;
    if (plan_.fetch_elems > 0)
      aim(phase.direct, outputs, t.rows, t.cols, 0, plan_.fetch_elems);
    else
      aim(phase.direct, outputs, t.rows, t.cols, same_rows ? 0 : t.rows,
          same_rows ? plan_.c_tile : col - t.col);
    ahead_.share_out(phase.weight);
  }
  void aim_at_rows(int64_t rows, int64_t col, int64_t col_end) {
    at_.set_column(col);
    aim(plan_.direct, true, rows, col_end - col, rows, 0);
    const int64_t strips = (col_end - col + plan_.c_tile - 1) / plan_.c_tile;
    int64_t weight = 0;
    for (const PlanPhase& phase : plan_.phases) weight += strips * phase.weight;
    ahead_.share_out(weight);
  }
  void run_strip_step(const PlanStep& s, const RowTile& tile) {
    ahead_.begin(s.weight, (has_row(s.span) ? tile.rows : 1) * tile.cols);
    run_step(s, tile);
    ahead_.end();
  }

  void run_step(const PlanStep& s, const RowTile& tile) {
    switch (s.kind) {
      case PlanStep::kMap:
        return run_map(s, tile);
      case PlanStep::kLoad:
        return run_load(s, tile);
      case PlanStep::kIota:
        return run_iota(s, tile);
      case PlanStep::kStore:
        return run_store(s, tile);
      case PlanStep::kReduceRows:
        return run_reduce_rows(s, tile);
      case PlanStep::kReduceColumns:
        return run_reduce_columns(s, tile);
    }
  }

  // Sets the rows and columns of the values of a span in a tile. Values of each row are one vector.
  static void extents(Span span, const RowTile& t, int64_t& rows, int64_t& cols) {
    rows = span == Span::kFull ? t.rows : 1;
    cols = span == Span::kOne ? 1 : span == Span::kRow ? t.rows : t.cols;
  }

  void run_map(const PlanStep& s, const RowTile& t) {
    KernelCall& call = map_call_;
    extents(s.span, t, call.rows, call.cols);
    call.round = s.round;
    const KernelArg out = at_.arg(s.out, t.cols);
    call.out = const_cast<std::byte*>(out.data);
    call.out_row_step = out.row_step;
    call.out_form = out.form;
    for (int k = 0; k < s.n_args; ++k) call.args[k] = at_.arg(s.args[k], t.cols);
    for (int k = 0; k < s.n_more; ++k) call.more[k] = at_.arg(s.more[k], t.cols);
    call.first_col = t.col;
    call.streams = s.out.kind == Place::kOperand && streams(s.out.index);
    if (call.rows > 1 && !s.by_position) {
      bool flat = out.row_step == call.cols * s.out.elem_bytes;
      for (int k = 0; k < s.n_args; ++k) {
        const KernelArg& a = call.args[k];
        flat = flat && a.row_step == (a.splat ? 0 : call.cols * s.args[k].elem_bytes);
      }
      for (int k = 0; k < s.n_more; ++k)
        flat = flat && call.more[k].row_step == call.cols * s.more[k].elem_bytes;
      if (flat) {
        call.cols *= call.rows;
        call.rows = 1;
      }
    }
    calls_(s.map, call);
  }

  void run_load(const PlanStep& s, const RowTile& t) {
    const PlanOperand& o = at_.operand(s.args[0].index);
    const auto load = [&](int64_t c, int64_t n) {
      MoveCall move;
      extents(s.span, t, move.rows, move.cols);
      move.from = at_.address(s.args[0].index, c);
      if (s.span == Span::kRow) {
        move.from_col_step = o.inner_row * o.elem_bytes;
      } else {
        move.from_row_step = o.inner_row * o.elem_bytes;
        move.from_col_step = o.inner_col * o.elem_bytes;
        move.cols = n;
      }
      move.to = at_.register_side(s.out, t, c, s.span, move.to_row_step, move.to_col_step);
      if (s.span == Span::kOne) move.to_col_step = s.out.elem_bytes;
      calls_(s.move, move);
    };
    if (!has_column(s.span)) return load(0, 1);
    const int64_t period = plan_.inner_cols();
    // Recorded calls run later, so there is nothing to copy yet.
    if (!Calls::kCallsAtOnce || !at_.repeats_inner_columns(o) || t.cols <= period)
      return at_.for_each_run(t, load);
    at_.for_each_run({t.row, t.rows, t.col, period}, load);
    int64_t rows, cols, row_step, col_step;
    extents(s.span, t, rows, cols);
    std::byte* to = at_.register_side(s.out, t, t.col, s.span, row_step, col_step);
    for (int64_t r = 0; r < rows; ++r, to += row_step)
      for (int64_t done = period; done < cols;) {
        const int64_t n = std::min(done, cols - done);
        std::memcpy(to + done * col_step, to, static_cast<size_t>(n * col_step));
        done += n;
      }
  }
  void run_iota(const PlanStep& s, const RowTile& t) {
    const PlanOperand& o = at_.operand(s.args[0].index);
    const auto count = [&](int64_t c, int64_t n) {
      IotaCall call;
      extents(s.span, t, call.rows, call.cols);
      call.start = at_.row_offset(s.args[0].index) + at_.column_offset(o, c);
      call.row_step = o.inner_row;
      call.col_step = s.span == Span::kRow ? o.inner_row : o.inner_col;
      if (has_column(s.span)) call.cols = n;
      int64_t col_step = 0;
      call.out = at_.register_side(s.out, t, c, s.span, call.out_row_step, col_step);
      calls_(s.iota, call);
    };
    if (has_column(s.span))
      at_.for_each_run(t, count);
    else
      count(0, 1);
  }

  void run_store(const PlanStep& s, const RowTile& t) {
    const PlanOperand& o = at_.operand(s.out.index);
    const auto store = [&](int64_t c, int64_t n) {
      MoveCall move;
      move.from =
          at_.register_side(s.args[0], t, c, s.span, move.from_row_step, move.from_col_step);
      move.to = const_cast<std::byte*>(at_.address(s.out.index, c));
      if (has_column(s.span)) {
        move.rows = t.rows;
        move.cols = n;
        move.to_row_step = o.inner_row * o.elem_bytes;
        move.to_col_step = o.inner_col * o.elem_bytes;
      } else {
        move.rows = 1;
        move.cols = has_row(s.span) ? t.rows : 1;
        move.to_col_step = o.inner_row * o.elem_bytes;
      }
      calls_(s.move, move);
    };
    if (has_column(s.span))
      at_.for_each_run(t, store);
    else
      store(0, 1);
  }

  void run_reduce_rows(const PlanStep& s, const RowTile& t) {
    ReduceRowsCall& call = reduce_call_;
    call.rows = t.rows;
    const int n = s.n_args - (s.keeps ? 1 : 0);
    for (int k = 0; k < n; ++k) call.args[k] = at_.arg(s.args[k], t.cols);
    call.keep = s.keeps ? at_.arg(s.args[n], t.cols) : KernelArg();
    call.lanes = own_ + s.lanes_offset;
    call.square_lanes = own_ + s.square_lanes_offset;
    call.round = Form::kNative;
    const auto move_on = [&](KernelArg& a, const Place& p) {
      if (a.data != nullptr && !a.splat) a.data += call.cols * p.elem_bytes;
    };
    // A call stays within a block of the row.
    const auto reduce = [&](int64_t first_col, int64_t n_cols) {
      for (int64_t c = first_col; c < first_col + n_cols;) {
        const int64_t block = c / kReduceBlock, first = block * kReduceBlock;
        call.cols = std::min(first_col + n_cols, first + kReduceBlock) - c;
        call.at_col = c;
        if (wide_) {  // each block as a row of its own
          call.first_col = c - first;
          call.total_cols = std::min(kReduceBlock, plan_.cols - first);
          call.out = shared_ + s.partials_offset + block * s.out.elem_bytes;
        } else {
          call.first_col = c;
          call.total_cols = plan_.cols;
          call.round = s.round;
          call.out = own_ + reg(s.out.index).offset;
          if (s.square_register >= 0) call.square_out = own_ + reg(s.square_register).offset;
        }
        calls_(s.reduce.rows, call);
        c += call.cols;
        for (int k = 0; k < n; ++k) move_on(call.args[k], s.args[k]);
        if (s.keeps) move_on(call.keep, s.args[n]);
      }
    };
    if (!s.by_runs) return reduce(t.col, t.cols);
    at_.for_each_run(t, [&](int64_t c, int64_t n_run) {
      call.args[0].data = at_.address(s.args[0].index, c);
      reduce(c, n_run);
    });
  }

  // Folds the partial results of a row's blocks into the result of row reduction s.
  void fold_blocks(const PlanStep& s, int64_t blocks) {
    std::byte* out = own_ + reg(s.out.index).offset;
    const std::byte* partials = shared_ + s.partials_offset;
    std::copy_n(partials, s.out.elem_bytes, out);
    ReduceColumnsCall call;
    call.rows = blocks - 1;
    call.cols = 1;
    call.arg.data = partials + s.out.elem_bytes;
    call.arg.row_step = s.out.elem_bytes;
    call.acc = out;
    calls_(s.reduce.columns, call);
    round_result(s, out, 1);
  }

  // Rounds `n` results of a reduction in place.
  void round_result(const PlanStep& s, std::byte* out, int64_t n) const {
    if (s.round == Form::kNative) return;
    KernelCall call;
    call.rows = 1;
    call.cols = n;
    call.out = out;
    call.round = s.round;
    call.args[0].data = out;
    calls_(s.map, call);
  }

  void run_reduce_columns(const PlanStep& s, const RowTile& t) {
    ReduceColumnsCall& call = columns_call_;
    const bool alike = s.partial_cols == 1;
    call.rows = t.rows;
    call.cols = alike ? 1 : t.cols;
    if (alike && t.col != (in_order_ ? first_col_ : 0)) return;
    call.arg = at_.arg(s.args[0], t.cols);
    call.n_factors = s.n_args - 1;
    for (int k = 0; k < call.n_factors; ++k) call.factors[k] = at_.arg(s.args[k + 1], t.cols);
    if (s.n_more > 0) {
      const KernelArg out = at_.arg(s.more[0], t.cols);
      call.out = const_cast<std::byte*>(out.data);
      call.out_row_step = out.row_step;
    }
    const ReduceColumnsKernel kernel = s.n_more > 0         ? s.reduce.norm_gradient
                                       : call.n_factors > 0 ? s.reduce.column_products
                                                            : s.reduce.columns;
    if (in_order_) return sum_in_order(s, t, kernel);
    call.acc = partial(s, chunk_) + (alike ? 0 : t.col * s.out.elem_bytes);
    calls_(kernel, call);
  }

  // Reduces the rows of a tile, chunk by chunk, and folds each chunk that ends into the group's
  // sums. The first chunk is computed in those directly.
  void sum_in_order(const PlanStep& s, const RowTile& t, ReduceColumnsKernel kernel) {
    ReduceColumnsCall& call = columns_call_;
    const int64_t offset = (s.partial_cols == 1 ? 0 : t.col - first_col_) * s.out.elem_bytes;
    std::byte* const sums = own_ + s.sums_offset + offset;
    std::byte* const own_sums = own_ + s.chunk_offset + offset;
    const int64_t first = t.row - group_row_;
    for (int64_t row = first; row < first + t.rows;) {
      const int64_t chunk = row / plan_.unit_rows, begin = chunk * plan_.unit_rows;
      const int64_t end = std::min(begin + plan_.unit_rows, plan_.group_rows);
      call.rows = std::min(end, first + t.rows) - row;
      call.acc = chunk == 0 ? sums : own_sums;
      if (row == begin) calls_(s.reduce.fill_identity, call.acc, call.cols);
      calls_(kernel, call);
      row += call.rows;
      if (chunk > 0 && row == end) {
        ReduceColumnsCall fold;
        fold.rows = 1;
        fold.cols = call.cols;
        fold.arg.data = own_sums;
        fold.acc = sums;
        calls_(s.reduce.columns, fold);
      }
      call.arg.data += call.rows * call.arg.row_step;
      for (int k = 0; k < call.n_factors; ++k)
        call.factors[k].data += call.rows * call.factors[k].row_step;
      if (s.n_more > 0) call.out += call.rows * call.out_row_step;
    }
  }

  // Sets the row reductions of rows without columns to the identity.
  void empty_rows(const PlanPhase& phase, int64_t rows) {
    for (const PlanStep& s : phase.strip_steps)
      if (s.kind == PlanStep::kReduceRows)
        for (int32_t out : {s.out.index, s.square_register})
          if (out >= 0) calls_(s.reduce.fill_identity, own_ + reg(out).offset, rows);
  }

  const RowPlan& plan_;
  const std::byte* const* inputs_;
  std::byte* const* outputs_;
  std::byte *shared_, *own_;
  RowAddresses at_;
  uint64_t streamed_ = 0;  // set of outputs that are written with non-temporal stores
  int64_t chunk_ = 0;      // the chunk whose partial sums are computed, counted over all groups
  bool in_order_ = false;  // true: the chunks of a group are computed one after another
  int64_t group_row_ = 0, first_col_ = 0;  // first row and column of the group
  Prefetcher ahead_{prefetches_to_l1()};
  // Members, as they are too large to be initialized for each step. A step sets the fields that its
  // kernel reads.
  KernelCall map_call_;
  ReduceRowsCall reduce_call_;
  ReduceColumnsCall columns_call_;
  bool wide_ = false;
  [[no_unique_address]] Calls calls_;
};

}  // namespace stow::cpu
