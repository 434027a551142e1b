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
  kInput,      ///< Memory of an argument, bound by the caller.
  kOutput      ///< Placed by the plan and kept after the run.
};

/// A dimension of a buffer's places: the iterations of a loop, each of which has places of its own.
struct LoopDim {
  LoopId loop;
  int64_t trip_count = 1;
};

/// Memory of a fixed size. `slots` > 1 divides it into slots of `slot_bytes` each with its own live
/// range (a stack that a loop fills, a ring of staging buffers). `parts` divides each slot further
/// (several stacks, interleaved iteration by iteration).
struct Buffer {
  int64_t bytes = 0;
  int64_t slots = 1;
  int64_t slot_bytes = 0;
  std::vector<int64_t> parts = {0};  ///< The offset in a slot at which each part begins.
  /// True if each slot may lie anywhere in the arena; no window then spans two slots.
  bool independent_slots = false;
  /// If valid, the buffer that serves as the first slot: an argument that nothing writes, or the
  /// buffer that holds a carry after the loop.
  BufferId first_slot;
  /// Loops each of whose iterations has places of its own, the outermost first.
  std::vector<LoopDim> loop_dims;
  bool outside_arena = false;  ///< True for an output with its own memory outside the arena.
  MemoryKind kind = MemoryKind::kDevice;
  BufferRole role = BufferRole::kTemporary;
  int index = -1;  ///< Number of the program's input or output; -1 if it is neither.
  ProvenancePtr provenance;
  std::vector<ProvenancePtr> part_provenance;  ///< By part, if parts have their own owners.
  std::string label;  ///< The content, for reports: an op's name, "residual", "scratch".

  /// Number of offsets that the plan chooses: one for the buffer, or for each slot if they
  /// are independent; times the iterations of `loop_dims`.
  int64_t n_places() const {
    int64_t n = independent_slots ? slots : 1;
    for (const LoopDim& dim : loop_dims) n *= dim.trip_count;
    return n;
  }
  /// Returns the number of a slot's place; `iterations` holds the current iteration of each loop,
  /// by LoopId.
  int64_t place(std::span<const int64_t> iterations, int64_t slot) const {
    int64_t at = 0;
    for (const LoopDim& dim : loop_dims) at = at * dim.trip_count + iterations[dim.loop.index()];
    return independent_slots ? at * slots + slot : at;
  }
};

/// If all outputs together take at most this many bytes, they have memory of their own outside the
/// arena (Buffer::outside_arena). A program whose results are scalars and donated arguments can
/// then leave its arena to the next program.
inline constexpr int64_t kMaxOutsideArenaBytes = 64 << 10;

/// Adds ((start + step * i) mod modulo) * stride_bytes to the offset of a view, where i is the
/// iteration of the loop.
struct LoopTerm {
  LoopId loop;
  int64_t start = 0, step = 1, modulo = 0;  ///< modulo 0: no modulo.
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
  /// True for an output whose write begins a new lifetime of the slot.
  bool begins_lifetime = false;

  int64_t elems() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  friend bool operator==(const View&, const View&) = default;
};

enum class KernelKind : uint8_t { kRows, kOp };

/// Streams, which run concurrently; each runs one kernel at a time, in order. A move between two
/// memories runs on the stream of its direction, a collective on kCollective, any other kernel on
/// kCompute.
enum class StreamKind : uint8_t {
  kCompute,
  kCopyIn,
  kCopyOut,
  kDiskRead,
  kDiskWrite,
  kCollective
};
inline constexpr int kNumStreams = 6;
/// The stream of a move: kDiskRead from the disk and kDiskWrite to the disk, whatever the other
/// memory; kCopyIn from the host to the device, kCopyOut back; kCompute within one memory.
StreamKind stream_of(MemoryKind from, MemoryKind to);

/// A move (a kernel of op DevicePut) or a collective is either one instruction, which waits for its
/// end; or two, a start, which gives it to its stream, and a done, which waits for it. Start and
/// done hold the same windows, since both mark accesses to the memory.
enum class MovePhase : uint8_t { kWhole, kStart, kDone };

