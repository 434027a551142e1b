// Threefry-2x32 over a 64-bit counter, vectorised with Highway.
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/random.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <int kBits, class V>
HWY_INLINE void mix(V& x0, V& x1) {
  x0 = hn::Add(x0, x1);
  x1 = hn::Xor(hn::RotateRight<32 - kBits>(x1), x0);
}

// Four rounds, then the next two words of the key and the injection's number.
template <int kA, int kB, int kC, int kD, class V>
HWY_INLINE void four_rounds(V& x0, V& x1, V key0, V key1) {
  mix<kA>(x0, x1);
  mix<kB>(x0, x1);
  mix<kC>(x0, x1);
  mix<kD>(x0, x1);
  x0 = hn::Add(x0, key0);
  x1 = hn::Add(x1, key1);
}

// Bits of the counts `begin` to `begin + n`, which share the upper half of the counter.
// Source: Salmon et al. 2011; JAX's partitionable layout: counter (hi, lo), result b0 ^ b1.
void threefry(const uint32_t* key, uint64_t begin, uint32_t* to, int64_t n) {
  const hn::ScalableTag<uint32_t> d;
  using V = hn::Vec<decltype(d)>;
  const uint32_t k0 = key[0], k1 = key[1], k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  const V hi = hn::Set(d, static_cast<uint32_t>(begin >> 32) + k0);
  const auto block = [&](uint32_t first) {
    V x0 = hi, x1 = hn::Add(hn::Iota(d, first), hn::Set(d, k1));
    four_rounds<13, 15, 26, 6>(x0, x1, hn::Set(d, k1), hn::Set(d, k2 + 1));
    four_rounds<17, 29, 16, 24>(x0, x1, hn::Set(d, k2), hn::Set(d, k0 + 2));
    four_rounds<13, 15, 26, 6>(x0, x1, hn::Set(d, k0), hn::Set(d, k1 + 3));
    four_rounds<17, 29, 16, 24>(x0, x1, hn::Set(d, k1), hn::Set(d, k2 + 4));
    four_rounds<13, 15, 26, 6>(x0, x1, hn::Set(d, k2), hn::Set(d, k0 + 5));
    return hn::Xor(x0, x1);
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto low = static_cast<uint32_t>(begin);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(block(low + static_cast<uint32_t>(i)), d, to + i);
  if (i < n) {
    HWY_ALIGN uint32_t rest[HWY_MAX_BYTES / sizeof(uint32_t)];
    hn::Store(block(low + static_cast<uint32_t>(i)), d, rest);
    std::copy_n(rest, n - i, to + i);
  }
}

}  // namespace stow::cpu::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu::kernels {

HWY_EXPORT(threefry);

void random_bits(Views in, Views out, int threads) {
  const TensorView& y = out[0];
  const auto* words = reinterpret_cast<const uint32_t*>(in[0].data);
  const uint32_t key[2] = {words[0], words[in[0].strides[0]]};
  const uint64_t first = in.size() > 1 ? *reinterpret_cast<const uint64_t*>(in[1].data) : 0;
  Nest<1> nest;
  for (size_t a = 0; a < y.dims.size(); ++a) add_axis(nest, y.dims[a], {y.strides[a]});
  merge(nest);
  if (nest.empty()) nest.push_back({1, {1}});
  auto* data = reinterpret_cast<uint32_t*>(y.data);
  const int64_t stride = nest.back().stride[0];
  parallel_for(threads, count(nest), 4096, [&](int64_t begin, int64_t end, int) {
    constexpr int64_t kBuffer = 512;
    uint32_t buffer[kBuffer];
    Walk<1> walk(nest, begin);
    while (begin < end) {
      const uint64_t counter = first + static_cast<uint64_t>(begin);
      const auto left_below = static_cast<int64_t>((uint64_t{1} << 32) - (counter & 0xffffffffu));
      int64_t n = std::min({walk.run(), end - begin, left_below});
      if (stride != 1) n = std::min(n, kBuffer);
      uint32_t* to = data + walk.offset[0];
      HWY_DYNAMIC_DISPATCH(threefry)
      (key, counter, stride == 1 ? to : buffer, n);
      if (stride != 1)
        for (int64_t i = 0; i < n; ++i) to[i * stride] = buffer[i];
      walk.advance(n);
      begin += n;
    }
  });
}

}  // namespace stow::cpu::kernels
#endif
