#include "stowage/runtime/cpu/kernels/row_unroll.h"

#include <algorithm>

namespace stow::cpu {
namespace {

constexpr int64_t kMost = 4;          // of the dimension
constexpr size_t kMostSteps = 64;     // of the program made
constexpr size_t kMostOperands = 12;  // and arrays that it walks through

// The dimension to go, if there is one.
std::optional<size_t> reversed_dim(const RowProgram& program) {
  const auto reduces = [](const Step& s) {
    return s.kind == StepKind::kReduceRow || s.kind == StepKind::kReduceColumns;
  };
  if (std::any_of(program.steps.begin(), program.steps.end(), reduces)) return std::nullopt;
  for (size_t d = 0; d + 1 < program.dims.size(); ++d) {
    const int64_t extent = program.dims[d];
    const auto is_reversed = [&](const RowOperand& o) { return o.strides[d] < 0; };
    const auto is_walked = [&](const RowOperand& o) { return o.strides[d] > 0; };
    const auto is_counted = [&](const Step& s) {
      return s.kind == StepKind::kIota && static_cast<size_t>(s.index) == d;
    };
    const size_t n = static_cast<size_t>(extent);
    if (extent >= 2 && extent <= kMost && n * program.steps.size() <= kMostSteps &&
        n * (program.inputs.size() + program.outputs.size()) <= kMostOperands &&
        std::any_of(program.inputs.begin(), program.inputs.end(), is_reversed) &&
        std::all_of(program.outputs.begin(), program.outputs.end(), is_walked) &&
        std::none_of(program.steps.begin(), program.steps.end(), is_counted))
      return d;
  }
  return std::nullopt;
}

class Unroller {
 public:
  Unroller(const RowProgram& program, size_t dim) : from_(program), dim_(dim) {
    RowProgram& to = result_.program;
    to.dims = program.dims;
    erase(to.dims);
    to.n_row_dims = program.n_row_dims - (static_cast<int>(dim) < program.n_row_dims ? 1 : 0);
  }

  UnrolledRows run() {
    add_operands(from_.inputs, result_.program.inputs, result_.inputs);
    add_operands(from_.outputs, result_.program.outputs, result_.outputs);
    // The first copy of each step, and whether the others are different ones.
    std::vector<int32_t> first(from_.steps.size());
    std::vector<bool> varies(from_.steps.size());
    const int64_t n = from_.dims[dim_];
    for (size_t i = 0; i < from_.steps.size(); ++i) {
      const Step& s = from_.steps[i];
      const bool by_operand = s.kind == StepKind::kLoad || s.kind == StepKind::kStore;
      const auto& operands = s.kind == StepKind::kStore ? from_.outputs : from_.inputs;
      varies[i] = by_operand && operands[static_cast<size_t>(s.index)].strides[dim_] != 0;
      for (int32_t a : s.args) varies[i] = varies[i] || (a >= 0 && varies[static_cast<size_t>(a)]);
      first[i] = static_cast<int32_t>(result_.program.steps.size());
      for (int64_t j = 0; j < (varies[i] ? n : 1); ++j) {
        Step copy = s;
        for (int32_t& a : copy.args)
          if (a >= 0)
            a = first[static_cast<size_t>(a)] +
                (varies[static_cast<size_t>(a)] ? static_cast<int32_t>(j) : 0);
        if (by_operand) copy.index = copy_of(operands, s.index, j);
        if (s.kind == StepKind::kIota && static_cast<size_t>(s.index) > dim_) --copy.index;
        result_.program.steps.push_back(copy);
      }
    }
    return std::move(result_);
  }

 private:
  void erase(Dims& of_dims) const {
    of_dims.erase(of_dims.begin() + static_cast<std::ptrdiff_t>(dim_));
  }
  int64_t copies(const RowOperand& operand) const {
    return operand.strides[dim_] != 0 ? from_.dims[dim_] : 1;
  }
  void add_operands(const std::vector<RowOperand>& from, std::vector<RowOperand>& to,
                    std::vector<UnrolledRows::Base>& bases) const {
    for (size_t k = 0; k < from.size(); ++k)
      for (int64_t j = 0; j < copies(from[k]); ++j) {
        to.push_back(from[k]);
        erase(to.back().strides);
        bases.push_back({k, j * from[k].strides[dim_] * dtype_bytes(from[k].dtype)});
      }
  }
  // The number of copy j of operand k.
  int32_t copy_of(const std::vector<RowOperand>& operands, int32_t k, int64_t j) const {
    int64_t index = operands[static_cast<size_t>(k)].strides[dim_] != 0 ? j : 0;
    for (int32_t before = 0; before < k; ++before)
      index += copies(operands[static_cast<size_t>(before)]);
    return static_cast<int32_t>(index);
  }

  const RowProgram& from_;
  size_t dim_;
  UnrolledRows result_;
};

}  // namespace

std::optional<UnrolledRows> unroll_reversed(const RowProgram& program) {
  const std::optional<size_t> dim = reversed_dim(program);
  if (!dim) return std::nullopt;
  return Unroller(program, *dim).run();
}

}  // namespace stow::cpu
