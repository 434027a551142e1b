#include "stowage/runtime/null/kernel_cost.h"

#include <algorithm>
#include <cmath>

#include "stowage/ir/schedule_walk.h"
#include "stowage/ops/op_def.h"
#include "stowage/runtime/null/collective_time.h"

namespace stow {
namespace {

// An elementwise op that costs several times an addition.
bool is_special(OpKind op) {
  constexpr OpKind kSpecial[] = {
      OpKind::kExp,   OpKind::kExpm1,    OpKind::kLog,   OpKind::kLog1p, OpKind::kTanh,
      OpKind::kSin,   OpKind::kCos,      OpKind::kTan,   OpKind::kAsin,  OpKind::kAcos,
      OpKind::kAtan,  OpKind::kSinh,     OpKind::kCosh,  OpKind::kAsinh, OpKind::kAcosh,
      OpKind::kAtanh, OpKind::kSqrt,     OpKind::kRsqrt, OpKind::kCbrt,  OpKind::kLogistic,
      OpKind::kErf,   OpKind::kErfc,     OpKind::kErfInv, OpKind::kDiv,  OpKind::kRem,
      OpKind::kPow,   OpKind::kAtan2};
  return std::find(std::begin(kSpecial), std::end(kSpecial), op) != std::end(kSpecial);
}

bool is_product(OpKind op) {
  return op == OpKind::kDotGeneral || op == OpKind::kConvolution || op == OpKind::kAttention ||
         op == OpKind::kAttentionGrad;
}

// An op that leaves most of operand 0 as it is.
bool is_update(OpKind op) {
  return op == OpKind::kDynamicUpdateSlice || op == OpKind::kScatter || op == OpKind::kScatterAdd ||
         op == OpKind::kScatterMul || op == OpKind::kScatterMin || op == OpKind::kScatterMax;
}

// Bytes of the distinct elements of a strided operand.
double distinct_bytes(const Dims& dims, const Dims& strides, DType dtype) {
  double elems = 1;
  for (size_t d = 0; d < dims.size(); ++d)
    if (strides[d] != 0 || dims[d] == 0) elems *= static_cast<double>(dims[d]);
  return elems * static_cast<double>(dtype_bytes(dtype));
}
double distinct_bytes(const View& view) {
  return distinct_bytes(view.dims, view.strides, view.dtype);
}

// A value that a row reduction gave is computed on once a row, all else once a point.
void count_rows(const RowProgram& program, KernelCost& work) {
  const double rows = static_cast<double>(program.rows());
  const double points = rows * static_cast<double>(program.cols());
  for (const RowOperand& o : program.inputs)
    work.bytes += distinct_bytes(program.dims, o.strides, o.dtype);
  for (const RowOperand& o : program.outputs)
    work.bytes += distinct_bytes(program.dims, o.strides, o.dtype);
  std::vector<bool> per_row(program.steps.size());
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const Step& step = program.steps[s];
    bool all = true;
    for (int32_t a : step.args) all &= a < 0 || per_row[static_cast<size_t>(a)];
    switch (step.kind) {
      case StepKind::kLoad: {
        const Dims& strides = program.inputs[static_cast<size_t>(step.index)].strides;
        per_row[s] = std::all_of(strides.begin() + program.n_row_dims, strides.end(),
                                 [](int64_t stride) { return stride == 0; });
        break;
      }
      case StepKind::kConstant: per_row[s] = true; break;
      case StepKind::kIota: per_row[s] = step.index < program.n_row_dims; break;
      case StepKind::kCompute:
        per_row[s] = all;
        (is_special(step.op) ? work.special_ops : work.vector_ops) += all ? rows : points;
        break;
      case StepKind::kReduceRow:
        per_row[s] = true;
        work.vector_ops += points;
        break;
      case StepKind::kReduceColumns: work.vector_ops += points; break;
      case StepKind::kStore: break;
    }
  }
}

void count_op(const Kernel& kernel, KernelCost& work) {
  std::vector<ArrayType> operands, results;
  const auto types = [](const std::vector<View>& views, std::vector<ArrayType>& out) {
    for (const View& view : views) out.push_back({view.dtype, Shape(view.dims)});
  };
  types(kernel.inputs, operands);
  types(kernel.outputs, results);
  const Cost cost =
      op_def(kernel.op).cost.function({kernel.op, operands, kernel.params, {}}, results);
  if (is_product(kernel.op)) {
    work.product_flops = cost.flops;
    work.product_dtype = operands[0].dtype;
    work.attention = kernel.op == OpKind::kAttention || kernel.op == OpKind::kAttentionGrad;
  } else {
    work.vector_ops = cost.flops;
  }
  work.bytes = cost.bytes;
  // Views and marks that have become kernels are copies.
  const OpClass c = op_class(kernel.op);
  if (c == OpClass::kView || c == OpClass::kIdentity || c == OpClass::kReduce) {
    work.bytes = 0;
    for (const View& view : kernel.inputs) work.bytes += distinct_bytes(view);
    for (const View& view : kernel.outputs) work.bytes += distinct_bytes(view);
  }
  if (is_update(kernel.op)) {
    const View &from = kernel.inputs[0], &to = kernel.outputs[0];
    if (from.buffer != to.buffer || from.offset_bytes != to.offset_bytes)
      work.bytes += distinct_bytes(from) + distinct_bytes(to);
  }
}

int64_t bytes_of(const View& view) {
  return view.elems() * dtype_bytes(view.dtype);
}

void count_collective(const Kernel& kernel, KernelCost& work) {
  const auto& params = std::get<CollectiveParams>(kernel.params);
  work.collective = &params;
  work.collective_op = kernel.op;
  work.whole_bytes =
      static_cast<double>(std::max(bytes_of(kernel.inputs[0]), bytes_of(kernel.outputs[0])));
  const auto n = static_cast<double>(params.group_size());
  const double share = kernel.op == OpKind::kPermute     ? 1
                       : kernel.op == OpKind::kAllReduce ? 2 * (n - 1) / n
                                                         : (n - 1) / n;
  work.bytes = share * work.whole_bytes;
}

double product_rate(const KernelCost& work, const DeviceDescription& d) {
  const double share = work.attention ? d.compute.attention_achievable : d.compute.achievable;
  switch (work.product_dtype) {
    case DType::kF64: return share * d.compute.f64_flops;
    case DType::kF32: return share * d.compute.f32_flops;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI8:
    case DType::kU8: return share * d.compute.bf16_flops;
    case DType::kI64:
    case DType::kI32:
    case DType::kU64:
    case DType::kU32:
    case DType::kBool: break;
  }
  return d.compute.vector_flops;
}

}  // namespace

