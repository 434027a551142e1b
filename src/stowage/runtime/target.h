// Target: what plans and programs need of a kind of device: scratch, alignment, kernels, copies, rates.
// Not a device; a device has a target and adds memory of its own.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/tensor_view.h"

namespace stow {

enum class StreamTiming : uint8_t;  // runtime/streams.h

/// A kernel of a schedule made ready to run on a target. One thread at a time runs it.
class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  /// Addresses of the operands' first elements, as the kernel lists them; scratch of
  /// Target::scratch_bytes(), aligned as the target says. The work is done when it returns.
  /// An output may begin at an input's address: an elementwise result over an operand of its width and
  /// strides, a sort's results but the first over their operands. Of two outputs at one address only the
  /// later one is written.
  virtual void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                   void* scratch) const = 0;
};

/// An address that changes from iteration to iteration of a loop.
struct MovingAddress {
  size_t address = 0;  ///< Index in the addresses of BoundLoop::run().
  /// Bytes from iteration i - 1 to iteration i: deltas[i mod their number]. At least one.
  std::vector<int64_t> deltas;
};

/// An address that is one of a few from iteration to iteration of a loop. In iteration i it is that at index
/// `address` if i mod `period` is 0, else that at index `first_other` + i mod `period` - 1.
struct TurningAddress {
  size_t address = 0, first_other = 0, period = 1;
};

struct LoopSteps;

/// A step of a loop's body: a kernel, a loop, or a branch whose alternatives are steps.
struct LoopStep {
  /// The kernel, bound by the target; null for another step. It outlives the bound loop.
  const BoundKernel* kernel = nullptr;
  std::shared_ptr<const LoopSteps> loop;  ///< Null for another step.
  /// Index of the first of the kernel's addresses: inputs, outputs, then the scratch if `has_scratch`. For
  /// a branch, the address of the index, a bool or an i32 that is clamped to the alternatives.
  size_t first_address = 0;
  size_t n_inputs = 0, n_outputs = 0;
  bool has_scratch = false;
  bool is_bool_index = false;
  std::vector<std::vector<LoopStep>> alternatives;
};

/// A loop of kernels, branches and loops.
struct LoopSteps {
  int64_t trip_count = 0;  ///< At least 1; Loop::kOpen: until the predicate is false.
  std::vector<LoopStep> body;
  std::vector<LoopStep> condition;  ///< Of an open loop; the predicate is read after it.
  size_t predicate = 0;             ///< Index of the predicate's address; the predicate is a bool.
  /// Addresses that change with this loop's iteration, those of loops in its body among them. None of an open
  /// loop.
  std::vector<MovingAddress> moving;
  std::vector<TurningAddress> turning;  ///< Likewise.
};

/// A loop whose iterations a target runs by itself. One thread at a time runs it, and none of its kernels
/// meanwhile.
class BoundLoop {
 public:
  virtual ~BoundLoop() = default;
  /// Runs all iterations; the work is done when it returns. `addresses` are those of iteration 0 of all loops,
  /// and may be changed.
  virtual void run(std::byte** addresses) = 0;
};

namespace runtime {

/// Immutable; shared by devices and programs.
class Target {
 public:
  explicit Target(int threads) : threads_(threads) {}
  virtual ~Target() = default;

  /// The kind of device, "cpu".
  virtual std::string_view name() const = 0;
  /// Threads that a kernel is split among; at least 1.
  int threads() const { return threads_; }
  /// Equal for targets that run each other's programs: "cpu/2".
  std::string key() const { return fmt::format("{}/{}", name(), threads_); }
  /// Alignment in bytes of every buffer, slot and scratch: a power of two, 64 to 4096.
  virtual int64_t alignment_bytes() const { return 64; }
  /// True if kernels may be fused: row programs, epilogues and prologues of products.
  virtual bool fuses() const { return true; }
  /// True if the host may read and write device memory at its address. Pinned host memory it always may.
  virtual bool has_host_memory() const { return true; }
  /// True if a program gives kernels to the device's compute stream and goes on; it waits for them where
  /// the host or a move needs what they compute. False: kernels run on the calling thread.
  virtual bool submits_kernels() const { return false; }
  /// When the streams of its devices do what they are given: kBeside, but for tests.
  virtual StreamTiming stream_timing() const;

  /// Scratch in bytes that a kernel takes. A function of the kernel's views and the threads alone.
  virtual int64_t scratch_bytes(const ir::Kernel& kernel) const = 0;
  /// The kernel, ready to run.
  virtual std::unique_ptr<BoundKernel> bind(const ir::Kernel& kernel) const = 0;
  /// The loop, ready to run with the bits of its kernels run one after another; null if the target has the
  /// program run them.
  virtual std::unique_ptr<BoundLoop> bind_loop(const LoopSteps&) const { return nullptr; }
  /// Copies between two places in the device's memory or the host's, element by element. They do not
  /// overlap, or are the same. `threads`: 1 on a stream, else threads().
  virtual void copy(const TensorView& from, const TensorView& to, int threads) const = 0;

  /// The instruction set that the environment holds it to (STOW_ISA); empty where it is not held.
  virtual std::string instruction_set() const = 0;
  /// FLOP/s of the best of a few products of square matrices of `dtype`, measured now in some 0.1 s.
  virtual double product_rate(DType dtype) const = 0;
  /// Bytes/s of a[i] = b[i] + s c[i] over arrays too large for any cache, three arrays counted, measured now.
  /// Source: McCalpin's STREAM.
  virtual double triad_rate() const = 0;

 private:
  int threads_;
};
using TargetPtr = std::shared_ptr<const Target>;  ///< Immutable.

}  // namespace runtime

/// The part of a target that passes/lower.h takes. Refers to it.
ir::KernelTarget kernel_target(const Target& target);

/// The CPU with so many threads (0: one a core). The environment's STOW_ISA counts from the first call on.
/// Errors: TraceError for a STOW_ISA that names nothing.
TargetPtr cpu_target(int threads);
/// The instruction set that the CPU's kernels run with, and what holds them to it: "AVX2 (STOW_ISA=avx2)".
std::string cpu_instruction_set();
/// Holds the CPU's kernels to the instruction set of STOW_ISA. Errors: a name that there is not.
Result<void> check_instruction_set();

}  // namespace stow
