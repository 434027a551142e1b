// Steps of a row program that write outputs: stores that a value's own kernel does, and values that
// lie in an output until that is stored.
#include "stowage/runtime/cpu/kernels/row_compiler.h"

namespace stow::cpu::rows {

template <typename F>
std::vector<int> Compiler::war_hazards(int kernel, int phase, int output, F visit) {
  std::vector<int> inputs;
  for (int p = phase; p < n_phases_; ++p)
    for (int j = 0; j < n_steps(); ++j) {
      if (!needed_[static_cast<size_t>(p)][static_cast<size_t>(j)]) continue;
      const Value& v = value(j);
      const int reader = maker_of(j);
      const bool later = p > phase || reader > kernel;
      for (int k = 0; k < n_args(step(j)); ++k) {
        const int a = step(j).args[k];
        visit(j, a, p, reader);
        // Reads through a direct load, at any later place.
        if (later && value(a).direct && may_overlap(output, value(a).operand))
          inputs.push_back(value(a).operand);
      }
      // A load that copies.
      if (later && step(j).kind == StepKind::kLoad && !v.direct && may_overlap(output, v.operand))
        inputs.push_back(v.operand);
    }
  return inputs;
}

bool Compiler::fills(const Value& v, const PlanOperand& out) const {
  // A value after a reduction has a row axis, which an output of a single row lacks.
  return v.span == out.span || (plan_.rows <= 1 && has_column(v.span) && has_column(out.span));
}

void Compiler::choose_fused_stores() {
  for (int i = 0; i < n_steps(); ++i) {
    const Step& s = step(i);
    if (s.kind != StepKind::kStore) continue;
    const int a = s.args[0];
    Value& v = value(a);
    const PlanOperand& out = operand(output_operand(s));
    int first = 0;  // phase that computes it
    while (first < n_phases_ && !needed_[static_cast<size_t>(first)][static_cast<size_t>(a)])
      ++first;
    if (step(a).kind != StepKind::kCompute || v.absorbed_by >= 0 || v.fused_store >= 0 ||
        !out.unit_columns || !fills(v, out) || store_phase(s) > first)
      continue;
    const bool narrow = form_of(out.dtype) != Form::kNative;
    if (narrow && !takes_forms(step(a))) continue;
    // Later phases read it where it was stored; or, if they compute it again, they would write
    // it again, which only the phase of the store may do.
    bool possible = true;
    for (int p = first + 1; p < n_phases_; ++p)
      if (needed_[static_cast<size_t>(p)][static_cast<size_t>(a)]) possible = false;
    const std::vector<int> inputs =
        war_hazards(maker_of(a), first, s.index, [&](int j, int arg, int, int) {
          if (arg == a && narrow && !takes_forms(step(j)) && j != i) possible = false;
        });
    if (possible && assume_apart(s.index, inputs)) v.fused_store = i;
  }
}

bool Compiler::can_park(int i, int store) {
  const Value& v = value(i);
  const Step& s = step(store);
  const PlanOperand& out = operand(output_operand(s));
  if (s.kind != StepKind::kStore || value(s.args[0]).fused_store != store ||
      out.dtype != DType::kF32 || !fills(v, out) || v.level >= store_phase(s))
    return false;
  const int end = store_phase(s), last = maker_of(s.args[0]);
  bool possible = true;
  const std::vector<int> inputs =
      war_hazards(maker_of(i), v.level, s.index, [&](int, int arg, int phase, int reader) {
        if (arg == i && (phase > end || (phase == end && reader > last))) possible = false;
      });
  return possible && assume_apart(s.index, inputs);
}

void Compiler::choose_parking() {
  if (!has_many_strips()) return;
  std::vector<bool> taken(static_cast<size_t>(plan_.n_outputs), false);
  for (int i = 0; i < n_steps(); ++i) {
    Value& v = value(i);
    if (!v.keep || v.fused_store >= 0) continue;
    const bool may_park = step(i).kind == StepKind::kCompute && step(i).dtype == DType::kF32 &&
                           v.span == Span::kFull;
    for (int j = i + 1; j < n_steps() && may_park && v.parked_in_output < 0; ++j)
      if (is_store(step(j)) && !taken[static_cast<size_t>(step(j).index)] && can_park(i, j)) {
        v.parked_in_output = step(j).index;
        taken[static_cast<size_t>(step(j).index)] = true;
      }
    if (v.parked_in_output >= 0) continue;
    plan_.kept_bytes += (has_row(v.span) ? plan_.r_tile : 1) * plan_.cols *
                        dtype_bytes(register_dtype(step(i).dtype));
  }
}

}  // namespace stow::cpu::rows
