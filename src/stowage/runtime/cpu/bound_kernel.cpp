#include "stowage/runtime/cpu/bound_kernel.h"

#include <algorithm>
#include <array>
#include <optional>

#include "stowage/runtime/cpu/kernels/attention.h"
#include "stowage/runtime/cpu/kernels/gemm.h"
#include "stowage/runtime/cpu/kernels/moving_window.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"
#include "stowage/runtime/cpu/kernels/row_program.h"

namespace stow::cpu {
namespace {

using Inputs = std::span<const std::byte* const>;
using Outputs = std::span<std::byte* const>;

TensorView tensor(const View& view, std::byte* data) {
  return {data, view.dtype, view.dims, view.strides};
}

GemmSpec gemm_spec(const Kernel& kernel) {
  const auto& p = std::get<DotParams>(kernel.params);
  const View &a = operand_of(kernel, 0), &b = operand_of(kernel, 1), &c = kernel.outputs[0];
  // An input more is the output as it was before, but where a program follows.
  const bool accumulate = !kernel.program && kernel.inputs.size() > n_operand_inputs(kernel);
  GemmSpec spec{a.dtype, b.dtype, c.dtype, {}, {}, {}, {}, accumulate};
  std::vector<bool> a_used(a.dims.size()), b_used(b.dims.size());
  size_t out = 0;
  for (size_t i = 0; i < p.lhs_batch.size(); ++i, ++out) {
    const size_t l = static_cast<size_t>(p.lhs_batch[i]), r = static_cast<size_t>(p.rhs_batch[i]);
    spec.batch.push_back({a.dims[l], a.strides[l], b.strides[r], c.strides[out]});
    a_used[l] = b_used[r] = true;
  }
  for (size_t i = 0; i < p.lhs_contract.size(); ++i) {
    const size_t l = static_cast<size_t>(p.lhs_contract[i]);
    const size_t r = static_cast<size_t>(p.rhs_contract[i]);
    spec.k.push_back({a.dims[l], a.strides[l], b.strides[r], 0});
    a_used[l] = b_used[r] = true;
  }
  for (size_t l = 0; l < a.dims.size(); ++l)
    if (!a_used[l]) spec.m.push_back({a.dims[l], a.strides[l], 0, c.strides[out++]});
  for (size_t r = 0; r < b.dims.size(); ++r)
    if (!b_used[r]) spec.n.push_back({b.dims[r], 0, b.strides[r], c.strides[out++]});
  return spec;
}

// Operands before lo and hi, if these are there.
size_t n_attention_tensors(const Kernel& kernel) {
  return kernel.op == OpKind::kAttention ? 3 : 6;
}

AttentionSpec attention_spec(const Kernel& kernel) {
  const auto& p = std::get<AttentionParams>(kernel.params);
  const View &q = kernel.inputs[0], &k = kernel.inputs[1], &v = kernel.inputs[2];
  const auto strides = [](const View& view) {
    return std::array<int64_t, 4>{view.strides[0], view.strides[1], view.strides[2],
                                  view.strides[3]};
  };
  AttentionSpec s{};
  s.dtype = q.dtype;
  s.batch = q.dims[0];
  s.q_len = q.dims[1];
  s.q_heads = q.dims[2];
  s.head_dim = q.dims[3];
  s.kv_len = k.dims[1];
  s.kv_heads = k.dims[2];
  s.scale = p.scale;
  s.causal = p.causal;
  s.offset = p.offset;
  s.q = strides(q);
  s.k = strides(k);
  s.v = strides(v);
  if (kernel.op == OpKind::kAttention) {
    s.out = strides(kernel.outputs[0]);
  } else {
    s.out = strides(kernel.inputs[3]);
    s.d_out = strides(kernel.inputs[5]);
    s.dq = strides(kernel.outputs[0]);
    s.dk = strides(kernel.outputs[1]);
    s.dv = strides(kernel.outputs[2]);
  }
  const size_t n = n_attention_tensors(kernel);
  s.intervals = kernel.inputs.size() > n;
  if (s.intervals)
    for (auto [to, i] : {std::pair{&s.lo, n}, std::pair{&s.hi, n + 1}})
      *to = {kernel.inputs[i].strides[0], kernel.inputs[i].strides[1]};
  return s;
}

std::vector<TensorView> tensors(const std::vector<View>& views) {
  std::vector<TensorView> result;
  for (const View& view : views) result.push_back(tensor(view, nullptr));
  return result;
}

bool begin_together(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset_bytes == b.offset_bytes && a.terms == b.terms;
}

// Few outputs hold few strips, so little is to be saved by what lies over what. A step's packing
// depends on every size, and that of a decoder becomes 0.1 % worse if such scratch is some KiB
// smaller.
constexpr size_t kFewOutputs = 8;

// The overlaps of a row program's memory, as its views show them. All buffers of one instruction
// live at the same time, so different buffers are different memory. A buffer that has another as
// its first slot stands for it only in loops, whose bodies do not touch the other, or is never
// written there (Buffer::first_slot).
RowOverlaps overlaps_of(const Kernel& kernel) {
  if (kernel.outputs.size() <= kFewOutputs) return {};
  RowOverlaps overlaps(kernel.outputs.size(), kernel.inputs.size());
  for (size_t k = 0; k < kernel.outputs.size(); ++k)
    for (size_t i = 0; i < kernel.inputs.size(); ++i) {
      const View &out = kernel.outputs[k], &in = kernel.inputs[i];
      if (!out.buffer.valid() || !in.buffer.valid()) continue;
      if (out.buffer != in.buffer)
        overlaps.set(k, i, Overlap::kNever);
      else if (begin_together(out, in))
        overlaps.set(k, i, Overlap::kAlways);
    }
  return overlaps;
}

class Rows final : public BoundKernel::Impl {
 public:
  Rows(const Kernel& kernel, int threads)
      : program_(*kernel.program, threads, overlaps_of(kernel)) {}
  void run(Inputs in, Outputs out, void* scratch) override { program_.run(in, out, scratch); }
  RowCalls* only_calls() const override { return program_.only_calls(); }

