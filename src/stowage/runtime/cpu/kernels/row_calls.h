// RowCalls: a small row plan as a list of kernel calls, complete except for the addresses of a run.
// Not for plans that several threads run or that use much memory; row_executor.cpp runs those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "stowage/runtime/cpu/kernels/row_plan.h"
#include "stowage/runtime/cpu/kernels/row_single.h"
#include "stowage/runtime/cpu/kernels/row_unroll.h"

namespace stow::cpu {

/// A loop around little work runs the same plan thousands of times at nearly the same addresses.
/// The calls that the executor would make are recorded once, with placeholder addresses. A run
/// writes the addresses that differ from those of the run before, and makes the calls. Except for
/// prefetches, the calls are those of run_row_plan(), so the bits are the same.
class RowCalls {
 public:
  /// Returns null if the plan's work is at least kSmallRowWork, so that several threads may run it,
  /// or if it has many calls. `inputs` and `outputs` give the bases of the plan's operands in the
  /// caller's; if empty, the operands are the caller's.
  static std::unique_ptr<RowCalls> make(std::shared_ptr<const RowPlan> plan, int threads,
                                        std::span<const UnrolledRows::Base> inputs = {},
                                        std::span<const UnrolledRows::Base> outputs = {});
  RowCalls(const RowCalls&) = delete;
  RowCalls& operator=(const RowCalls&) = delete;

  /// As run_row_plan() with the threads given to make(). Only one thread may call it at a time.
  [[gnu::always_inline]] void run(const std::byte* const* inputs, std::byte* const* outputs,
                                  std::byte* scratch) {
    set_addresses(inputs, outputs, scratch);
    for (const Call& call : calls_) {
      if (call.kind == Call::kSingle)
        run_single(call.single, *static_cast<const Single*>(call.arguments));
      else
        call.run();
    }
  }

  /// Writes a run's addresses into the arguments of the calls, which may then be made in order.
  [[gnu::always_inline]] void set_addresses(const std::byte* const* inputs,
                                            std::byte* const* outputs, std::byte* scratch) {
    for (Base& base : bases_) {
      const std::byte* const address = base.is_scratch ? scratch
                                       : base.is_output ? outputs[base.operand]
                                                        : inputs[base.operand];
      if (address == base.address) continue;
      base.address = address;
      for (size_t i = base.first; i < base.last; ++i)
        *patches_[i].at = address + patches_[i].offset;
    }
  }

  /// Arguments of a FillKernel.
  struct Fill {
    std::byte* acc;
    int64_t n;
  };
  /// A kernel call, or an operation on one element (kSingle) that is done inline.
  struct Call {
    enum Kind : uint8_t { kMap, kMove, kIota, kRows, kColumns, kFill, kSingle } kind;
    SingleOp single = SingleOp::kNone;
    union {
      MapKernel map;
      MoveKernel move;
      IotaKernel iota;
      ReduceRowsKernel rows;
      ReduceColumnsKernel columns;
      FillKernel fill;
    };
    const void* arguments;  ///< Owned by the RowCalls.

    void run() const {
      switch (kind) {
        case kMap:
          return map(*static_cast<const KernelCall*>(arguments));
        case kMove:
          return move(*static_cast<const MoveCall*>(arguments));
        case kIota:
          return iota(*static_cast<const IotaCall*>(arguments));
        case kRows:
          return rows(*static_cast<const ReduceRowsCall*>(arguments));
        case kColumns:
          return columns(*static_cast<const ReduceColumnsCall*>(arguments));
        case kFill: {
          const Fill& f = *static_cast<const Fill*>(arguments);
          return fill(f.acc, f.n);
        }
        case kSingle:
          return;  // RowCalls::run() does it inline
      }
    }
  };
  /// Returns the calls, in the order in which they have to be made.
  const std::vector<Call>& calls() const { return calls_; }
  /// Calls f(at, offset) for each argument `at` that set_addresses() sets to the address of output
  /// or input `operand` plus `offset` bytes.
  template <class F>
  void for_each_argument(bool is_output, size_t operand, F f) const {
    for (const Base& base : bases_)
      if (!base.is_scratch && base.is_output == is_output && base.operand == operand)
        for (size_t i = base.first; i < base.last; ++i) f(patches_[i].at, patches_[i].offset);
  }
  /// Makes the next set_addresses() write all addresses. Called after arguments have been changed.
  void forget_addresses() {
    for (Base& base : bases_) base.address = nullptr;
  }
  /// True if run_row_plan() might write with non-temporal stores, which these calls do not use.
  bool streams() const { return may_stream() && streamed_bytes_ >= least_streamed_bytes(); }
  /// True if streams() could be true for some value of least_streamed_bytes().
  bool may_stream() const {
    constexpr int64_t kLine = 64;  // fewer bytes are never streamed
    return streamed_bytes_ >= kLine;
  }

 private:
  // An address in the arguments of a call: `offset` bytes from the address of its Base.
  struct Patch {
    const std::byte** at;
    int64_t offset;
  };
  // An operand of the caller, or the scratch, with its address in the last run.
  struct Base {
    bool is_scratch, is_output;
    size_t operand;
    size_t first, last;  // range of patches_
    const std::byte* address;
  };
  class Recorder;

  RowCalls() = default;
  // Calls f(address, true if the kernel writes there) for each address in the arguments of a call.
  template <class F>
  static void for_each_address(Call& call, F f);
  // Steps of make(): remove prefetches; remove loads and stores of one element whose memory other
  // calls can access directly; mark maps of few elements as small; replace kernels of one element
  // by SingleOps; find the base of each address.
  void fetch_nothing();
  void skip_copies(size_t n_operands);
  void find_small_maps();
  void find_singles();
  void find_bases(const RowPlan& plan, int threads, std::span<const UnrolledRows::Base> inputs,
                  std::span<const UnrolledRows::Base> outputs);

  std::shared_ptr<const RowPlan> plan_;  // owns the constants that calls read
  int64_t streamed_bytes_ = 0;           // bytes of outputs that run_row_plan() may stream
  std::vector<Call> calls_;
  std::vector<Base> bases_;
  std::vector<Patch> patches_;
  std::deque<KernelCall> maps_;
  std::deque<MoveCall> moves_;
  std::deque<IotaCall> iotas_;
  std::deque<ReduceRowsCall> rows_;
  std::deque<ReduceColumnsCall> columns_;
  std::deque<Fill> fills_;
  std::vector<Single> singles_;
};

}  // namespace stow::cpu
