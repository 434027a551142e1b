#include "stowage/runtime/cpu/kernels/row_calls.h"

#include <algorithm>

#include "stowage/runtime/cpu/kernels/row_worker.h"

namespace stow::cpu {
namespace {

constexpr size_t kMostCalls = 64;

// Made-up addresses: those of base k begin at k + 1 times kApart, and no operand reaches half as far.
// Real addresses, as of constants, are below kApart / 2.
constexpr int kApartBits = 48;
constexpr uintptr_t kApart = uintptr_t{1} << kApartBits;
constexpr size_t kMostBases = size_t{1} << 14;

std::byte* made_up(size_t base) {
  return reinterpret_cast<std::byte*>((base + 1) * kApart);
}

}  // namespace

// The calls of one run, and where in their arguments there are made-up addresses.
class RowCalls::Notes {
 public:
  struct Found {
    size_t base;
    Patch patch;
  };

  explicit Notes(RowCalls& to) : to_(to) {}
  std::vector<Found>& found() { return found_; }
  bool are_many() const { return n_ > kMostCalls; }

  void map(MapKernel kernel, KernelCall& call) {
    if (++n_ > kMostCalls) return;
    KernelCall& kept = to_.maps_.emplace_back(call);
    kept.ahead = nullptr;
    note(kept.out);
    for (KernelArg& arg : kept.args) note(arg.data);
    for (KernelArg& arg : kept.more) note(arg.data);
    // A step sets the arguments of its kernel alone: the next one's others are none.
    for (KernelArg& arg : call.args) arg = {};
    for (KernelArg& arg : call.more) arg = {};
    Call& made = add(Call::kMap, kept);
    made.map = kernel;
  }
  void move(MoveKernel kernel, const MoveCall& call) {
    if (++n_ > kMostCalls) return;
    MoveCall& kept = to_.moves_.emplace_back(call);
    note(kept.from);
    note(kept.to);
    add(Call::kMove, kept).move = kernel;
  }
  void iota(IotaKernel kernel, const IotaCall& call) {
    if (++n_ > kMostCalls) return;
    IotaCall& kept = to_.iotas_.emplace_back(call);
    note(kept.out);
    add(Call::kIota, kept).iota = kernel;
  }
  void rows(ReduceRowsKernel kernel, const ReduceRowsCall& call) {
    if (++n_ > kMostCalls) return;
    ReduceRowsCall& kept = to_.rows_.emplace_back(call);
    kept.ahead = nullptr;
    for (KernelArg& arg : kept.args) note(arg.data);
    note(kept.keep.data);
    note(kept.lanes);
    note(kept.out);
    note(kept.square_lanes);
    note(kept.square_out);
    add(Call::kRows, kept).rows = kernel;
  }
  void columns(ReduceColumnsKernel kernel, const ReduceColumnsCall& call) {
    if (++n_ > kMostCalls) return;
    ReduceColumnsCall& kept = to_.columns_.emplace_back(call);
    kept.ahead = nullptr;
    note(kept.arg.data);
    for (KernelArg& arg : kept.factors) note(arg.data);
    note(kept.acc);
    note(kept.out);
    add(Call::kColumns, kept).columns = kernel;
  }
  void fill(FillKernel kernel, std::byte* acc, int64_t n) {
    if (++n_ > kMostCalls) return;
    Fill& kept = to_.fills_.emplace_back(Fill{acc, n});
    note(kept.acc);
    add(Call::kFill, kept).fill = kernel;
  }

 private:
  template <class Arguments>
  Call& add(Call::Kind kind, const Arguments& arguments) {
    Call call;
    call.kind = kind;
    call.arguments = &arguments;
    to_.calls_.push_back(call);
    return to_.calls_.back();
  }
  void note(std::byte*& address) { note(const_cast<const std::byte*&>(address)); }
  void note(const std::byte*& address) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    const uintptr_t number = (at + kApart / 2) >> kApartBits;
    if (number == 0) return;  // none, or a real one
    found_.push_back({number - 1, {&address, static_cast<int64_t>(at - number * kApart)}});
  }

  RowCalls& to_;
  std::vector<Found> found_;
  size_t n_ = 0;
};

namespace {

// What the worker calls instead of kernels.
template <class Notes>
struct NoteCalls {
  Notes* notes;
  void operator()(MapKernel kernel, KernelCall& call) const { notes->map(kernel, call); }
  void operator()(MoveKernel kernel, const MoveCall& call) const { notes->move(kernel, call); }
  void operator()(IotaKernel kernel, const IotaCall& call) const { notes->iota(kernel, call); }
  void operator()(ReduceRowsKernel kernel, const ReduceRowsCall& call) const {
    notes->rows(kernel, call);
  }
  void operator()(ReduceColumnsKernel kernel, const ReduceColumnsCall& call) const {
    notes->columns(kernel, call);
  }
  void operator()(FillKernel kernel, std::byte* acc, int64_t n) const { notes->fill(kernel, acc, n); }
};

}  // namespace

std::unique_ptr<RowCalls> RowCalls::make(std::shared_ptr<const RowPlan> shared_plan, int threads,
                                         std::span<const UnrolledRows::Base> inputs,
                                         std::span<const UnrolledRows::Base> outputs) {
  const RowPlan& plan = *shared_plan;
  const auto n_inputs = static_cast<size_t>(plan.n_inputs);
  const size_t n_operands = n_inputs + static_cast<size_t>(plan.n_outputs);
  if (plan.work >= kSmallRowWork || n_operands >= kMostBases) return nullptr;
  std::vector<std::byte*> addresses;  // of the operands, the shared scratch, that of the thread
  for (size_t k = 0; k < n_operands + 2; ++k) addresses.push_back(made_up(k));
  std::byte* const shared = addresses[n_operands];
  std::byte* const own = addresses[n_operands + 1];
  std::vector<int64_t> bookkeeping(static_cast<size_t>(bookkeeping_bytes(plan)) / sizeof(int64_t));

  std::unique_ptr<RowCalls> made(new RowCalls());
  Notes notes(*made);
  using Worker = RowWorker<NoteCalls<Notes>>;
  Worker worker(plan, addresses.data(), addresses.data() + n_inputs, shared, own,
                reinterpret_cast<std::byte*>(bookkeeping.data()), false, {&notes});
  const RowUnits units(plan, threads);
  worker.run_once();
  run_units(worker, plan, units, 0, units.units);
  if (units.sums && !units.in_order) finish_sums(worker, plan, 0, 1);
  if (notes.are_many()) return nullptr;

  std::vector<Notes::Found>& found = notes.found();
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.base < b.base; });
  for (size_t i = 0; i < found.size();) {
    const size_t k = found[i].base;
    Base base{k >= n_operands, k >= n_inputs, k, i, i, nullptr};
    int64_t offset = k == n_operands + 1 ? plan.shared_bytes_of(threads) : 0;
    if (!base.is_scratch) {
      base.operand = base.is_output ? k - n_inputs : k;
      if (const auto& parts = base.is_output ? outputs : inputs; !parts.empty()) {
        offset = parts[base.operand].offset_bytes;
        base.operand = parts[base.operand].operand;
      }
    }
    for (; i < found.size() && found[i].base == k; ++i) {
      made->patches_.push_back(found[i].patch);
      made->patches_.back().offset += offset;
    }
    base.last = i;
    made->bases_.push_back(base);
  }
  for (const PlanOperand& o : plan.operands)
    if (o.may_stream) made->streamed_bytes_ += plan.rows * plan.cols * o.elem_bytes;
  made->plan_ = std::move(shared_plan);
  return made;
}

}  // namespace stow::cpu
