// Terms of the formulas of row_patterns.h: operands, constants and ops over terms.
// Not the steps of a program; those are in ir/row_program.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu::rows {

/// A node of a formula. Copies refer to the same node; a node that occurs twice in a formula
/// matches one step.
class Term {
 public:
  enum class Kind : uint8_t {
    kEach,      ///< An operand with a value at each point of the result.
    kShared,    ///< An operand with one value for all columns of a row.
    kAny,       ///< An operand of either kind.
    kConstant,  ///< A constant, in the dtype of the step.
    kOp,        ///< An op over terms.
  };
  struct Node {
    Kind kind;
    std::string name;  ///< Name of an operand, or of an op that let() has named.
    double constant = 0;
    OpKind op = OpKind::kAdd;
    std::vector<Term> terms;
    bool commutes = false;  ///< The two terms may be in either order.
  };

  Term() = default;
  Term(double constant) : Term(Node{Kind::kConstant, {}, constant}) {}
  explicit Term(Node node) : node_(std::make_shared<const Node>(std::move(node))) {}

  explicit operator bool() const { return node_ != nullptr; }
  const Node* operator->() const { return node_.get(); }
  const Node& operator*() const { return *node_; }
  friend bool operator==(const Term&, const Term&) = default;  ///< Compares nodes, not their text.

 private:
  std::shared_ptr<const Node> node_;
};

/// each(), shared() and any() return operands of the three kinds.
inline Term each(std::string name) {
  return Term({Term::Kind::kEach, std::move(name)});
}
inline Term shared(std::string name) {
  return Term({Term::Kind::kShared, std::move(name)});
}
inline Term any(std::string name) {
  return Term({Term::Kind::kAny, std::move(name)});
}

/// Returns an op over terms in this order. Sums, products, == and `or`, whose bits do not depend on
/// the order, match both orders.
Term op(OpKind kind, std::vector<Term> terms);
/// Returns `term`, an op of two terms, such that it matches both orders. For other ops whose bits
/// do not depend on the order in this formula.
Term in_either_order(const Term& term);
/// Returns `term` with a name; describe() then writes the term once and refers to it by name.
Term let(std::string name, const Term& term);

inline Term operator+(const Term& a, const Term& b) {
  return op(OpKind::kAdd, {a, b});
}
inline Term operator-(const Term& a, const Term& b) {
  return op(OpKind::kSub, {a, b});
}
inline Term operator*(const Term& a, const Term& b) {
  return op(OpKind::kMul, {a, b});
}
inline Term operator/(const Term& a, const Term& b) {
  return op(OpKind::kDiv, {a, b});
}

/// Returns a formula as text, such as "x * s, s = logistic(x)".
std::string describe(const std::vector<Term>& results);

}  // namespace stow::cpu::rows
