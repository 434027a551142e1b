// Copies between device buffers of any memory kind and tensors of files.
// Not a file format; those are in io/.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/core/array_type.h"
#include "stowage/io/safetensors.h"
#include "stowage/runtime/device.h"

namespace stow {

/// Returns the buffer as a tensor for a file, without a copy. Writing the file reads a buffer that
/// the host cannot address piece by piece and may throw DiskError. The buffer must live until then.
TensorBytes tensor_of(std::string name, const ArrayType& type, const DeviceBuffer& buffer);

/// Fills a buffer from `read(offset, out)`, which fills `out` with the bytes from `offset` on.
/// Calls it once for a buffer that the host can address, else once for each piece.
/// Errors: those of `read`; DiskError.
Result<void> fill(DeviceBuffer& buffer,
                  const std::function<Result<void>(int64_t, std::span<std::byte>)>& read);

}  // namespace stow
