// Between buffers of a device and tensors of files, whatever memory the buffers lie in.
// Not a format; that is io/.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/core/array_type.h"
#include "stowage/io/safetensors.h"
#include "stowage/runtime/device.h"

namespace stow {

/// The buffer as a tensor to be written, without a copy: what lies on disk is read piece by piece
/// when it is (DiskError). The buffer must live until then.
TensorBytes tensor_of(std::string name, const ArrayType& type, const DeviceBuffer& buffer);

/// Fills a buffer with what `read(offset, out)` gives, piece by piece where it lies on disk.
/// Errors: those of `read`; DiskError.
Result<void> fill(DeviceBuffer& buffer,
                  const std::function<Result<void>(int64_t, std::span<std::byte>)>& read);

}  // namespace stow
