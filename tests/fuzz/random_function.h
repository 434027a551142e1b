// Random user functions: base functions nested under loops, branches, batches and transforms.
// Not graphs: random_program.h makes those; here the library's own functions trace them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/api/array.h"

namespace stow::testing {

/// f64[4] to f64[4], differentiable nearly everywhere.
using Function = std::function<Array(const Array&)>;

/// A base function, or a combinator of functions.
struct FunctionKind {
  const char* name;
  size_t n_inner;            ///< Number of functions that it combines; 0: a base function.
  std::vector<int> numbers;  ///< One bound for each number that it takes, in [0, bound).
  Array (*apply)(const Array& x, std::span<const Function> inner, std::span<const int> numbers);
};
/// Return the kinds of each family. Base functions have no inner functions.
std::vector<FunctionKind> base_functions();
std::vector<FunctionKind> scan_functions();
std::vector<FunctionKind> transform_functions();

/// A function as a tree; its text is "scan(mul(sin, sort), 1, 2)": inner functions, then numbers.
struct Expression {
  const FunctionKind* kind = nullptr;
  std::vector<Expression> inner = {};
  std::vector<int> numbers = {};
};

/// Returns the expression of a seed, the same on every machine.
Expression random_expression(uint64_t seed);
std::string to_string(const Expression& expression);
/// Parses the text of to_string(). Errors: std::invalid_argument with the place of the error.
Expression parse_expression(std::string_view text);
Function function_of(const Expression& expression);

/// Returns all expressions that are one shrinking step smaller: one subexpression is replaced by
/// one of its own subexpressions or by a base function, or one number is reduced.
std::vector<Expression> smaller(const Expression& expression);

/// Returns the array that some functions capture: f64[4, 4]. They capture no other array.
const Array& captured_weights();

}  // namespace stow::testing
