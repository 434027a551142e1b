#include "stowage/runtime/cpu/kernels/row_calls.h"

#include <algorithm>

#include "stowage/runtime/cpu/kernels/row_units.h"

namespace stow::cpu {
namespace {

constexpr size_t kMostCalls = 64;

// Placeholder addresses: those of base k begin at k + 1 times kApart, and no operand reaches half
// as far.
// Real addresses, as of constants, are below kApart / 2.
constexpr int kApartBits = 48;
constexpr uintptr_t kApart = uintptr_t{1} << kApartBits;
constexpr size_t kMostBases = size_t{1} << 14;

std::byte* placeholder_address(size_t base) {
  return reinterpret_cast<std::byte*>((base + 1) * kApart);
}

}  // namespace

// The calls of one run, with placeholder addresses at first.
class RowCalls::Recorder {
 public:
  explicit Recorder(RowCalls& to) : to_(to) {}
  bool are_many() const { return n_ > kMostCalls; }

  void map(MapKernel kernel, KernelCall& call) {
    if (Call* made = add(Call::kMap, to_.maps_, call)) made->map = kernel;
    // A step sets the arguments of its kernel alone: the next one's others are none.
    for (KernelArg& arg : call.args) arg = {};
    for (KernelArg& arg : call.more) arg = {};
  }
  void move(MoveKernel kernel, const MoveCall& call) {
    if (Call* made = add(Call::kMove, to_.moves_, call)) made->move = kernel;
  }
  void iota(IotaKernel kernel, const IotaCall& call) {
    if (Call* made = add(Call::kIota, to_.iotas_, call)) made->iota = kernel;
  }
  void rows(ReduceRowsKernel kernel, const ReduceRowsCall& call) {
    if (Call* made = add(Call::kRows, to_.rows_, call)) made->rows = kernel;
  }
  void columns(ReduceColumnsKernel kernel, const ReduceColumnsCall& call) {
    if (Call* made = add(Call::kColumns, to_.columns_, call)) made->columns = kernel;
  }
  void fill(FillKernel kernel, std::byte* acc, int64_t n) {
    if (Call* made = add(Call::kFill, to_.fills_, Fill{acc, n})) made->fill = kernel;
  }

 private:
  template <class Arguments>
  Call* add(Call::Kind kind, std::deque<Arguments>& list, const Arguments& arguments) {
    if (++n_ > kMostCalls) return nullptr;
    list.push_back(arguments);
    Call call;
    call.kind = kind;
    call.arguments = &list.back();
    to_.calls_.push_back(call);
    return &to_.calls_.back();
  }

