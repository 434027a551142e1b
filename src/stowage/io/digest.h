// Digest: a fast 64-bit checksum of bytes that come in pieces, against damage of files.
// Not cryptographic: it does not stop someone who wants two contents of one digest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stow {

/// The digest depends on the bytes alone, not on the pieces they come in.
/// Source: the XXH64 algorithm of the xxHash specification, seed 0.
class Digest {
 public:
  void update(std::span<const std::byte> bytes);
  /// The digest of what has come so far.
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

/// The digest of a text, in hexadecimal digits.
std::string digest_of(std::string_view text);

}  // namespace stow
