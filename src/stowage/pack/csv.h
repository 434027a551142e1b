// Packing problems as CSV: one row a buffer, as the MiniMalloc benchmarks have them.
// Not a general CSV reader: no quoting, and columns have names that are known.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/pack/problem.h"

namespace stow::pack {

/// One rectangle a buffer, alignment 1; ids as they stand in the file.
struct CsvProblem {
  std::vector<std::string> ids;
  Problem problem;
  std::vector<int64_t> offsets;  // Only when read with offsets.
};

enum class CsvColumns {
  kProblem,   // id, lower, upper, size
  kSolution,  // and offset
};

/// Reads a header and rows of these columns, in any order; an `offset` that is not asked for, of an
/// earlier packing, is checked and passed over, and so are blank lines at the end. Lifetimes are
/// half-open. Errors, as "FILE:LINE: why": missing, repeated or other columns, fields that are no
/// integers of 64 bits, negative numbers, lower >= upper, repeated or empty ids, no rows, sizes
/// that sum to more than 2^62; and a file that cannot be read. "-" is standard input.
Result<CsvProblem> read_csv(const std::string& path, CsvColumns columns = CsvColumns::kProblem);

/// Writes the rows as id,lower,upper,size,offset: to a temporary file beside `path`, then renamed;
/// "-" is standard output.
Result<void> write_csv(const std::string& path, const CsvProblem& rows,
                       const std::vector<int64_t>& offsets);

}  // namespace stow::pack
