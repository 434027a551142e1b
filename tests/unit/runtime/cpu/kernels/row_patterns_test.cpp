// Formulas of the table: each is found in a program that is written by it, in any order of
// operands, and its kernel has the bits of the single steps; functions of `nn`, `optim` and users
// find theirs.
#include "stowage/runtime/cpu/kernels/row_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "stowage/ir/schedule.h"
#include "stowage/optim/optimizers.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"
#include "stowage/runtime/cpu/kernels/row_program.h"
#include "stowage/runtime/cpu/row_program_reference.h"
#include "stowage/stowage.h"
#include "tests/support/source_path.h"

namespace stow::cpu::rows {
namespace {

constexpr int64_t kRows = 5, kCols = 70;

bool is_comparison(OpKind op) {
  return op == OpKind::kLt || op == OpKind::kLe || op == OpKind::kGt || op == OpKind::kGe ||
         op == OpKind::kEq || op == OpKind::kNe;
}

// A row program that computes terms step by step, with open orders as bits of `seed` say.
class Writer {
 public:
  Writer(DType dtype, DType compared, uint32_t seed)
      : dtype_(dtype), compared_(compared), orders_(seed), written_(seed == 0) {
    p_.dims = {kRows, kCols};
    p_.n_row_dims = 1;
  }

  int32_t step_of(const Term& term) { return step_of(term, dtype_); }
  void store(int32_t value) { write(StepKind::kStore, value, {kCols, 1}); }
  void store_row(int32_t value) { write(StepKind::kStore, value, {1, 0}); }
  void store_columns(int32_t value) { write(StepKind::kReduceColumns, value, {0, 1}); }
  int32_t sum(int32_t value) {
    return add({.kind = StepKind::kReduceRow,
                .op = OpKind::kReduceSum,
                .dtype = dtype_,
                .args = {value, -1, -1}});
  }
  RowProgram done() { return std::move(p_); }

 private:
  int32_t step_of(const Term& term, DType dtype) {
    const auto known = steps_.find(&*term);
    if (known != steps_.end()) return known->second;
    const int32_t step = make(term, dtype);
    steps_[&*term] = step;
    return step;
  }
  int32_t make(const Term& term, DType dtype) {
    switch (term->kind) {
      case Term::Kind::kEach:
      case Term::Kind::kAny:
        return load(dtype, {kCols, 1});
      case Term::Kind::kShared:
        return load(dtype, {n_loads_++ % 2, 0});
      case Term::Kind::kConstant:
        return add(
            {.kind = StepKind::kConstant, .dtype = dtype, .imm = bits_of(dtype, term->constant)});
      case Term::Kind::kOp:
        break;
    }
    const bool tests = is_comparison(term->op);
    std::vector<int32_t> args;
    for (size_t k = 0; k < term->terms.size(); ++k) {
      const bool is_test = term->op == OpKind::kOr || (term->op == OpKind::kSelect && k == 0);
      args.push_back(step_of(term->terms[k], tests ? compared_ : is_test ? DType::kBool : dtype));
    }
    if (term->commutes && !written_ && orders_() % 2 == 1) std::swap(args[0], args[1]);
    args.resize(3, -1);
    const bool is_bool = tests || term->op == OpKind::kOr;
    return add({.op = term->op,
                .dtype = is_bool ? DType::kBool : dtype,
                .args = {args[0], args[1], args[2]}});
  }
  static uint64_t bits_of(DType t, double x) {
    const auto value = static_cast<float>(x);
    return t == DType::kBF16  ? f32_to_bf16(value)
           : t == DType::kF16 ? f32_to_f16(value)
                              : std::bit_cast<uint32_t>(value);
  }
  int32_t load(DType dtype, const Dims& strides) {
    p_.inputs.push_back({dtype, strides});
    return add({.kind = StepKind::kLoad,
                .dtype = dtype,
                .index = static_cast<int32_t>(p_.inputs.size()) - 1});
  }
  void write(StepKind kind, int32_t value, const Dims& strides) {
    add({.kind = kind,
         .op = OpKind::kReduceSum,
         .dtype = dtype_,
         .index = static_cast<int32_t>(p_.outputs.size()),
         .args = {value, -1, -1}});
    p_.outputs.push_back({dtype_, strides});
  }
  int32_t add(const Step& s) {
    p_.steps.push_back(s);
    return static_cast<int32_t>(p_.steps.size()) - 1;
  }

