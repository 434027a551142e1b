#include "stowage/train/kernel_profile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>

namespace stow {
namespace {

double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double view_bytes(const View& view) {
  double elems = 1;
  for (size_t d = 0; d < view.dims.size(); ++d)
    if (view.strides[d] != 0 || view.dims[d] == 0) elems *= static_cast<double>(view.dims[d]);
  return elems * static_cast<double>(dtype_bytes(view.dtype));
}

double operand_bytes(const RowProgram& program, const RowOperand& operand) {
  double elems = 1;
  for (size_t d = 0; d < program.dims.size(); ++d)
    if (operand.strides[d] != 0) elems *= static_cast<double>(program.dims[d]);
  return elems * static_cast<double>(dtype_bytes(operand.dtype));
}

double product_flops(const Kernel& kernel) {
  double flops = 2.0 * static_cast<double>(kernel.outputs[0].elems());
  for (int64_t axis : std::get<DotParams>(kernel.params).lhs_contract)
    flops *= static_cast<double>(operand_of(kernel, 0).dims[static_cast<size_t>(axis)]);
  return flops;
}

// The number of visible pairs of a query and a key, times the products of each pair: two forward,
// five backward, which computes the scores again.
double attention_flops(const Kernel& kernel) {
  const auto& p = std::get<AttentionParams>(kernel.params);
  const Dims &q = kernel.inputs[0].dims, &k = kernel.inputs[1].dims;
  double pairs = 0;
  for (int64_t i = 0; i < q[1]; ++i)
    pairs += static_cast<double>(p.causal ? std::clamp<int64_t>(i + p.offset + 1, 0, k[1]) : k[1]);
  return pairs * static_cast<double>(q[0] * q[2] * q[3]) *
         (kernel.op == OpKind::kAttention ? 4.0 : 10.0);
}

std::string sizes(const Kernel& kernel) {
  if (kernel.kind == KernelKind::kRows)
    return fmt::format("[{}] {} steps, {} in, {} out", fmt::join(kernel.program->dims, ","),
                       kernel.program->steps.size(), kernel.inputs.size(), kernel.outputs.size());
  std::string text;
  for (const auto* views : {&kernel.inputs, &kernel.outputs})
    for (const View& view : *views)
      text += fmt::format("{}{}[{}]", text.empty() ? "" : views == &kernel.outputs ? " -> " : " ",
                          dtype_name(view.dtype), fmt::join(view.dims, ","));
  return text;
}

}  // namespace

KernelTotals& KernelTotals::operator+=(const KernelTotals& other) {
  calls += other.calls;
  seconds += other.seconds;
  flops += other.flops;
  bytes += other.bytes;
  least_seconds += other.least_seconds;
  return *this;
}

KernelTotals kernel_work(const Kernel& kernel) {
  KernelTotals work;
  if (kernel.kind == KernelKind::kRows) {
    for (const auto* operands : {&kernel.program->inputs, &kernel.program->outputs})
      for (const RowOperand& operand : *operands)
        work.bytes += operand_bytes(*kernel.program, operand);
    return work;
  }
  for (const auto* views : {&kernel.inputs, &kernel.outputs})
    for (const View& view : *views) work.bytes += view_bytes(view);
  if (kernel.op == OpKind::kDotGeneral) work.flops = product_flops(kernel);
  if (kernel.op == OpKind::kAttention || kernel.op == OpKind::kAttentionGrad)
    work.flops = attention_flops(kernel);
  return work;
}

std::string kernel_name(const Kernel& kernel) {
  return kernel.kind == KernelKind::kRows ? fmt::format("rows {}", op_name(kernel.op))
                                          : std::string(op_name(kernel.op));
}

void KernelProfile::ran(const RunEvent& event) {
  const std::lock_guard lock(mutex_);
  double seconds = event.end_s - event.begin_s;
  if (one_thread_ && event.stream == StreamKind::kCompute) {
    const double before = processor_s_;
    processor_s_ = processor_seconds();
    if (event.instant > 0) seconds = processor_s_ - before;
  }
  KernelTotals& work = work_[event.kernel];
  if (work.calls == 0) {  // of one call, until it is asked for
    work = kernel_work(*event.kernel);
    work.least_seconds = seconds;
  }
  work.least_seconds = std::min(work.least_seconds, seconds);
  ++work.calls;
  work.seconds += seconds;
}

namespace {

KernelTotals all_calls(KernelTotals work) {
  work.flops *= static_cast<double>(work.calls);
  work.bytes *= static_cast<double>(work.calls);
  work.least_seconds *= static_cast<double>(work.calls);
  return work;
}

template <typename Key>
std::map<std::string, KernelTotals> grouped(const std::map<const Kernel*, KernelTotals>& all,
                                            Key key) {
  std::map<std::string, KernelTotals> groups;
  for (const auto& [kernel, work] : all) groups[key(*kernel)] += all_calls(work);
  return groups;
}

}  // namespace

KernelTotals KernelProfile::total() const {
  KernelTotals total;
  for (const auto& [kernel, work] : work_) total += all_calls(work);
  return total;
}

double KernelProfile::gemm_share() const {
  double products = 0;
  for (const auto& [kernel, work] : work_)
    if (kernel->kind == KernelKind::kOp && kernel->op == OpKind::kDotGeneral)
      products += work.seconds;
  const double all = total().seconds;
  return all > 0 ? products / all : 0;
}

std::map<std::string, KernelTotals> KernelProfile::by_op() const {
  return grouped(work_, kernel_name);
}
std::map<std::string, KernelTotals> KernelProfile::by_source() const {
  return grouped(work_, [](const Kernel& k) { return to_string(k.provenance); });
}
std::map<std::string, KernelTotals> KernelProfile::by_kernel() const {
  return grouped(work_, [](const Kernel& k) {
    return fmt::format("{} {} {}", to_string(k.provenance), kernel_name(k), sizes(k));
  });
}

}  // namespace stow
