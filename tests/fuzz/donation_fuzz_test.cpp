// Random loops over donated arguments: scans, fori_loops, while_loops and conds nested up to three
// deep, whose carries are tuples, with readers of the arguments before them. Every donated argument
// that a loop begins with is aliased, and nothing is held twice.
//
// STOW_FUZZ_LOOPS programs (60) from STOW_FUZZ_SEED (1) on.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"
#include "tests/fuzz/child_process.h"
#include "tests/fuzz/random_program.h"
#include "tests/support/execute.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::environment;
using Carry = std::vector<Array>;

// What becomes of a carry in an iteration.
enum class Update { kAdded, kScaledByItself, kOfAnother, kRow, kProduct };
constexpr int kNumUpdates = 5;

struct Form {
  enum Kind { kLeaf, kScan, kFori, kWhile, kCond, kNumKinds };
  Kind kind = kLeaf;
  std::vector<Update> updates;  // of a leaf, by carry
  std::vector<Form> inner;      // the body; of a cond, its branches
  int64_t trips = 1, unroll = 1;
  bool reverse = false;

  Form(std::mt19937_64& random, size_t n_carries, int depth, bool is_outermost) {
    const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
    if (depth > 0 && (is_outermost || below(3) > 0))
      kind = static_cast<Kind>(1 + below(kNumKinds - 1));
    trips = 1 + below(4);
    reverse = below(2) == 0;
    if (below(3) == 0) unroll = below(3);
    for (size_t k = 0; k < n_carries; ++k)
      updates.push_back(static_cast<Update>(below(kNumUpdates)));
    for (int i = kind == kLeaf ? 0 : kind == kCond ? 2 : 1; i > 0; --i)
      inner.emplace_back(random, n_carries, depth - 1, false);
  }

  // True if a carry may have to be told from its successor: in work that is no loop's, one carry's
  // is computed from another, or by a product, before that one's successor is.
  bool may_need_both() const {
    if (kind == kCond) return inner[0].may_need_both() || inner[1].may_need_both();
    if (kind == kScan && (unroll == 0 || unroll >= trips))  // written out
      return trips > 1 || inner[0].may_need_both();
    if (kind != kLeaf) return false;
    return std::count(updates.begin(), updates.end(), Update::kOfAnother) > 0;
  }

  // True if a carry's iteration reads more of it than it writes at a time, or another carry.
  bool needs_another_slot(size_t k) const {
    if (kind == kLeaf)
      return updates[k] == Update::kProduct || updates[k] == Update::kOfAnother ||
             updates[(k + updates.size() - 1) % updates.size()] == Update::kOfAnother;
    return std::any_of(inner.begin(), inner.end(),
                       [&](const Form& f) { return f.needs_another_slot(k); });
  }

  std::string text() const {
    constexpr const char* kNames[] = {"leaf", "scan", "fori", "while", "cond"};
    std::string t = kNames[kind];
    if (kind == kScan) t += fmt::format("{}", unroll);
    for (const Form& f : inner) t += "(" + f.text() + ")";
    if (kind == kLeaf)
      for (Update u : updates) t += fmt::format("{}", static_cast<int>(u));
    return t;
  }

  // `m` [K, K] and `s`, a scalar of the iteration.
  Carry operator()(const Carry& c, const Array& m, const Array& s) const {
    switch (kind) {
      case kScan:
        return scan([&](const Carry& c, const Array& s) { return inner[0](c, m, s); }, c,
                    arange(trips, DType::kF32) * 0.25 + s, {.reverse = reverse, .unroll = unroll});
      case kFori:
        return fori_loop(
            0, trips,
            [&](const Array& i, const Carry& c) {
              return inner[0](c, m, s + i.astype(DType::kF32));
            },
            c);
      case kWhile: {
        using State = std::pair<Array, Carry>;
        return while_loop([&](const State& state) { return state.first < trips; },
                          [&](const State& state) {
                            return State(state.first + 1, inner[0](state.second, m, s));
                          },
                          State(Array::scalar(0, DType::kI32), c))
            .second;
      }
      case kCond:
        return cond(
            s < 1.0, [&](const Carry& c) { return inner[0](c, m, s); },
            [&](const Carry& c) { return inner[1](c, m, s); }, c);
      default:
        return leaf(c, m, s);
    }
  }

 private:
  Carry leaf(const Carry& c, const Array& m, const Array& s) const {
    Carry next;
    for (size_t k = 0; k < c.size(); ++k) {
      const Array& x = c[k];
      switch (updates[k]) {
        case Update::kAdded:
          next.push_back(x + s);
          break;
        case Update::kScaledByItself:
          next.push_back(tanh(x) * 0.5 + x * s);
          break;
        case Update::kOfAnother:
          next.push_back(x * 0.5 + c[(k + 1) % c.size()] * s);
          break;
        case Update::kRow: {
          const Array at = Array::scalar(1, DType::kI32);
          next.push_back(
              dynamic_update_slice_in_dim(x, dynamic_slice_in_dim(x, at, 1) * 0.5 + s, at, 0));
          break;
        }
        case Update::kProduct:
          next.push_back(tanh(matmul(x, m)));
          break;
      }
    }
    return next;
  }
};