  RowProgram p_;
  const DType dtype_, compared_;
  std::mt19937 orders_;
  const bool written_;
  int64_t n_loads_ = 0;
  std::map<const Term::Node*, int32_t> steps_;
};

// The formulas of a plan's kernels.
std::vector<const std::string*> patterns_of(const RowPlan& plan) {
  std::vector<const std::string*> found;
  const auto look = [&](const std::vector<PlanStep>& steps) {
    for (const PlanStep& s : steps)
      if (s.pattern != nullptr) found.push_back(s.pattern);
  };
  look(plan.once_steps);
  for (const PlanPhase& phase : plan.phases) {
    look(phase.row_steps);
    look(phase.strip_steps);
  }
  return found;
}

using Memory = std::vector<std::vector<std::byte>>;

Memory random_memory(const RowProgram& program) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> everyday(0.1f, 3.0f);
  Memory memory;
  for (const RowOperand& operand : program.inputs) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      const float x =
          everyday(random) * (random() % 2 == 0 || operand.strides[1] == 0 ? 1.0f : -1.0f);
      const uint32_t bits = operand.dtype == DType::kBF16  ? f32_to_bf16(x)
                            : operand.dtype == DType::kF16 ? f32_to_f16(x)
                            : operand.dtype == DType::kI32
                                ? static_cast<uint32_t>(static_cast<int32_t>(x * 2))
                                : std::bit_cast<uint32_t>(x);
      const auto* first = reinterpret_cast<const std::byte*>(&bits);
      bytes.insert(bytes.end(), first, first + dtype_bytes(operand.dtype));
    }
    memory.push_back(std::move(bytes));
  }
  return memory;
}

Memory outputs_of(const RowProgram& program, const Memory& inputs, bool by_reference) {
  std::vector<const std::byte*> in;
  for (const auto& bytes : inputs) in.push_back(bytes.data());
  Memory outputs(program.outputs.size(), std::vector<std::byte>(kRows * kCols * 8));
  std::vector<std::byte*> out;
  for (auto& bytes : outputs) out.push_back(bytes.data());
  if (by_reference) {
    run_row_program_reference(program, in, out);
    return outputs;
  }
  const CompiledRowProgram compiled(program);
  std::vector<std::byte> scratch(static_cast<size_t>(compiled.scratch_bytes(1)) + 64);
  const auto at = reinterpret_cast<uintptr_t>(scratch.data());
  compiled.run(in, out, scratch.data() + (64 - at % 64) % 64, 1);
  return outputs;
}

std::vector<DType> dtypes_of(RowPattern::Types types) {
  switch (types) {
    case RowPattern::Types::kF32:
      return {DType::kF32};
    case RowPattern::Types::kFloats:
      return {DType::kF32, DType::kBF16, DType::kF16};
    case RowPattern::Types::kI32:
      return {DType::kI32};
    case RowPattern::Types::kWordByI32:
      return {DType::kF32, DType::kI32, DType::kU32};
  }
  return {};
}

RowProgram written(const RowPattern& pattern, DType dtype, uint32_t seed) {
  Writer w(dtype, pattern.types == RowPattern::Types::kWordByI32 ? DType::kI32 : dtype, seed);
  w.store(w.step_of(pattern.result));
  for (const Term& more : pattern.more) w.store(w.step_of(more));
  for (const Term& arg : pattern.args)  // what others read is no part of the kernel
    if (arg->kind == Term::Kind::kOp) w.store(w.step_of(arg));
  return w.done();
}

TEST(RowPatterns, AreFoundInAnyOrderOfOperandsAndKeepTheBits) {
  for (const RowPattern& pattern : row_patterns())
    for (DType dtype : dtypes_of(pattern.types))
      for (uint32_t seed = 0; seed < 12; ++seed) {
        const RowProgram program = written(pattern, dtype, seed);
        const std::vector<const std::string*> found = patterns_of(compile_row_plan(program, false));
        ASSERT_EQ(found.size(), 1u) << pattern.name << " " << dtype_name(dtype) << " " << seed;
        ASSERT_EQ(found[0], &pattern.name) << pattern.name << " is " << *found[0];
        const Memory inputs = random_memory(program);
        ASSERT_EQ(outputs_of(program, inputs, false), outputs_of(program, inputs, true))
            << pattern.name << " " << dtype_name(dtype) << " " << seed;
      }
}

