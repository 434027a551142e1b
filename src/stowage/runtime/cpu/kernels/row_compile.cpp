// From a row program to a row plan: tiles, phases, what is kept.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/cpu_vendor.h"
#include "stowage/runtime/cpu/kernels/row_compiler.h"
#include "stowage/runtime/cpu/kernels/row_order.h"

namespace stow::cpu {
namespace rows {
namespace {

constexpr int64_t kTileElems = 1024;
constexpr int64_t kRowTileElems = 8192;  // of all operands together
constexpr int64_t kMaxTileRows = 256;
constexpr int64_t kBlockCols = 256;
constexpr int64_t kRowsOfRuns = 8;  // rows at a time where their runs of columns are adjacent
constexpr int64_t kKeepBytes = 256 << 10;  // of whole rows, a thread
constexpr int64_t kUnitElems = 32 << 10;
constexpr int64_t kNearBytes = 32 << 10;  // of registers that a first cache holds
constexpr int64_t kFetchElems = 768;  // from what is worked on to what is fetched, in long strips

}  // namespace

RowPlan Compiler::compile() {
  plan_dims(program_, plan_);
  analyse();
  choose_tiles();
  choose_direct_loads();
  choose_phases();
  choose_fused_steps();
  choose_fused_stores();
  choose_parking();
  // A thread's own register is no place for a row that threads share.
  plan_.can_go_wide = plan_.has_row_reductions && !reduces_columns() && has_many_strips() &&
                      plan_.r_tile == 1 && plan_.kept_bytes == 0;
  emit();
  allocate();
  bind_all();
  return std::move(plan_);
}

void Compiler::analyse() {
  values_.resize(steps_.size());
  int next_iota = plan_.n_inputs + plan_.n_outputs;
  for (int i = 0; i < n_steps(); ++i) {
    simplify_one_hot(i);
    const Step& s = step(i);
    Value& v = value(i);
    for (int k = 0; k < n_args(s); ++k) {
      STOW_CHECK(s.args[k] < i && !is_store(step(s.args[k])), "step {} takes {}", i, s.args[k]);
      v.span = v.span | value(s.args[k]).span;
      v.level = std::max(v.level, value(s.args[k]).level);
    }
    switch (s.kind) {
      case StepKind::kLoad:
        STOW_CHECK(s.index >= 0 && s.index < plan_.n_inputs && operand(s.index).dtype == s.dtype);
        v.operand = s.index;
        v.span = operand(s.index).span;
        break;
      case StepKind::kConstant:
        break;
      case StepKind::kIota:
        v.operand = next_iota++;
        v.span = operand(v.operand).span;
        break;
      case StepKind::kCompute:
        break;
      case StepKind::kReduceRow:
        plan_.has_row_reductions = true;
        v.level += 1;
        v.span = Span::kRow;  // also of a single row: a phase must have passed
        break;
      case StepKind::kReduceColumns:
      case StepKind::kStore:
        check_store(i);
        break;
    }
  }
}

std::optional<std::pair<int, int>> Compiler::one_hot(int i) const {
  const Step& s = step(i);
  if (s.kind != StepKind::kCompute || s.op != OpKind::kSelect || s.dtype != DType::kF32)
    return std::nullopt;
  const Step& other = step(s.args[2]);
  const int position = one_hot_position(s.args[0]);
  if (position < 0 || other.kind != StepKind::kConstant || other.imm != 0) return std::nullopt;
  return std::pair(s.args[1], position);
}

int Compiler::one_hot_position(int i) const {
  const Step& test = step(i);
  if (test.kind != StepKind::kCompute || test.op != OpKind::kEq) return -1;
  for (int k = 0; k < 2; ++k) {
    const int column = test.args[k], position = test.args[1 - k];
    if (step(column).kind != StepKind::kIota || step(column).dtype != DType::kI32 ||
        has_column(values_[static_cast<size_t>(position)].span))
      continue;
    const PlanOperand& o =
        plan_.operands[static_cast<size_t>(values_[static_cast<size_t>(column)].operand)];
    if (o.unit_columns && o.span == Span::kColumn) return position;
  }
  return -1;
}

void Compiler::simplify_one_hot(int i) {
  Step& s = steps_[static_cast<size_t>(i)];
  if (s.dtype != DType::kF32) return;
  if (s.kind == StepKind::kReduceRow && s.op == OpKind::kReduceSum) {
    if (const auto hot = one_hot(s.args[0])) {
      s.args[0] = hot->first;
      s.args[1] = hot->second;
      value(i).by_position = true;
    }
  } else if (s.kind == StepKind::kCompute && (s.op == OpKind::kAdd || s.op == OpKind::kSub)) {
    for (int k = s.op == OpKind::kAdd ? 0 : 1; k < 2; ++k) {
      const auto hot = one_hot(s.args[k]);
      if (!hot || s.args[0] == s.args[1]) continue;
      value(i).span = Span::kColumn;
      s.args[0] = s.args[1 - k];
      s.args[1] = hot->first;
      s.args[2] = hot->second;
      value(i).by_position = true;
      return;
    }
  } else if (s.kind == StepKind::kCompute && s.op == OpKind::kConvert) {
    const int position = one_hot_position(s.args[0]);
    if (position < 0) return;
    value(i).span = Span::kColumn;
    s.args[0] = position;
    value(i).by_position = true;
  }
}

void Compiler::check_store(int i) {
  const Step& s = step(i);
  STOW_CHECK(s.index >= 0 && s.index < plan_.n_outputs && n_args(s) == 1);
  const PlanOperand& out = operand(output_operand(s));
  const Span span = value(s.args[0]).span;
  STOW_CHECK(out.dtype == s.dtype, "output {} is {}, not {}", s.index, dtype_name(out.dtype),
             dtype_name(s.dtype));
  STOW_CHECK(!has_column(span) || has_column(out.span) || plan_.cols <= 1,
             "output {} cannot hold a value a column", s.index);
  if (s.kind == StepKind::kReduceColumns)
    STOW_CHECK(std::all_of(out.row_strides.begin() + plan_.n_group_dims, out.row_strides.end(),
                           [](int64_t stride) { return stride == 0; }),
               "output {} of a column reduction has rows", s.index);
  else
    STOW_CHECK(has_row(out.span) || plan_.rows <= 1, "output {} has one place for all rows",
               s.index);
}

bool Compiler::reduces_columns() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& s) { return s.kind == StepKind::kReduceColumns; });
}

