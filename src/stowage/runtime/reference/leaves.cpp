#include <cstring>

#include "stowage/runtime/reference/element.h"
#include "stowage/runtime/reference/families.h"

namespace stow::ref {
namespace {

uint32_t rotate_left(uint32_t x, int by) {
  return x << by | x >> (32 - by);
}

// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3": Threefry-2x32, 20 rounds.
void threefry2x32(const uint32_t key[2], uint32_t x[2]) {
  const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
  x[0] += keys[0];
  x[1] += keys[1];
  for (uint32_t round = 0; round < 20; ++round) {
    x[0] += x[1];
    x[1] = rotate_left(x[1], rotations[round % 8]) ^ x[0];
    if (round % 4 == 3) {
      const uint32_t injection = round / 4 + 1;
      x[0] += keys[injection % 3];
      x[1] += keys[(injection + 1) % 3] + injection;
    }
  }
}

}  // namespace

void constant(const ConstantParams& params, Views out) {
  const auto width = static_cast<size_t>(dtype_bytes(out[0].dtype));
  size_t element = 0;
  for_each_index(out[0].dims, [&](const Dims& i) {
    std::memcpy(at(out[0], i), params.data.data() + (params.is_splat() ? 0 : element * width),
                width);
    ++element;
  });
}

void iota(const IotaParams& params, Views out) {
  for_each_index(out[0].dims, [&](const Dims& i) {
    const int64_t count = i[static_cast<size_t>(params.axis)];
    if (is_float(out[0].dtype))
      store_float(out[0], i, static_cast<long double>(count));
    else
      store_int(out[0], i, count);
  });
}

void random_bits(Views in, Views out) {
  const uint32_t key[2] = {static_cast<uint32_t>(load_int(in[0], {0})),
                           static_cast<uint32_t>(load_int(in[0], {1}))};
  uint64_t element = in.size() > 1 ? static_cast<uint64_t>(load_int(in[1], {})) : 0;
  for_each_index(out[0].dims, [&](const Dims& i) {
    uint32_t x[2] = {static_cast<uint32_t>(element >> 32), static_cast<uint32_t>(element)};
    threefry2x32(key, x);
    store_int(out[0], i, x[0] ^ x[1]);
    ++element;
  });
}

}  // namespace stow::ref
