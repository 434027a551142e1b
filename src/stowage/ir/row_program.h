// RowProgram: a straight-line program over an iteration space, for elementwise work and reductions.
// Not a schedule and not bound to memory; operands are numbered.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/core/shape.h"
#include "stowage/ir/op_list.h"

namespace stow {

/// The kind of a step of a row program.
enum class StepKind : uint8_t {
  kLoad,           ///< The element of input `index` at the point.
  kConstant,       ///< `imm`, the bits of one element of `dtype`, in the low bytes.
  kIota,           ///< The coordinate along dimension `index` of the iteration space.
  kCompute,        ///< An elementwise `op` of `args`, rounded to `dtype`.
  kReduceRow,      ///< `op` (a Reduce op) of arg 0 over the column dimensions: one value a row.
  kReduceColumns,  ///< `op` of arg 0 over the rows of each group, written to output `index`.
  kStore           ///< Writes arg 0 to output `index`.
};

/// One step. Its value has dtype `dtype`; `args` are numbers of earlier steps.
struct Step {
  StepKind kind = StepKind::kCompute;
  OpKind op = OpKind::kAdd;
  DType dtype = DType::kF32;
  int32_t index = 0;
  int32_t args[3] = {-1, -1, -1};
  uint64_t imm = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

/// An input or output: its dtype and its stride, in elements, along each dimension of the iteration
/// space; stride 0 broadcasts.
struct RowOperand {
  DType dtype = DType::kF32;
  Dims strides;
  friend bool operator==(const RowOperand&, const RowOperand&) = default;
};

/// The iteration space is `dims`, the first `n_row_dims` of which are rows and the others columns;
/// either part may be empty (extent 1). Rows that agree in the first `n_group_dims` dimensions are
/// a group; column reductions go over the rows of one group.
///
/// A store writes one element for each point. If its value is one for each row (from a kReduceRow),
/// the output's strides along the columns are 0 and it is written once a row. A kReduceColumns
/// output has stride 0 along the rows of a group.
///
/// An output may lie in the memory of an input, element for element (same dtype width and strides):
/// an executor reads the inputs of a point before it writes the outputs of the point, and reads all
/// rows that share a reduction before it writes them.
///
/// The order of sums is part of the meaning. Rows: a row of C elements (row-major over the column
/// dimensions) is cut into blocks of kReduceBlock. In a block, each lane l of 16 folds elements l,
/// l + 16, … into the identity; lanes fold by halves (l with l + 8, + 4, + 2, + 1). The accumulator
/// starts as the first block's result, and the others fold into it in order. Columns: the R rows of
/// a group (row-major) are cut into chunks of column_chunk_rows(R). A chunk folds its rows in order
/// into the identity; chunks fold in order. f16 and bf16 accumulate in f32; the result is rounded
/// to `dtype` once.
struct RowProgram {
  Dims dims;
  int n_row_dims = 0;
  int n_group_dims = 0;
  std::vector<RowOperand> inputs, outputs;
  std::vector<Step> steps;
  friend bool operator==(const RowProgram&, const RowProgram&) = default;

  int64_t rows() const { return extent(0, static_cast<size_t>(n_row_dims)); }
  int64_t cols() const { return extent(static_cast<size_t>(n_row_dims), dims.size()); }
  int64_t groups() const { return extent(0, static_cast<size_t>(n_group_dims)); }
  int64_t group_rows() const {
    return extent(static_cast<size_t>(n_group_dims), static_cast<size_t>(n_row_dims));
  }

 private:
  int64_t extent(size_t first, size_t last) const {
    int64_t n = 1;
    for (size_t i = first; i < last; ++i) n *= dims[i];
    return n;
  }
};

inline constexpr int64_t kReduceBlock = 4096;  ///< Elements of a block of a row reduction.
/// Rows of a chunk in a column reduction over `rows` rows: at most 64 chunks, at least 16 rows
/// each.
constexpr int64_t column_chunk_rows(int64_t rows) {
  const int64_t even = (rows + 63) / 64;
  return even < 16 ? 16 : even;
}

}  // namespace stow
