// Collectives as kernels: copies in a group of one position. The communicator has those of more.
#include <bit>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"

namespace stow::cpu::kernels {

// A reduction holds one partial sum of its piece a level of the tree, and the piece that arrives.
int64_t collective_scratch_bytes(OpKind op, const CollectiveParams& params, Views in) {
  const int64_t n = params.group_size();
  if (n == 1 || (op != OpKind::kAllReduce && op != OpKind::kReduceScatter)) return 0;
  const int64_t piece = (in[0].elems() + n - 1) / n * dtype_bytes(in[0].dtype);
  return piece * std::bit_width(static_cast<uint64_t>(n));
}

void collective(OpKind op, const CollectiveParams& params, Views in, Views out, int threads) {
  if (params.group_size() != 1)
    trace_error(
        "[{}] expected a communicator for a group of {} positions of {}, got none; run the program "
        "on devices of that mesh",
        op_name(op), params.group_size(), to_string(params.mesh));
  const std::byte zero[8] = {};
  if (op == OpKind::kAxisIndex || (op == OpKind::kPermute && params.pairs.empty()))
    return fill(out[0], zero, threads);
  copy(in[0], out[0], threads);
}

}  // namespace stow::cpu::kernels
