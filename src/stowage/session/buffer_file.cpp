#include "stowage/session/buffer_file.h"

#include <algorithm>
#include <vector>

#include "stowage/runtime/host_address.h"

namespace stow {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

}  // namespace

TensorBytes tensor_of(std::string name, const ArrayType& type, const DeviceBuffer& buffer) {
  TensorBytes tensor{std::move(name), type.dtype, type.shape.dims(), {}, {}};
  const std::byte* const data = host_address(buffer);
  if (!data && buffer.bytes() > 0)
    tensor.read = [&buffer](int64_t offset, std::span<std::byte> out) { buffer.read(offset, out); };
  else
    tensor.bytes = {data, static_cast<size_t>(buffer.bytes())};
  return tensor;
}

Result<void> fill(DeviceBuffer& buffer,
                  const std::function<Result<void>(int64_t, std::span<std::byte>)>& read) {
  if (std::byte* const data = host_address(buffer); data || buffer.bytes() == 0)
    return read(0, {data, static_cast<size_t>(buffer.bytes())});
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPieceBytes, buffer.bytes())));
  for (int64_t at = 0; at < buffer.bytes(); at += kPieceBytes) {
    const auto n = static_cast<size_t>(std::min(kPieceBytes, buffer.bytes() - at));
    const std::span<std::byte> part = std::span(piece).first(n);
    if (Result<void> done = read(at, part); !done) return done;
    buffer.write(at, part);
  }
  return {};
}

}  // namespace stow
