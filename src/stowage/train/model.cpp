#include "stowage/train/model.h"

namespace stow {

Result<std::vector<DeviceBufferPtr>> read_arrays(
    Device& device, std::span<const ArrayType> types,
    const std::function<Result<void>(size_t, DeviceBuffer&)>& read) {
  std::vector<DeviceBufferPtr> buffers;
  for (size_t i = 0; i < types.size(); ++i) {
    buffers.push_back(device.allocate(types[i].bytes(), types[i].kind));
    if (Result<void> done = read(i, *buffers.back()); !done) return done.failure();
  }
  return buffers;
}

}  // namespace stow
