// For tests of row programs: memory of operands, a writer of programs, runs beside the reference.
// Not the generator of random programs; row_program_random_test.cpp has it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stowage/runtime/cpu/kernels/row_program.h"
#include "stowage/runtime/cpu/row_program_reference.h"
#include "tests/support/on_target.h"

namespace stow::cpu::row_kit {

// Every array at the begin of a cache line.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};
using Bytes = std::vector<std::byte, LineAllocator<std::byte>>;

// A random row program with the memory of its operands.
struct Case {
  RowProgram program;
  std::vector<Bytes> memory;
  struct Where {
    size_t memory;
    int64_t offset_bytes;
  };
  std::vector<Where> inputs, outputs;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  uint64_t bits() { return engine_(); }
  template <typename T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int64_t>(list.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

constexpr DType kAllDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                                DType::kI64, DType::kI32, DType::kI8,   DType::kU64,
                                DType::kU32, DType::kU8,  DType::kBool};

inline uint64_t float_bits(DType t, double x) {
  switch (t) {
    case DType::kF64:
      return std::bit_cast<uint64_t>(x);
    case DType::kBF16:
      return f32_to_bf16(static_cast<float>(x));
    case DType::kF16:
      return f32_to_f16(static_cast<float>(x));
    default:
      return std::bit_cast<uint32_t>(static_cast<float>(x));
  }
}

// While it lives, floats are of everyday size alone: what one NaN of a long row would hide.
inline bool g_all_everyday = false;
struct AllEveryday {
  explicit AllEveryday(bool all = true) { g_all_everyday = all; }
  ~AllEveryday() { g_all_everyday = false; }
  AllEveryday(const AllEveryday&) = delete;
  AllEveryday& operator=(const AllEveryday&) = delete;
};

// Mostly of everyday size, now and then special.
inline uint64_t random_element(Random& random, DType t) {
  if (t == DType::kBool) return random.bits() & 1;
  if (!is_float(t)) {
    const int64_t small = random.below(200) - 100;
    return random.chance(80)
               ? static_cast<uint64_t>(small)
               : random.pick<uint64_t>({0, 1, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 31,
                                        0x80, 0x7f, random.bits()});
  }
  const double inf = std::numeric_limits<double>::infinity();
  if (!g_all_everyday && random.chance(3))
    return float_bits(t, random.pick({0.0, -0.0, 1.0, -1.0, inf, -inf, std::nan(""), 1e-40, 1e30,
                                      -1e-45, 65520.0, 6e-8}));
  const double unit = static_cast<double>(random.below(1 << 24)) / (1 << 22) - 2;
  return float_bits(t, !g_all_everyday && random.chance(10) ? unit * 1000 : unit);
}

inline bool is_nan(const std::byte* p, DType t) {
  uint64_t bits = 0;
  std::memcpy(&bits, p, static_cast<size_t>(dtype_bytes(t)));
  switch (t) {
    case DType::kF64:
      return (bits & ~(uint64_t{1} << 63)) > 0x7ff0000000000000;
    case DType::kF32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case DType::kBF16:
      return (bits & 0x7fff) > 0x7f80;
    case DType::kF16:
      return (bits & 0x7fff) > 0x7c00;
    default:
      return false;
  }
}

inline std::string describe(const RowProgram& p) {
  std::string text = "dims";
  for (size_t k = 0; k < p.dims.size(); ++k)
    text += fmt::format("{}{}{}", static_cast<int>(k) == p.n_group_dims && k > 0 ? " /" : "",
                        static_cast<int>(k) == p.n_row_dims ? " | " : " ", p.dims[k]);
  const auto operand = [](const RowOperand& o) {
    std::string t = fmt::format(" {}(", dtype_name(o.dtype));
    for (int64_t s : o.strides) t += fmt::format(" {}", s);
    return t + " )";
  };
  for (const RowOperand& o : p.inputs) text += "\nin" + operand(o);
  for (const RowOperand& o : p.outputs) text += "\nout" + operand(o);
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    constexpr const char* kKinds[] = {"load",       "constant",       "iota", "compute",
                                      "reduce_row", "reduce_columns", "store"};
    text += fmt::format("\n%{} = {} {} {} #{} ({} {} {}) {:#x}", i,
                        kKinds[static_cast<size_t>(s.kind)], op_name(s.op), dtype_name(s.dtype),
                        s.index, s.args[0], s.args[1], s.args[2], s.imm);
  }
  return text;
}

struct Pointers {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
};
inline Pointers pointers(const Case& c, std::vector<Bytes>& memory) {
  Pointers p;
  for (const Case::Where& w : c.inputs)
    p.inputs.push_back(memory[w.memory].data() + w.offset_bytes);
  for (const Case::Where& w : c.outputs)
    p.outputs.push_back(memory[w.memory].data() + w.offset_bytes);
  return p;
}

// Calls run(memory, scratch) with memory as in the beginning and scratch of exactly the bytes asked
// for, between canaries; returns the memory.
template <typename Run>
std::vector<Bytes> run_guarded(const Case& c, int64_t scratch_bytes, Run&& run) {
  std::vector<Bytes> memory = c.memory;
  const auto bytes = static_cast<size_t>(scratch_bytes);
  constexpr size_t kGuard = 256;
  Bytes scratch(bytes + 3 * kGuard, std::byte{0xa5});
  auto* begin = reinterpret_cast<std::byte*>(
      (reinterpret_cast<uintptr_t>(scratch.data()) + kGuard + 63) / 64 * 64);
  run(pointers(c, memory), begin);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(begin[-1 - static_cast<ptrdiff_t>(i)], std::byte{0xa5}) << "before the scratch";
    EXPECT_EQ(begin[bytes + i], std::byte{0xa5}) << "after the scratch";
  }
  return memory;
}

