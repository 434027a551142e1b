#include "stowage/base/inside.h"
#include "stowage/runtime/target.h"

#include "stowage/runtime/comm/bound_collective.h"
#include "stowage/runtime/streams.h"

namespace stow {

StreamTiming Target::stream_timing() const {
  return StreamTiming::kConcurrent;
}

KernelTarget kernel_target(const Target& target) {
  return {target.threads(), target.alignment_bytes(), [&target](const Kernel& kernel) {
            return comm::is_collective(kernel) ? comm::collective_scratch_bytes(kernel)
                                               : target.scratch_bytes(kernel);
          }};
}

}  // namespace stow
