#include "stowage/ir/schedule.h"

namespace stow::ir {

StreamKind stream_of(MemoryKind from, MemoryKind to) {
  if (from == to) return StreamKind::kCompute;
  if (from == MemoryKind::kDisk) return StreamKind::kDiskRead;
  if (to == MemoryKind::kDisk) return StreamKind::kDiskWrite;
  return to == MemoryKind::kDevice ? StreamKind::kCopyIn : StreamKind::kCopyOut;
}

}  // namespace stow::ir