bool Compiler::is_column_sum(int k) const {
  return std::any_of(steps_.begin(), steps_.end(), [&](const Step& s) {
    return s.kind == StepKind::kReduceColumns && s.index == k;
  });
}

bool Compiler::has_interleaved_rows() const {
  for (int k = 0; k < plan_.n_inputs; ++k) {
    const PlanOperand& o = plan_.operands[static_cast<size_t>(k)];
    if (o.span == Span::kFull && !o.unit_columns && o.inner_col == 1 &&
        o.inner_row == plan_.inner_cols())
      return true;
  }
  return false;
}

void Compiler::choose_tiles() {
  const bool column_reductions = reduces_columns();
  bool transposed = false;
  int64_t n_full = 0;
  for (int k = 0; k < plan_.n_inputs + plan_.n_outputs; ++k) {
    const PlanOperand& o = operand(k);
    transposed = transposed || (o.span == Span::kFull && std::abs(o.inner_col) > 1 &&
                                std::abs(o.inner_row) < std::abs(o.inner_col));
    n_full += o.span == Span::kFull ? 1 : 0;
  }
  const int64_t R = std::max<int64_t>(1, plan_.rows), C = std::max<int64_t>(1, plan_.cols);
  if (plan_.has_row_reductions) {
    const bool one_strip = C <= 8192;
    plan_.c_tile = one_strip ? C : 4096;
    const int64_t elems = plan_.in_blocks ? kRowTileElems / 4 : kRowTileElems;  // less to keep
    const int64_t near = elems / std::max<int64_t>(1, n_full) / C;
    plan_.r_tile = transposed ? 16 : std::clamp<int64_t>(near, 1, kMaxTileRows);
    if (!one_strip && has_interleaved_rows()) {
      plan_.c_tile /= kRowsOfRuns;
      plan_.r_tile = kRowsOfRuns;
    }
  } else {
    plan_.c_tile = std::min<int64_t>(C, transposed ? 64 : column_reductions ? 1024 : tile_elems_);
    if (plan_.in_blocks) plan_.c_tile = std::min(plan_.c_tile, kBlockCols);
    plan_.r_tile = std::max<int64_t>(1, (column_reductions ? 4096 : tile_elems_) / plan_.c_tile);
  }
  // Values that a row shares are read and written by one unit: reductions, and outputs of one value
  // a row in a program of several columns.
  plan_.whole_rows = plan_.has_row_reductions;
  for (const Step& s : steps_)
    plan_.whole_rows = plan_.whole_rows || (C > 1 && s.kind == StepKind::kStore &&
                                            !has_column(operand(output_operand(s)).span));
  plan_.r_tile = std::min({plan_.r_tile, R, std::max<int64_t>(1, plan_.inner_rows())});
  if (column_reductions) {
    plan_.unit_rows = column_chunk_rows(plan_.group_rows);
    plan_.unit_cols = plan_.whole_rows ? C : plan_.c_tile;
  } else {
    const int64_t tile_cols = plan_.whole_rows ? C : plan_.c_tile;
    const int64_t tiles =
        std::max<int64_t>(1, kUnitElems / std::max<int64_t>(1, plan_.r_tile * tile_cols));
    plan_.unit_cols = plan_.whole_rows ? C : std::min(C, plan_.c_tile * tiles);
    const int64_t more =
        std::max<int64_t>(1, kUnitElems / std::max<int64_t>(1, plan_.r_tile * plan_.unit_cols));
    plan_.unit_rows = plan_.r_tile * more;
  }
  plan_.work = plan_.rows * plan_.cols * static_cast<int64_t>(steps_.size());
}

