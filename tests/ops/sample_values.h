// Values of the operands of samples, as numbers and as bytes.
// Not the results of ops.
#pragma once

#include <algorithm>
#include <random>

#include "stowage/core/scalar.h"
#include "tests/ops/samples.h"
#include "tests/support/evaluate.h"

namespace stow::testing {

using Numbers = std::vector<double>;
using Random = std::mt19937_64;

inline Numbers decode(DType dtype, const Bytes& bytes) {
  Numbers numbers;
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t at = 0; at < bytes.size(); at += width)
    numbers.push_back(decode_scalar(dtype, std::span(bytes).subspan(at, width)));
  return numbers;
}

inline Bytes encode(DType dtype, const Numbers& numbers) {
  Bytes bytes;
  for (double x : numbers) {
    const auto element = encode_scalar(dtype, x);
    STOW_CHECK(element, "{} is no {}", x, dtype_name(dtype));
    bytes.insert(bytes.end(), element->begin(), element->end());
  }
  return bytes;
}

// Draws values of all operands. If sample.distinct, no two values of the operands are close to each
// other.
inline std::vector<Numbers> draw(const Sample& sample, Random& random) {
  int64_t n = 0;
  for (const ArrayType& t : sample.operands) n += t.elems();
  std::vector<int64_t> places(static_cast<size_t>(n));
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
  std::shuffle(places.begin(), places.end(), random);
  std::vector<Numbers> result;
  size_t at = 0;
  for (size_t i = 0; i < sample.operands.size(); ++i) {
    const ArrayType& type = sample.operands[i];
    const auto [low, high] = sample.range(i);
    Numbers numbers(static_cast<size_t>(type.elems()));
    for (double& x : numbers) {
      const int64_t place = places[at++];
      if (type.dtype == DType::kBool)
        x = static_cast<double>(random() % 2);
      else if (!is_float(type.dtype))
        x = static_cast<double>(std::uniform_int_distribution<int64_t>(
            static_cast<int64_t>(low), static_cast<int64_t>(high) - 1)(random));
      else if (sample.distinct)
        x = low + (high - low) * (static_cast<double>(place) + 0.5) / static_cast<double>(n);
      else
        x = std::uniform_real_distribution(low, high)(random);
    }
    result.push_back(std::move(numbers));
  }
  return result;
}

inline std::vector<Bytes> encode_all(const Sample& sample, const std::vector<Numbers>& values) {
  std::vector<Bytes> result;
  for (size_t i = 0; i < values.size(); ++i)
    result.push_back(encode(sample.operands[i].dtype, values[i]));
  return result;
}

}  // namespace stow::testing
