// Neighbouring steps of a row program that one kernel computes together.
#include "stowage/runtime/cpu/kernels/row_compiler.h"
#include "stowage/runtime/cpu/kernels/row_kernels_choose.h"

namespace stow::cpu::rows {

bool Compiler::is_wanted_once(int i) {
  const Value& v = value(i);
  return step(i).kind == StepKind::kCompute && uses_[static_cast<size_t>(i)] == 1 &&
         v.absorbed_by < 0 && v.made_by < 0 && !absorbs(i);
}

bool Compiler::is_absorbable(int i) {
  const Step& s = step(i);
  return is_wanted_once(i) && s.dtype == DType::kF32 && n_args(s) == 2 &&
         step(s.args[0]).dtype == DType::kF32;
}

int Compiler::n_absorbable(int i) {
  int n = 0;
  for (int k = 0; k < n_args(step(i)); ++k) n += can_absorb(i, step(i).args[k]) ? 1 : 0;
  return n;
}

int Compiler::logistic_of_gate(int j) {
  const Step& s = step(j);
  if (s.kind != StepKind::kCompute || s.op != OpKind::kMul) return -1;
  for (int k = 0; k < 2; ++k) {
    const int i = s.args[k];
    if (step(i).op == OpKind::kLogistic && step(i).args[0] == s.args[1 - k] && is_wanted_once(i) &&
        value(i).span == value(j).span)
      return i;
  }
  return -1;
}

bool Compiler::fuse_gate(int j) {
  const Step& s = step(j);
  Fused& f = fused_[static_cast<size_t>(j)];
  for (int k = 0; k < n_args(s) && s.op == OpKind::kMul; ++k) {
    const int silu = s.args[k], logistic = logistic_of_gate(silu);
    if (logistic < 0 || !is_wanted_once(silu) || value(silu).span != value(j).span) continue;
    f = {f32_gate_kernel(true), {step(logistic).args[0], s.args[1 - k]}};
    value(silu).absorbed_by = value(logistic).absorbed_by = j;
    return true;
  }
  const int logistic = logistic_of_gate(j);
  if (logistic < 0) return false;
  f = {f32_gate_kernel(false), {step(logistic).args[0]}};
  value(logistic).absorbed_by = j;
  return true;
}

int Compiler::factor_beside(int i, int v, int j) {
  const Step& s = step(i);
  if (s.kind != StepKind::kCompute || s.op != OpKind::kMul || s.dtype != step(j).dtype ||
      value(i).span != value(j).span)
    return -1;
  return s.args[0] == v ? s.args[1] : s.args[1] == v ? s.args[0] : -1;
}

bool Compiler::is_one(int i) const {
  const Step& s = step(i);
  return s.kind == StepKind::kConstant && s.imm == (s.dtype == DType::kF32    ? 0x3f800000u
                                                    : s.dtype == DType::kBF16 ? 0x3f80u
                                                                              : 0x3c00u);
}

bool Compiler::fuse_gate_grad(int j) {
  const Step& sum = step(j);
  if (sum.kind != StepKind::kCompute || sum.op != OpKind::kAdd || !has_column(value(j).span) ||
      register_dtype(sum.dtype) != DType::kF32)
    return false;
  const auto is_alone = [&](int i) { return uses_[static_cast<size_t>(i)] == 1; };
  for (int turn = 0; turn < 4; ++turn) {
    const int straight = sum.args[turn / 2], bent = sum.args[1 - turn / 2];
    const Step& product = step(straight);
    const int s = product.args[turn % 2], d = product.args[1 - turn % 2];
    if (s < 0 || factor_beside(straight, s, j) < 0 || step(s).op != OpKind::kLogistic ||
        step(s).kind != StepKind::kCompute || value(s).span != value(j).span)
      continue;
    const int x = step(s).args[0];
    for (int k = 0; k < 2; ++k) {
      const int by_x = step(bent).args[k], slope = step(bent).args[1 - k];
      if (by_x < 0 || factor_beside(bent, by_x, j) < 0 || factor_beside(by_x, x, j) != d) continue;
      const int rest = factor_beside(slope, s, j);
      if (rest < 0 || step(rest).kind != StepKind::kCompute || step(rest).op != OpKind::kSub ||
          !is_one(step(rest).args[0]) || step(rest).args[1] != s || !is_alone(straight) ||
          !is_alone(bent) || !is_alone(by_x) || !is_alone(slope) || !is_alone(rest))
        continue;
      return fuse_gate_grad(j, {straight, bent, by_x, slope, rest}, s, x, d);
    }
  }
  return false;
}

bool Compiler::fuse_gate_grad(int j, std::vector<int> parts, int s, int x, int d) {
  Fused f;
  if (uses_[static_cast<size_t>(s)] == 3) {
    f = {f32_gate_grad_kernel(1), {x, d}};
  } else {
    int silu = -1;
    for (int u : users_of(s))
      if (value(u).absorbed_by < 0 && factor_beside(u, s, j) == x) silu = u;
    if (silu < 0 || uses_[static_cast<size_t>(s)] != 4 || uses_[static_cast<size_t>(d)] != 2)
      return false;
    // The factors of d, each of which silu(x) may be multiplied by as well.
    const std::vector<int> products = users_of(silu);
    if (products.empty() || products.size() > 2) return false;
    const int dy = factor_beside(products[0], silu, j);
    if (dy < 0 || factor_beside(d, dy, j) < 0) return false;
    const int y = factor_beside(d, dy, j);
    if (products.size() == 2 && factor_beside(products[1], silu, j) != y) return false;
    f = {f32_gate_grad_kernel(1 + static_cast<int>(products.size())), {x, y, dy}};
    f.more = products;
    parts.insert(parts.end(), {silu, d});
  }
  parts.push_back(s);
  if (!can_be_one(f, parts)) return false;
  for (int a : f.args)
    if (value(a).span != value(j).span) return false;
  for (int made : f.more)
    if (!can_come_late(made, j, parts)) return false;
  for (int part : parts) value(part).absorbed_by = j;
  for (int made : f.more) value(made).made_by = j;
  fused_[static_cast<size_t>(j)] = std::move(f);
  return true;
}

bool Compiler::can_be_one(const Fused& f, const std::vector<int>& parts) {
  const auto is_in = [](const std::vector<int>& list, int i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  return std::none_of(f.args.begin(), f.args.end(),
                      [&](int a) { return is_in(f.more, a) || is_in(parts, a); }) &&
         std::none_of(f.more.begin(), f.more.end(), [&](int made) { return is_in(parts, made); });
}

std::vector<int> Compiler::users_of(int i) {
  std::vector<int> list;
  for (int u = i + 1; u < n_steps(); ++u)
    for (int k = 0; k < n_args(step(u)); ++k)
      if (is_live_[static_cast<size_t>(u)] && step(u).args[k] == i) list.push_back(u);
  return list;
}

int Compiler::only_user(int i) {
  return uses_[static_cast<size_t>(i)] == 1 ? users_of(i).front() : -1;
}

bool Compiler::can_come_late(int i, int j, const std::vector<int>& absorbed) {
  for (const std::vector<bool>& needed : needed_)
    if (needed[static_cast<size_t>(i)] != needed[static_cast<size_t>(j)]) return false;
  const std::vector<int> users = users_of(i);
  return std::all_of(users.begin(), users.end(), [&](int u) {
    return u >= j || is_store(step(u)) ||
           std::find(absorbed.begin(), absorbed.end(), u) != absorbed.end();
  });
}

bool Compiler::is_f32_at(int j, int i, OpKind op) {
  const Step& s = step(i);
  return s.kind == StepKind::kCompute && s.op == op && s.dtype == DType::kF32 &&
         value(i).span == value(j).span && !value(i).by_position;
}

Compiler::Scaled Compiler::scaled(int i, int j) {
  const Step& s = step(i);
  if (!is_f32_at(j, i, OpKind::kMul)) return {};
  for (int k = 0; k < 2; ++k)
    if (value(s.args[k]).span == value(j).span && !has_column(value(s.args[1 - k]).span))
      return {s.args[k], s.args[1 - k]};
  return {};
}

Compiler::WeightUpdate Compiler::weight_update(int j) {
  const WeightUpdate none = {.last = j};
  const auto beside = [&](int i, int a) { return step(i).args[step(i).args[0] == a ? 1 : 0]; };
  std::vector<int> parts = {j};
  int by_rate = only_user(j), decayed = -1;
  if (by_rate >= 0 && is_f32_at(j, by_rate, OpKind::kAdd)) {
    decayed = beside(by_rate, j);
    if (!is_wanted_once(decayed)) return none;
    parts.insert(parts.end(), {by_rate, decayed});
    by_rate = only_user(by_rate);
  }
  if (by_rate < 0) return none;
  parts.push_back(by_rate);
  const Scaled change = scaled(by_rate, j), loss = decayed < 0 ? Scaled() : scaled(decayed, j);
  const int last = only_user(by_rate);
  if (change.x < 0 || last < 0 || !is_f32_at(j, last, OpKind::kAdd)) return none;
  const int p = beside(last, by_rate);
  if (value(p).span != value(j).span || (decayed >= 0 && loss.x != p)) return none;
  return {last, p, change.by, loss.by, std::move(parts)};
}

bool Compiler::fuse_moments(int j) {
  const auto is = [&](int i, OpKind op) { return is_f32_at(j, i, op); };
  if (!is(j, OpKind::kDiv) || !has_column(value(j).span)) return false;
  const int above = step(j).args[0], below = step(j).args[1];
  if (!is(below, OpKind::kAdd)) return false;
  const int side = is(step(below).args[0], OpKind::kSqrt) ? 0 : 1;
  const int root = step(below).args[side], e = step(below).args[1 - side];
  if (!is(root, OpKind::kSqrt) || has_column(value(e).span)) return false;
  const int under = step(root).args[0];
  const auto [m, k1] = scaled(above, j);
  const auto [v, k2] = scaled(under, j);
  if (m < 0 || v < 0 || m == v || !is(m, OpKind::kAdd) || !is(v, OpKind::kAdd)) return false;
  for (int turn = 0; turn < 4; ++turn) {
    const int old_m = step(m).args[turn % 2], new_m = step(m).args[1 - turn % 2];
    const int old_v = step(v).args[turn / 2], new_v = step(v).args[1 - turn / 2];
    const Scaled m_old = scaled(old_m, j), m_new = scaled(new_m, j);
    const Scaled v_old = scaled(old_v, j), v_new = scaled(new_v, j);
    if (m_old.x < 0 || m_new.x < 0 || v_old.x < 0 || v_new.x < 0) continue;
    int g = m_new.x;
    const int square = v_new.x;
    if (!is(square, OpKind::kMul) || step(square).args[0] != g || step(square).args[1] != g)
      continue;
    std::vector<int> parts = {above, below, root, under, old_m, new_m, old_v, new_v, square};
    if (!std::all_of(parts.begin(), parts.end(), [&](int i) { return is_wanted_once(i); }))
      continue;
    const Scaled of_g = scaled(g, j);
    const bool is_scaled = of_g.x >= 0 && uses_[static_cast<size_t>(g)] == 3;
    if (is_scaled) parts.push_back(std::exchange(g, of_g.x));
    const WeightUpdate update = weight_update(j);
    const bool updates = update.p >= 0, decays = update.decay >= 0;
    parts.insert(parts.end(), update.parts.begin(), update.parts.end());
    if (!can_come_late(m, update.last, parts) || !can_come_late(v, update.last, parts)) continue;
    Fused f;
    f.map = f32_moments_kernel(is_scaled, updates, decays);
    f.args = {g, m_old.x, v_old.x};
    if (updates) f.args.push_back(update.p);
    f.args.insert(f.args.end(), {m_old.by, m_new.by, v_old.by, v_new.by, k1, k2, e});
    if (is_scaled) f.args.push_back(of_g.by);
    if (updates) f.args.push_back(update.rate);
    if (decays) f.args.push_back(update.decay);
    f.more = {m, v};
    if (!can_be_one(f, parts)) continue;
    for (int part : parts) value(part).absorbed_by = update.last;
    value(m).made_by = value(v).made_by = update.last;
    fused_[static_cast<size_t>(update.last)] = std::move(f);
    return true;
  }
  return false;
}

void Compiler::fuse_column_products(int j) {
  const Step& s = step(j);
  const int product = s.args[0];
  if (s.dtype != DType::kF32 || step(product).op != OpKind::kMul || !is_absorbable(product) ||
      !has_column(value(product).span) || reduce_kernels(s.op, s.dtype).column_products == nullptr)
    return;
  std::vector<int>& args = fused_[static_cast<size_t>(j)].args;
  args = {step(product).args[0], step(product).args[1]};
  value(product).absorbed_by = j;
  for (int k = 0; k < 2; ++k) {
    const int inner = args[static_cast<size_t>(k)], other = args[static_cast<size_t>(1 - k)];
    if (step(inner).op != OpKind::kMul || !can_absorb(product, inner)) continue;
    args = {step(inner).args[0], step(inner).args[1], other};
    value(inner).absorbed_by = j;
    return;
  }
}

bool Compiler::fuse_hypot(int j) {
  constexpr uint64_t kZero = 0, kOne = 0x3f800000, kInfinity = 0x7f800000;
  std::vector<int> parts;
  const auto is_op = [&](int i, OpKind op) {
    return i >= 0 && step(i).kind == StepKind::kCompute && step(i).op == op &&
           value(i).span == value(j).span && !value(i).by_position;
  };
  const auto is = [&](int i, OpKind op) { return is_op(i, op) && step(i).dtype == DType::kF32; };
  const auto is_constant = [&](int i, uint64_t bits) {
    return i >= 0 && step(i).kind == StepKind::kConstant && step(i).dtype == DType::kF32 &&
           step(i).imm == bits;
  };
  // The operand of step i beside one that `matches`; else -1.
  const auto beside = [&](int i, auto matches) {
    for (int k = 0; k < 2; ++k)
      if (matches(step(i).args[k])) return step(i).args[1 - k];
    return -1;
  };
  const auto beside_constant = [&](int i, uint64_t bits) {
    return beside(i, [&](int a) { return is_constant(a, bits); });
  };

  if (!is(j, OpKind::kSelect) || !has_column(value(j).span) ||
      !is_constant(step(j).args[1], kInfinity))
    return false;
  const int is_infinite = step(j).args[0], finite = step(j).args[2];
  if (!is_op(is_infinite, OpKind::kOr) || !is(finite, OpKind::kMul)) return false;
  const int most = beside(finite, [&](int a) { return is(a, OpKind::kSqrt); });
  if (!is(most, OpKind::kMax)) return false;
  const int root = beside(finite, [&](int a) { return a == most; }), sum = step(root).args[0];
  if (!is(sum, OpKind::kAdd)) return false;
  const int square = beside_constant(sum, kOne);
  if (!is(square, OpKind::kMul) || step(square).args[0] != step(square).args[1]) return false;
  const int ratio = step(square).args[0];
  if (!is(ratio, OpKind::kDiv)) return false;
  const int least = step(ratio).args[0], scale = step(ratio).args[1];
  if (!is(least, OpKind::kMin) || !is(scale, OpKind::kSelect) || step(scale).args[2] != most ||
      !is_constant(step(scale).args[1], kOne))
    return false;
  const int is_zero = step(scale).args[0];
  if (!is_op(is_zero, OpKind::kEq) || beside_constant(is_zero, kZero) != most) return false;
  const int x = step(most).args[0], y = step(most).args[1];
  if (!is(x, OpKind::kAbs) || !is(y, OpKind::kAbs) ||
      beside(least, [&](int a) { return a == x; }) != y)
    return false;
  parts = {is_infinite, finite, most, root, sum, square, ratio, least, scale, is_zero};
  std::vector<int> compared;
  for (int k = 0; k < 2; ++k) {
    const int test = step(is_infinite).args[k];
    if (!is_op(test, OpKind::kEq)) return false;
    compared.push_back(beside_constant(test, kInfinity));
    parts.push_back(test);
  }
  if (compared != std::vector<int>{x, y} && compared != std::vector<int>{y, x}) return false;
  const auto is_inside = [&](int i) {
    const std::vector<int> users = users_of(i);
    return value(i).absorbed_by < 0 && value(i).made_by < 0 && !absorbs(i) &&
           std::all_of(users.begin(), users.end(), [&](int u) {
             return u == j || std::find(parts.begin(), parts.end(), u) != parts.end();
           });
  };
  if (!std::all_of(parts.begin(), parts.end(), is_inside)) return false;
  std::vector<int> args;
  for (int side : {x, y}) {  // a magnitude that others want as well is an operand as it is
    args.push_back(is_inside(side) ? step(side).args[0] : side);
    if (args.back() != side && (args.size() == 1 || x != y)) parts.push_back(side);
  }
  for (int part : parts) value(part).absorbed_by = j;
  fused_[static_cast<size_t>(j)] = {f32_hypot_kernel(), std::move(args)};
  return true;
}

bool Compiler::fuse_square_grad(int j) {
  const Step& s = step(j);
  for (int k = 0; k < n_args(s) && s.op == OpKind::kAdd; ++k) {
    const int twice = s.args[k], left = s.args[1 - k];
    if (left == twice || !can_absorb(j, left) || !can_absorb(j, twice)) continue;
    const int p = step(twice).args[0];
    if (step(twice).op != OpKind::kAdd || step(twice).args[1] != p ||
        uses_[static_cast<size_t>(p)] != 2 || step(p).op != OpKind::kMul ||
        step(p).kind != StepKind::kCompute || value(p).span != value(j).span ||
        value(p).absorbed_by >= 0 || absorbs(p))
      continue;
    const MapKernel map = f32_square_grad_kernel(step(left).op);
    if (map == nullptr) continue;
    fused_[static_cast<size_t>(j)] = {
        map, {step(left).args[0], step(left).args[1], step(p).args[0], step(p).args[1]}};
    value(left).absorbed_by = value(twice).absorbed_by = value(p).absorbed_by = j;
    return true;
  }
  return false;
}

bool Compiler::can_make(int j, int i) {
  const Value& v = value(i);
  const int phase = executed_in(j);
  if (step(i).kind != StepKind::kCompute || step(i).dtype != DType::kF32 || absorbs(i) ||
      v.absorbed_by >= 0 || v.level != phase || v.span != value(step(j).args[0]).span)
    return false;
  // Rows that are all alike are reduced each by itself: the first must not change what others read.
  if (!has_row(v.span) && plan_.rows != 1) return false;
  for (int p = phase + 1; p < n_phases_; ++p)
    if (needed_[static_cast<size_t>(p)][static_cast<size_t>(i)]) return false;
  for (int u = i + 1; u < j; ++u)
    for (int k = 0; k < n_args(step(u)); ++k)
      if (step(u).args[k] == i && needed_[static_cast<size_t>(phase)][static_cast<size_t>(u)] &&
          value(u).absorbed_by != j)
        return false;
  return true;
}

void Compiler::fuse_terms(int j) {
  const Step& s = step(j);
  const int t = s.args[0];
  if (s.dtype != DType::kF32 || value(j).by_position || step(t).kind != StepKind::kCompute ||
      !has_column(value(t).span))
    return;
  const ReduceKernels kernels = reduce_kernels(s.op, s.dtype);
  Fused& f = fused_[static_cast<size_t>(j)];
  const auto make = [&](ReduceRowsKernel kernel, int inner, std::vector<int> args) {
    f.reduce = kernel;
    f.args = std::move(args);
    const bool is_squared = kernel == kernels.squares_of_differences;
    f.keeps = uses_[static_cast<size_t>(inner)] > (is_squared ? 2 : 1) ? inner : -1;
    value(inner).absorbed_by = j;
  };
  if (step(t).op == OpKind::kExp && kernels.exps != nullptr) {
    const int x = step(t).args[0];
    if (step(x).op != OpKind::kSub || !is_absorbable(x) || value(x).span != value(t).span ||
        !can_make(j, t))
      return;
    make(kernels.exps, t, {step(x).args[0], step(x).args[1]});
    value(x).absorbed_by = j;
  } else if (step(t).op == OpKind::kMul && is_absorbable(t) && kernels.products != nullptr) {
    value(t).absorbed_by = j;
    const int root = step(t).args[0];
    if (root == step(t).args[1] && step(root).op == OpKind::kSub && can_make(j, root))
      return make(kernels.squares_of_differences, root, {step(root).args[0], step(root).args[1]});
    for (int k = 0; k < 2; ++k) {
      const int inner = step(t).args[k], third = step(t).args[1 - k];
      if (inner == third || step(inner).op != OpKind::kMul || !can_make(j, inner)) continue;
      return make(kernels.products_by_third, inner,
                  {step(inner).args[0], step(inner).args[1], third});
    }
    make(kernels.products, t, {step(t).args[0], step(t).args[1]});
  }
}

void Compiler::fuse_poke(int j) {
  const Step& s = step(j);
  if (s.op == OpKind::kConvert) {
    fused_[static_cast<size_t>(j)] = {f32_one_hot_kernel(), {s.args[0]}};
    return;
  }
  const int x = s.args[0];
  const bool of_product = step(x).op == OpKind::kMul && can_absorb(j, x);
  Fused& f = fused_[static_cast<size_t>(j)];
  f.map = f32_poke_kernel(s.op, of_product);
  f.args = {x, s.args[1], s.args[2]};
  if (!of_product) return;
  f.args = {step(x).args[0], step(x).args[1], s.args[1], s.args[2]};
  value(x).absorbed_by = j;
}

void Compiler::choose_fused_steps() {
  uses_.assign(steps_.size(), 0);
  fused_.resize(steps_.size());
  for (int i = 0; i < n_steps(); ++i)
    if (is_live_[static_cast<size_t>(i)])
      for (int k = 0; k < n_args(step(i)); ++k) ++uses_[static_cast<size_t>(step(i).args[k])];
  for (int j = n_steps() - 1; j >= 0; --j)
    if (is_live_[static_cast<size_t>(j)] && !fuse_gate_grad(j) && !fuse_hypot(j)) fuse_moments(j);
  for (int j = n_steps() - 1; j >= 0; --j) {
    const Step& s = step(j);
    if (!is_live_[static_cast<size_t>(j)] || value(j).made_by >= 0 || absorbs(j)) continue;
    if (s.kind == StepKind::kReduceColumns) fuse_column_products(j);
    if (s.kind == StepKind::kReduceRow) {
      fuse_terms(j);
      fuse_runs(j);
    }
    if (s.kind == StepKind::kCompute && value(j).by_position) fuse_poke(j);
    if (fuse_choice(j)) continue;
    if (s.kind != StepKind::kCompute || value(j).by_position || value(j).absorbed_by >= 0 ||
        register_dtype(s.dtype) != DType::kF32 || n_args(s) > 2 || fuse_gate(j) ||
        fuse_square_grad(j) || fuse_clamp(j))
      continue;
    const int a = s.args[0], b = s.args[1];
    const bool first = can_absorb(j, a), second = b >= 0 && can_absorb(j, b);
    Fused f;
    if (first && second && a != b) {
      f.map = f32_triple_kernel(s.op, step(a).op, step(b).op);
      f.args = {step(a).args[0], step(a).args[1], step(b).args[0], step(b).args[1]};
      if (f.map != nullptr) value(b).absorbed_by = j;
    }
    // Of two, the one that has less to absorb of its own.
    const bool prefer_second = second && (!first || n_absorbable(b) < n_absorbable(a));
    if (f.map == nullptr && prefer_second) {
      f.map = f32_pair_kernel(s.op, step(b).op, false);
      f.args = {step(b).args[0], step(b).args[1], a};
      if (f.map != nullptr) {
        value(b).absorbed_by = j;
        fused_[static_cast<size_t>(j)] = std::move(f);
        continue;
      }
    }
    if (f.map == nullptr && first) {
      f.map = f32_pair_kernel(s.op, step(a).op, true);
      f.args = {step(a).args[0], step(a).args[1]};
      if (b >= 0) f.args.push_back(b);
    }
    if (f.map == nullptr) continue;
    value(a).absorbed_by = j;
    fused_[static_cast<size_t>(j)] = std::move(f);
  }
}

template <typename F>
std::vector<int> Compiler::overtaken(int kernel, int phase, const PlanOperand& out, F meets) {
  std::vector<int> inputs;
  for (int p = phase; p < n_phases_; ++p)
    for (int j = 0; j < n_steps(); ++j) {
      if (!needed_[static_cast<size_t>(p)][static_cast<size_t>(j)]) continue;
      const Value& v = value(j);
      const int reader = maker_of(j);
      const bool later = p > phase || reader > kernel;
      for (int k = 0; k < n_args(step(j)); ++k) {
        const int a = step(j).args[k];
        meets(j, a, p, reader);
        // Reads through a direct load, at any later place.
        if (later && value(a).direct && may_share(out, operand(value(a).operand)))
          inputs.push_back(value(a).operand);
      }
      // A load that copies.
      if (later && step(j).kind == StepKind::kLoad && !v.direct &&
          may_share(out, operand(v.operand)))
        inputs.push_back(v.operand);
    }
  return inputs;
}

void Compiler::choose_fused_stores() {
  for (int i = 0; i < n_steps(); ++i) {
    const Step& s = step(i);
    if (s.kind != StepKind::kStore) continue;
    const int a = s.args[0];
    Value& v = value(a);
    const PlanOperand& out = operand(output_operand(s));
    int first = 0;  // phase that computes it
    while (first < n_phases_ && !needed_[static_cast<size_t>(first)][static_cast<size_t>(a)])
      ++first;
    if (step(a).kind != StepKind::kCompute || v.absorbed_by >= 0 || v.fused_store >= 0 ||
        !out.unit_columns || v.span != out.span || store_phase(s) > first)
      continue;
    const bool narrow = form_of(out.dtype) != Form::kNative;
    if (narrow && !takes_forms(step(a))) continue;
    // Later phases read it where it was stored; or, if they compute it again, they would write
    // it again, which only the phase of the store may do.
    bool possible = true;
    for (int p = first + 1; p < n_phases_; ++p)
      if (needed_[static_cast<size_t>(p)][static_cast<size_t>(a)]) possible = false;
    const std::vector<int> inputs = overtaken(maker_of(a), first, out, [&](int j, int arg, int, int) {
      if (arg == a && narrow && !takes_forms(step(j)) && j != i) possible = false;
    });
    if (!possible || (careful_ && !inputs.empty())) continue;
    for (int input : inputs) assume_apart(s.index, input);
    v.fused_store = i;
  }
}

bool Compiler::can_park(int i, int store) {
  const Value& v = value(i);
  const Step& s = step(store);
  const PlanOperand& out = operand(output_operand(s));
  if (s.kind != StepKind::kStore || value(s.args[0]).fused_store != store || out.dtype != DType::kF32 ||
      out.span != v.span || v.level >= store_phase(s))
    return false;
  const int end = store_phase(s), last = maker_of(s.args[0]);
  bool possible = true;
  const std::vector<int> inputs =
      overtaken(maker_of(i), v.level, out, [&](int, int arg, int phase, int reader) {
        if (arg == i && (phase > end || (phase == end && reader > last))) possible = false;
      });
  if (!possible || (careful_ && !inputs.empty())) return false;
  for (int input : inputs) assume_apart(s.index, input);
  return true;
}

void Compiler::choose_parking() {
  if (!has_many_strips()) return;
  std::vector<bool> taken(static_cast<size_t>(plan_.n_outputs), false);
  for (int i = 0; i < n_steps(); ++i) {
    Value& v = value(i);
    if (!v.keep || v.fused_store >= 0) continue;
    const bool may_park = step(i).kind == StepKind::kCompute && step(i).dtype == DType::kF32 &&
                           v.span == Span::kFull;
    for (int j = i + 1; j < n_steps() && may_park && v.parked_in_output < 0; ++j)
      if (is_store(step(j)) && !taken[static_cast<size_t>(step(j).index)] && can_park(i, j)) {
        v.parked_in_output = step(j).index;
        taken[static_cast<size_t>(step(j).index)] = true;
      }
    if (v.parked_in_output >= 0) continue;
    plan_.kept_bytes += (has_row(v.span) ? plan_.r_tile : 1) * plan_.cols *
                        dtype_bytes(register_dtype(step(i).dtype));
  }
}

}  // namespace stow::cpu::rows
