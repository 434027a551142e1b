#include "stowage/runtime/cpu/kernels/row_terms.h"

#include <fmt/format.h>

#include <algorithm>

namespace stow::cpu::rows {
namespace {

// Text of terms, with what let() has named written out once, after all else.
class Writer {
 public:
  std::string all(const std::vector<Term>& results) {
    std::string text;
    for (const Term& result : results)
      if (result->name.empty()) text += (text.empty() ? "" : ", ") + of(result, 0);
    for (const Term& result : results)
      if (!result->name.empty()) of(result, 0);
    for (size_t k = 0; k < named_.size(); ++k) {  // grows meanwhile
      const Term term = named_[k];
      text += (text.empty() ? "" : ", ") + term->name + " = " + body(term, 0);
    }
    return text;
  }

 private:
  // `binds`: how tightly what stands around it holds together; 1 a sum, 2 a product.
  std::string of(const Term& term, int binds) {
    switch (term->kind) {
      case Term::Kind::kConstant:
        return fmt::format("{}", term->constant);
      case Term::Kind::kEach:
      case Term::Kind::kShared:
      case Term::Kind::kAny:
        return term->name;
      case Term::Kind::kOp:
        break;
    }
    if (term->name.empty()) return body(term, binds);
    if (std::find(named_.begin(), named_.end(), term) == named_.end()) named_.push_back(term);
    return term->name;
  }

  std::string body(const Term& term, int binds) {
    const auto infix = [&](const char* sign, int own) {
      std::string text = of(term->terms[0], own) + sign;
      text += of(term->terms[1], own + 1);
      return binds > own ? "(" + text + ")" : text;
    };
    if (term->op == OpKind::kAdd) return infix(" + ", 1);
    if (term->op == OpKind::kSub) return infix(" - ", 1);
    if (term->op == OpKind::kMul) return infix(" * ", 2);
    if (term->op == OpKind::kDiv) return infix(" / ", 2);
    std::string text;
    for (const Term& t : term->terms) text += (text.empty() ? "" : ", ") + of(t, 0);
    return fmt::format("{}({})", op_name(term->op), text);
  }

  std::vector<Term> named_;
};

}  // namespace

Term op(OpKind kind, std::vector<Term> terms) {
  const bool commutes =
      kind == OpKind::kAdd || kind == OpKind::kMul || kind == OpKind::kEq || kind == OpKind::kOr;
  return Term({Term::Kind::kOp, {}, 0, kind, std::move(terms), commutes});
}

Term in_either_order(const Term& term) {
  Term::Node node = *term;
  node.commutes = true;
  return Term(std::move(node));
}

Term let(std::string name, const Term& term) {
  Term::Node node = *term;
  node.name = std::move(name);
  return Term(std::move(node));
}

std::string describe(const std::vector<Term>& results) {
  return Writer().all(results);
}

}  // namespace stow::cpu::rows
