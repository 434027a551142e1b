// The address at which the host reads and writes a buffer in place, if it can.
// Not a copy; DeviceBuffer::read() and write() copy, wherever the bytes lie.
#pragma once

#include <cstddef>

namespace stow {

class DeviceBuffer;

/// The address of the buffer's first byte, if the host may read and write it there. Null for a buffer on
/// disk, for device memory of a target that hides it (Target::has_host_memory()), and for no bytes.
std::byte* host_address(const DeviceBuffer& buffer);

}  // namespace stow
