// From a row program to a row plan: tiles, phases, what is kept, registers.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/row_dims.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"

namespace stow::cpu {
namespace {

constexpr int64_t kTileElems = 1024;
constexpr int64_t kRowTileElems = 8192;  // of all operands together
constexpr int64_t kMaxTileRows = 256;
constexpr int64_t kKeepBytes = 256 << 10;  // of whole rows, a thread
constexpr int64_t kUnitElems = 32 << 10;
constexpr int64_t kFetchElems = 768;  // from what is worked on to what is fetched, in long strips
constexpr int64_t kFetchBytes = 384 << 10;  // of rows, while others are at work

int64_t round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}

// The time of a sum over a row, whose additions wait for one another, and over columns, which reads
// and writes its sums, in that of an elementwise addition.
constexpr int64_t kChainWeight = 3;
constexpr int64_t kColumnsWeight = 5;

// The time of an elementwise op on what lies near, an addition's being 1.
int64_t weight_of(OpKind op) {
  constexpr OpKind kDivides[] = {OpKind::kDiv, OpKind::kSqrt, OpKind::kRem};
  constexpr OpKind kFunctions[] = {OpKind::kExp,  OpKind::kLog,  OpKind::kRsqrt, OpKind::kLogistic,
                                   OpKind::kTanh, OpKind::kSin,  OpKind::kCos,   OpKind::kErf,
                                   OpKind::kPow,  OpKind::kLog1p, OpKind::kExpm1};
  if (std::find(std::begin(kDivides), std::end(kDivides), op) != std::end(kDivides)) return 6;
  if (std::find(std::begin(kFunctions), std::end(kFunctions), op) != std::end(kFunctions)) return 12;
  return 1;
}

// What is known of a step before it has a place.
struct Value {
  Span span = Span::kOne;
  int level = 0;             // The first phase in which it can be computed.
  int32_t operand = -1;      // Of a load or an iota.
  bool direct = false;       // A load that kernels do themselves.
  bool keep = false;         // For the whole row, beyond the phase that computes it.
  bool available = false;    // Kept, and computed in an earlier phase.
  int32_t absorbed_by = -1;   // The step whose kernel computes this one too.
  int32_t made_by = -1;      // Likewise, where others want this one as well.
  int32_t fused_store = -1;  // The store that its kernel does itself.
  int32_t reg = -1;
  bool by_position = false;  // A step that find_one_hot() has made.
};

class Compiler {
 public:
  /// Strips are of about so many elements, where no reduction asks for others.
  Compiler(const RowProgram& program, bool careful, int64_t tile_elems)
      : program_(program), steps_(program.steps), careful_(careful), tile_elems_(tile_elems) {}

  RowPlan compile() {
    plan_dims(program_, plan_);
    analyse();
    choose_tiles();
    choose_direct_loads();
    choose_phases();
    choose_fused_steps();
    choose_fused_stores();
    emit();
    allocate();
    bind_all();
    return std::move(plan_);
  }

 private:
  const Step& step(int i) const { return steps_[static_cast<size_t>(i)]; }
  Value& value(int i) { return values_[static_cast<size_t>(i)]; }
  int n_steps() const { return static_cast<int>(steps_.size()); }
  PlanOperand& operand(int i) { return plan_.operands[static_cast<size_t>(i)]; }
  static bool is_store(const Step& s) {
    return s.kind == StepKind::kStore || s.kind == StepKind::kReduceColumns;
  }
  int output_operand(const Step& s) const { return plan_.n_inputs + s.index; }
  bool has_many_strips() const { return plan_.cols > plan_.c_tile; }

  static int n_args(const Step& s) {
    int n = 0;
    while (n < 3 && s.args[n] >= 0) ++n;
    return n;
  }

