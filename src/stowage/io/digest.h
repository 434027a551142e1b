// Digest: a fast, incremental 64-bit checksum that detects damaged files.
// Not cryptographic: collisions can be constructed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stow {

/// An incremental checksum. It depends on the bytes only, not on how calls of update() divide them.
/// Source: the XXH64 algorithm of the xxHash specification, seed 0.
class Digest {
 public:
  void update(std::span<const std::byte> bytes);
  /// The digest of all bytes so far.
  uint64_t value() const;
  /// 16 hexadecimal digits.
  std::string hex() const;

 private:
  static constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F;

  std::array<uint64_t, 4> lanes_ = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  std::array<std::byte, 32> pending_{};  // bytes that fill no stripe yet
  uint64_t n_pending_ = 0;
  uint64_t total_bytes_ = 0;
};

/// Returns the digest of a text as 16 hexadecimal digits.
std::string digest_of(std::string_view text);

}  // namespace stow
