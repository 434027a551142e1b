// Steps of a row program that one kernel computes together: choices with their comparisons, bounds from both
// sides, and sums with what they read.
#include "stowage/runtime/cpu/kernels/row_compiler.h"
#include "stowage/runtime/cpu/kernels/row_kernels_choose.h"
#include "stowage/runtime/cpu/kernels/row_kernels_runs.h"

namespace stow::cpu::rows {

bool Compiler::lives_as_long(int argument, int i, int j) {
  if (step(argument).kind == StepKind::kConstant || value(argument).direct) return true;
  for (int user : users_of(argument))
    if (user >= j) return true;
  for (int k = i + 1; k < j; ++k)
    if (is_live_[static_cast<size_t>(k)] && step(k).kind != StepKind::kConstant &&
        !value(k).direct && value(k).absorbed_by != j)
      return false;
  return true;
}

void Compiler::fuse_runs(int j) {
  const Step& s = step(j);
  const int i = s.args[0];
  Fused& f = fused_[static_cast<size_t>(j)];
  if (s.op != OpKind::kReduceSum || s.dtype != DType::kF32 || value(j).by_position ||
      f.reduce != nullptr || step(i).kind != StepKind::kLoad || value(i).direct ||
      uses_[static_cast<size_t>(i)] != 1)
    return;
  constexpr int64_t kLeast = 32;  // columns of a run; shorter ones are copied side by side
  const PlanOperand& o = operand(value(i).operand);
  if (o.span != Span::kFull || o.inner_col != 1 || plan_.inner_cols() < kLeast) return;
  f.reduce = f32_sum_runs_kernel();
  f.by_runs = true;
  value(i).absorbed_by = j;
  // Where nothing else has all rows and columns, no register asks for few rows: the more, the longer are the
  // stretches of memory that their runs make up.
  constexpr int64_t kRows = 64;
  for (int k = 0; k < n_steps(); ++k)
    if (k != i && value(k).span == Span::kFull && !is_store(step(k))) return;
  const int64_t rows = plan_.inner_rows();
  if (plan_.in_blocks || plan_.r_tile * 4 > kRows || rows <= kRows) return;
  const int64_t tiles = (rows + kRows - 1) / kRows;
  plan_.r_tile = plan_.unit_rows = (rows + tiles - 1) / tiles;
}

bool Compiler::fuse_choice(int j) {
  const Step& s = step(j);
  // A single element's comparison and choice are made in line, without a kernel.
  if (s.kind != StepKind::kCompute || s.op != OpKind::kSelect || value(j).absorbed_by >= 0 ||
      dtype_bytes(register_dtype(s.dtype)) != 4 || plan_.rows * plan_.cols <= 1)
    return false;
  const int i = s.args[0];
  const Step& test = step(i);
  if (!is_wanted_once(i) || value(i).by_position || value(i).span != value(j).span ||
      value(i).level != value(j).level || n_args(test) != 2)
    return false;
  if (!lives_as_long(test.args[0], i, j) || !lives_as_long(test.args[1], i, j)) return false;
  const bool turned = test.op == OpKind::kGt || test.op == OpKind::kGe;
  const bool negated = test.op == OpKind::kNe;
  const OpKind op = test.op == OpKind::kGt   ? OpKind::kLt
                    : test.op == OpKind::kGe ? OpKind::kLe
                    : negated                ? OpKind::kEq
                                             : test.op;
  const DType in = step(test.args[1]).dtype;
  MapKernel kernel = nullptr;
  if (register_dtype(in) == DType::kF32 && register_dtype(s.dtype) == DType::kF32)
    kernel = f32_choose_kernel(op);
  else if (in == DType::kI32 && form_of(s.dtype) == Form::kNative)
    kernel = i32_choose_kernel(op);
  if (kernel == nullptr) return false;
  fused_[static_cast<size_t>(j)] = {
      kernel,
      {test.args[turned ? 1 : 0], test.args[turned ? 0 : 1], s.args[negated ? 2 : 1],
       s.args[negated ? 1 : 2]}};
  value(i).absorbed_by = j;
  const int sum = s.args[1], kept = s.args[2];
  if (in != DType::kI32 || s.dtype != in || test.op != OpKind::kLt || !is_wanted_once(sum) ||
      step(sum).op != OpKind::kAdd || value(sum).span != value(j).span ||
      value(sum).level != value(j).level)
    return true;
  for (int k = 0; k < 2; ++k)
    if (step(sum).args[k] == kept && lives_as_long(step(sum).args[1 - k], sum, j)) {
      fused_[static_cast<size_t>(j)] = {
          i32_wrap_kernel(), {test.args[0], test.args[1], step(sum).args[1 - k], kept}};
      value(sum).absorbed_by = j;
      return true;
    }
  return true;
}

bool Compiler::fuse_clamp(int j) {
  const Step& s = step(j);
  const OpKind other = s.op == OpKind::kMin   ? OpKind::kMax
                       : s.op == OpKind::kMax ? OpKind::kMin
                                              : OpKind::kConvert;
  const int i = s.args[0];
  if (other == OpKind::kConvert || s.dtype != DType::kF32 || step(i).op != other ||
      !can_absorb(j, i) || value(i).level != value(j).level ||
      !lives_as_long(step(i).args[0], i, j) || !lives_as_long(step(i).args[1], i, j))
    return false;
  fused_[static_cast<size_t>(j)] = {f32_clamp_kernel(s.op),
                                    {step(i).args[0], step(i).args[1], s.args[1]}};
  value(i).absorbed_by = j;
  return true;
}

}  // namespace stow::cpu::rows