  // Spans and levels; checks the contract.
  void analyse() {
    values_.resize(steps_.size());
    int next_iota = plan_.n_inputs + plan_.n_outputs;
    for (int i = 0; i < n_steps(); ++i) {
      find_one_hot(i);
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

  // Where step i is `column == position ? x : 0`, the position one i32 a row: which x and position.
  std::optional<std::pair<int, int>> one_hot(int i) const {
    const Step& s = step(i);
    if (s.kind != StepKind::kCompute || s.op != OpKind::kSelect || s.dtype != DType::kF32)
      return std::nullopt;
    const Step &test = step(s.args[0]), &other = step(s.args[2]);
    if (test.kind != StepKind::kCompute || test.op != OpKind::kEq ||
        other.kind != StepKind::kConstant || other.imm != 0)
      return std::nullopt;
    for (int k = 0; k < 2; ++k) {
      const int column = test.args[k], position = test.args[1 - k];
      if (step(column).kind != StepKind::kIota || step(column).dtype != DType::kI32 ||
          has_column(values_[static_cast<size_t>(position)].span))
        continue;
      const PlanOperand& o =
          plan_.operands[static_cast<size_t>(values_[static_cast<size_t>(column)].operand)];
      if (o.unit_columns && o.span == Span::kColumn) return std::pair(s.args[1], position);
    }
    return std::nullopt;
  }
  // What is summed or added of a row with but one element is had for the price of one: step i then
  // takes that element and its position, and whole rows of zeros are never made.
  void find_one_hot(int i) {
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
    }
  }

  void check_store(int i) {
    const Step& s = step(i);
    STOW_CHECK(s.index >= 0 && s.index < plan_.n_outputs && n_args(s) == 1);
    const PlanOperand& out = operand(output_operand(s));
    const Span span = value(s.args[0]).span;
    STOW_CHECK(out.dtype == s.dtype, "output {} is {}, not {}", s.index, dtype_name(out.dtype),
               dtype_name(s.dtype));
    STOW_CHECK(!has_column(span) || has_column(out.span) || plan_.cols <= 1,
               "output {} cannot hold a value a column", s.index);
    if (s.kind == StepKind::kReduceColumns)
      STOW_CHECK(!has_row(out.span), "output {} of a column reduction has rows", s.index);
    else
      STOW_CHECK(has_row(out.span) || plan_.rows <= 1, "output {} has one place for all rows",
                 s.index);
  }

  void choose_tiles() {
    bool column_reductions = false, transposed = false;
    int64_t n_full = 0;
    for (const Step& s : steps_)
      column_reductions = column_reductions || s.kind == StepKind::kReduceColumns;
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
      const int64_t near = kRowTileElems / std::max<int64_t>(1, n_full) / C;
      plan_.r_tile = transposed ? 16 : std::clamp<int64_t>(near, 1, kMaxTileRows);
    } else {
      plan_.c_tile = std::min<int64_t>(C, transposed ? 64 : column_reductions ? 1024 : tile_elems_);
      plan_.r_tile = std::max<int64_t>(1, (column_reductions ? 4096 : tile_elems_) / plan_.c_tile);
    }
    // What a row shares is read and written by one unit: reductions, outputs of one value a row.
    bool whole_rows = plan_.has_row_reductions;
    for (const Step& s : steps_)
      whole_rows = whole_rows ||
                   (s.kind == StepKind::kStore && !has_column(operand(output_operand(s)).span));
    plan_.r_tile = std::min({plan_.r_tile, R, std::max<int64_t>(1, plan_.inner_rows())});
    if (column_reductions) {
      plan_.unit_rows = column_chunk_rows(plan_.rows);
      plan_.unit_cols = whole_rows ? C : plan_.c_tile;
    } else {
      const int64_t tile_cols = whole_rows ? C : plan_.c_tile;
      const int64_t tiles =
          std::max<int64_t>(1, kUnitElems / std::max<int64_t>(1, plan_.r_tile * tile_cols));
      plan_.unit_cols = whole_rows ? C : std::min(C, plan_.c_tile * tiles);
      const int64_t more =
          std::max<int64_t>(1, kUnitElems / std::max<int64_t>(1, plan_.r_tile * plan_.unit_cols));
      plan_.unit_rows = plan_.r_tile * more;
    }
    plan_.work = plan_.rows * plan_.cols * static_cast<int64_t>(steps_.size());
  }

  // Whether a step's kernel reads and writes the memory forms of bf16 and f16.
  bool takes_forms(const Step& s) const {
    if (s.kind == StepKind::kReduceRow || s.kind == StepKind::kReduceColumns)
      return true;  // the reductions of f32
    if (s.kind == StepKind::kStore) return is_vector_store(s);
    if (s.kind != StepKind::kCompute || s.op == OpKind::kBitcast) return false;
    const DType in = register_dtype(step(s.args[n_args(s) - 1]).dtype);
    return in == DType::kF32 && (s.dtype == DType::kBool || register_dtype(s.dtype) == in);
  }

  // Whether a store is a vector copy of floats.
  bool is_vector_store(const Step& s) const {
    const PlanOperand& out = plan_.operands[static_cast<size_t>(output_operand(s))];
    return register_dtype(s.dtype) == DType::kF32 && out.unit_columns && has_column(out.span);
  }

  // Whether the plan may take output `k` and input `input` to be different memory; notes it.
  bool assume_apart(int k, int input) {
    if (careful_) return false;
    const std::pair<int, int> pair = {k, input};
    if (std::find(plan_.must_differ.begin(), plan_.must_differ.end(), pair) ==
        plan_.must_differ.end())
      plan_.must_differ.push_back(pair);
    return true;
  }

  // Stores come last in their phase, so one that reads an input straight from memory must not find
  // another output there.
  bool may_be_overwritten(const Value& load, const Step& store) {
    for (int k = 0; k < plan_.n_outputs; ++k)
      if (k != store.index && may_share(operand(plan_.n_inputs + k), operand(load.operand)) &&
          !assume_apart(k, load.operand))
        return true;
    return false;
  }

