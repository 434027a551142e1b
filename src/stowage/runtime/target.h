// Target: the interface of a backend: scratch, alignment, kernels, copies and rates of a kind of
// device. Not a device; a device has a target and adds memory of its own.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/tensor_view.h"

namespace stow {

enum class StreamTiming : uint8_t;  // runtime/streams.h
struct DeviceDescription;           // runtime/null/device_description.h
using DeviceDescriptionPtr = std::shared_ptr<const DeviceDescription>;

/// A kernel of a schedule, ready to run on a target. At most one thread at a time runs it.
class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  /// Runs the kernel; its work is done on return. `inputs`, `outputs`: addresses of the operands'
  /// first elements, in the order of the kernel's views. `scratch`: Target::scratch_bytes() bytes
  /// at Target::alignment_bytes(). An output may have an input's address: an elementwise result
  /// over an operand of the same width and strides, and each result of a sort, except the first,
  /// over its operand. If two outputs have one address, only the later one is written.
  virtual void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                   void* scratch) const = 0;
};

/// An address that changes from iteration to iteration of a loop.
struct MovingAddress {
  size_t address = 0;  ///< Index in the addresses of BoundLoop::run().
  /// Bytes from iteration i - 1 to iteration i: deltas[i mod their number]. At least one.
  std::vector<int64_t> deltas;
};

/// An address that takes `period` values in turn. In iteration i of the loop it is the address at
/// index `address` if i mod `period` is 0, else the one at index `first_other` + i mod `period` -
/// 1. The indices are those of the addresses of BoundLoop::run().
struct RotatingAddress {
  size_t address = 0, first_other = 0, period = 1;
};

struct LoopSteps;

/// A step of a loop's body: a kernel, a loop, or a branch whose alternatives are steps.
struct LoopStep {
  /// The kernel, bound by the target; null for a loop or branch. It outlives the bound loop.
  const BoundKernel* kernel = nullptr;
  std::shared_ptr<const LoopSteps> loop;  ///< Null for a kernel or branch.
  /// Index of the kernel's first address; its addresses are inputs, outputs, then the scratch if
  /// `has_scratch`. For a branch, the index of the address of the branch index.
  size_t first_address = 0;
  size_t n_inputs = 0, n_outputs = 0;
  bool has_scratch = false;
  bool is_bool_index = false;  ///< True: the branch index is a bool; false: an i32, clamped.
  std::vector<std::vector<LoopStep>> alternatives;  ///< The steps of each alternative of a branch.
};

/// A loop of kernels, branches and loops.
struct LoopSteps {
  int64_t trip_count = 0;  ///< At least 1; Loop::kOpen: until the predicate is false.
  std::vector<LoopStep> body;
  std::vector<LoopStep> condition;  ///< Open loops only: runs before the predicate is read.
  size_t predicate = 0;             ///< Index of the predicate's address; the predicate is a bool.
  /// Addresses that change with this loop's iteration, including those of nested loops. Empty for
  /// an open loop, as is `rotating`.
  std::vector<MovingAddress> moving;
  std::vector<RotatingAddress> rotating;  ///< Addresses that this loop's iterations use in turn.
};

/// A loop whose iterations a target runs by itself. At most one thread at a time runs the loop or
/// any of its kernels.
class BoundLoop {
 public:
  virtual ~BoundLoop() = default;
  /// Runs all iterations; the work is done on return. `addresses`: the addresses in iteration 0 of
  /// all loops. The call may overwrite them.
  virtual void run(std::byte** addresses) = 0;
};

namespace runtime {

/// The backend interface. Immutable; devices and programs share a target.
class Target {
 public:
  /// `description`: not null.
  Target(int threads, DeviceDescriptionPtr description)
      : threads_(threads), description_(std::move(description)) {}
  virtual ~Target() = default;

  /// The kind of device, "cpu".
  virtual std::string_view name() const = 0;
  /// Threads that a kernel is split among; at least 1.
  int threads() const { return threads_; }
  /// The device that plans are made for: the planner picks the plan with the shortest simulated
  /// step on it. Never null. Results of a program do not depend on it.
  const DeviceDescriptionPtr& description() const { return description_; }
  /// A cache key, "cpu/2": targets with equal keys run each other's programs. The description is no
  /// part of it: a plan for another device has the same results.
  std::string key() const { return fmt::format("{}/{}", name(), threads_); }
  /// Alignment in bytes of every buffer, slot and scratch: a power of two, 64 to 4096.
  virtual int64_t alignment_bytes() const { return 64; }
  /// True if kernels may be fused: row programs, epilogues and prologues of products.
  virtual bool fuses() const { return true; }
  /// True if the host can address device memory. It can always address pinned host memory.
  virtual bool has_host_memory() const { return true; }
  /// True if a program submits kernels to the device's compute stream without waiting; it waits
  /// when the host or a move needs their results. False: kernels run on the calling thread.
  virtual bool submits_kernels() const { return false; }
  /// The time at which streams of its devices run their work; kConcurrent except in tests.
  virtual StreamTiming stream_timing() const;

  /// Scratch in bytes that a kernel needs. It depends only on the kernel's views and threads().
  virtual int64_t scratch_bytes(const ir::Kernel& kernel) const = 0;
  /// Makes a kernel ready to run.
  virtual std::unique_ptr<BoundKernel> bind(const ir::Kernel& kernel) const = 0;
  /// Makes a loop ready to run. Its results are bit-identical to those of its kernels run one by
  /// one. Returns null if the program must run the kernels.
  virtual std::unique_ptr<BoundLoop> bind_loop(const LoopSteps&) const { return nullptr; }
  /// Copies a strided array within or between device memory and host memory. The two do not
  /// overlap, unless they are the same. `threads`: 1 on a stream, else threads().
  virtual void copy(const TensorView& from, const TensorView& to, int threads) const = 0;

  /// The instruction set to which the environment (STOW_ISA) limits it; empty if there is no limit.
  virtual std::string instruction_set() const = 0;
  /// FLOP/s of the best of a few products of square matrices of `dtype`, measured now in about 0.1
  /// s.
  virtual double product_rate(DType dtype) const = 0;
  /// Bytes/s of a[i] = b[i] + s c[i] over arrays larger than any cache, measured now; the bytes of
  /// all three arrays count.
  /// Source: McCalpin's STREAM.
  virtual double triad_rate() const = 0;

 private:
  int threads_;
  DeviceDescriptionPtr description_;
};
using TargetPtr = std::shared_ptr<const Target>;  ///< Immutable.

}  // namespace runtime

/// Returns the functions of `target` that passes/lower.h needs. `target` must outlive them.
ir::KernelTarget kernel_target(const Target& target);

/// Returns the target of the host's CPU, with this many threads (0: one for each core). The first
/// call reads STOW_ISA from the environment. `description`: see Target::description(); null: the
/// CPU of devices/cpu.toml. Errors: TraceError if STOW_ISA names no known instruction set.
TargetPtr host_target(int threads, DeviceDescriptionPtr description = nullptr);
/// Returns the instruction set that the host's kernels use, and its limit if there is one: "AVX2
/// (STOW_ISA=avx2)".
std::string host_instruction_set();
/// Limits the host's kernels to the instruction set of STOW_ISA. Errors: an unknown name.
Result<void> check_instruction_set();

}  // namespace stow
