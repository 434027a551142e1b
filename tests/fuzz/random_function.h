// Random functions of users: base functions under loops, branches, batches and transforms, nested.
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

/// One way of making a function: a base function, or a combinator of others.
struct FunctionKind {
  const char* name;
  size_t n_inner;            ///< Functions that it is made of.
  std::vector<int> numbers;  ///< The bound of each number that it takes: [0, bound).
  Array (*apply)(const Array& x, std::span<const Function> inner, std::span<const int> numbers);
};
/// The combinators of each family; the first have no inner functions.
std::vector<FunctionKind> base_functions();
std::vector<FunctionKind> scan_functions();
std::vector<FunctionKind> transform_functions();

/// A function as a tree; its text is "scan(mul(sin, sort), 1, 2)": inner functions, then numbers.
struct Expression {
  const FunctionKind* kind = nullptr;
  std::vector<Expression> inner = {};
  std::vector<int> numbers = {};
};

/// The expression of a seed, the same everywhere.
Expression random_expression(uint64_t seed);
std::string to_string(const Expression& expression);
/// Errors: std::invalid_argument saying where the text is wrong.
Expression parse_expression(std::string_view text);
Function function_of(const Expression& expression);

/// Expressions made from this one by one step: a part replaced by one of its own or by a plain one,
/// a number made smaller.
std::vector<Expression> smaller(const Expression& expression);

/// The array that some functions capture: f64[4, 4]. Nothing else is captured.
const Array& captured_weights();

}  // namespace stow::testing