bool Compiler::takes_forms(const Step& s) const {
  if (s.kind == StepKind::kReduceRow || s.kind == StepKind::kReduceColumns)
    return true;  // the reductions of f32
  if (s.kind == StepKind::kStore) return is_vector_store(s);
  if (s.kind != StepKind::kCompute || s.op == OpKind::kBitcast) return false;
  const DType in = register_dtype(step(s.args[n_args(s) - 1]).dtype);
  return in == DType::kF32 && (s.dtype == DType::kBool || register_dtype(s.dtype) == in);
}

bool Compiler::is_vector_store(const Step& s) const {
  const PlanOperand& out = plan_.operands[static_cast<size_t>(output_operand(s))];
  return register_dtype(s.dtype) == DType::kF32 && out.unit_columns && has_column(out.span);
}

bool Compiler::may_overlap(int k, int input) {
  return overlaps_.of(static_cast<size_t>(k), static_cast<size_t>(input)) != Overlap::kNever &&
         may_share(operand(plan_.n_inputs + k), operand(input));
}

bool Compiler::can_be_apart(int k, int input) const {
  return !may_alias_ &&
         overlaps_.of(static_cast<size_t>(k), static_cast<size_t>(input)) != Overlap::kAlways;
}

bool Compiler::assume_apart(int k, int input) {
  if (!can_be_apart(k, input)) return false;
  const std::pair<int, int> pair = {k, input};
  if (std::find(plan_.must_differ.begin(), plan_.must_differ.end(), pair) ==
      plan_.must_differ.end())
    plan_.must_differ.push_back(pair);
  return true;
}

bool Compiler::assume_apart(int k, const std::vector<int>& inputs) {
  for (int input : inputs)
    if (!can_be_apart(k, input)) return false;
  for (int input : inputs) assume_apart(k, input);
  return true;
}

bool Compiler::may_be_overwritten(const Value& load, const Step& store) {
  for (int k = 0; k < plan_.n_outputs; ++k)
    if (k != store.index && may_overlap(k, load.operand) && !assume_apart(k, load.operand))
      return true;
  return false;
}

void Compiler::choose_direct_loads() {
  for (int i = 0; i < n_steps(); ++i) {
    Value& v = value(i);
    if (step(i).kind != StepKind::kLoad) continue;
    const PlanOperand& o = operand(v.operand);
    v.direct = o.unit_columns && has_column(o.span);
    for (int j = i + 1; j < n_steps() && v.direct; ++j) {
      const Step& user = step(j);
      for (int k = 0; k < n_args(user); ++k) {
        if (user.args[k] != i) continue;
        if (form_of(o.dtype) != Form::kNative && !takes_forms(user)) v.direct = false;
        if (user.kind == StepKind::kStore && may_be_overwritten(v, user)) v.direct = false;
      }
    }
  }
}

