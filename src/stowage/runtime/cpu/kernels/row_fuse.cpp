// Steps of a row program that one kernel computes together: formulas of row_patterns.h, pairs and
// triples of steps, and what depends on the place in a row.
#include <algorithm>

#include "stowage/runtime/cpu/kernels/row_compiler.h"
#include "stowage/runtime/cpu/kernels/row_kernels_choose.h"
#include "stowage/runtime/cpu/kernels/row_kernels_runs.h"
#include "stowage/runtime/cpu/kernels/row_match.h"
#include "stowage/runtime/cpu/kernels/row_patterns.h"

namespace stow::cpu::rows {
namespace {

bool is_in(const std::vector<int>& list, int i) {
  return std::find(list.begin(), list.end(), i) != list.end();
}

void add_to(std::vector<int>& list, int i) {
  if (!is_in(list, i)) list.push_back(i);
}

}  // namespace

bool Compiler::is_free(int i) {
  const Value& v = value(i);
  return step(i).kind == StepKind::kCompute && v.absorbed_by < 0 && v.computed_by < 0 &&
         !absorbs(i);
}

bool Compiler::is_absorbable(int i) {
  const Step& s = step(i);
  return is_free(i) && users_of(i).size() == 1 && s.dtype == DType::kF32 && n_args(s) == 2 &&
         step(s.args[0]).dtype == DType::kF32;
}

int Compiler::n_absorbable(int i) {
  int n = 0;
  for (int k = 0; k < n_args(step(i)); ++k) n += can_absorb(i, step(i).args[k]) ? 1 : 0;
  return n;
}

bool Compiler::can_delay(int i, int j, const std::vector<int>& absorbed) {
  for (const std::vector<bool>& needed : needed_)
    if (needed[static_cast<size_t>(i)] != needed[static_cast<size_t>(j)]) return false;
  const std::vector<int>& users = users_of(i);
  return std::all_of(users.begin(), users.end(),
                     [&](int u) { return u >= j || is_store(step(u)) || is_in(absorbed, u); });
}

bool Compiler::extends_no_lifetime(int argument, int i, int j, const std::vector<int>& absorbed) {
  if (step(argument).kind == StepKind::kConstant || value(argument).direct) return true;
  for (int user : users_of(argument))
    if (user >= j) return true;
  for (int k = i + 1; k < j; ++k)
    if (is_live_[static_cast<size_t>(k)] && step(k).kind != StepKind::kConstant &&
        !value(k).direct && !is_in(absorbed, k))
      return false;
  return true;
}

bool Compiler::has_types(const RowPattern& pattern, int j) const {
  // In a choice, the compared values may have another dtype than the chosen ones.
  const auto dtype_of = [&](int i) { return step(i).dtype; };
  const DType result = dtype_of(j);
  const DType compared = step(j).op == OpKind::kSelect && pattern.types != RowPattern::Types::kF32
                             ? dtype_of(step(step(j).args[0]).args[0])
                             : result;
  switch (pattern.types) {
    case RowPattern::Types::kF32:
      return result == DType::kF32;
    case RowPattern::Types::kFloats:
      return register_dtype(result) == DType::kF32 && register_dtype(compared) == DType::kF32;
    case RowPattern::Types::kI32:
      return result == DType::kI32 && compared == DType::kI32;
    case RowPattern::Types::kWordByI32:
      return compared == DType::kI32 && form_of(result) == Form::kNative &&
             dtype_bytes(result) == 4;
  }
  return false;
}

bool Compiler::fuse_pattern(int j, bool first) {
  if (!is_free(j) || value(j).by_position || (first && !has_column(value(j).span))) return false;
  const Span span = value(j).span;
  for (const RowPattern& pattern : row_patterns()) {
    if (pattern.is_first != first || !Match::may_be(steps_, pattern.result, j)) continue;
    // A single element's comparison and choice are made in line, without a kernel.
    if (step(j).op == OpKind::kSelect && !first && plan_.rows * plan_.cols <= 1) continue;
    const auto is_arg = [&](const Term& term) {
      return std::find(pattern.args.begin(), pattern.args.end(), term) != pattern.args.end();
    };
    const auto fits = [&](const Term& term, int i) {
      switch (term->kind) {
        case Term::Kind::kEach:
          return value(i).span == span;
        case Term::Kind::kShared:
          return !has_column(value(i).span);
        case Term::Kind::kAny:
        case Term::Kind::kConstant:
          return true;
        case Term::Kind::kOp:
          return value(i).span == span && (is_arg(term) || (is_free(i) && !value(i).by_position));
      }
      return false;
    };
    Match match(steps_, is_live_, fits);
    Fused fused;
    std::vector<int> inside;
    const auto accepts = [&] {
      fused = {};
      inside.clear();
      for (const Term& arg : pattern.args) fused.args.push_back(match.step_of(arg));
      for (const Term& more : pattern.more) fused.more.push_back(match.step_of(more));
      for (const auto& [term, i] : match.bound())
        if (term->kind == Term::Kind::kOp && i != j && !is_arg(term) && !is_in(fused.more, i))
          add_to(inside, i);
      return has_types(pattern, j) && can_fuse(j, fused, inside, pattern.saves_scratch);
    };
    if (!match.find(pattern.result, j, pattern.more, accepts)) continue;
    fused.map = pattern.kernel();
    if (fused.map == nullptr) continue;
    fused.pattern = &pattern.name;
    for (int i : inside) value(i).absorbed_by = j;
    for (int i : fused.more) value(i).computed_by = j;
    fused_[static_cast<size_t>(j)] = std::move(fused);
    return true;
  }
  return false;
}

bool Compiler::can_fuse(int j, const Fused& fused, const std::vector<int>& inside,
                        bool saves_scratch) {
  for (int a : fused.args)
    if (a == j || is_in(inside, a) || is_in(fused.more, a)) return false;
  for (size_t k = 0; k < fused.more.size(); ++k) {
    const int i = fused.more[k];
    if (i == j || std::find(fused.more.begin(), fused.more.begin() + static_cast<std::ptrdiff_t>(k),
                            i) != fused.more.begin() + static_cast<std::ptrdiff_t>(k))
      return false;
    if (!can_delay(i, j, inside)) return false;
  }
  for (int i : inside) {
    for (int u : users_of(i))
      if (u != j && !is_in(inside, u) && !is_in(fused.more, u)) return false;
    if (!saves_scratch) continue;
    if (value(i).level != value(j).level) return false;
    for (int k = 0; k < n_args(step(i)); ++k)
      if (const int a = step(i).args[k]; !is_in(inside, a) && !extends_no_lifetime(a, i, j, inside))
        return false;
  }
  return true;
}

bool Compiler::can_keep(int j, int i, const std::vector<int>& inside) {
  const Value& v = value(i);
  const int phase = executed_in(j);
  if (step(i).dtype != DType::kF32 || v.level != phase || v.span != value(step(j).args[0]).span)
    return false;
  // Rows that are all alike are reduced each by itself: the first must not change what others read.
  if (!has_row(v.span) && plan_.rows != 1) return false;
  for (int p = phase + 1; p < n_phases_; ++p)
    if (needed_[static_cast<size_t>(p)][static_cast<size_t>(i)]) return false;
  for (int u : users_of(i))
    if (u < j && needed_[static_cast<size_t>(phase)][static_cast<size_t>(u)] && !is_in(inside, u))
      return false;
  return true;
}

void Compiler::fuse_sum(int j) {
  const Step& s = step(j);
  const int t = s.args[0];
  if (s.dtype != DType::kF32 || value(j).by_position || step(t).kind != StepKind::kCompute ||
      step(t).dtype != DType::kF32 || !has_column(value(t).span))
    return;
  const ReduceKernels kernels = reduce_kernels(s.op, s.dtype);
  const bool by_rows = s.kind == StepKind::kReduceRow;
  const auto fits = [&](const Term& term, int i) {
    return term->kind != Term::Kind::kOp || (is_free(i) && value(i).span == value(t).span);
  };
  Match match(steps_, is_live_, fits);
  for (const SumPattern& pattern : sum_patterns()) {
    if (by_rows ? pattern.rows == nullptr || kernels.*pattern.rows == nullptr
                : pattern.columns == nullptr || kernels.*pattern.columns == nullptr)
      continue;
    if (!Match::may_be(steps_, pattern.term, t)) continue;
    Fused fused;
    std::vector<int> inside;
    const auto accepts = [&] {
      fused = {};
      inside.clear();
      for (const Term& arg : pattern.args) fused.args.push_back(match.step_of(arg));
      for (const auto& [term, i] : match.bound())
        if (term->kind == Term::Kind::kOp) add_to(inside, i);
      const int kept = pattern.keeps ? match.step_of(pattern.keeps) : -1;
      for (int a : fused.args)
        if (is_in(inside, a)) return false;
      for (int i : inside) {
        const std::vector<int>& users = users_of(i);
        const bool others = std::any_of(users.begin(), users.end(),
                                        [&](int u) { return u != j && !is_in(inside, u); });
        if (i == kept ? !can_keep(j, i, inside) : others) return false;
        if (i == kept && others) fused.keeps = kept;
      }
      return true;
    };
    if (!match.find(pattern.term, t, {}, accepts)) continue;
    if (by_rows) fused.reduce = kernels.*pattern.rows;
    fused.pattern = &pattern.name;
    for (int i : inside) value(i).absorbed_by = j;
    fused_[static_cast<size_t>(j)] = std::move(fused);
    return;
  }
}

void Compiler::fuse_runs(int j) {
  const Step& s = step(j);
  const int i = s.args[0];
  Fused& f = fused_[static_cast<size_t>(j)];
  if (s.op != OpKind::kReduceSum || s.dtype != DType::kF32 || value(j).by_position ||
      f.reduce != nullptr || step(i).kind != StepKind::kLoad || value(i).direct ||
      users_of(i).size() != 1)
    return;
  constexpr int64_t kLeast = 32;  // columns of a run; shorter ones are copied side by side
  const PlanOperand& o = operand(value(i).operand);
  if (o.span != Span::kFull || o.inner_col != 1 || plan_.inner_cols() < kLeast) return;
  f.reduce = f32_sum_runs_kernel();
  f.by_runs = true;
  value(i).absorbed_by = j;
  // If nothing else has all rows and columns, no register asks for few rows. More rows make longer
  // stretches of memory out of their runs.
  constexpr int64_t kRows = 64;
  for (int k = 0; k < n_steps(); ++k)
    if (k != i && value(k).span == Span::kFull && !is_store(step(k))) return;
  const int64_t rows = plan_.inner_rows();
  if (plan_.in_blocks || plan_.r_tile * 4 > kRows || rows <= kRows) return;
  const int64_t tiles = (rows + kRows - 1) / kRows;
  plan_.r_tile = plan_.unit_rows = (rows + tiles - 1) / tiles;
}

void Compiler::fuse_one_hot(int j) {
  const Step& s = step(j);
  if (s.op == OpKind::kConvert) {
    fused_[static_cast<size_t>(j)] = {f32_one_hot_kernel(), {s.args[0]}};
    return;
  }
  const int x = s.args[0];
  const bool of_product = step(x).op == OpKind::kMul && can_absorb(j, x);
  Fused& f = fused_[static_cast<size_t>(j)];
  f.map = f32_one_hot_add_kernel(s.op, of_product);
  f.args = {x, s.args[1], s.args[2]};
  if (!of_product) return;
  f.args = {step(x).args[0], step(x).args[1], s.args[1], s.args[2]};
  value(x).absorbed_by = j;
}

bool Compiler::fuse_pair(int j) {
  const Step& s = step(j);
  if (!is_free(j) || value(j).by_position || register_dtype(s.dtype) != DType::kF32 ||
      n_args(s) > 2)
    return false;
  const int a = s.args[0], b = s.args[1];
  const bool first = can_absorb(j, a), second = b >= 0 && can_absorb(j, b);
  const auto fuse = [&](MapKernel map, std::vector<int> args, std::vector<int> inside) {
    if (map == nullptr) return false;
    for (int i : inside) value(i).absorbed_by = j;
    Fused& f = fused_[static_cast<size_t>(j)];
    f.map = map;
    f.args = std::move(args);
    return true;
  };
  if (first && second && a != b &&
      fuse(f32_triple_kernel(s.op, step(a).op, step(b).op),
           {step(a).args[0], step(a).args[1], step(b).args[0], step(b).args[1]}, {a, b}))
    return true;
  // If both can be absorbed, takes the one that has less to absorb of its own.
  const bool prefer_second = second && (!first || n_absorbable(b) < n_absorbable(a));
  if (prefer_second &&
      fuse(f32_pair_kernel(s.op, step(b).op, false), {step(b).args[0], step(b).args[1], a}, {b}))
    return true;
  if (!first) return false;
  std::vector<int> args = {step(a).args[0], step(a).args[1]};
  if (b >= 0) args.push_back(b);
  return fuse(f32_pair_kernel(s.op, step(a).op, true), std::move(args), {a});
}

void Compiler::choose_fused_steps() {
  users_.assign(steps_.size(), {});
  fused_.resize(steps_.size());
  for (int i = 0; i < n_steps(); ++i)
    if (is_live_[static_cast<size_t>(i)])
      for (int k = 0; k < n_args(step(i)); ++k)
        users_[static_cast<size_t>(step(i).args[k])].push_back(i);
  for (int j = n_steps() - 1; j >= 0; --j)
    if (is_live_[static_cast<size_t>(j)]) fuse_pattern(j, true);
  for (int j = n_steps() - 1; j >= 0; --j) {
    const Step& s = step(j);
    if (!is_live_[static_cast<size_t>(j)] || value(j).computed_by >= 0 || absorbs(j)) continue;
    if (s.kind == StepKind::kReduceColumns || s.kind == StepKind::kReduceRow) fuse_sum(j);
    if (s.kind == StepKind::kReduceRow) fuse_runs(j);
    if (s.kind != StepKind::kCompute) continue;
    if (value(j).by_position) fuse_one_hot(j);
    if (!fuse_pattern(j, false)) fuse_pair(j);
  }
}

}  // namespace stow::cpu::rows