 private:
  RowProgramRunner program_;
};

class Product final : public BoundKernel::Impl {
 public:
  Product(const Kernel& kernel, int threads) : product_(gemm_spec(kernel), threads) {}
  void run(Inputs in, Outputs out, void* scratch) override {
    product_.run(in[0], in[1], out[0], scratch);
  }

 private:
  GemmRunner product_;
};

// A product with row programs around it: behind it, piece by piece, and before either operand.
class ProductRows final : public BoundKernel::Impl {
 public:
  ProductRows(const Kernel& kernel, int threads)
      : spec_(gemm_spec(kernel)), n_operands_(n_operand_inputs(kernel)), threads_(threads) {
    if (kernel.program) {
      after_.emplace(*kernel.program);
      spec_.epilogue = {after_->whole_rows(), after_->scratch_bytes()};
    }
    size_t first = 0;
    for (size_t i = 0; i < 2; ++i) {
      if (kernel.prologues[i].program) spec_of(i) = before_[i].emplace(kernel, i, first).spec();
      first += before_[i] ? before_[i]->n_inputs : 1;
    }
  }
  int64_t scratch_bytes() const { return gemm_workspace_bytes(spec_, threads_); }

  void run(Inputs in, Outputs out, void* scratch) override {
    GemmHooks hooks;
    std::vector<const std::byte*> read = {out[0]};
    if (after_) {
      read.insert(read.end(), in.begin() + static_cast<std::ptrdiff_t>(n_operands_), in.end());
      hooks.epilogue = [&](int64_t row, int64_t row_end, int64_t col, int64_t col_end, void* own) {
        after_->run(read, out, own, row, row_end, col, col_end);
      };
    }
    const std::byte* operands[2];
    size_t first = 0;
    for (size_t i = 0; i < 2; ++i) {
      operands[i] = before_[i] ? nullptr : in[first];
      if (before_[i]) {
        (i == 0 ? hooks.prologue_a : hooks.prologue_b) = before_[i]->fill(in);
        (i == 0 ? hooks.source_a : hooks.source_b) = before_[i]->source(in);
      }
      first += before_[i] ? before_[i]->n_inputs : 1;
    }
    gemm(spec_, operands[0], operands[1], out[0], scratch, threads_, hooks);
  }