int Compiler::store_phase(const Step& s) {
  const int level = value(s.args[0]).level;
  if (s.kind == StepKind::kReduceColumns) return level;
  for (int k = 0; k < plan_.n_inputs; ++k)
    if (level < last_read_phase_ && may_overlap(s.index, k) && !assume_apart(s.index, k))
      return last_read_phase_;
  return level;
}

std::vector<bool> Compiler::needed_in(int phase) {
  std::vector<bool> needed(steps_.size(), false);
  for (int i = n_steps() - 1; i >= 0; --i) {
    const Step& s = step(i);
    bool wanted = needed[static_cast<size_t>(i)];
    if (s.kind == StepKind::kReduceRow)
      wanted = is_live_[static_cast<size_t>(i)] && value(i).level - 1 == phase;
    else if (is_store(s))
      wanted = store_phase(s) == phase &&
               (s.kind == StepKind::kReduceColumns || has_column(operand(output_operand(s)).span));
    else if (!has_column(value(i).span))
      continue;
    needed[static_cast<size_t>(i)] = wanted;
    if (!wanted) continue;
    for (int k = 0; k < n_args(s); ++k) {
      const int a = s.args[k];
      const Value& v = value(a);
      if (has_column(v.span) && !v.available) needed[static_cast<size_t>(a)] = true;
    }
  }
  return needed;
}

void Compiler::choose_phases() {
  is_live_.assign(steps_.size(), false);
  for (int i = n_steps() - 1; i >= 0; --i) {
    if (is_store(step(i))) is_live_[static_cast<size_t>(i)] = true;
    if (!is_live_[static_cast<size_t>(i)]) continue;
    for (int k = 0; k < n_args(step(i)); ++k) is_live_[static_cast<size_t>(step(i).args[k])] = true;
  }
  for (int i = 0; i < n_steps(); ++i) {
    if (!is_live_[static_cast<size_t>(i)]) continue;
    const Value& v = value(i);
    n_phases_ = std::max(n_phases_, v.level + 1);
    if (has_column(v.span) && !is_store(step(i)))
      last_read_phase_ = std::max(last_read_phase_, v.level);
    if (step(i).kind == StepKind::kReduceRow)
      last_read_phase_ = std::max(last_read_phase_, v.level - 1);
    if (step(i).kind == StepKind::kReduceColumns)
      last_read_phase_ = std::max(last_read_phase_, v.level);
  }
  // A value computed in one phase and wanted in a later one.
  for (int i = 0; i < n_steps(); ++i) {
    const Value& v = value(i);
    if (!is_live_[static_cast<size_t>(i)] || is_store(step(i)) || !has_column(v.span) || v.direct ||
        step(i).kind == StepKind::kConstant)
      continue;
    bool later = false;
    for (int j = i + 1; j < n_steps(); ++j)
      for (int k = 0; k < n_args(step(j)); ++k)
        if (step(j).args[k] == i && is_live_[static_cast<size_t>(j)])
          later = later || executed_in(j) > v.level;
    if (later) value(i).keep = keeps_;
  }
  if (!has_many_strips())  // registers last as long as the tile anyway
    for (int i = 0; i < n_steps(); ++i) value(i).keep = has_column(value(i).span);
  for (int p = 0; p < n_phases_; ++p) {
    needed_.push_back(needed_in(p));
    for (int i = 0; i < n_steps(); ++i)
      if (needed_.back()[static_cast<size_t>(i)] && value(i).keep && !value(i).direct)
        value(i).available = true;
  }
}

int Compiler::executed_in(int j) {
  const Step& s = step(j);
  if (s.kind == StepKind::kReduceRow) return value(j).level - 1;
  return is_store(s) ? store_phase(s) : value(j).level;
}

}  // namespace rows

bool prefetches_to_l1() {
  static const bool is_large = sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 << 10;
  return is_large && made_by_amd();
}
namespace {
std::atomic<int> g_prefers_hardware_prefetch{-1};
}  // namespace
bool prefers_hardware_prefetch() {
  const int set = g_prefers_hardware_prefetch.load(std::memory_order_relaxed);
  return set >= 0 ? set > 0 : made_by_amd() && !prefetches_to_l1();
}
void set_prefers_hardware_prefetch(std::optional<bool> prefers) {
  g_prefers_hardware_prefetch.store(prefers ? *prefers : -1, std::memory_order_relaxed);
}

