// From the steps of a row program, with what is fused, to those of a row plan.
#include "stowage/runtime/cpu/kernels/row_compiler.h"

#include <algorithm>
#include <bit>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"

namespace stow::cpu::rows {
namespace {

constexpr int64_t kFetchBytes = 384 << 10;  // of rows, while others are at work

// The time of a sum over a row, whose additions wait for one another, and over columns, which reads
// and writes its sums, in that of an elementwise addition.
constexpr int64_t kChainWeight = 3;
constexpr int64_t kColumnsWeight = 5;

// The time of an elementwise op on what lies near, an addition's being 1.
int64_t weight_of(OpKind op) {
  constexpr OpKind kDivides[] = {OpKind::kDiv, OpKind::kSqrt, OpKind::kRem};
  constexpr OpKind kFunctions[] = {OpKind::kExp,  OpKind::kLog, OpKind::kRsqrt, OpKind::kLogistic,
                                   OpKind::kTanh, OpKind::kSin, OpKind::kCos,   OpKind::kErf,
                                   OpKind::kErfc, OpKind::kPow, OpKind::kLog1p, OpKind::kExpm1,
                                   OpKind::kTan, OpKind::kAsin, OpKind::kAcos, OpKind::kAtan,
                                   OpKind::kSinh, OpKind::kCosh, OpKind::kAsinh, OpKind::kAcosh,
                                   OpKind::kAtanh, OpKind::kCbrt, OpKind::kErfInv, OpKind::kAtan2};
  if (std::find(std::begin(kDivides), std::end(kDivides), op) != std::end(kDivides)) return 6;
  if (std::find(std::begin(kFunctions), std::end(kFunctions), op) != std::end(kFunctions))
    return 24;
  return 1;
}

bool same(const Place& a, const Place& b) {
  return a.kind == b.kind && a.index == b.index;
}

void sort_out(std::vector<int32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

Place Compiler::place_of(int i) {
  const Value& v = value(i);
  const Step& s = step(i);
  Place p;
  p.elem_bytes = static_cast<int32_t>(dtype_bytes(register_dtype(s.dtype)));
  if (s.kind == StepKind::kConstant) {
    p.kind = Place::kConstant;
    p.index = constant(s);
    return p;
  }
  if (v.direct || v.fused_store >= 0 || v.parked_in_output >= 0) {
    p.kind = Place::kOperand;
    p.index = v.direct ? v.operand
              : v.fused_store >= 0 ? output_operand(step(v.fused_store))
                                   : plan_.n_inputs + v.parked_in_output;
    p.form = form_of(s.dtype);
    p.elem_bytes = static_cast<int32_t>(dtype_bytes(s.dtype));
    return p;
  }
  p.kind = Place::kRegister;
  STOW_CHECK(v.reg >= 0, "step {} is read before it is made", i);
  p.index = v.reg;
  last_use_[static_cast<size_t>(v.reg)] = position_;
  return p;
}

int32_t Compiler::constant(const Step& s) {
  uint64_t bits = s.imm;
  if (s.dtype == DType::kBF16) bits = std::bit_cast<uint32_t>(bf16_to_f32(uint16_t(bits)));
  if (s.dtype == DType::kF16) bits = std::bit_cast<uint32_t>(f16_to_f32(uint16_t(bits)));
  if (s.dtype == DType::kBool) bits = (bits & 0xff) != 0;
  for (size_t k = 0; k < plan_.constants.size(); ++k)
    if (plan_.constants[k] == bits) return static_cast<int32_t>(k);
  plan_.constants.push_back(bits);
  return static_cast<int32_t>(plan_.constants.size() - 1);
}

void Compiler::define(int i) {
  Value& v = value(i);
  if (v.fused_store >= 0 || v.parked_in_output >= 0) return;
  v.reg = static_cast<int32_t>(plan_.registers.size());
  Register r;
  r.span = v.span;
  r.whole_row = has_many_strips() && v.keep;
  r.elem_bytes = dtype_bytes(register_dtype(step(i).dtype));
  plan_.registers.push_back(r);
  defined_.push_back(position_);
  last_use_.push_back(position_);
}

void Compiler::emit_step(int i, std::vector<PlanStep>& list) {
  const Step& s = step(i);
  Value& v = value(i);
  PlanStep p;
  p.span = v.span;
  p.round = form_of(s.dtype);
  p.n_args = n_args(s);
  p.by_position = v.by_position;
  if (v.absorbed_by >= 0 || v.computed_by >= 0) return;
  ++position_;
  const Fused& fused = fused_[static_cast<size_t>(i)];
  p.pattern = fused.pattern;
  if (fused.by_runs) {
    p.by_runs = true;
    p.args[0].kind = Place::kOperand;
    p.args[0].index = value(s.args[0]).operand;
  } else if (!fused.args.empty()) {
    p.n_args = static_cast<int>(fused.args.size());
    for (int k = 0; k < p.n_args; ++k) p.args[k] = place_of(fused.args[static_cast<size_t>(k)]);
  } else {
    for (int k = 0; k < p.n_args; ++k) p.args[k] = place_of(s.args[k]);
  }
  switch (s.kind) {
    case StepKind::kConstant:
      return;
    case StepKind::kLoad:
      if (v.direct) return;
      define(i);
      p.kind = PlanStep::kLoad;
      p.args[0].index = v.operand;
      p.move = load_kernel(s.dtype);
      break;
    case StepKind::kIota:
      define(i);
      p.kind = PlanStep::kIota;
      p.args[0].index = v.operand;
      p.iota = iota_kernel(s.dtype);
      break;
    case StepKind::kCompute: {
      const DType in = step(s.args[n_args(s) - 1]).dtype;
      p.map = fused.map != nullptr ? fused.map : map_kernel(s.op, in, s.dtype);
      STOW_CHECK(p.map != nullptr, "no kernel for {} of {} to {}", op_name(s.op), dtype_name(in),
                 dtype_name(s.dtype));
      p.weight += weight_of(s.op);
      for (int k = 0; k < i; ++k)
        if (value(k).absorbed_by == i) p.weight += weight_of(step(k).op);
      define(i);
      for (int made : fused.more) {
        p.weight += weight_of(step(made).op);
        define(made);
        p.more[p.n_more++] = place_of(made);
      }
      break;
    }
    case StepKind::kReduceRow:
      if (v.reg < 0) define(i);
      p.kind = PlanStep::kReduceRows;
      p.span = value(s.args[0]).span;
      p.weight = s.op == OpKind::kReduceMax || s.op == OpKind::kReduceMin ? 1 : kChainWeight;
      p.reduce = reduce_kernels(s.op, s.dtype);
      STOW_CHECK(p.reduce.rows != nullptr &&
                     register_dtype(step(s.args[0]).dtype) == register_dtype(s.dtype),
                 "no kernel for {} of {}", op_name(s.op), dtype_name(s.dtype));
      if (fused.reduce != nullptr) p.reduce.rows = fused.reduce;
      if (fused.reduce != nullptr && fused.reduce == p.reduce.exps)
        p.weight = weight_of(OpKind::kExp) + 2;
      if (fused.keeps >= 0) {
        define(fused.keeps);
        p.args[p.n_args++] = place_of(fused.keeps);
        p.keeps = true;
      }
      if (v.by_position) {
        p.reduce.rows = f32_one_hot_sum_kernel();
        p.weight = 0;
      }
      p.map = map_kernel(OpKind::kReshape, s.dtype, s.dtype);
      break;
    case StepKind::kReduceColumns:
      p.kind = PlanStep::kReduceColumns;
      p.weight = kColumnsWeight;
      p.reduce = reduce_kernels(s.op, s.dtype);
      STOW_CHECK(p.reduce.columns != nullptr &&
                     register_dtype(step(s.args[0]).dtype) == register_dtype(s.dtype),
                 "no kernel for {} of {}", op_name(s.op), dtype_name(s.dtype));
      p.partial_cols = has_column(value(s.args[0]).span) ? plan_.cols : 1;
      p.out.elem_bytes = static_cast<int32_t>(dtype_bytes(register_dtype(s.dtype)));
      p.out.index = output_operand(s);
      p.move = store_kernel(s.dtype);
      p.partials_offset = shared_bytes_;
      shared_bytes_ +=
          align_up(plan_.groups * plan_.chunks() * p.partial_cols * p.out.elem_bytes, 64);
      break;
    case StepKind::kStore:
      if (value(s.args[0]).fused_store == i) return;
      emit_store(i, p);
      break;
  }
  if (s.kind != StepKind::kStore && s.kind != StepKind::kReduceColumns) p.out = place_of(i);
  list.push_back(p);
}

void Compiler::emit_store(int i, PlanStep& p) {
  const Step& s = step(i);
  p.kind = PlanStep::kStore;
  const PlanOperand& out = operand(output_operand(s));
  p.span = out.span;
  p.out.kind = Place::kOperand;
  p.out.index = output_operand(s);
  p.out.form = form_of(s.dtype);
  p.out.elem_bytes = static_cast<int32_t>(out.elem_bytes);
  p.move = store_kernel(s.dtype);
  if (is_vector_store(s)) {
    p.kind = PlanStep::kMap;
    p.map = map_kernel(OpKind::kReshape, s.dtype, s.dtype);
  }
}

void Compiler::emit() {
  for (int i = 0; i < n_steps(); ++i)
    if (is_live_[static_cast<size_t>(i)] && !is_store(step(i)) && value(i).span == Span::kOne)
      emit_step(i, plan_.once_steps);
  for (int p = 0; p < n_phases_; ++p) {
    PlanPhase phase;
    const std::vector<bool>& needed = needed_[static_cast<size_t>(p)];
    for (int i = 0; i < n_steps(); ++i)
      if (is_live_[static_cast<size_t>(i)] && !is_store(step(i)) && value(i).span == Span::kRow &&
          step(i).kind != StepKind::kReduceRow && value(i).level == p)
        emit_step(i, phase.row_steps);
    for (int i = 0; i < n_steps(); ++i)
      if (needed[static_cast<size_t>(i)] && step(i).kind != StepKind::kStore)
        emit_step(i, phase.strip_steps);
    for (int i = 0; i < n_steps(); ++i)
      if (needed[static_cast<size_t>(i)] && step(i).kind == StepKind::kStore &&
          has_column(operand(output_operand(step(i))).span))
        emit_step(i, phase.strip_steps);
    join_sums(phase.strip_steps);
    plan_.phases.push_back(std::move(phase));
  }
  join_norm_gradient();
  for (int i = 0; i < n_steps(); ++i)
    if (step(i).kind == StepKind::kStore && !has_column(operand(output_operand(step(i))).span))
      emit_step(i, plan_.row_stores);
}

void Compiler::join_norm_gradient() {
  if (plan_.phases.size() < 2) return;
  std::vector<PlanStep>& sums = plan_.phases[plan_.phases.size() - 2].strip_steps;
  std::vector<PlanStep>& steps = plan_.phases.back().strip_steps;
  const auto is_row = [&](const Place& p) {  // of f32, in memory, with columns
    return p.kind == Place::kOperand && p.form == Form::kNative && p.elem_bytes == 4;
  };
  const auto is_splat = [&](const Place& p) {
    return p.kind == Place::kRegister &&
           plan_.registers[static_cast<size_t>(p.index)].span == Span::kRow;
  };
  const auto may_be_written = [&](const Place& p) {
    for (int k = 0; k < plan_.n_outputs; ++k)
      if (!is_column_sum(k) && may_overlap(k, p.index)) return true;
    return false;
  };
  const auto n_readers = [&](const Place& p) {
    int n = 0;
    for (const PlanPhase& phase : plan_.phases)
      for (const PlanStep& s : phase.strip_steps)
        for (int k = 0; k < s.n_args - (s.keeps ? 1 : 0); ++k) n += same(s.args[k], p) ? 1 : 0;
    return n;
  };
  for (size_t k = 1; k < steps.size(); ++k) {
    const bool is_later = steps[k].kind == PlanStep::kReduceColumns;
    const PlanStep &columns = steps[is_later ? k : k - 1], &map = steps[is_later ? k - 1 : k];
    if (columns.kind != PlanStep::kReduceColumns || columns.n_args != 3 ||
        columns.reduce.norm_gradient == nullptr || map.span != Span::kFull ||
        map.map != f32_square_grad_kernel(OpKind::kMul) || map.round != Form::kNative ||
        !is_row(map.out))
      continue;
    Place x = columns.args[0], scale = columns.args[1];
    const Place dy = columns.args[2];
    if (is_splat(x)) std::swap(x, scale);
    Place kept = map.args[0], by = map.args[1], slope = map.args[2], again = map.args[3];
    if (is_splat(kept)) std::swap(kept, by);
    if (is_row(slope)) std::swap(slope, again);
    if (!is_row(x) || !is_row(dy) || !is_splat(scale) || !same(by, scale) || !same(again, x) ||
        !is_splat(slope) || kept.kind != Place::kRegister)
      continue;
    // The kept value is the dy w of the sums, which then need not keep it.
    const auto maker = std::find_if(sums.begin(), sums.end(), [&](const PlanStep& s) {
      return s.kind == PlanStep::kReduceRows && s.keeps && same(s.args[s.n_args - 1], kept);
    });
    if (maker == sums.end() || maker->n_args != 4) continue;
    const Place& w = same(maker->args[0], dy) ? maker->args[1] : maker->args[0];
    if (!is_row(w) || (!same(maker->args[0], dy) && !same(maker->args[1], dy))) continue;
    if (may_be_written(w) || n_readers(kept) != 1) continue;
    PlanStep joined = columns;
    joined.n_args = 5;
    const Place args[] = {x, scale, dy, w, slope};
    std::copy(std::begin(args), std::end(args), joined.args);
    joined.more[joined.n_more++] = map.out;
    joined.weight += map.weight;
    maker->keeps = false;
    maker->n_args = 3;
    plan_.registers[static_cast<size_t>(kept.index)].is_needed = false;
    steps[k - 1] = joined;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(k));
    return;
  }
}

void Compiler::join_sums(std::vector<PlanStep>& steps) const {
  if (plan_.can_go_wide) return;  // where each sum has partials for threads
  const auto is_sum = [](const PlanStep& s, ReduceRowsKernel ReduceKernels::*kernel) {
    return s.kind == PlanStep::kReduceRows && s.reduce.*kernel != nullptr &&
           s.reduce.rows == s.reduce.*kernel;
  };
  for (PlanStep& by_third : steps) {
    if (!is_sum(by_third, &ReduceKernels::products_by_third)) continue;
    const auto squares = std::find_if(steps.begin(), steps.end(), [&](const PlanStep& s) {
      return is_sum(s, &ReduceKernels::products) && !s.keeps &&
             s.args[0].kind == Place::kOperand && same(s.args[0], s.args[1]) &&
             same(s.args[0], by_third.args[2]);
    });
    if (squares == steps.end()) continue;
    by_third.reduce.rows = by_third.reduce.and_squares;
    by_third.square_register = squares->out.index;
    by_third.weight += squares->weight;
    steps.erase(squares);
    return;
  }
}

int64_t Compiler::register_bytes(const Register& r) const {
  const int64_t cols = r.whole_row ? plan_.cols : plan_.c_tile;
  const int64_t n = (has_row(r.span) ? plan_.r_tile : 1) * (has_column(r.span) ? cols : 1);
  return align_up(std::max<int64_t>(1, n) * r.elem_bytes, 64);
}

void Compiler::allocate() {
  int64_t bytes = align_up(bookkeeping_bytes(plan_), 64);
  struct Slot {
    int64_t offset, bytes, elem_bytes;
    Span span;
    int free_from;
  };
  std::vector<Slot> slots;
  for (size_t k = 0; k < plan_.registers.size(); ++k) {
    Register& r = plan_.registers[k];
    if (!r.is_needed) continue;
    const int64_t size = register_bytes(r);
    // A register without columns stays until its rows are done, as does one that is kept for whole
    // rows.
    const bool reusable = has_column(r.span) && !r.whole_row;
    Slot* found = nullptr;
    // Also in place over an argument that ends here: kernels read an element before writing it.
    for (Slot& slot : slots)
      if (reusable && slot.bytes == size && slot.elem_bytes == r.elem_bytes &&
          slot.span == r.span && slot.free_from <= defined_[k])
        found = &slot;
    r.offset = found != nullptr ? found->offset : bytes;
    if (found != nullptr) {
      found->free_from = last_use_[k];
    } else {
      bytes += size;
      if (reusable) slots.push_back({r.offset, size, r.elem_bytes, r.span, last_use_[k]});
    }
  }
  const int64_t blocks = (plan_.cols + kReduceBlock - 1) / kReduceBlock;
  for (PlanPhase& phase : plan_.phases)
    for (PlanStep& s : phase.strip_steps) {
      if (s.kind != PlanStep::kReduceRows) continue;
      s.lanes_offset = bytes;
      bytes += plan_.r_tile * kReduceLanes * s.out.elem_bytes;
      bytes = align_up(bytes, 64);
      if (s.square_register >= 0) {
        s.square_lanes_offset = bytes;
        bytes = align_up(bytes + plan_.r_tile * kReduceLanes * s.out.elem_bytes, 64);
      }
      if (!plan_.can_go_wide) continue;
      s.partials_offset = shared_bytes_;
      shared_bytes_ += align_up(std::max<int64_t>(1, blocks) * s.out.elem_bytes, 64);
    }
  plan_.thread_bytes = bytes;
  plan_.shared_bytes = shared_bytes_;
  for (PlanPhase& phase : plan_.phases)
    for (PlanStep& s : phase.strip_steps) {
      if (s.kind != PlanStep::kReduceColumns) continue;
      const int64_t cols = s.partial_cols == 1 ? 1 : plan_.unit_cols;
      const int64_t size = align_up(cols * s.out.elem_bytes, 64);
      s.sums_offset = bytes;
      s.chunk_offset = bytes + size;
      bytes += 2 * size;
      plan_.column_stores.push_back(s);
    }
  plan_.column_bytes = bytes - plan_.thread_bytes;
}

void Compiler::bind_all() {
  bind_each(plan_.once_steps);
  bind_each(plan_.row_stores);
  for (PlanPhase& phase : plan_.phases) {
    bind_each(phase.row_steps);
    bind_each(phase.strip_steps);
    for (const PlanStep& s : phase.strip_steps) {
      phase.weight += s.weight;
      for (const Place& p : s.args)
        if (p.kind == Place::kOperand) phase.direct.push_back(p.index);
      for (const Place& p : s.more)
        if (p.kind == Place::kOperand) phase.direct.push_back(p.index);
      if (s.out.kind == Place::kOperand) phase.direct.push_back(s.out.index);
    }
    sort_out(phase.direct);
  }
  sort_out(plan_.direct);
  for (int32_t k : plan_.direct) operand(k).may_stream = may_stream(k);
  int64_t row_bytes = 0, n_arrays = 0;
  for (int32_t k : plan_.direct) {
    if (!has_row(operand(k).span)) continue;
    row_bytes += plan_.cols * operand(k).elem_bytes;
    ++n_arrays;
  }
  // Reductions of one array that a cache may hold take less time where nothing is fetched for them,
  // those of rows by a third. From memory itself those of rows take a tenth more, those of columns
  // up to 1.7 times as much. Of 32 MiB of third cache, on Zen 5.
  constexpr int64_t kNearRows = 8 << 20, kNearColumns = 4 << 20;
  const int64_t near_bytes = !plan_.column_stores.empty() ? kNearColumns
                             : plan_.has_row_reductions   ? kNearRows
                                                          : 0;
  const bool is_near = plan_.rows * row_bytes <= near_bytes;
  plan_.fetches = n_arrays != 1 || !(is_near || prefers_hardware_prefetch());
  plan_.fetch_rows = plan_.has_row_reductions && plan_.r_tile * row_bytes <= kFetchBytes;
}

bool Compiler::may_stream(int32_t k) const {
  constexpr int64_t kLine = 64;
  const PlanOperand& o = plan_.operands[static_cast<size_t>(k)];
  const auto in_lines = [&](int64_t stride) { return stride * o.elem_bytes % kLine == 0; };
  if (plan_.in_blocks || k < plan_.n_inputs || !o.unit_columns ||
      register_dtype(o.dtype) != DType::kF32 ||
      !std::all_of(o.row_strides.begin(), o.row_strides.end(), in_lines) || !in_lines(plan_.c_tile))
    return false;
  const auto is_it = [&](const Place& p) { return p.kind == Place::kOperand && p.index == k; };
  int n_writers = 0;
  for (const PlanPhase& phase : plan_.phases)
    for (const PlanStep& s : phase.strip_steps) {
      if (std::any_of(s.args, s.args + s.n_args, is_it) ||
          std::any_of(s.more, s.more + s.n_more, is_it))
        return false;
      if (s.kind == PlanStep::kMap && is_it(s.out) && s.n_more == 0) ++n_writers;
    }
  return n_writers == 1;
}

void Compiler::bind_each(std::vector<PlanStep>& steps) {
  for (PlanStep& s : steps) {
    const bool reduces = s.kind == PlanStep::kReduceRows || s.kind == PlanStep::kReduceColumns;
    // In a step over rows alone a value of each row is a vector, else it is a splat.
    const bool by_row = s.span == Span::kRow && !reduces;
    const bool loads = s.kind == PlanStep::kLoad || s.kind == PlanStep::kIota;
    if (!loads)
      for (int k = 0; k < s.n_args; ++k) bind(s.args[k], by_row);
    if (s.kind != PlanStep::kStore && !reduces) bind(s.out, by_row);
    for (int k = 0; k < s.n_more; ++k) bind(s.more[k], by_row);
  }
}

void Compiler::bind(Place& p, bool by_row) {
  switch (p.kind) {
    case Place::kNone:
      return;
    case Place::kConstant:
      p.base = kConstantBase;
      p.offset = 8 * p.index;
      p.splat = true;
      return;
    case Place::kOperand: {
      const PlanOperand& o = operand(p.index);
      p.base = kOperandBase + p.index;
      p.row_const = o.inner_row * o.elem_bytes;
      plan_.direct.push_back(p.index);
      return;
    }
    case Place::kRegister:
      break;
  }
  const Register& r = plan_.registers[static_cast<size_t>(p.index)];
  p.offset = r.offset;
  if (r.whole_row)
    p.base = r.elem_bytes == 1 ? kStripBase1 : r.elem_bytes == 4 ? kStripBase4 : kStripBase8;
  switch (r.span) {
    case Span::kOne:
      p.splat = true;
      return;
    case Span::kRow:
      p.splat = !by_row;
      p.row_const = r.elem_bytes;
      return;
    case Span::kColumn:
      return;
    case Span::kFull:
      if (r.whole_row)
        p.row_const = plan_.cols * r.elem_bytes;
      else
        p.row_per_col = r.elem_bytes;
      return;
  }
}

}  // namespace stow::cpu::rows
