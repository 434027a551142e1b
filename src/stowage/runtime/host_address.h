// host_address: the address at which the host reads and writes a buffer in place, if it can.
// Not a copy; DeviceBuffer::read() and write() copy from and to any memory kind.
#pragma once

#include <cstddef>

namespace stow {

class DeviceBuffer;

/// Returns the address of the buffer's first byte, if the host may read and write it there. Null
/// for a buffer on disk, for device memory that the host cannot address
/// (Target::has_host_memory()), and for an empty buffer.
std::byte* host_address(const DeviceBuffer& buffer);

}  // namespace stow
