// Packing problems as CSV, one row for each buffer, in the format of the MiniMalloc benchmarks.
// Not a general CSV reader: there is no quoting, and the columns are fixed.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/pack/problem.h"

namespace stow::pack {

/// A problem from a file: one rectangle for each buffer, alignment 1. `ids` are those of the file.
struct CsvProblem {
  std::vector<std::string> ids;
  Problem problem;
  std::vector<int64_t> offsets;  // Only when read with offsets.
};

enum class CsvColumns {
  kProblem,   // id, lower, upper, size
  kSolution,  // id, lower, upper, size, offset
};

/// Reads a header and rows with these columns, in any order. With kProblem, an `offset` column of
/// an earlier packing is checked and ignored. Blank lines at the end are ignored. Lifetimes are
/// half-open. The path "-" means standard input. Errors: "FILE:LINE: reason" for missing, repeated
/// or unknown columns, fields that are not 64-bit integers, negative numbers, lower >= upper,
/// repeated or empty ids, no rows, and sizes that sum to more than 2^62; a file that cannot be
/// read.
Result<CsvProblem> read_csv(const std::string& path, CsvColumns columns = CsvColumns::kProblem);

/// Writes the rows as id,lower,upper,size,offset to a temporary file, and renames it to `path`. The
/// path "-" means standard output.
Result<void> write_csv(const std::string& path, const CsvProblem& rows,
                       const std::vector<int64_t>& offsets);

}  // namespace stow::pack