struct Loops {
  Form form;
  size_t n_carries;
  int64_t rows, width;
  std::vector<int> readers;  // of each carry before the loop

  static Loops of_seed(uint64_t seed) {
    std::mt19937_64 random(seed);
    const size_t n = 1 + random() % 4;
    Loops l{Form(random, n, 1 + static_cast<int>(random() % 3), true), n, 0, 0, {}};
    l.rows = 2 + static_cast<int64_t>(random() % 30);
    l.width = 8 << (random() % 3);
    for (size_t k = 0; k < n; ++k) l.readers.push_back(static_cast<int>(random() % 3));
    return l;
  }
  // The carries; then what was read of the arguments before.
  std::pair<Carry, Carry> operator()(const Carry& c, const Array& m) const {
    Carry before;
    for (size_t k = 0; k < c.size(); ++k) {
      if (readers[k] > 0) before.push_back(sum(square(c[k])));
      if (readers[k] > 1) before.push_back(sum(tanh(c[k]), 0));
    }
    Array s = Array::scalar(0.5, DType::kF32);
    for (const Array& b : before) s = s + tanh(sum(b)) * 0.25;
    return {form(c, m, s), before};
  }
};

std::string check(const Loops& loops) {
  const Carry carries(loops.n_carries, Array::abstract({loops.rows, loops.width}));
  const Graph graph =
      jit(loops).lower(carries, Array::abstract({loops.width, loops.width})).graph();
  std::vector<Bytes> inputs;
  for (ValueId v : graph.inputs())
    inputs.push_back(testing::random_values(v.value + 5, graph.type(v)));
  const testing::Execution judge =
      testing::execute(graph, {.fuse = false, .reuse = false}, inputs, 1);
  const testing::Execution plain = testing::execute(graph, {}, inputs, 1);
  CompileOptions options;
  options.donated.assign(inputs.size(), true);
  options.donated.back() = false;  // m
  const testing::Execution e = testing::execute(graph, options, inputs, 1);
  for (const testing::Execution* x : {&judge, &plain, &e})
    if (!x->fault.empty()) return x->fault;
  if (e.outputs != judge.outputs || plain.outputs != judge.outputs) return "other bits";
  const int64_t less = plain.analysis.device().total_bytes - e.analysis.device().total_bytes;
  if (less < 0) return fmt::format("{} bytes more where arguments are donated", -less);
  if (loops.form.may_need_both()) return "";
  for (size_t i = 0; i < loops.n_carries; ++i)
    if (std::count(e.aliases.begin(), e.aliases.end(), static_cast<int>(i)) != 1)
      return fmt::format("argument {} of {} is not aliased", i, loops.n_carries);
  const int64_t array_bytes = 4 * loops.rows * loops.width;
  int64_t slots_bytes = 0;  // of carries that need another slot
  for (size_t k = 0; k < loops.n_carries; ++k)
    if (loops.form.needs_another_slot(k)) slots_bytes += array_bytes;
  // Results take the arguments' memory, so theirs is saved. But where theirs served a carry as
  // another slot, that slot is a temporary now.
  if (const int64_t donated = e.analysis.device().alias_bytes; less + slots_bytes < donated)
    return fmt::format("{} bytes less where {} are donated", less, donated);
  // Beside the arguments: a slot of each carry that needs one, what the iteration makes of one at a
  // time, and what kernels work in.
  int64_t allowed = array_bytes + slots_bytes;
  for (const PeakOwner& owner : e.analysis.owners)
    if (owner.what == "scratch") allowed += owner.bytes;
  constexpr int64_t kScalars = 1024;
  if (const int64_t temp = e.analysis.device().temp_bytes; temp > allowed + kScalars)
    return fmt::format("{} bytes beside arguments and results, {} allowed", temp, allowed);
  return "";
}

TEST(DonationFuzz, LoopsOverDonatedArgumentsAreInPlace) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_LOOPS", 60);
  int n_strict = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Loops loops = Loops::of_seed(seed);
    testing::set_crash_note(fmt::format("seed {}: {}", seed, loops.form.text()));
    EXPECT_EQ(check(loops), "") << fmt::format("seed {}: {}", seed, loops.form.text());
    n_strict += !loops.form.may_need_both();
  }
  EXPECT_GT(n_strict, static_cast<int>(count / 2)) << "programs whose arguments must be aliased";
}

}  // namespace
}  // namespace stow
