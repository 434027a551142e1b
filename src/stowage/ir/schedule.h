// Schedule: kernels and loops in the order they run, over buffers that have no offsets yet.
// Not bound to memory; plan/ gives every buffer an offset and runtime/ an address.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "stowage/ir/graph.h"
#include "stowage/ir/row_program.h"

namespace stow::ir {

using BufferId = StrongId<struct BufferTag>;
using LoopId = StrongId<struct LoopTag>;

enum class BufferRole : uint8_t {
  kTemporary,  ///< Placed by the plan.
  kInput,      ///< An argument's memory, bound by the caller.
  kOutput      ///< Placed by the plan and kept after the run.
};

/// The iterations of a loop, told from each other.
struct EachIteration {
  LoopId loop;
  int64_t trip_count = 1;
};

/// Memory of one size. `slots` > 1 cuts it into equal slots of `slot_bytes` that live and die one
/// by one (a stack that a loop fills, a ring of staging buffers); `parts` cuts each slot further
/// (several stacks interleaved iteration by iteration).
struct Buffer {
  int64_t bytes = 0;
  int64_t slots = 1;
  int64_t slot_bytes = 0;
  std::vector<int64_t> parts = {0};  ///< The offset in a slot at which each part begins.
  bool apart = false;  ///< Each slot may lie anywhere; no window reaches from one into another.
  /// When valid, the buffer of one slot that is the first slot: an argument that nothing writes, or
  /// where a loop leaves what its carry becomes.
  BufferId first_slot;
  /// Every iteration of these loops, the outermost first, has places of its own.
  std::vector<EachIteration> each;
  bool separate = false;  ///< An output with memory of its own beside the arena.
  MemoryKind kind = MemoryKind::kDevice;
  BufferRole role = BufferRole::kTemporary;
  int index = -1;  ///< Number of the program's input or output; -1 if it is neither.
  ProvenancePtr provenance;
  std::vector<ProvenancePtr> part_provenance;  ///< By part, if parts have their own owners.
  std::string label;  ///< The content, for reports: an op's name, "residual", "scratch".

  /// Places that the plan finds: one a slot where those lie apart, and so for each iteration.
  int64_t n_places() const {
    int64_t n = apart ? slots : 1;
    for (const EachIteration& e : each) n *= e.trip_count;
    return n;
  }
  /// The number of a slot's place in these iterations, [loops] of the schedule.
  int64_t place(std::span<const int64_t> iterations, int64_t slot) const {
    int64_t at = 0;
    for (const EachIteration& e : each) at = at * e.trip_count + iterations[e.loop.index()];
    return apart ? at * slots + slot : at;
  }
};

/// Most bytes of all results together that have memory of their own beside the arena. A program
/// whose results are numbers and donated arguments can then leave its arena to the next one.
inline constexpr int64_t kSeparateOutputBytes = 64 << 10;

/// Adds ((start + step * i) mod modulo) * stride_bytes to a view's offset, i being the iteration.
struct LoopTerm {
  LoopId loop;
  int64_t start = 0, step = 1, modulo = 0;  ///< modulo 0: none.
  int64_t stride_bytes = 0;

  int64_t bytes_at(int64_t iteration) const {
    const int64_t slot = start + step * iteration;
    return (modulo > 0 ? slot % modulo : slot) * stride_bytes;
  }
  friend bool operator==(const LoopTerm&, const LoopTerm&) = default;
};

/// A strided window on a buffer.
struct View {
  BufferId buffer;
  DType dtype = DType::kF32;
  Dims dims;
  Dims strides;  ///< In elements.
  int64_t offset_bytes = 0;
  std::vector<LoopTerm> terms;
  bool begins = false;  ///< True for an output whose write begins a new lifetime of the slot.