// With one op in another's place, another association or another operand, a formula is another:
// what is found, if anything is, has the bits of the single steps.
TEST(RowPatterns, ChangedInOnePlaceKeepTheBits) {
  for (const RowPattern& pattern : row_patterns()) {
    const DType dtype = dtypes_of(pattern.types)[0];
    const RowProgram whole = written(pattern, dtype, 0);
    for (size_t i = 0; i < whole.steps.size(); ++i) {
      const OpKind op = whole.steps[i].op;
      if (whole.steps[i].kind != StepKind::kCompute || (op != OpKind::kAdd && op != OpKind::kMul))
        continue;
      RowProgram changed = whole;
      changed.steps[i].op = op == OpKind::kAdd ? OpKind::kSub : OpKind::kAdd;
      for (const std::string* found : patterns_of(compile_row_plan(changed, false)))
        EXPECT_NE(found, &pattern.name) << pattern.name << " with another op at " << i;
      const Memory inputs = random_memory(changed);
      ASSERT_EQ(outputs_of(changed, inputs, false), outputs_of(changed, inputs, true))
          << pattern.name << " " << i;
    }
  }
}

TEST(RowPatterns, OfSumsAreFoundInAnyOrderOfOperandsAndKeepTheBits) {
  for (const SumPattern& pattern : sum_patterns())
    for (uint32_t seed = 0; seed < 6; ++seed)
      for (const bool keeps : {false, true}) {
        if (keeps && !pattern.keeps) continue;
        Writer w(DType::kF32, DType::kF32, seed);
        const int32_t term = w.step_of(pattern.term);
        if (pattern.columns != nullptr) w.store_columns(term);
        if (pattern.rows != nullptr) w.store_row(w.sum(term));
        if (keeps) w.store(w.step_of(pattern.keeps));
        const RowProgram program = w.done();
        EXPECT_THAT(patterns_of(compile_row_plan(program, false)),
                    testing::ElementsAre(&pattern.name))
            << pattern.name;
        const Memory inputs = random_memory(program);
        ASSERT_EQ(outputs_of(program, inputs, false), outputs_of(program, inputs, true))
            << pattern.name;
      }
}

// The names of the formulas in all row programs of a function's program.
template <typename F, typename... Args>
std::set<std::string> found_in(F f, const Args&... args) {
  std::set<std::string> names;
  const std::function<void(const std::vector<Instruction>&)> look = [&](const auto& instructions) {
    for (const Instruction& instruction : instructions) {
      if (const auto* loop = std::get_if<std::shared_ptr<Loop>>(&instruction.body))
        look((*loop)->body);
      const Kernel* kernel = instruction.kernel();
      if (kernel == nullptr || !kernel->program) continue;
      for (const std::string* name : patterns_of(compile_row_plan(*kernel->program, false)))
        names.insert(*name);
    }
  };
  const auto compiled = jit(f).lower(args...).compile();
  look(compiled.executable().schedule().instructions);
  return names;
}

TEST(RowPatterns, AreFoundHoweverAFunctionIsWritten) {
  const Array x = Array::abstract(Shape{16, 64}), y = Array::abstract(Shape{16, 64});
  using testing::Contains;
  using testing::IsEmpty;
  using testing::Not;
  EXPECT_THAT(found_in([](const Array& a, const Array& b) { return silu(a) * b; }, x, y),
              Contains("silu(x) y"));
  EXPECT_THAT(found_in([](const Array& a, const Array& b) { return b * (logistic(a) * a); }, x, y),
              Contains("silu(x) y"));
  EXPECT_THAT(found_in([](const Array& a, const Array& b) { return (a * logistic(a)) * b; }, x, y),
              Contains("silu(x) y"));
  // Other bits: no gate.
  EXPECT_THAT(
      found_in([](const Array& a, const Array& b) { return a / (1.0f + exp(-a)) * b; }, x, y),
      IsEmpty());
  EXPECT_THAT(found_in([](const Array& a, const Array& b) { return a * (logistic(a) * b); }, x, y),
              IsEmpty());

  // What reaches the gate's gradient does not depend on the gate: the kernel makes it as well.
  const auto gradient = [&](auto gate) {
    const auto loss = [=](const Array& a, const Array& b, const Array& c) {
      return sum(gate(a, b) * c);
    };
    return found_in(grad<0, 1>(loss), x, y, x);
  };
  constexpr const char* kBoth = "gradient of silu(x) y by both";
  EXPECT_THAT(gradient([](const Array& a, const Array& b) { return silu(a) * b; }),
              Contains(kBoth));
  EXPECT_THAT(gradient([](const Array& a, const Array& b) { return b * (logistic(a) * a); }),
              Contains(kBoth));
  EXPECT_THAT(gradient([](const Array& a, const Array& b) { return a / (1.0f + exp(-a)) * b; }),
              Not(Contains(kBoth)));
}