// What there is to know of the memory of a case before its addresses are.
inline RowOverlaps overlaps_of(const Case& c) {
  RowOverlaps overlaps(c.outputs.size(), c.inputs.size());
  for (size_t k = 0; k < c.outputs.size(); ++k)
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const Case::Where &out = c.outputs[k], &in = c.inputs[i];
      if (out.memory != in.memory)
        overlaps.set(k, i, Overlap::kNever);
      else if (out.offset_bytes == in.offset_bytes)
        overlaps.set(k, i, Overlap::kAlways);
    }
  return overlaps;
}

inline std::vector<Bytes> run(const Case& c, int threads, const RowOverlaps& overlaps = {}) {
  const CompiledRowProgram compiled(c.program, overlaps);
  return run_guarded(c, compiled.scratch_bytes(threads),
                     [&](const Pointers& p, std::byte* scratch) {
                       compiled.run(p.inputs, p.outputs, scratch, threads);
                     });
}

// Whether all memory is alike, NaNs of an output being equal to one another.
inline ::testing::AssertionResult same(const Case& c, const std::vector<Bytes>& got,
                                       const std::vector<Bytes>& want) {
  for (size_t m = 0; m < got.size(); ++m) {
    DType t = DType::kU8;
    for (size_t k = 0; k < c.outputs.size(); ++k)
      if (c.outputs[k].memory == m) t = c.program.outputs[k].dtype;
    const int64_t size = dtype_bytes(t);
    for (int64_t i = 0; i + size <= static_cast<int64_t>(got[m].size()); i += size) {
      const std::byte *a = got[m].data() + i, *b = want[m].data() + i;
      if (std::memcmp(a, b, static_cast<size_t>(size)) == 0 || (is_nan(a, t) && is_nan(b, t)))
        continue;
      uint64_t x = 0, y = 0;
      std::memcpy(&x, a, static_cast<size_t>(size));
      std::memcpy(&y, b, static_cast<size_t>(size));
      return ::testing::AssertionFailure()
             << "memory " << m << " element " << i / size << " of " << dtype_name(t) << ": "
             << std::hex << x << " not " << y;
    }
  }
  return ::testing::AssertionSuccess();
}

// A runner gives the bits of `want` wherever the memory lies, and wherever that of the run before
// did.
inline ::testing::AssertionResult runner_agrees(const Case& c, int threads,
                                                const std::vector<Bytes>& want,
                                                const RowOverlaps& overlaps = {}) {
  RowProgramRunner runner(c.program, threads, overlaps);
  const int64_t bytes = CompiledRowProgram(c.program, overlaps).scratch_bytes(threads);
  std::vector<std::vector<Bytes>> results;  // all kept, so that no two runs have the same addresses
  for (int i = 0; i < 3; ++i) {
    results.push_back(run_guarded(c, bytes, [&](const Pointers& p, std::byte* scratch) {
      runner.run(p.inputs, p.outputs, scratch);
    }));
    if (auto alike = same(c, results.back(), want); !alike) return alike << ", run " << i;
  }
  return ::testing::AssertionSuccess();
}

