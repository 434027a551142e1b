#include "stowage/io/digest.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace stow {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                   kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                   kPrime5 = 0x27D4EB2F165667C5;

template <typename Word>
uint64_t load(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

uint64_t round(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

const std::byte* take_stripe(std::array<uint64_t, 4>& lanes, const std::byte* from) {
  for (size_t i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load<uint64_t>(from + 8 * i));
  return from + 32;
}

}  // namespace

void Digest::update(std::span<const std::byte> bytes) {
  total_bytes_ += bytes.size();
  if (n_pending_ > 0 || bytes.size() < 32) {
    const size_t n = std::min<size_t>(bytes.size(), 32 - n_pending_);
    std::copy_n(bytes.begin(), n, pending_.begin() + static_cast<ptrdiff_t>(n_pending_));
    n_pending_ += n;
    bytes = bytes.subspan(n);
    if (n_pending_ < 32) return;
    take_stripe(lanes_, pending_.data());
    n_pending_ = 0;
  }
  std::array<uint64_t, 4> lanes = lanes_;  // in registers for the length of the loop
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  while (end - at >= 32) at = take_stripe(lanes, at);
  lanes_ = lanes;
  n_pending_ = static_cast<uint64_t>(end - at);
  std::copy(at, end, pending_.begin());
}

uint64_t Digest::value() const {
  uint64_t hash = kPrime5;
  if (total_bytes_ >= 32) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += total_bytes_;
  const std::byte* at = pending_.data();
  const std::byte* const end = at + n_pending_;
  for (; end - at >= 8; at += 8)
    hash = std::rotl(hash ^ round(0, load<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  for (; end - at >= 4; at += 4)
    hash = std::rotl(hash ^ (load<uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
  for (; at < end; ++at) hash = std::rotl(hash ^ (load<uint8_t>(at) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::string Digest::hex() const {
  return fmt::format("{:016x}", value());
}

std::string digest_of(std::string_view text) {
  Digest digest;
  digest.update(std::as_bytes(std::span(text)));
  return digest.hex();
}

}  // namespace stow