TEST(RowPatterns, OfAdamAreFoundInAnyOrderAndSign) {
  const Array p = Array::abstract(Shape{16, 64}), g = p, m = p, v = p,
              rate = Array::abstract(Shape{});
  const auto found = [&](auto step) {
    return found_in(
        [=](const Array& p, const Array& g, const Array& m, const Array& v, const Array& rate) {
          const Array first = 0.9f * m + g * 0.1f, second = square(g) * 0.001f + 0.999f * v;
          const Array r = first * 1.5f / (1e-8f + sqrt(2.5f * second));
          return std::tuple(step(p, r, rate), first, second);
        },
        p, g, m, v, rate);
  };
  using testing::ElementsAre;
  EXPECT_THAT(found([](const Array& p, const Array& r, const Array& rate) { return rate * r + p; }),
              ElementsAre("Adam"));
  EXPECT_THAT(found([](const Array& p, const Array& r, const Array& rate) { return p - rate * r; }),
              ElementsAre("Adam, subtracted"));
  EXPECT_THAT(found([](const Array& p, const Array& r, const Array& rate) {
                return p - (0.1f * p + r) * rate;
              }),
              ElementsAre("Adam, decayed, subtracted"));
  // In another association the sum inside is the formula: 0.1 p stands for its p.
  EXPECT_THAT(found([](const Array& p, const Array& r, const Array& rate) {
                return p - (rate * r + 0.1f * p);
              }),
              ElementsAre("Adam"));
  EXPECT_THAT(found([](const Array& p, const Array& r, const Array& rate) {
                return (p - rate * r) * (1.0f - rate);
              }),
              ElementsAre("Adam, subtracted"));
  // The rate inside the quotient is another formula.
  EXPECT_THAT(
      found_in(
          [](const Array& p, const Array& g, const Array& m, const Array& v, const Array& rate) {
            const Array first = 0.9f * m + g * 0.1f;
            const Array second = square(g) * 0.001f + 0.999f * v;
            return std::tuple(p - rate * first / (sqrt(second) + 1e-8f), first, second);
          },
          p, g, m, v, rate),
      testing::IsEmpty());
  // Moments by differences have other bits.
  EXPECT_THAT(found_in(
                  [](const Array& g, const Array& m, const Array& v) {
                    const Array first = m + 0.1f * (g - m), second = v + 0.001f * (square(g) - v);
                    return std::tuple(first / (sqrt(second) + 1e-8f), first, second);
                  },
                  g, m, v),
              testing::Not(testing::Contains("moments")));
  // The library's own.
  const auto opt = optim::adamw(1e-3, {.weight_decay = 0.1});
  const auto update = [&](const Array& weight, const Array& gradient,
                          const optim::OptState& state) {
    const auto [change, next] = opt.update(gradient, state, weight);
    return std::pair(optim::apply_updates(weight, change), next);
  };
  EXPECT_THAT(found_in(update, p, g, opt.init(p)), testing::Contains("Adam, decayed"));
}

// The page's table of formulas has the first of each name.
TEST(RowPatterns, ArePrintedOnTheirPage) {
  std::ifstream file(source_path("docs/row-programs.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  std::set<std::string> names;
  for (const RowPattern& pattern : row_patterns()) {
    if (!names.insert(pattern.name).second) continue;
    std::vector<Term> results = {pattern.result};
    results.insert(results.end(), pattern.more.begin(), pattern.more.end());
    EXPECT_THAT(page, testing::HasSubstr("| " + pattern.name + " | `" + describe(results) + "`"));
  }
  for (const SumPattern& pattern : sum_patterns()) {
    const char* over = pattern.rows != nullptr ? ", summed over a row" : ", summed over columns";
    const std::string line = "| " + pattern.name + over + " | `" + describe({pattern.term}) + "` |";
    EXPECT_THAT(page, testing::HasSubstr(line));
  }
}

}  // namespace
}  // namespace stow::cpu::rows
