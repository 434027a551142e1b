#include "stowage/runtime/cpu/kernels/row_match.h"

#include <bit>
#include <cstdint>

#include "stowage/runtime/cpu/kernels/row_kernels.h"

namespace stow::cpu::rows {
namespace {

int n_args(const Step& s) {
  int n = 0;
  while (n < 3 && s.args[n] >= 0) ++n;
  return n;
}

// The bits of a constant in a step of dtype t.
uint64_t constant_bits(DType t, double x) {
  const auto value = static_cast<float>(x);
  if (t == DType::kBF16) return f32_to_bf16(value);
  if (t == DType::kF16) return f32_to_f16(value);
  return std::bit_cast<uint32_t>(value);
}

}  // namespace

bool Match::find(const Term& term, int i, const std::vector<Term>& more,
                 std::function<bool()> accepts) {
  bound_.clear();
  more_ = &more;
  accepts_ = std::move(accepts);
  return reach({{term, i}}, 0);
}

int Match::step_of(const Term& term) const {
  for (const auto& [known, i] : bound_)
    if (known == term) return i;
  return -1;
}

bool Match::can_be(const Term& term, int i) const {
  const Step& s = steps_[static_cast<size_t>(i)];
  switch (term->kind) {
    case Term::Kind::kEach:
    case Term::Kind::kShared:
    case Term::Kind::kAny:
      return fits_(term, i);
    case Term::Kind::kConstant:
      return s.kind == StepKind::kConstant && register_dtype(s.dtype) == DType::kF32 &&
             s.imm == constant_bits(s.dtype, term->constant);
    case Term::Kind::kOp:
      break;
  }
  return s.kind == StepKind::kCompute && s.op == term->op &&
         n_args(s) == static_cast<int>(term->terms.size()) && fits_(term, i);
}

bool Match::reach(Goals goals, size_t n_more) {
  while (!goals.empty()) {
    const auto [term, i] = goals.back();
    goals.pop_back();
    if (const int known = step_of(term); known >= 0) {
      if (known != i) return false;
      continue;
    }
    if (!can_be(term, i)) return false;
    bound_.emplace_back(term, i);
    if (term->kind != Term::Kind::kOp) continue;
    const std::vector<Term>& terms = term->terms;
    const int32_t* args = steps_[static_cast<size_t>(i)].args;
    if (term->commutes && args[0] != args[1] && terms[0] != terms[1]) {
      const size_t n_bound = bound_.size();
      Goals straight = goals;
      straight.emplace_back(terms[1], args[1]);
      straight.emplace_back(terms[0], args[0]);
      if (reach(std::move(straight), n_more)) return true;
      bound_.resize(n_bound);
      goals.emplace_back(terms[1], args[0]);
      goals.emplace_back(terms[0], args[1]);
      continue;
    }
    for (size_t k = terms.size(); k-- > 0;) goals.emplace_back(terms[k], args[k]);
  }
  while (n_more < more_->size() && step_of((*more_)[n_more]) >= 0) ++n_more;
  if (n_more == more_->size()) return accepts_();
  const size_t n_bound = bound_.size();
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (is_live_[i] && reach({{(*more_)[n_more], static_cast<int>(i)}}, n_more + 1)) return true;
    bound_.resize(n_bound);
  }
  return false;
}

}  // namespace stow::cpu::rows