  RowCalls& to_;
  size_t n_ = 0;
};

namespace {

// The object that the worker calls in place of kernels.
template <class Recorder>
struct RecordCalls {
  static constexpr bool kCallsAtOnce = false;
  Recorder* recorder;
  void operator()(MapKernel kernel, KernelCall& call) const { recorder->map(kernel, call); }
  void operator()(MoveKernel kernel, const MoveCall& call) const { recorder->move(kernel, call); }
  void operator()(IotaKernel kernel, const IotaCall& call) const { recorder->iota(kernel, call); }
  void operator()(ReduceRowsKernel kernel, const ReduceRowsCall& call) const {
    recorder->rows(kernel, call);
  }
  void operator()(ReduceColumnsKernel kernel, const ReduceColumnsCall& call) const {
    recorder->columns(kernel, call);
  }
  void operator()(FillKernel kernel, std::byte* acc, int64_t n) const {
    recorder->fill(kernel, acc, n);
  }
};

// The number of the base of a placeholder address; kNoBase for any other.
constexpr size_t kNoBase = ~size_t{0};
size_t base_of(const std::byte* address) {
  return ((reinterpret_cast<uintptr_t>(address) + kApart / 2) >> kApartBits) - 1;
}

bool is_copy(MoveKernel kernel) {
  return kernel == load_kernel(DType::kF32) || kernel == load_kernel(DType::kF64) ||
         kernel == load_kernel(DType::kU8);
}

}  // namespace

template <class F>
void RowCalls::for_each_address(Call& call, F f) {
  const auto read = [&](const std::byte*& address) { f(address, false); };
  const auto write = [&](std::byte*& address) { f(const_cast<const std::byte*&>(address), true); };
  void* const arguments = const_cast<void*>(call.arguments);
  switch (call.kind) {
    case Call::kMap: {
      auto& c = *static_cast<KernelCall*>(arguments);
      write(c.out);
      for (KernelArg& arg : c.args) read(arg.data);
      for (KernelArg& arg : c.more) f(arg.data, true);
      return;
    }
    case Call::kMove: {
      auto& c = *static_cast<MoveCall*>(arguments);
      read(c.from);
      return write(c.to);
    }
    case Call::kIota:
      return write(static_cast<IotaCall*>(arguments)->out);
    case Call::kRows: {
      auto& c = *static_cast<ReduceRowsCall*>(arguments);
      for (KernelArg& arg : c.args) read(arg.data);
      f(c.keep.data, true);
      write(c.lanes);
      write(c.out);
      write(c.square_lanes);
      return write(c.square_out);
    }
    case Call::kColumns: {
      auto& c = *static_cast<ReduceColumnsCall*>(arguments);
      read(c.arg.data);
      for (KernelArg& arg : c.factors) read(arg.data);
      write(c.acc);
      return write(c.out);
    }
    case Call::kFill:
      return write(static_cast<Fill*>(arguments)->acc);
    case Call::kSingle: {
      auto& s = *static_cast<Single*>(arguments);
      write(s.out);
      for (const std::byte*& arg : s.args) read(arg);
      return;
    }
  }
}

// The single element that a load leaves in a register is read where it lies; the single element
// that a store takes out of one is written there at once. What may be the same memory is read and
// written in the order that it was.
void RowCalls::skip_copies(size_t n_operands) {
  const auto is_operand = [&](const std::byte* address) { return base_of(address) < n_operands; };
  const auto touches = [&](Call& call, bool writes) {  // memory of operands
    bool any = false;
    for_each_address(call,
                     [&](const std::byte*& a, bool w) { any |= w == writes && is_operand(a); });
    return any;
  };
  const auto mentions = [&](Call& call, const std::byte* address) {
    bool any = false;
    for_each_address(call, [&](const std::byte*& a, bool) { any |= a == address; });
    return any;
  };
  const auto is_pointwise = [](const Call& call) {
    return call.kind == Call::kMap || call.kind == Call::kMove;
  };
  const auto single = [&](const Call& call) -> const MoveCall* {
    if (call.kind != Call::kMove || !is_copy(call.move)) return nullptr;
    const auto* c = static_cast<const MoveCall*>(call.arguments);
    return c->rows == 1 && c->cols == 1 ? c : nullptr;
  };
  for (size_t i = 0; i < calls_.size();) {
    const MoveCall* const load = single(calls_[i]);
    const std::byte* const reg = load ? load->to : nullptr;
    bool skips = load && is_operand(load->from) && !is_operand(reg);
    bool written = false;  // an operand, by then
    for (size_t j = 0; j < calls_.size() && skips; ++j) {
      if (j != i && mentions(calls_[j], reg)) {
        skips = j > i && is_pointwise(calls_[j]) && !written;
        for_each_address(calls_[j], [&](const std::byte*& a, bool w) { skips &= !w || a != reg; });
      }
      written |= j > i && touches(calls_[j], true);
    }
    if (!skips) {
      ++i;
      continue;
    }
    for (size_t j = i + 1; j < calls_.size(); ++j)
      for_each_address(calls_[j], [&](const std::byte*& a, bool) {
        if (a == reg) a = load->from;
      });
    calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  for (size_t i = 0; i < calls_.size();) {
    const MoveCall* const store = single(calls_[i]);
    const std::byte* const reg = store ? store->from : nullptr;
    bool skips = store && is_operand(store->to) && base_of(reg) != kNoBase && !is_operand(reg);
    size_t maker = calls_.size();
    for (size_t j = 0; j < calls_.size() && skips; ++j) {
      if (j == i || !mentions(calls_[j], reg)) continue;
      // One call alone, a map of one element, makes it, and nothing else wants it.
      skips = j < i && maker == calls_.size() && calls_[j].kind == Call::kMap;
      maker = j;
      if (!skips) break;
      const auto* c = static_cast<const KernelCall*>(calls_[j].arguments);
      skips = c->out == reg && c->rows == 1 && c->cols == 1 && c->more[0].data == nullptr;
      for (const KernelArg& arg : c->args) skips &= arg.data != reg;
    }
    for (size_t j = maker + 1; j < i && skips; ++j) skips = !touches(calls_[j], false);
    if (!skips || maker == calls_.size()) {
      ++i;
      continue;
    }
    static_cast<KernelCall*>(const_cast<void*>(calls_[maker].arguments))->out = store->to;
    calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// The worker's own, which is gone by then.
void RowCalls::fetch_nothing() {
  for (KernelCall& c : maps_) c.ahead = nullptr;
  for (ReduceRowsCall& c : rows_) c.ahead = nullptr;
  for (ReduceColumnsCall& c : columns_) c.ahead = nullptr;
}

void RowCalls::find_small_maps() {
  for (KernelCall& c : maps_) {
    c.is_small = c.rows == 1 && c.cols > 0 && c.cols <= kSmallElems &&
                 c.out_form == Form::kNative && c.round == Form::kNative;
    for (const KernelArg& arg : c.args) c.is_small &= arg.form == Form::kNative;
  }
}

// Finds calls on single elements whose kernels row_single.h knows: those kernels are not called.
// Runs after find_small_maps(), which has examined the forms.
void RowCalls::find_singles() {
  singles_.reserve(calls_.size());  // calls keep their addresses
  for (Call& call : calls_) {
    Single s;
    SingleOp op = SingleOp::kNone;
    if (call.kind == Call::kMap) {
      const auto& c = *static_cast<const KernelCall*>(call.arguments);
      if (!c.is_small || c.cols != 1 || c.more[0].data != nullptr) continue;
      op = single_op(call.map);
      s.out = c.out;
      for (size_t k = 0; k < std::size(s.args); ++k)
        s.args[k] = c.args[k].data ? c.args[k].data : c.args[0].data;
    } else if (call.kind == Call::kMove) {
      const auto& c = *static_cast<const MoveCall*>(call.arguments);
      if (c.rows != 1 || c.cols != 1) continue;
      op = call.move == load_kernel(DType::kF32)   ? SingleOp::kCopy4
           : call.move == load_kernel(DType::kF64) ? SingleOp::kCopy8
           : call.move == load_kernel(DType::kU8)  ? SingleOp::kCopy1
                                                   : SingleOp::kNone;
      s = {c.to, {c.from, c.from, c.from, c.from}};
    }
    if (op == SingleOp::kNone) continue;
    singles_.push_back(s);
    call.kind = Call::kSingle;
    call.single = op;
    call.arguments = &singles_.back();
  }
}

std::unique_ptr<RowCalls> RowCalls::make(std::shared_ptr<const RowPlan> shared_plan, int threads,
                                         std::span<const UnrolledRows::Base> inputs,
                                         std::span<const UnrolledRows::Base> outputs) {
  const RowPlan& plan = *shared_plan;
  const auto n_inputs = static_cast<size_t>(plan.n_inputs);
  const size_t n_operands = n_inputs + static_cast<size_t>(plan.n_outputs);
  if (plan.work >= kSmallRowWork || n_operands >= kMostBases) return nullptr;
  std::vector<std::byte*> addresses;  // of the operands, the shared scratch, that of the thread
  for (size_t k = 0; k < n_operands + 2; ++k) addresses.push_back(placeholder_address(k));
  std::byte* const shared = addresses[n_operands];
  std::byte* const own = addresses[n_operands + 1];
  std::vector<int64_t> bookkeeping(static_cast<size_t>(bookkeeping_bytes(plan)) / sizeof(int64_t));

  std::unique_ptr<RowCalls> made(new RowCalls());
  Recorder recorder(*made);
  using Worker = RowWorker<RecordCalls<Recorder>>;
  Worker worker(plan, addresses.data(), addresses.data() + n_inputs, shared, own,
                reinterpret_cast<std::byte*>(bookkeeping.data()), false, {&recorder});
  const RowUnits units(plan, threads);
  worker.run_once();
  run_units(worker, plan, units, 0, units.units);
  if (units.sums && !units.in_order) finish_sums(worker, plan, 0, 1);
  if (recorder.are_many()) return nullptr;

  made->fetch_nothing();
  made->skip_copies(n_operands);
  made->find_small_maps();
  made->find_singles();
  made->find_bases(plan, threads, inputs, outputs);
  for (const PlanOperand& o : plan.operands)
    if (o.may_stream) made->streamed_bytes_ += plan.rows * plan.cols * o.elem_bytes;
  made->plan_ = std::move(shared_plan);
  return made;
}

void RowCalls::find_bases(const RowPlan& plan, int threads,
                          std::span<const UnrolledRows::Base> inputs,
                          std::span<const UnrolledRows::Base> outputs) {
  const auto n_inputs = static_cast<size_t>(plan.n_inputs);
  const size_t n_operands = n_inputs + static_cast<size_t>(plan.n_outputs);
  struct Found {
    size_t base;
    Patch patch;
  };
  std::vector<Found> found;
  for (Call& call : calls_)
    for_each_address(call, [&](const std::byte*& address, bool) {
      const size_t base = base_of(address);
      if (base == kNoBase) return;
      found.push_back({base, {&address, address - placeholder_address(base)}});
    });
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.base < b.base; });
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
      patches_.push_back(found[i].patch);
      patches_.back().offset += offset;
    }
    base.last = i;
    bases_.push_back(base);
  }
}

}  // namespace stow::cpu