 private:
  // A prologue, which makes pieces of an operand. Its program writes rows as far apart as in a
  // piece.
  struct Before {
    Before(const Kernel& kernel, size_t i, size_t first)
        : rows_are_k(sums_over_rows(kernel, i)),
          stride(gemm_piece_stride(i == 1, rows_are_k)),
          elem_bytes(dtype_bytes(kernel.prologues[i].view.dtype)),
          first_input(first),
          n_inputs(kernel.prologues[i].program->inputs.size()),
          blocks(for_pieces(*kernel.prologues[i].program, stride)) {
      const RowProgram& program = *kernel.prologues[i].program;
      const auto columns = static_cast<size_t>(program.n_row_dims);
      for (size_t k = 0; k < n_inputs; ++k) {
        const RowOperand& input = program.inputs[k];
        const int64_t bytes = dtype_bytes(input.dtype);
        const int64_t step = step_of(program.dims, input.strides, 0, columns);
        if (bytes <= widest.bytes || step <= 0 ||
            step_of(program.dims, input.strides, columns, program.dims.size()) != 1)
          continue;
        widest = {nullptr, bytes, step};
        widest_input = first_input + k;
      }
    }

    GemmPrologue spec() const { return {rows_are_k, blocks.scratch_bytes()}; }

    GemmPrologueFn fill(Inputs in) const {
      return
          [this, in = in.subspan(first_input, n_inputs)](void* piece, int64_t row, int64_t row_end,
                                                         int64_t col, int64_t col_end, void* own) {
            // The address at which the operand would begin if it had the piece's strides.
            std::byte* const out[] = {static_cast<std::byte*>(piece) -
                                      (row * stride + col) * elem_bytes};
            blocks.run(in, out, own, row, row_end, col, col_end);
          };
    }

    GemmSource source(Inputs in) const {
      if (widest.bytes == 0) return {};
      return {in[widest_input], widest.bytes, widest.row_step};
    }
    // Elements from one index of dimensions [first, last) to the next, if always as many and not
    // none, else 0.
    static int64_t step_of(const Dims& dims, const Dims& strides, size_t first, size_t last) {
      int64_t step = 0, next = 0;
      for (size_t d = last; d-- > first;) {
        if (dims[d] == 1) continue;
        if (strides[d] == 0) return 0;
        if (next == 0) step = next = strides[d];
        if (strides[d] != next) return 0;
        next *= dims[d];
      }
      return step;
    }

    static bool sums_over_rows(const Kernel& kernel, size_t i) {
      const auto& p = std::get<DotParams>(kernel.params);
      return (i == 0 ? p.lhs_contract : p.rhs_contract)[0] == 0;
    }
    static RowProgram for_pieces(RowProgram program, int64_t stride) {
      Dims& strides = program.outputs[0].strides;
      int64_t row = stride, col = 1;
      for (size_t d = strides.size(); d-- > 0;) {
        int64_t& step = static_cast<int>(d) < program.n_row_dims ? row : col;
        strides[d] = step;
        step *= program.dims[d];
      }
      return program;
    }

    bool rows_are_k;
    int64_t stride, elem_bytes;
    size_t first_input, n_inputs;
    RowBlocks blocks;
    // The largest of the inputs with an element a point; a call has its address.
    GemmSource widest;
    size_t widest_input = 0;
  };

  std::optional<GemmPrologue>& spec_of(size_t i) {
    return i == 0 ? spec_.a_prologue : spec_.b_prologue;
  }