namespace {

// On Zen 5 a triad takes a third less time so; Intel's have not been measured.
int64_t last_cache_bytes() {
  int64_t kib = 0;  // sysconf() multiplies AMD's by what shares none of it
  if (made_by_amd()) std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kib;
  return kib > 0 ? kib << 10 : std::numeric_limits<int64_t>::max();
}
std::atomic<int64_t> g_least_streamed_bytes{0};

}  // namespace

int64_t least_streamed_bytes() {
  static const int64_t of_machine = last_cache_bytes();
  const int64_t set = g_least_streamed_bytes.load(std::memory_order_relaxed);
  return set > 0 ? set : of_machine;
}
void set_least_streamed_bytes(int64_t bytes) {
  g_least_streamed_bytes.store(bytes, std::memory_order_relaxed);
}

namespace {

// Values that later phases read are kept, unless they are too many: then the phases compute them
// again.
RowPlan compile_in_strips(const RowProgram& program, const RowOverlaps& overlaps, bool may_alias,
                          int64_t tile_elems, bool in_blocks = false) {
  RowPlan plan =
      rows::Compiler(program, overlaps, may_alias, tile_elems, true, in_blocks).compile();
  if (plan.kept_bytes <= rows::kKeepBytes) return plan;
  return rows::Compiler(program, overlaps, may_alias, tile_elems, false, in_blocks).compile();
}

RowPlan in_longer_strips(const RowProgram& program, const RowOverlaps& overlaps, bool may_alias,
                         RowPlan plan) {
  using rows::kFetchElems, rows::kTileElems;
  // Strips with nothing in scratch share the near cache with nobody, and may be longer; much longer
  // where what comes next is fetched into the second one, unless that takes more of the workspace,
  // which is the same on every machine. Memory then likes what is fetched to be near: a whole strip
  // ahead, programs are up to a quarter slower. What the machine fetches itself likes strips as
  // long.
  const bool has_strips = std::any_of(plan.registers.begin(), plan.registers.end(),
                                      [](const Register& r) { return has_column(r.span); });
  if (plan.has_row_reductions || !plan.column_stores.empty() || has_strips) return plan;
  plan = compile_in_strips(program, overlaps, may_alias, 2 * kTileElems);
  plan.fetches = !prefers_hardware_prefetch();
  if (prefetches_to_l1()) return plan;
  RowPlan longer = compile_in_strips(program, overlaps, may_alias, 8 * kTileElems);
  const bool alike =
      longer.thread_bytes == plan.thread_bytes && longer.shared_bytes == plan.shared_bytes;
  if (!alike) return plan;
  longer.fetches = plan.fetches;
  longer.fetch_elems = kFetchElems;
  // One kernel finds nothing in a cache that another left there: left alone, it goes on to the end
  // of its thread's units. These begin where strips would, so that what may stream still may.
  const bool is_one_kernel = longer.phases.size() == 1 && longer.phases[0].strip_steps.size() == 1;
  if (!longer.fetches && is_one_kernel) longer.c_tile = std::max<int64_t>(1, longer.cols);
  return longer;
}

}  // namespace

RowPlan compile_row_blocks(const RowProgram& program, bool may_alias) {
  return compile_in_strips(program, {}, may_alias, rows::kTileElems, true);
}

RowPlan compile_row_plan(const RowProgram& program, bool may_alias, const RowOverlaps& overlaps) {
  RowPlan plan = compile_in_strips(program, overlaps, may_alias, rows::kTileElems);
  if (plan.thread_bytes > rows::kNearBytes) {
    const RowProgram ordered = group_steps_by_result(program);
    RowPlan other = compile_in_strips(ordered, overlaps, may_alias, rows::kTileElems);
    if (other.thread_bytes < plan.thread_bytes)
      return in_longer_strips(ordered, overlaps, may_alias, std::move(other));
  }
  return in_longer_strips(program, overlaps, may_alias, std::move(plan));
}

}  // namespace stow::cpu