  int64_t elems() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  friend bool operator==(const View&, const View&) = default;
};

enum class KernelKind : uint8_t { kRows, kOp };

/// Streams, which run beside each other. A move between two memories runs on the stream of its
/// direction, a collective on kCollective, all else on kCompute; a stream does one thing after
/// another.
enum class StreamKind : uint8_t {
  kCompute,
  kCopyIn,
  kCopyOut,
  kDiskRead,
  kDiskWrite,
  kCollective
};
inline constexpr int kNumStreams = 6;
/// The stream of a move: kCopyIn from the host to the device, kCopyOut the other way, kDiskRead and
/// kDiskWrite whatever the other side; kCompute within one memory.
StreamKind stream_of(MemoryKind from, MemoryKind to);

/// A move (a kernel of op DevicePut) or a collective either runs whole, where it stands; or it is a
/// pair of instructions, the start, which gives it to its stream, and the done, which waits for it. Both
/// hold the same windows, as both touch the memory.
enum class MovePhase : uint8_t { kWhole, kStart, kDone };

/// One call of a kernel. kRows: `program` over inputs and outputs, whose strides it holds itself
/// (the views give buffer, offset and loop terms). kOp: the op's own kernel over strided views.
/// Behind a product, `program` runs piece by piece. Its first input is the product, which lies
/// where its first output will; its other inputs are the last inputs of the kernel. `made` are
/// operands that programs make in passing; in their place stand the inputs of those programs.
struct Kernel {
  KernelKind kind = KernelKind::kOp;
  OpKind op = OpKind::kAdd;  ///< kRows: the op that gives the group its name.
  Params params;
  std::shared_ptr<const RowProgram> program;
  struct Made {
    std::shared_ptr<const RowProgram> program;  ///< Null where the operand lies in memory.
    View view;                                  ///< The operand as if in memory; in no buffer.
  };
  std::array<Made, 2> made;
  std::vector<View> inputs, outputs;
  BufferId scratch;  ///< Invalid when none is needed.
  int64_t scratch_bytes = 0;
  MovePhase phase = MovePhase::kWhole;  ///< Phase of a move or a collective.
  int transfer = -1;  ///< Numbers the pair: a done waits for the oldest start of its number.
  ProvenancePtr provenance;
};

/// A product's operand i.
inline const View& operand_of(const Kernel& product, size_t i) {
  if (product.made[i].program) return product.made[i].view;
  const auto& first = product.made[0].program;
  return product.inputs[i == 0 ? 0 : first ? first->inputs.size() : 1];
}
/// True if row programs run before or behind a product.
inline bool has_row_programs(const Kernel& kernel) {
  return kernel.kind == KernelKind::kOp &&
         (kernel.program || kernel.made[0].program || kernel.made[1].program);
}
/// How many of a product's inputs its operands take.
inline size_t n_operand_inputs(const Kernel& product) {
  size_t n = 0;
  for (const Kernel::Made& made : product.made) n += made.program ? made.program->inputs.size() : 1;
  return n;
}

struct Loop;
struct Branch;
/// Iterations [begin, end) of the innermost loop around; a start for the next iteration is not made
/// in the last, nor is a move of the one before awaited in the first.
struct Guard {
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  bool holds(int64_t iteration) const { return begin <= iteration && iteration < end; }
  bool is_only(int64_t iteration) const { return begin == iteration && end == iteration + 1; }
  friend bool operator==(const Guard&, const Guard&) = default;
};
/// A kernel that copies of an instruction share until one of them is edited: a search copies a
/// schedule for every trial and changes little of it.
class SharedKernel {
 public:
  SharedKernel(Kernel kernel = {}) : kernel_(std::make_shared<Kernel>(std::move(kernel))) {}
  const Kernel* get() const { return kernel_.get(); }
  Kernel* edit() {
    if (kernel_.use_count() > 1) kernel_ = std::make_shared<Kernel>(*kernel_);
    return kernel_.get();
  }

 private:
  std::shared_ptr<Kernel> kernel_;
};
struct Instruction {
  std::variant<SharedKernel, std::shared_ptr<Loop>, std::shared_ptr<Branch>> body;
  Guard guard;
  const Kernel* kernel() const {
    const auto* p = std::get_if<SharedKernel>(&body);
    return p ? p->get() : nullptr;
  }
  /// The same kernel for writing, cut off from copies of the instruction.
  Kernel* edit_kernel() {
    auto* p = std::get_if<SharedKernel>(&body);
    return p ? p->edit() : nullptr;
  }
  const Loop* loop() const {
    const auto* p = std::get_if<std::shared_ptr<Loop>>(&body);
    return p ? p->get() : nullptr;
  }
  Loop* loop() {
    auto* p = std::get_if<std::shared_ptr<Loop>>(&body);
    return p ? p->get() : nullptr;
  }
  const Branch* branch() const {
    const auto* p = std::get_if<std::shared_ptr<Branch>>(&body);
    return p ? p->get() : nullptr;
  }
};
/// A body that runs `trip_count` times; or, where that is kOpen, as long as `predicate` (a bool
/// scalar, read after `condition` has run) holds.
struct Loop {
  static constexpr int64_t kOpen = -1;
  LoopId id;
  int64_t trip_count = 0;
  std::vector<Instruction> body;
  std::vector<Instruction> condition;  ///< Condition of an open loop.
  View predicate;                      ///< Predicate of an open loop.
  std::vector<View> carries;  ///< Values that an open loop leaves, whenever the condition fails.
  ProvenancePtr provenance;
};
/// Alternatives, one of which runs: that of `index`, an i32 scalar that is clamped to them, or a
/// bool scalar.
struct Branch {
  View index;
  std::vector<std::vector<Instruction>> alternatives;
  /// The results of every alternative. `begins` says that a new life of the memory begins with
  /// the branch; else the results lie over what lay there before, and some alternatives may leave
  /// that untouched.
  std::vector<View> results;
  ProvenancePtr provenance;
};

struct Schedule {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  size_t n_loops = 0;
  int64_t alignment_bytes = 64;  ///< Alignment of every buffer and slot in memory.
  std::vector<View> inputs, outputs;  ///< The place of each; an output may lie in an input's buffer.
  /// Searches that stopped at their limit of work, each in a sentence for the report.
  std::vector<std::string> limits;
};

/// Facts of the backend that planning needs.
struct KernelTarget {
  int threads = 1;
  int64_t alignment_bytes = 64;  ///< Alignment of every buffer and slot in memory.
  /// Scratch in bytes of a kernel whose views are filled in.
  std::function<int64_t(const Kernel&)> scratch_bytes;
};

}  // namespace stow::ir
