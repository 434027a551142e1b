// Collectives as kernels: copies in a group of one position. The communicator has those of more.
#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"

namespace stow::cpu::kernels {

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