/// One call of a kernel. kRows: `program` over inputs and outputs; the program holds the strides,
/// the views give buffer, offset and loop terms. kOp: the op's own kernel over strided views. A
/// product with a `program` runs it piece by piece as its epilogue. The program's first input is
/// the product, which lies in the memory of its first output; its other inputs are the last inputs
/// of the kernel. The inputs of a prologue stand in `inputs` in place of the operand that it makes.
struct Kernel {
  KernelKind kind = KernelKind::kOp;
  OpKind op = OpKind::kAdd;  ///< kRows: the op that names the unit in reports.
  Params params;
  std::shared_ptr<const RowProgram> program;
  /// A row program that makes an operand of a product, piece by piece.
  struct Prologue {
    std::shared_ptr<const RowProgram> program;  ///< Null if the operand lies in memory.
    View view;                                  ///< Dtype, dims and strides; no buffer.
  };
  std::array<Prologue, 2> prologues;  ///< By operand of a product.
  std::vector<View> inputs, outputs;
  BufferId scratch;  ///< Invalid if none is needed.
  int64_t scratch_bytes = 0;
  MovePhase phase = MovePhase::kWhole;  ///< Phase of a move or a collective.
  int transfer = -1;  ///< Number of the pair; a done waits for the oldest start of its number.
  ProvenancePtr provenance;
};

/// Returns the window of operand i of a product, in memory or made by a prologue.
inline const View& operand_of(const Kernel& product, size_t i) {
  if (product.prologues[i].program) return product.prologues[i].view;
  const auto& first = product.prologues[0].program;
  return product.inputs[i == 0 ? 0 : first ? first->inputs.size() : 1];
}
/// True for a product with a prologue or an epilogue.
inline bool has_row_programs(const Kernel& kernel) {
  return kernel.kind == KernelKind::kOp &&
         (kernel.program || kernel.prologues[0].program || kernel.prologues[1].program);
}
/// Number of a product's inputs that its two operands take; the rest are inputs of its epilogue.
inline size_t n_operand_inputs(const Kernel& product) {
  size_t n = 0;
  for (const Kernel::Prologue& prologue : product.prologues)
    n += prologue.program ? prologue.program->inputs.size() : 1;
  return n;
}

struct Loop;
struct Branch;
/// Iterations [begin, end) of the enclosing loop in which an instruction runs. For example, a start
/// for the next iteration does not run in the last one.
struct Guard {
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  bool holds(int64_t iteration) const { return begin <= iteration && iteration < end; }
  bool is_only(int64_t iteration) const { return begin == iteration && end == iteration + 1; }
  friend bool operator==(const Guard&, const Guard&) = default;
};
/// A copy-on-write kernel, shared by the copies of an instruction: a search copies a schedule for
/// every trial and changes little of it.
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
  /// Returns the kernel for writing, no longer shared with copies of the instruction; null if the
  /// instruction is not a kernel.
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
/// A body that runs `trip_count` times; or, if that is kOpen, as long as `predicate` (a bool
/// scalar, read after `condition` has run) is true.
struct Loop {
  static constexpr int64_t kOpen = -1;
  LoopId id;
  int64_t trip_count = 0;
  std::vector<Instruction> body;
  std::vector<Instruction> condition;  ///< Condition of an open loop.
  View predicate;                      ///< Predicate of an open loop.
  std::vector<View> carries;  ///< Carries of an open loop, live until its end.
  ProvenancePtr provenance;
};
/// Alternatives, one of which runs: number `index`, an i32 scalar that is clamped to their number,
/// or a bool scalar.
struct Branch {
  View index;
  std::vector<std::vector<Instruction>> alternatives;
  /// The results, the same windows for every alternative. A result with `begins_lifetime` starts a
  /// new lifetime of its memory at the branch; any other lies over an older value, which some
  /// alternatives may leave untouched.
  std::vector<View> results;
  ProvenancePtr provenance;
};

struct Schedule {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  size_t n_loops = 0;
  int64_t alignment_bytes = 64;  ///< Alignment of every buffer and slot in memory.
  std::vector<View> inputs, outputs;  ///< Windows; an output may lie in the buffer of an input.
  /// Limits, each in a sentence for the report: searches that stopped at their bound of work.
  std::vector<std::string> limits;
};

/// Facts of the backend that planning needs.
struct KernelTarget {
  int threads = 1;
  int64_t alignment_bytes = 64;  ///< Alignment of every buffer and slot in memory.
  /// Returns the scratch in bytes of a kernel whose views are filled in.
  std::function<int64_t(const Kernel&)> scratch_bytes;
};

}  // namespace stow::ir