// The instruction sets that a machine has beside its best, and what stands for those without any.
inline void with_other_targets(void (*f)()) {
  for (int64_t target : {int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
    if (target != int64_t{HWY_EMU128} && (hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    const OnTarget held(target);
    f();
  }
}

// Writes a program step by step over arrays of one dtype, whole unless said otherwise.
class Writer {
 public:
  Writer(DType t, const Dims& dims) : whole_{t, {dims[1], 1}} {
    p_.dims = dims;
    p_.n_row_dims = 1;
  }
  int32_t load() { return load(whole_); }
  int32_t load(const RowOperand& from) {
    p_.inputs.push_back(from);
    return add(StepKind::kLoad, OpKind::kAdd, -1, -1, p_.inputs.size() - 1);
  }
  int32_t one() { return constant(1); }
  int32_t constant(float x) {
    const int32_t s = add(StepKind::kConstant, OpKind::kAdd, -1, -1, 0);
    p_.steps.back().imm = float_bits(whole_.dtype, x);
    return s;
  }
  int32_t test(OpKind op, int32_t a, int32_t b) {  // bool
    const int32_t s = compute(op, a, b);
    p_.steps.back().dtype = DType::kBool;
    return s;
  }
  int32_t select(int32_t condition, int32_t a, int32_t b) {
    const int32_t s = compute(OpKind::kSelect, condition, a);
    p_.steps.back().args[2] = b;
    return s;
  }
  int32_t compute(OpKind op, int32_t a, int32_t b = -1) {
    return add(StepKind::kCompute, op, a, b, 0);
  }
  int32_t sum(int32_t value) { return reduce(OpKind::kReduceSum, value); }
  int32_t reduce(OpKind op, int32_t value) { return add(StepKind::kReduceRow, op, value, -1, 0); }
  void store(int32_t value) { write(StepKind::kStore, value, whole_); }
  void store_sums(int32_t value) {
    write(StepKind::kReduceColumns, value, {whole_.dtype, {0, 1}});
  }
  RowProgram done() { return std::move(p_); }

 private:
  int32_t add(StepKind kind, OpKind op, int32_t a, int32_t b, size_t index) {
    Step s;
    s.kind = kind;
    s.op = op;
    s.dtype = whole_.dtype;
    s.args[0] = a;
    s.args[1] = b;
    s.index = static_cast<int32_t>(index);
    p_.steps.push_back(s);
    return static_cast<int32_t>(p_.steps.size() - 1);
  }
  void write(StepKind kind, int32_t value, const RowOperand& to) {
    add(kind, OpKind::kReduceSum, value, -1, p_.outputs.size());
    p_.outputs.push_back(to);
  }

  RowProgram p_;
  RowOperand whole_;
};

inline Bytes random_bytes(Random& random, DType t, int64_t n) {
  const auto size = static_cast<size_t>(dtype_bytes(t));
  Bytes b(static_cast<size_t>(n) * size);
  for (size_t i = 0; i < b.size(); i += size) {
    const uint64_t e = random_element(random, t);
    std::memcpy(b.data() + i, &e, size);
  }
  return b;
}

// Output k in memory places[k]: the reference's, by one thread and by two.
inline void check_outputs_at(Case& c, std::span<const size_t> places) {
  c.outputs.clear();
  for (size_t k = 0; k < c.program.outputs.size(); ++k) c.outputs.push_back({places[k], 0});
  std::vector<Bytes> want = c.memory;
  const Pointers at = pointers(c, want);
  run_row_program_reference(c.program, at.inputs, at.outputs);
  for (int threads : {1, 2})
    ASSERT_TRUE(same(c, run(c, threads), want))
        << "over " << places[0] << " " << describe(c.program);
}

// silu(gate) * up, or silu(gate) alone. `apart`: every step is stored, so that each has a kernel of
// its own.
inline RowProgram gate_program(DType t, const Dims& dims, bool has_up, bool apart) {
  Writer w(t, dims);
  const int32_t gate = w.load(), logistic = w.compute(OpKind::kLogistic, gate);
  const int32_t silu = w.compute(OpKind::kMul, gate, logistic);
  w.store(has_up ? w.compute(OpKind::kMul, silu, w.load()) : silu);
  if (apart) {
    w.store(logistic);
    if (has_up) w.store(silu);
  }
  return w.done();
}

// Every gate of the halves, and as many others of f32, where a space is of 65536.
inline void check_gates(const std::vector<Dims>& spaces) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16})
    for (const Dims& dims : spaces)
      for (const bool has_up : {false, true}) {
        Case c;
        const int64_t n = dims[0] * dims[1];
        Random random(7);
        Bytes gate = random_bytes(random, t, n), up = random_bytes(random, t, n);
        for (int64_t i = 0; i < n && t != DType::kF32; ++i) {
          const auto x = static_cast<uint16_t>(i);
          std::memcpy(gate.data() + i * 2, &x, 2);
        }
        const size_t bytes = gate.size();
        c.memory = {gate, up, Bytes(bytes), Bytes(bytes), Bytes(bytes)};
        c.inputs = {{0, 0}, {1, 0}};
        if (!has_up) c.inputs.pop_back();
        c.outputs = {{2, 0}};
        c.program = gate_program(t, dims, has_up, false);
        Case apart = c;
        apart.program = gate_program(t, dims, has_up, true);
        for (size_t k = 1; k < apart.program.outputs.size(); ++k)
          apart.outputs.push_back({2 + k, 0});
        std::vector<Bytes> want = run(apart, 1), got = run(c, 1);
        want.resize(3);
        got.resize(3);
        ASSERT_TRUE(same(c, got, want)) << dtype_name(t) << " " << describe(c.program);
        for (size_t over = 0; over < c.inputs.size(); ++over) {
          c.outputs = {{over, 0}};
          got = run(c, 2);
          got[2] = got[over];
          got[over] = want[over];
          got.resize(3);
          c.outputs = {{2, 0}};
          ASSERT_TRUE(same(c, got, want))
              << "over " << over << ", " << dtype_name(t) << " " << describe(c.program);
        }
      }
}

}  // namespace stow::cpu::row_kit
