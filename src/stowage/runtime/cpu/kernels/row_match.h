// The search for one formula of row_patterns.h in the steps of a program.
// Not the choice among formulas, nor what becomes of the steps; that is row_fuse.cpp's.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "stowage/ir/row_program.h"
#include "stowage/runtime/cpu/kernels/row_terms.h"

namespace stow::cpu::rows {

/// Tries the orders of operands that a formula leaves open, until all its terms are steps that
/// agree.
class Match {
 public:
  /// Says whether step i can be what a leaf of the formula stands for, or an op of it. The op
  /// itself and its number of operands have been compared.
  using Fits = std::function<bool(const Term& term, int i)>;

  Match(const std::vector<Step>& steps, const std::vector<bool>& is_live, Fits fits)
      : steps_(steps), is_live_(is_live), fits_(std::move(fits)) {}

  /// False if `term` cannot be step i, by the ops of both and of their operands alone.
  static bool may_be(const std::vector<Step>& steps, const Term& term, int i);

  /// True if `term` is step i, each of `more` some live step, and `accepts` returns true once all
  /// of it is known; else other orders and steps are tried.
  bool find(const Term& term, int i, const std::vector<Term>& more, std::function<bool()> accepts);

  /// The step that a term is; -1 if it is not in the formula.
  int step_of(const Term& term) const;
  /// The terms of the formula with the steps that they are, ops and operands alike.
  const std::vector<std::pair<Term, int>>& bound() const { return bound_; }

 private:
  using Goals = std::vector<std::pair<Term, int>>;
  // True if all goals, pairs of a term and its step, can hold, together with `n_more` further
  // terms.
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