  void choose_direct_loads() {
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

  // The phase in which a store happens: as soon as can be, unless an input that may be the same
  // memory could be read again later.
  int store_phase(const Step& s) {
    const int level = value(s.args[0]).level;
    if (s.kind == StepKind::kReduceColumns) return level;
    const PlanOperand& out = operand(output_operand(s));
    for (int k = 0; k < plan_.n_inputs; ++k)
      if (level < last_read_phase_ && may_share(out, operand(k)) && !assume_apart(s.index, k))
        return last_read_phase_;
    return level;
  }

  // Steps with columns that phase `phase` must compute, given what was kept before.
  std::vector<bool> needed_in(int phase) {
    std::vector<bool> needed(steps_.size(), false);
    for (int i = n_steps() - 1; i >= 0; --i) {
      const Step& s = step(i);
      bool wanted = needed[static_cast<size_t>(i)];
      if (s.kind == StepKind::kReduceRow)
        wanted = is_live_[static_cast<size_t>(i)] && value(i).level - 1 == phase;
      else if (is_store(s))
        wanted = store_phase(s) == phase && (s.kind == StepKind::kReduceColumns ||
                                             has_column(operand(output_operand(s)).span));
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

  void choose_phases() {
    is_live_.assign(steps_.size(), false);
    for (int i = n_steps() - 1; i >= 0; --i) {
      if (is_store(step(i))) is_live_[static_cast<size_t>(i)] = true;
      if (!is_live_[static_cast<size_t>(i)]) continue;
      for (int k = 0; k < n_args(step(i)); ++k)
        is_live_[static_cast<size_t>(step(i).args[k])] = true;
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
    // A value computed in one phase and wanted in a later one is kept, if all such fit.
    std::vector<int> again;
    int64_t bytes = 0;
    for (int i = 0; i < n_steps(); ++i) {
      const Value& v = value(i);
      if (!is_live_[static_cast<size_t>(i)] || is_store(step(i)) || !has_column(v.span) ||
          v.direct || step(i).kind == StepKind::kConstant)
        continue;
      bool later = false;
      for (int j = i + 1; j < n_steps(); ++j)
        for (int k = 0; k < n_args(step(j)); ++k)
          if (step(j).args[k] == i && is_live_[static_cast<size_t>(j)])
            later = later || executed_in(j) > v.level;
      if (!later) continue;
      again.push_back(i);
      bytes += (has_row(v.span) ? plan_.r_tile : 1) * plan_.cols *
               dtype_bytes(register_dtype(step(i).dtype));
    }
    const bool fits = !has_many_strips() || bytes <= kKeepBytes;
    for (int i : again) value(i).keep = fits;
    if (!has_many_strips())  // registers last as long as the tile anyway
      for (int i = 0; i < n_steps(); ++i) value(i).keep = has_column(value(i).span);
    for (int p = 0; p < n_phases_; ++p) {
      needed_.push_back(needed_in(p));
      for (int i = 0; i < n_steps(); ++i)
        if (needed_.back()[static_cast<size_t>(i)] && value(i).keep && !value(i).direct)
          value(i).available = true;
    }
    bool column_reductions = false;
    for (const Step& s : steps_)
      column_reductions = column_reductions || s.kind == StepKind::kReduceColumns;
    plan_.can_go_wide = plan_.has_row_reductions && !column_reductions && has_many_strips() &&
                        (again.empty() || !fits) && plan_.r_tile == 1;
  }

  // The phase that executes step j first.
  int executed_in(int j) {
    const Step& s = step(j);
    if (s.kind == StepKind::kReduceRow) return value(j).level - 1;
    return is_store(s) ? store_phase(s) : value(j).level;
  }

  // Whether nothing but one other step wants step i, which may then be computed there.
  bool is_wanted_once(int i) {
    const Value& v = value(i);
    return step(i).kind == StepKind::kCompute && uses_[static_cast<size_t>(i)] == 1 &&
           v.absorbed_by < 0 && v.made_by < 0 && !absorbs(i);
  }
  // Whether it is arithmetic of f32 as well.
  bool is_absorbable(int i) {
    const Step& s = step(i);
    return is_wanted_once(i) && s.dtype == DType::kF32 && n_args(s) == 2 &&
           step(s.args[0]).dtype == DType::kF32;
  }
  // Whether that other is step j, which wants it at each of its own points.
  bool can_absorb(int j, int i) { return is_absorbable(i) && value(i).span == value(j).span; }
  bool absorbs(int i) { return fused_[static_cast<size_t>(i)].map != nullptr; }

  int n_absorbable(int i) {
    int n = 0;
    for (int k = 0; k < n_args(step(i)); ++k) n += can_absorb(i, step(i).args[k]) ? 1 : 0;
    return n;
  }

  // Where step j is x times the logistic of x, which nothing else wants: that logistic. Else -1.
  int logistic_of_gate(int j) {
    const Step& s = step(j);
    if (s.kind != StepKind::kCompute || s.op != OpKind::kMul) return -1;
    for (int k = 0; k < 2; ++k) {
      const int i = s.args[k];
      if (step(i).op == OpKind::kLogistic && step(i).args[0] == s.args[1 - k] &&
          is_wanted_once(i) && value(i).span == value(j).span)
        return i;
    }
    return -1;
  }
  // Step j as silu(x), or as silu(x) times another value.
  bool fuse_gate(int j) {
    const Step& s = step(j);
    Fused& f = fused_[static_cast<size_t>(j)];
    for (int k = 0; k < n_args(s) && s.op == OpKind::kMul; ++k) {
      const int silu = s.args[k], logistic = logistic_of_gate(silu);
      if (logistic < 0 || !is_wanted_once(silu) || value(silu).span != value(j).span) continue;
      f = {f32_gate_kernel(true), {step(logistic).args[0], s.args[1 - k]}};
      value(silu).absorbed_by = value(logistic).absorbed_by = j;
      return true;
    }
    const int logistic = logistic_of_gate(j);
    if (logistic < 0) return false;
    f = {f32_gate_kernel(false), {step(logistic).args[0]}};
    value(logistic).absorbed_by = j;
    return true;
  }

  // The other factor where step i is the product of v and something, of the dtype of step j and
  // wanted at its points; else -1.
  int factor_beside(int i, int v, int j) {
    const Step& s = step(i);
    if (s.kind != StepKind::kCompute || s.op != OpKind::kMul || s.dtype != step(j).dtype ||
        value(i).span != value(j).span)
      return -1;
    return s.args[0] == v ? s.args[1] : s.args[1] == v ? s.args[0] : -1;
  }
  bool is_one(int i) const {
    const Step& s = step(i);
    return s.kind == StepKind::kConstant && s.imm == (s.dtype == DType::kF32    ? 0x3f800000u
                                                      : s.dtype == DType::kBF16 ? 0x3f80u
                                                                                : 0x3c00u);
  }
  // Step j as the gradient of silu(x), dy s + (dy x) (s (1 - s)), and what else of a gate the same
  // program computes: of silu(x) y that by y, and the product itself.
  bool fuse_gate_grad(int j) {
    const Step& sum = step(j);
    if (sum.kind != StepKind::kCompute || sum.op != OpKind::kAdd || !has_column(value(j).span) ||
        register_dtype(sum.dtype) != DType::kF32)
      return false;
    const auto is_alone = [&](int i) { return uses_[static_cast<size_t>(i)] == 1; };
    for (int turn = 0; turn < 4; ++turn) {
      const int straight = sum.args[turn / 2], bent = sum.args[1 - turn / 2];
      const Step& product = step(straight);
      const int s = product.args[turn % 2], d = product.args[1 - turn % 2];
      if (s < 0 || factor_beside(straight, s, j) < 0 || step(s).op != OpKind::kLogistic ||
          step(s).kind != StepKind::kCompute || value(s).span != value(j).span)
        continue;
      const int x = step(s).args[0];
      for (int k = 0; k < 2; ++k) {
        const int by_x = step(bent).args[k], slope = step(bent).args[1 - k];
        if (by_x < 0 || factor_beside(bent, by_x, j) < 0 || factor_beside(by_x, x, j) != d)
          continue;
        const int rest = factor_beside(slope, s, j);
        if (rest < 0 || step(rest).kind != StepKind::kCompute || step(rest).op != OpKind::kSub ||
            !is_one(step(rest).args[0]) || step(rest).args[1] != s || !is_alone(straight) ||
            !is_alone(bent) || !is_alone(by_x) || !is_alone(slope) || !is_alone(rest))
          continue;
        return fuse_gate_grad(j, {straight, bent, by_x, slope, rest}, s, x, d);
      }
    }
    return false;
  }
  // Once it is known to be one: of the logistic s of x and dy = d.
  bool fuse_gate_grad(int j, std::vector<int> parts, int s, int x, int d) {
    Fused f;
    if (uses_[static_cast<size_t>(s)] == 3) {
      f = {f32_gate_grad_kernel(1), {x, d}};
    } else {
      const auto users = [&](int i) {
        std::vector<int> list;
        for (int u = i + 1; u < n_steps(); ++u)
          for (int k = 0; k < n_args(step(u)); ++k)
            if (is_live_[static_cast<size_t>(u)] && step(u).args[k] == i) list.push_back(u);
        return list;
      };
      int silu = -1;
      for (int u : users(s))
        if (value(u).absorbed_by < 0 && factor_beside(u, s, j) == x) silu = u;
      if (silu < 0 || uses_[static_cast<size_t>(s)] != 4 || uses_[static_cast<size_t>(d)] != 2)
        return false;
      // The factors of d, each of which silu(x) may be multiplied by as well.
      const std::vector<int> products = users(silu);
      if (products.empty() || products.size() > 2) return false;
      const int dy = factor_beside(products[0], silu, j);
      if (dy < 0 || factor_beside(d, dy, j) < 0) return false;
      const int y = factor_beside(d, dy, j);
      if (products.size() == 2 && factor_beside(products[1], silu, j) != y) return false;
      f = {f32_gate_grad_kernel(1 + static_cast<int>(products.size())), {x, y, dy}};
      f.more = products;
      parts.insert(parts.end(), {silu, d});
    }
    parts.push_back(s);
    for (int a : f.args)
      if (value(a).span != value(j).span) return false;
    // What the kernel computes early must not be wanted before, nor in other phases.
    for (int made : f.more) {
      for (const std::vector<bool>& needed : needed_)
        if (needed[static_cast<size_t>(made)] != needed[static_cast<size_t>(j)]) return false;
      for (int u = made + 1; u < j; ++u)
        for (int k = 0; k < n_args(step(u)); ++k)
          if (step(u).args[k] == made && is_live_[static_cast<size_t>(u)] && !is_store(step(u)))
            return false;
    }
    for (int part : parts) value(part).absorbed_by = j;
    for (int made : f.more) value(made).made_by = j;
    fused_[static_cast<size_t>(j)] = std::move(f);
    return true;
  }

  // The products of f32 that column reduction j sums up, of two values or three.
  void fuse_column_products(int j) {
    const Step& s = step(j);
    const int product = s.args[0];
    if (s.dtype != DType::kF32 || step(product).op != OpKind::kMul || !is_absorbable(product) ||
        !has_column(value(product).span) ||
        reduce_kernels(s.op, s.dtype).column_products == nullptr)
      return;
    std::vector<int>& args = fused_[static_cast<size_t>(j)].args;
    args = {step(product).args[0], step(product).args[1]};
    value(product).absorbed_by = j;
    for (int k = 0; k < 2; ++k) {
      const int inner = args[static_cast<size_t>(k)], other = args[static_cast<size_t>(1 - k)];
      if (step(inner).op != OpKind::kMul || !can_absorb(product, inner)) continue;
      args = {step(inner).args[0], step(inner).args[1], other};
      value(inner).absorbed_by = j;
      return;
    }
  }
  // Step j as a sum or product to which twice a product is added, the product rounded.
  bool fuse_square_grad(int j) {
    const Step& s = step(j);
    for (int k = 0; k < n_args(s) && s.op == OpKind::kAdd; ++k) {
      const int twice = s.args[k], left = s.args[1 - k];
      if (left == twice || !can_absorb(j, left) || !can_absorb(j, twice)) continue;
      const int p = step(twice).args[0];
      if (step(twice).op != OpKind::kAdd || step(twice).args[1] != p ||
          uses_[static_cast<size_t>(p)] != 2 || step(p).op != OpKind::kMul ||
          step(p).kind != StepKind::kCompute || value(p).span != value(j).span ||
          value(p).absorbed_by >= 0 || absorbs(p))
        continue;
      const MapKernel map = f32_square_grad_kernel(step(left).op);
      if (map == nullptr) continue;
      fused_[static_cast<size_t>(j)] = {
          map, {step(left).args[0], step(left).args[1], step(p).args[0], step(p).args[1]}};
      value(left).absorbed_by = value(twice).absorbed_by = value(p).absorbed_by = j;
      return true;
    }
    return false;
  }

  // Whether row reduction j may compute step i on the way, which others may want as well, but not
  // before it.
  bool can_make(int j, int i) {
    const Value& v = value(i);
    const int phase = executed_in(j);
    if (step(i).kind != StepKind::kCompute || step(i).dtype != DType::kF32 || absorbs(i) ||
        v.absorbed_by >= 0 || v.level != phase || v.span != value(step(j).args[0]).span)
      return false;
    // Rows that are all alike are reduced each by itself: the first must not change what others read.
    if (!has_row(v.span) && plan_.rows != 1) return false;
    for (int p = phase + 1; p < n_phases_; ++p)
      if (needed_[static_cast<size_t>(p)][static_cast<size_t>(i)]) return false;
    for (int u = i + 1; u < j; ++u)
      for (int k = 0; k < n_args(step(u)); ++k)
        if (step(u).args[k] == i && is_live_[static_cast<size_t>(u)] && executed_in(u) == phase &&
            value(u).absorbed_by != j)
          return false;
    return true;
  }
  // Row reduction j with the terms that it sums up: products of two or three values of f32, or
  // exponentials of differences.
  void fuse_terms(int j) {
    const Step& s = step(j);
    const int t = s.args[0];
    if (s.dtype != DType::kF32 || value(j).by_position || step(t).kind != StepKind::kCompute ||
        !has_column(value(t).span))
      return;
    const ReduceKernels kernels = reduce_kernels(s.op, s.dtype);
    Fused& f = fused_[static_cast<size_t>(j)];
    const auto make = [&](ReduceRowsKernel kernel, int inner, std::vector<int> args) {
      f.reduce = kernel;
      f.args = std::move(args);
      f.keeps = uses_[static_cast<size_t>(inner)] > 1 ? inner : -1;
      value(inner).absorbed_by = j;
    };
    if (step(t).op == OpKind::kExp && kernels.exps != nullptr) {
      const int x = step(t).args[0];
      if (step(x).op != OpKind::kSub || !is_absorbable(x) || value(x).span != value(t).span ||
          !can_make(j, t))
        return;
      make(kernels.exps, t, {step(x).args[0], step(x).args[1]});
      value(x).absorbed_by = j;
    } else if (step(t).op == OpKind::kMul && is_absorbable(t) && kernels.products != nullptr) {
      value(t).absorbed_by = j;
      for (int k = 0; k < 2; ++k) {
        const int inner = step(t).args[k], third = step(t).args[1 - k];
        if (inner == third || step(inner).op != OpKind::kMul || !can_make(j, inner)) continue;
        return make(kernels.products_by_third, inner,
                    {step(inner).args[0], step(inner).args[1], third});
      }
      make(kernels.products, t, {step(t).args[0], step(t).args[1]});
    }
  }

  // Step j, one element added to a row, with the product that makes the row.
  void fuse_poke(int j) {
    const Step& s = step(j);
    const int x = s.args[0];
    const bool of_product = step(x).op == OpKind::kMul && can_absorb(j, x);
    Fused& f = fused_[static_cast<size_t>(j)];
    f.map = f32_poke_kernel(s.op, of_product);
    f.args = {x, s.args[1], s.args[2]};
    if (!of_product) return;
    f.args = {step(x).args[0], step(x).args[1], s.args[1], s.args[2]};
    value(x).absorbed_by = j;
  }

  // Neighbouring steps of f32 that one kernel computes together. Of two choices the later step
  // goes first: it is nearer to what is stored.
  void choose_fused_steps() {
    uses_.assign(steps_.size(), 0);
    fused_.resize(steps_.size());
    for (int i = 0; i < n_steps(); ++i)
      if (is_live_[static_cast<size_t>(i)])
        for (int k = 0; k < n_args(step(i)); ++k) ++uses_[static_cast<size_t>(step(i).args[k])];
    for (int j = n_steps() - 1; j >= 0; --j)
      if (is_live_[static_cast<size_t>(j)]) fuse_gate_grad(j);
    for (int j = n_steps() - 1; j >= 0; --j) {
      const Step& s = step(j);
      if (!is_live_[static_cast<size_t>(j)] || value(j).made_by >= 0 || absorbs(j)) continue;
      if (s.kind == StepKind::kReduceColumns) fuse_column_products(j);
      if (s.kind == StepKind::kReduceRow) fuse_terms(j);
      if (s.kind == StepKind::kCompute && value(j).by_position) fuse_poke(j);
      if (s.kind != StepKind::kCompute || value(j).by_position || value(j).absorbed_by >= 0 || register_dtype(s.dtype) != DType::kF32 || n_args(s) > 2 ||
          fuse_gate(j) || fuse_square_grad(j))
        continue;
      const int a = s.args[0], b = s.args[1];
      const bool first = can_absorb(j, a), second = b >= 0 && can_absorb(j, b);
      Fused f;
      if (first && second && a != b) {
        f.map = f32_triple_kernel(s.op, step(a).op, step(b).op);
        f.args = {step(a).args[0], step(a).args[1], step(b).args[0], step(b).args[1]};
        if (f.map != nullptr) value(b).absorbed_by = j;
      }
      // Of two, the one that has less to absorb of its own.
      const bool prefer_second = second && (!first || n_absorbable(b) < n_absorbable(a));
      if (f.map == nullptr && prefer_second) {
        f.map = f32_pair_kernel(s.op, step(b).op, false);
        f.args = {step(b).args[0], step(b).args[1], a};
        if (f.map != nullptr) {
          value(b).absorbed_by = j;
          fused_[static_cast<size_t>(j)] = std::move(f);
          continue;
        }
      }
      if (f.map == nullptr && first) {
        f.map = f32_pair_kernel(s.op, step(a).op, true);
        f.args = {step(a).args[0], step(a).args[1]};
        if (b >= 0) f.args.push_back(b);
      }
      if (f.map == nullptr) continue;
      value(a).absorbed_by = j;
      fused_[static_cast<size_t>(j)] = std::move(f);
    }
  }

  // A store whose value's own kernel can write the output: it must be the value's only phase, and
  // no input that may be the same memory may be read after the kernel.
  void choose_fused_stores() {
    for (int i = 0; i < n_steps(); ++i) {
      const Step& s = step(i);
      if (s.kind != StepKind::kStore) continue;
      const int a = s.args[0];
      Value& v = value(a);
      const int kernel = v.made_by >= 0 ? v.made_by : a;
      const PlanOperand& out = operand(output_operand(s));
      int first = 0;  // phase that computes it
      while (first < n_phases_ && !needed_[static_cast<size_t>(first)][static_cast<size_t>(a)])
        ++first;
      if (step(a).kind != StepKind::kCompute || v.absorbed_by >= 0 || v.fused_store >= 0 || !out.unit_columns ||
          v.span != out.span || store_phase(s) > first)
        continue;
      if (form_of(out.dtype) != Form::kNative && !takes_forms(step(a))) continue;
      // Later phases read it where it was stored; or, if they compute it again, they would write
      // it again, which only the phase of the store may do.
      bool possible = true;
      std::vector<int> overtaken;  // inputs read after the store
      for (int p = first + 1; p < n_phases_; ++p)
        if (needed_[static_cast<size_t>(p)][static_cast<size_t>(a)]) possible = false;
      for (int p = first; p < n_phases_ && possible; ++p)
        for (int j = 0; j < n_steps(); ++j) {
          if (!needed_[static_cast<size_t>(p)][static_cast<size_t>(j)]) continue;
          const int reader = value(j).absorbed_by >= 0 ? value(j).absorbed_by
                             : value(j).made_by >= 0   ? value(j).made_by
                                                       : j;
          const bool later = p > first || reader > kernel;
          for (int k = 0; k < n_args(step(j)); ++k) {
            const int b = step(j).args[k];
            if (b == a && form_of(out.dtype) != Form::kNative && !takes_forms(step(j)) && j != i)
              possible = false;
            // Reads through a direct load, at any later place.
            const Value& w = value(b);
            if (later && w.direct && may_share(out, operand(w.operand)))
              overtaken.push_back(w.operand);
          }
          // A load that copies.
          if (later && step(j).kind == StepKind::kLoad && !value(j).direct &&
              may_share(out, operand(value(j).operand)))
            overtaken.push_back(value(j).operand);
        }
      if (careful_ && !overtaken.empty()) possible = false;
      if (!possible) continue;
      for (int input : overtaken) assume_apart(s.index, input);
      v.fused_store = i;
    }
  }

  // Where value i lies, for a step at the present position.
  Place place_of(int i) {
    const Value& v = value(i);
    const Step& s = step(i);
    Place p;
    p.elem_bytes = static_cast<int32_t>(dtype_bytes(register_dtype(s.dtype)));
    if (s.kind == StepKind::kConstant) {
      p.kind = Place::kConstant;
      p.index = constant(s);
      return p;
    }
    if (v.direct || v.fused_store >= 0) {
      p.kind = Place::kOperand;
      p.index = v.direct ? v.operand : output_operand(step(v.fused_store));
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

  int32_t constant(const Step& s) {
    uint64_t bits = s.imm;
    if (s.dtype == DType::kBF16) bits = std::bit_cast<uint32_t>(bf16_to_f32(uint16_t(bits)));
    if (s.dtype == DType::kF16) bits = std::bit_cast<uint32_t>(f16_to_f32(uint16_t(bits)));
    if (s.dtype == DType::kBool) bits = (bits & 0xff) != 0;
    for (size_t k = 0; k < plan_.constants.size(); ++k)
      if (plan_.constants[k] == bits) return static_cast<int32_t>(k);
    plan_.constants.push_back(bits);
    return static_cast<int32_t>(plan_.constants.size() - 1);
  }

  void define(int i) {
    Value& v = value(i);
    v.reg = static_cast<int32_t>(plan_.registers.size());
    Register r;
    r.span = v.span;
    r.whole_row = has_many_strips() && v.keep;
    r.elem_bytes = dtype_bytes(register_dtype(step(i).dtype));
    plan_.registers.push_back(r);
    defined_.push_back(position_);
    last_use_.push_back(position_);
  }

  // Appends the step(s) that compute value i, or do store i, to `list`.
  void emit_step(int i, std::vector<PlanStep>& list) {
    const Step& s = step(i);
    Value& v = value(i);
    PlanStep p;
    p.span = v.span;
    p.round = form_of(s.dtype);
    p.n_args = n_args(s);
    p.by_position = v.by_position;
    if (v.absorbed_by >= 0 || v.made_by >= 0) return;
    ++position_;
    const Fused& fused = fused_[static_cast<size_t>(i)];
    if (!fused.args.empty()) {
      p.n_args = static_cast<int>(fused.args.size());
      for (int k = 0; k < p.n_args; ++k)
        p.args[k] = place_of(fused.args[static_cast<size_t>(k)]);
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
        if (v.fused_store < 0) define(i);
        for (int made : fused.more) {
          p.weight += weight_of(step(made).op);
          if (value(made).fused_store < 0) define(made);
          p.more[p.n_more++] = place_of(made);
        }
        break;
      }
      case StepKind::kReduceRow:
        if (v.reg < 0) define(i);
        p.kind = PlanStep::kReduceRows;
        p.span = value(s.args[0]).span;
        p.weight = kChainWeight;
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
          p.reduce.rows = f32_pick_kernel();
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
        shared_bytes_ += round_up(column_chunks() * p.partial_cols * p.out.elem_bytes, 64);
        plan_.column_stores.push_back(p);
        break;
      case StepKind::kStore:
        if (value(s.args[0]).fused_store == i) return;
        emit_store(i, p);
        break;
    }
    if (s.kind != StepKind::kStore && s.kind != StepKind::kReduceColumns) {
      p.out = place_of(i);
    }
    list.push_back(p);
  }

  void emit_store(int i, PlanStep& p) {
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

  int64_t column_chunks() const {
    const int64_t chunk = column_chunk_rows(plan_.rows);
    return std::max<int64_t>(1, (plan_.rows + chunk - 1) / chunk);
  }

  void emit() {
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
    for (int i = 0; i < n_steps(); ++i)
      if (step(i).kind == StepKind::kStore && !has_column(operand(output_operand(step(i))).span))
        emit_step(i, plan_.row_stores);
  }

  // A sum of squares beside a sum of products by the same values: one pass over the row, in which the
  // additions of the two hide each other. What is between them in the list may be neither's operand.
  void join_sums(std::vector<PlanStep>& steps) const {
    if (plan_.can_go_wide) return;  // where each sum has partials for threads
    const auto is_sum = [](const PlanStep& s, ReduceRowsKernel ReduceKernels::*kernel) {
      return s.kind == PlanStep::kReduceRows && s.reduce.*kernel != nullptr &&
             s.reduce.rows == s.reduce.*kernel;
    };
    const auto same = [](const Place& a, const Place& b) {
      return a.kind == Place::kOperand && b.kind == a.kind && b.index == a.index;
    };
    for (PlanStep& by_third : steps) {
      if (!is_sum(by_third, &ReduceKernels::products_by_third)) continue;
      const auto squares = std::find_if(steps.begin(), steps.end(), [&](const PlanStep& s) {
        return is_sum(s, &ReduceKernels::products) && !s.keeps && same(s.args[0], s.args[1]) &&
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

  int64_t register_bytes(const Register& r) const {
    const int64_t cols = r.whole_row ? plan_.cols : plan_.c_tile;
    const int64_t n = (has_row(r.span) ? plan_.r_tile : 1) * (has_column(r.span) ? cols : 1);
    return round_up(std::max<int64_t>(1, n) * r.elem_bytes, 64);
  }

  void allocate() {
    int64_t bytes = round_up(bookkeeping_bytes(plan_), 64);
    struct Slot {
      int64_t offset, bytes, elem_bytes;
      Span span;
      int free_from;
    };
    std::vector<Slot> slots;
    for (size_t k = 0; k < plan_.registers.size(); ++k) {
      Register& r = plan_.registers[k];
      const int64_t size = register_bytes(r);
      // What has no columns stays until its rows are done; so does what is kept for whole rows.
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
        bytes = round_up(bytes, 64);
        if (s.square_register >= 0) {
          s.square_lanes_offset = bytes;
          bytes = round_up(bytes + plan_.r_tile * kReduceLanes * s.out.elem_bytes, 64);
        }
        if (!plan_.can_go_wide) continue;
        s.partials_offset = shared_bytes_;
        shared_bytes_ += round_up(std::max<int64_t>(1, blocks) * s.out.elem_bytes, 64);
      }
    plan_.thread_bytes = bytes;
    plan_.shared_bytes = shared_bytes_;
  }

  void bind_all() {
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
    int64_t row_bytes = 0;
    for (int32_t k : plan_.direct)
      if (has_row(operand(k).span)) row_bytes += plan_.cols * operand(k).elem_bytes;
    plan_.fetch_rows = plan_.has_row_reductions && plan_.r_tile * row_bytes <= kFetchBytes;
  }
  static void sort_out(std::vector<int32_t>& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  void bind_each(std::vector<PlanStep>& steps) {
    for (PlanStep& s : steps) {
      const bool reduces =
          s.kind == PlanStep::kReduceRows || s.kind == PlanStep::kReduceColumns;
      // In a step over rows alone a value of each row is a vector, else it is a splat.
      const bool by_row = s.span == Span::kRow && !reduces;
      const bool loads = s.kind == PlanStep::kLoad || s.kind == PlanStep::kIota;
      if (!loads)
        for (int k = 0; k < s.n_args; ++k) bind(s.args[k], by_row);
      if (s.kind != PlanStep::kStore && !reduces) bind(s.out, by_row);
      for (int k = 0; k < s.n_more; ++k) bind(s.more[k], by_row);
    }
  }
  void bind(Place& p, bool by_row) {
    switch (p.kind) {
      case Place::kNone: return;
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
      case Place::kRegister: break;
    }
    const Register& r = plan_.registers[static_cast<size_t>(p.index)];
    p.offset = r.offset;
    if (r.whole_row)
      p.base = r.elem_bytes == 1 ? kStripBase1 : r.elem_bytes == 4 ? kStripBase4 : kStripBase8;
    switch (r.span) {
      case Span::kOne: p.splat = true; return;
      case Span::kRow:
        p.splat = !by_row;
        p.row_const = r.elem_bytes;
        return;
      case Span::kColumn: return;
      case Span::kFull:
        if (r.whole_row) p.row_const = plan_.cols * r.elem_bytes;
        else p.row_per_col = r.elem_bytes;
        return;
    }
  }

  // What a step and those it absorbs become.
  struct Fused {
    MapKernel map = nullptr;
    std::vector<int> args;
    ReduceRowsKernel reduce = nullptr;
    int keeps = -1;  // A step that it absorbs and others want as well.
    std::vector<int> more;  // Likewise, of a map.
  };

  const RowProgram& program_;
  std::vector<Step> steps_;
  const bool careful_;
  const int64_t tile_elems_;
  RowPlan plan_;
  std::vector<Value> values_;
  std::vector<bool> is_live_;
  std::vector<int> uses_;
  std::vector<Fused> fused_;
  std::vector<std::vector<bool>> needed_;
  std::vector<int> defined_, last_use_;  // Of each register, as positions.
  int n_phases_ = 1;
  int last_read_phase_ = 0;  // The last in which a strip reads inputs.
  int position_ = 0;
  int64_t shared_bytes_ = 0;
};

}  // namespace

bool first_cache_is_large() {
  static const bool is_large = sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 << 10;
  return is_large;
}

RowPlan compile_row_plan(const RowProgram& program, bool careful) {
  RowPlan plan = Compiler(program, careful, kTileElems).compile();
  // Strips with nothing in scratch share the near cache with nobody, and may be longer; much longer
  // where what comes next is fetched into the second one, unless that takes more of the workspace,
  // which is the same on every machine. Memory then likes what is fetched to be near: a whole strip
  // ahead, programs are up to a quarter slower.
  const bool has_strips = std::any_of(plan.registers.begin(), plan.registers.end(),
                                      [](const Register& r) { return has_column(r.span); });
  if (plan.has_row_reductions || !plan.column_stores.empty() || has_strips) return plan;
  plan = Compiler(program, careful, 2 * kTileElems).compile();
  if (first_cache_is_large()) return plan;
  RowPlan longer = Compiler(program, careful, 8 * kTileElems).compile();
  const bool alike =
      longer.thread_bytes == plan.thread_bytes && longer.shared_bytes == plan.shared_bytes;
  if (!alike) return plan;
  longer.fetch_elems = kFetchElems;
  return longer;
}

}  // namespace stow::cpu