KernelCost kernel_cost(const Kernel& kernel, const Schedule& schedule) {
  KernelCost work;
  if (kernel.kind == KernelKind::kRows) {
    count_rows(*kernel.program, work);
  } else if (exchanges_data(kernel)) {
    count_collective(kernel, work);
  } else if (kernel.op == OpKind::kDevicePut) {
    const View &from = kernel.inputs[0], &to = kernel.outputs[0];
    work.from = schedule.buffers[from.buffer.index()].kind;
    work.to = schedule.buffers[to.buffer.index()].kind;
    work.bytes = static_cast<double>(to.elems() * dtype_bytes(to.dtype));
  } else if (has_row_programs(kernel)) {
    Kernel product = kernel;
    product.inputs = {operand_of(kernel, 0), operand_of(kernel, 1)};
    product.outputs = {kernel.outputs[0]};
    if (kernel.program) product.outputs[0].dtype = kernel.program->inputs[0].dtype;
    count_op(product, work);
    // Values between a product and a row program do not leave the cache.
    if (kernel.program) {
      count_rows(*kernel.program, work);
      work.bytes -= 2 * distinct_bytes(kernel.outputs[0]);
    }
    for (const Kernel::Prologue& prologue : kernel.prologues) {
      if (!prologue.program) continue;
      count_rows(*prologue.program, work);
      work.bytes -= 2 * distinct_bytes(prologue.view);
    }
    work.from = work.to = schedule.buffers[kernel.outputs[0].buffer.index()].kind;
  } else {
    count_op(kernel, work);
    // Ops that only look (a slice written out as a copy) run where their operands lie.
    if (!kernel.outputs.empty())
      work.from = work.to = schedule.buffers[kernel.outputs[0].buffer.index()].kind;
  }
  return work;
}

double kernel_seconds(const KernelCost& work, const DeviceDescription& d) {
  if (work.collective) {
    const double seconds = collective_seconds(d, work.collective_op, work.collective->mesh,
                                              work.collective->axes, work.whole_bytes,
                                              work.collective->groups, work.collective->n_groups);
    return std::isfinite(seconds)
               ? seconds
               : 2 * work.whole_bytes / (d.memory.bandwidth * d.memory.achievable);
  }
  if (work.stream() != StreamKind::kCompute || work.within_host())
    return move_seconds(d, work.from, work.to, work.bytes);
  double bandwidth = d.memory.bandwidth * d.memory.achievable;
  if (d.memory.cache_bandwidth > 0 && work.bytes <= static_cast<double>(d.memory.cache))
    bandwidth = std::max(bandwidth, d.memory.cache_bandwidth);
  const double products = work.product_flops > 0 ? work.product_flops / product_rate(work, d) : 0;
  const double computing = products + work.vector_ops / d.compute.vector_flops +
                           work.special_ops / d.compute.special_flops;
  return d.compute.launch_s + std::max(computing, work.bytes / bandwidth);
}

Result<void> check_network(const DeviceDescription& description, const Schedule& schedule) {
  Result<void> joined;
  for_each_kernel(schedule.instructions, [&](const Kernel& kernel) {
    if (!joined) return;
    if (const KernelCost cost = kernel_cost(kernel, schedule); cost.collective)
      joined = check_network(description, cost.collective->mesh);
  });
  return joined;
}

}  // namespace stow
