#include "tests/fuzz/random_function.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <stdexcept>

#include <fmt/format.h>

namespace stow::testing {
namespace {

struct Kinds {
  std::vector<FunctionKind> bases = base_functions(), combinators = scan_functions();
  Kinds() {
    for (FunctionKind& kind : transform_functions()) combinators.push_back(std::move(kind));
  }
  const FunctionKind* find(std::string_view name) const {
    for (const auto* kinds : {&bases, &combinators})
      for (const FunctionKind& kind : *kinds)
        if (name == kind.name) return &kind;
    throw std::invalid_argument(fmt::format("no function is called '{}'", name));
  }
};
const Kinds& kinds() {
  static const Kinds all;
  return all;
}

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  Expression make(int depth) {
    const bool leaf = depth == 0 || below(12) == 0;
    const auto& of = leaf ? kinds().bases : kinds().combinators;
    Expression e{.kind = &of[below(of.size())]};
    // Of two, one is shallow: what a function costs is the product along the way.
    const size_t deep = e.kind->n_inner > 1 ? below(e.kind->n_inner) : 0;
    for (size_t i = 0; i < e.kind->n_inner; ++i)
      e.inner.push_back(make(i == deep ? depth - 1 : std::min(depth - 1, 1)));
    for (const int bound : e.kind->numbers)
      e.numbers.push_back(static_cast<int>(below(static_cast<uint64_t>(bound))));
    return e;
  }
  uint64_t below(uint64_t n) { return random_() % n; }

 private:
  std::mt19937_64 random_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expression all() {
    Expression e = expression();
    if (!text_.empty()) fail("text is left over");
    return e;
  }

 private:
  Expression expression() {
    Expression e{.kind = kinds().find(word())};
    const size_t n = e.kind->n_inner + e.kind->numbers.size();
    for (size_t i = 0; i < n; ++i) {
      expect(i == 0 ? "(" : ", ");
      if (i < e.kind->n_inner) {
        e.inner.push_back(expression());
        continue;
      }
      const std::string_view digits = word();
      int number = -1;
      std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (number < 0 || number >= e.kind->numbers[i - e.kind->n_inner]) fail("no such number");
      e.numbers.push_back(number);
    }
    if (n > 0) expect(")");
    return e;
  }
  std::string_view word() {
    const size_t n = std::min(text_.find_first_of("(), "), text_.size());
    const std::string_view result = text_.substr(0, n);
    text_.remove_prefix(n);
    return result;
  }
  void expect(std::string_view next) {
    if (!text_.starts_with(next)) fail(fmt::format("'{}' is expected", next));
    text_.remove_prefix(next.size());
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw std::invalid_argument(fmt::format("{} before '{}'", what, text_));
  }

  std::string_view text_;
};

}  // namespace

Expression random_expression(uint64_t seed) {
  Maker maker(seed);
  constexpr int kDepths[] = {1, 2, 2, 2, 3};
  const int depth = kDepths[maker.below(std::size(kDepths))];
  return maker.make(depth);
}

std::string to_string(const Expression& expression) {
  std::string text = expression.kind->name;
  const char* before = "(";
  for (const Expression& inner : expression.inner) {
    text += before + to_string(inner);
    before = ", ";
  }
  for (const int number : expression.numbers) {
    text += fmt::format("{}{}", before, number);
    before = ", ";
  }
  return before[0] == '(' ? text : text + ")";
}

Expression parse_expression(std::string_view text) {
  return Parser(text).all();
}

Function function_of(const Expression& expression) {
  std::vector<Function> inner;
  for (const Expression& e : expression.inner) inner.push_back(function_of(e));
  return [apply = expression.kind->apply, inner, numbers = expression.numbers](const Array& x) {
    return apply(x, inner, numbers);
  };
}

std::vector<Expression> smaller(const Expression& expression) {
  std::vector<Expression> result = expression.inner;
  const Expression plain[] = {{kinds().find("identity")}, {kinds().find("sin")}};
  const bool is_plain = expression.kind == plain[0].kind || expression.kind == plain[1].kind;
  if (!is_plain) result.insert(result.end(), std::begin(plain), std::end(plain));
  for (size_t i = 0; i < expression.inner.size(); ++i)
    for (Expression& inner : smaller(expression.inner[i])) {
      result.push_back(expression);
      result.back().inner[i] = std::move(inner);
    }
  for (size_t i = 0; i < expression.numbers.size(); ++i)
    if (expression.numbers[i] > 0) {
      result.push_back(expression);
      --result.back().numbers[i];
    }
  return result;
}

}  // namespace stow::testing