  GemmSpec spec_;
  size_t n_operands_;
  int threads_;
  std::optional<RowBlocks> after_;
  std::array<std::optional<Before>, 2> before_;
};

class Attention final : public BoundKernel::Impl {
 public:
  Attention(const Kernel& kernel, int threads)
      : spec_(attention_spec(kernel)),
        forward_(kernel.op == OpKind::kAttention),
        n_tensors_(n_attention_tensors(kernel)),
        threads_(threads) {}
  void run(Inputs in, Outputs out, void* scratch) override {
    KeyIntervals intervals;
    if (spec_.intervals)
      intervals = {reinterpret_cast<const int32_t*>(in[n_tensors_]),
                   reinterpret_cast<const int32_t*>(in[n_tensors_ + 1])};
    if (forward_)
      attention_forward(spec_, in[0], in[1], in[2], out[0], reinterpret_cast<float*>(out[1]),
                        scratch, threads_, intervals);
    else
      attention_backward(spec_, in[0], in[1], in[2], in[3],
                         reinterpret_cast<const float*>(in[4]), in[5], out[0], out[1], out[2],
                         scratch, threads_, intervals);
  }

 private:
  AttentionSpec spec_;
  bool forward_;
  size_t n_tensors_;
  int threads_;
};

class Other final : public BoundKernel::Impl {
 public:
  Other(const Kernel& kernel, int threads)
      : op_(kernel.op),
        params_(kernel.params),
        inputs_(tensors(kernel.inputs)),
        outputs_(tensors(kernel.outputs)),
        threads_(threads) {
    if (op_ == OpKind::kDynamicSlice)
      window_ = MovingWindow::make(inputs_[0], outputs_[0], std::span(inputs_).subspan(1));
    // Over its operand an update writes the window alone.
    if (op_ == OpKind::kDynamicUpdateSlice && inputs_[0].strides == outputs_[0].strides)
      window_ = MovingWindow::make(outputs_[0], inputs_[1], std::span(inputs_).subspan(2));
  }
  void run(Inputs in, Outputs out, void* scratch) override {
    if (window_ && op_ == OpKind::kDynamicSlice)
      return window_->read(in[0], out[0], in.data() + 1);
    if (window_ && in[0] == out[0]) return window_->write(out[0], in[1], in.data() + 2);
    for (size_t i = 0; i < in.size(); ++i) inputs_[i].data = const_cast<std::byte*>(in[i]);
    for (size_t i = 0; i < out.size(); ++i) outputs_[i].data = out[i];
    run_op(op_, params_, inputs_, outputs_, scratch, threads_);
  }

 private:
  OpKind op_;
  Params params_;
  std::vector<TensorView> inputs_, outputs_;
  std::optional<MovingWindow> window_;
  int threads_;
};

}  // namespace

bool scratch_follows_from_program(const Kernel& rows) { return rows.outputs.size() <= kFewOutputs; }

int64_t kernel_scratch_bytes(const Kernel& kernel, int threads) {
  if (kernel.kind == KernelKind::kRows)
    return row_program_scratch_bytes(*kernel.program, threads, overlaps_of(kernel));
  switch (kernel.op) {
    case OpKind::kDotGeneral:
      return has_row_programs(kernel) ? ProductRows(kernel, threads).scratch_bytes()
                                      : gemm_workspace_bytes(gemm_spec(kernel), threads);
    case OpKind::kAttention:
      return attention_forward_workspace_bytes(attention_spec(kernel), threads);
    case OpKind::kAttentionGrad:
      return attention_backward_workspace_bytes(attention_spec(kernel), threads);
    default:
      return op_scratch_bytes(kernel.op, kernel.params, tensors(kernel.inputs),
                              tensors(kernel.outputs), threads);
  }
}

BoundKernel::BoundKernel(const Kernel& kernel, int threads) {
  if (kernel.kind == KernelKind::kRows)
    impl_ = std::make_unique<Rows>(kernel, threads);
  else if (has_row_programs(kernel))
    impl_ = std::make_unique<ProductRows>(kernel, threads);
  else if (kernel.op == OpKind::kDotGeneral)
    impl_ = std::make_unique<Product>(kernel, threads);
  else if (kernel.op == OpKind::kAttention || kernel.op == OpKind::kAttentionGrad)
    impl_ = std::make_unique<Attention>(kernel, threads);
  else
    impl_ = std::make_unique<Other>(kernel, threads);
  calls_ = impl_->only_calls();
}

BoundKernel::~BoundKernel() = default;

}  // namespace stow::cpu
