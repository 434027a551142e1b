// The search for one formula of row_patterns.h in the steps of a program.
// Not the choice among formulas, nor the fusion of the steps; row_fuse.cpp does both.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "stowage/ir/row_program.h"
#include "stowage/runtime/cpu/kernels/row_terms.h"

namespace stow::cpu::rows {

/// Assigns a step to each term of a formula. Tries all orders of operands that the formula allows.
class Match {
 public:
  /// True if step i can be the operand or the op `term`. The op itself and its number of operands
  /// have been compared.
  using Fits = std::function<bool(const Term& term, int i)>;

  Match(const std::vector<Step>& steps, const std::vector<bool>& is_live, Fits fits)
      : steps_(steps), is_live_(is_live), fits_(std::move(fits)) {}

  /// False if `term` cannot be step i, by the ops of both and of their operands alone.
  static bool may_be(const std::vector<Step>& steps, const Term& term, int i);

  /// Tries to assign step i to `term` and live steps to the terms of `more`. Calls accepts() for
  /// each complete assignment until it returns true. Returns false if it never does.
  bool find(const Term& term, int i, const std::vector<Term>& more, std::function<bool()> accepts);

  /// Returns the step assigned to a term; -1 if there is none.
  int step_of(const Term& term) const;
  /// Returns the assigned terms, ops and operands, with their steps.
  const std::vector<std::pair<Term, int>>& bound() const { return bound_; }

 private:
  using Goals = std::vector<std::pair<Term, int>>;
  // True if all goals, pairs of a term and a step, can be assigned, then the terms of `more` from
  // n_more on, and accepts() returns true.
  bool reach(Goals goals, size_t n_more);
  bool can_be(const Term& term, int i) const;

  const std::vector<Step>& steps_;
  const std::vector<bool>& is_live_;
  const Fits fits_;
  const std::vector<Term>* more_ = nullptr;
  std::function<bool()> accepts_;
  std::vector<std::pair<Term, int>> bound_;
};

}  // namespace stow::cpu::rows
