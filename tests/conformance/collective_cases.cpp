#include "tests/conformance/collective_cases.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "stowage/core/mesh_shape.h"
#include "stowage/core/scalar.h"

namespace stow {
namespace {

using comm::Communicator;
using comm::Group;
using Bytes = std::vector<std::byte>;

uint64_t random_bits(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t x = state;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// What a rank holds: every rank can make that of every other. Integers have random bits, floats
// wide exponents, and now and then a zero of either sign, an infinity or a NaN.
Bytes values_of(int32_t rank, DType dtype, int64_t n, uint64_t seed) {
  uint64_t state = seed * 1000003 + static_cast<uint64_t>(rank) * 7919 + static_cast<uint64_t>(n);
  const auto elem = static_cast<size_t>(dtype_bytes(dtype));
  Bytes bytes(static_cast<size_t>(n) * elem);
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const uint64_t bits = random_bits(state);
    if (dtype == DType::kBool) {
      bytes[i] = static_cast<std::byte>(bits & 1);
    } else if (!is_float(dtype)) {
      std::memcpy(&bytes[i * elem], &bits, elem);
    } else if (dtype == DType::kF32) {
      // Most of the work; any finite number of moderate size.
      const auto number = static_cast<float>(static_cast<int32_t>(bits)) *
                          std::ldexp(1.0f, static_cast<int>(bits >> 32 & 7) - 31);
      std::memcpy(&bytes[i * elem], &number, elem);
    } else {
      double number = std::ldexp(static_cast<double>(static_cast<int32_t>(bits)),
                                 static_cast<int>(bits >> 32 & 7) - 31);
      const uint64_t special = bits >> 40 & 63;
      if (special == 0) number = -0.0;
      if (special == 1) number = 0.0;
      if (special == 2) number = INFINITY;
      if (special == 3) number = NAN;
      const auto encoded = encode_scalar(dtype, number);
      std::memcpy(&bytes[i * elem], encoded->data(), elem);
    }
  }
  return bytes;
}

uint64_t integer_at(DType dtype, const std::byte* at) {
  uint64_t bits = 0;
  const auto elem = static_cast<size_t>(dtype_bytes(dtype));
  std::memcpy(&bits, at, elem);
  const int shift = 64 - 8 * static_cast<int>(elem);
  if (is_signed_int(dtype))
    return static_cast<uint64_t>(static_cast<int64_t>(bits << shift) >> shift);
  return bits;
}

// One node of the tree, by way of double: an f32 sum rounds there to what it is in f32.
void node(ReduceKind kind, DType dtype, const std::byte* a, const std::byte* b, std::byte* out) {
  const auto elem = static_cast<size_t>(dtype_bytes(dtype));
  if (is_float(dtype)) {
    const double x = decode_scalar(dtype, {a, elem}), y = decode_scalar(dtype, {b, elem});
    double z = x + y;
    if (kind != ReduceKind::kSum) {
      const bool first_is_less = x < y || (x == y && std::signbit(x) && !std::signbit(y));
      z = std::isnan(x)                                 ? x
          : std::isnan(y)                               ? y
          : (kind == ReduceKind::kMin) == first_is_less ? x
                                                        : y;
    }
    std::memcpy(out, encode_scalar(dtype, z)->data(), elem);
    return;
  }
  const uint64_t x = integer_at(dtype, a), y = integer_at(dtype, b);
  uint64_t z = 0;
  const bool less =
      is_signed_int(dtype) ? static_cast<int64_t>(x) < static_cast<int64_t>(y) : x < y;
  switch (kind) {
    case ReduceKind::kSum: z = x + y; break;
    case ReduceKind::kMax: z = less ? y : x; break;
    case ReduceKind::kMin: z = less ? x : y; break;
    case ReduceKind::kAnd: z = x & y; break;
    case ReduceKind::kOr: z = x | y; break;
  }
  std::memcpy(out, &z, elem);
}

// The reduction of parts [begin, end).
Bytes reduced(ReduceKind kind, DType dtype, const std::vector<Bytes>& parts, size_t begin,
              size_t end) {
  if (end - begin == 1) return parts[begin];
  size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  const Bytes left = reduced(kind, dtype, parts, begin, begin + half);
  const Bytes right = reduced(kind, dtype, parts, begin + half, end);
  Bytes result(left.size());
  const auto elem = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t at = 0; at < result.size(); at += elem) {
    if (kind == ReduceKind::kSum && dtype == DType::kF32) {  // most of the work
      float a, b;
      std::memcpy(&a, &left[at], 4), std::memcpy(&b, &right[at], 4);
      const float sum = a + b;
      std::memcpy(&result[at], &sum, 4);
    } else {
      node(kind, dtype, &left[at], &right[at], &result[at]);
    }
  }
  return result;
}

Bytes reduced(ReduceKind kind, DType dtype, const std::vector<Bytes>& parts) {
  return reduced(kind, dtype, parts, 0, parts.size());
}

// The first element in which they differ, or -1. A NaN equals every NaN: its bits are the
// processor's.
int64_t difference(DType dtype, const Bytes& expected, const Bytes& got) {
  const auto elem = static_cast<size_t>(dtype_bytes(dtype));
  if (expected == got) return -1;
  for (size_t i = 0; i < expected.size() / elem; ++i) {
    const std::byte *a = &expected[i * elem], *b = &got[i * elem];
    if (std::memcmp(a, b, elem) == 0) continue;
    if (is_float(dtype) && std::isnan(decode_scalar(dtype, {a, elem})) &&
        std::isnan(decode_scalar(dtype, {b, elem})))
      continue;
    return static_cast<int64_t>(i);
  }
  return -1;
}

// Half the distance of a number of the dtype to the next, relative, and that of the smallest ones.
struct Rounding {
  long double relative, least;
};
Rounding rounding_of(DType dtype) {
  if (dtype == DType::kF64) return {0x1p-53L, 0x1p-1075L};
  if (dtype == DType::kF32) return {0x1p-24L, 0x1p-150L};
  if (dtype == DType::kBF16) return {0x1p-8L, 0x1p-134L};
  return {0x1p-11L, 0x1p-25L};  // f16
}

// The first element of a float sum that is further from the exact one than its n - 1 roundings, and
// that to the dtype, allow in any order: n u sum|x| (Higham 2002, 4.2); or -1.
int64_t beyond_rounding(DType dtype, const std::vector<Bytes>& parts, const Bytes& got) {
  const auto elem = static_cast<size_t>(dtype_bytes(dtype));
  const Rounding u = rounding_of(dtype);
  const auto n = static_cast<long double>(parts.size());
  for (size_t at = 0; at < got.size(); at += elem) {
    long double sum = 0, size = 0;
    for (const Bytes& part : parts) {
      const long double x = decode_scalar(dtype, {&part[at], elem});
      sum += x;
      size += std::abs(x);
    }
    const long double value = decode_scalar(dtype, {&got[at], elem});
    const bool is_special = !std::isfinite(sum);
    const bool is_right =
        std::isnan(sum) ? std::isnan(value)
        : is_special    ? value == sum
                        : std::abs(value - sum) <= n * (u.relative * size + u.least);
    if (!is_right) return static_cast<int64_t>(at / elem);
  }
  return -1;
}

struct Checker {
  Communicator& communicator;
  uint64_t seed;
  std::string fault;

  // Of a reduction of `parts`, whose tree is `expected`.
  void compare_reduced(const Group& group, const std::string& what, ReduceKind kind, DType dtype,
                       const std::vector<Bytes>& parts, const Bytes& expected, const Bytes& got) {
    const bool is_native = communicator.reduce_order() == comm::ReduceOrder::kNative &&
                           communicator.has_native_reduction();
    if (!is_native || kind != ReduceKind::kSum || !is_float(dtype))
      return compare(group, what, dtype, expected, got);
    const int64_t at = beyond_rounding(dtype, parts, got);
    if (at < 0 || !fault.empty()) return;
    fault = fmt::format(
        "rank {} of {}: {} in {} over a group of {} is beyond rounding at element {}",
        communicator.rank(), communicator.size(), what, dtype_name(dtype), group.size(), at);
  }

  void compare(const Group& group, const std::string& what, DType dtype, const Bytes& expected,
               const Bytes& got) {
    const int64_t at = difference(dtype, expected, got);
    if (at < 0 || !fault.empty()) return;
    fault = fmt::format("rank {} of {}: {} in {} over a group of {} differs at element {}",
                        communicator.rank(), communicator.size(), what, dtype_name(dtype),
                        group.size(), at);
  }

  std::vector<Bytes> values(const Group& group, DType dtype, int64_t n) {
    std::vector<Bytes> result;
    for (const int32_t rank : group.ranks) result.push_back(values_of(rank, dtype, n, seed));
    return result;
  }

  void gather(const Group& group, DType dtype, int64_t outer, int64_t inner) {
    const std::vector<Bytes> parts = values(group, dtype, outer * inner);
    const auto row = static_cast<size_t>(inner * dtype_bytes(dtype));
    Bytes expected, got(parts.size() * static_cast<size_t>(outer) * row, std::byte{0xa5});
    for (size_t o = 0; o < static_cast<size_t>(outer); ++o)
      for (const Bytes& part : parts)
        expected.insert(expected.end(), part.data() + o * row, part.data() + (o + 1) * row);
    communicator.all_gather(group, "cases", dtype, outer, inner,
                            parts[static_cast<size_t>(group.index)].data(), got.data());
    compare(group, fmt::format("all_gather [{}, {}]", outer, inner), dtype, expected, got);
  }

  void scatter(const Group& group, ReduceKind kind, DType dtype, int64_t outer, int64_t inner) {
    const int64_t n = group.size();
    const std::vector<Bytes> wholes = values(group, dtype, outer * n * inner);
    const auto row = static_cast<size_t>(inner * dtype_bytes(dtype));
    std::vector<Bytes> pieces(wholes.size());
    for (size_t i = 0; i < wholes.size(); ++i)
      for (size_t o = 0; o < static_cast<size_t>(outer); ++o) {
        const std::byte* at = wholes[i].data() +
                              (o * static_cast<size_t>(n) + static_cast<size_t>(group.index)) * row;
        pieces[i].insert(pieces[i].end(), at, at + row);
      }
    const Bytes expected = reduced(kind, dtype, pieces);
    Bytes got(expected.size(), std::byte{0xa5});
    communicator.reduce_scatter(group, "cases", kind, dtype, outer, inner,
                                wholes[static_cast<size_t>(group.index)].data(), got.data());
    compare_reduced(group,
                    fmt::format("reduce_scatter {} [{}, {}]", reduce_kind_name(kind), outer, inner),
                    kind, dtype, pieces, expected, got);
  }

  void reduce(const Group& group, ReduceKind kind, DType dtype, int64_t n, bool in_place) {
    const std::vector<Bytes> parts = values(group, dtype, n);
    const Bytes expected = reduced(kind, dtype, parts);
    Bytes own = parts[static_cast<size_t>(group.index)], apart(expected.size(), std::byte{0xa5});
    Bytes& got = in_place ? own : apart;
    communicator.all_reduce(group, "cases", kind, dtype, n, own.data(), got.data());
    compare_reduced(group, fmt::format("all_reduce {} [{}]", reduce_kind_name(kind), n), kind,
                    dtype, parts, expected, got);
    if (!in_place)
      compare(group, "all_reduce's operand", dtype, parts[static_cast<size_t>(group.index)], own);
  }

  // From [in_outer, n, in_inner] to [out_outer, n, out_inner], element by element.
  void transpose(const Group& group, DType dtype, int64_t in_outer, int64_t in_inner,
                 int64_t out_outer, int64_t out_inner) {
    const int64_t n = group.size(), count = in_outer * in_inner;
    const auto elem = static_cast<size_t>(dtype_bytes(dtype));
    const std::vector<Bytes> wholes = values(group, dtype, count * n);
    Bytes expected(wholes[0].size()), got(wholes[0].size(), std::byte{0xa5});
    for (int64_t from = 0; from < n; ++from)
      for (int64_t i = 0; i < count; ++i) {
        const int64_t source = (i / in_inner * n + group.index) * in_inner + i % in_inner;
        const int64_t target = (i / out_inner * n + from) * out_inner + i % out_inner;
        std::memcpy(&expected[static_cast<size_t>(target) * elem],
                    &wholes[static_cast<size_t>(from)][static_cast<size_t>(source) * elem], elem);
      }
    communicator.all_to_all(group, "cases", dtype, in_outer, in_inner, out_outer, out_inner,
                            wholes[static_cast<size_t>(group.index)].data(), got.data());
    compare(
        group,
        fmt::format("all_to_all [{}, {}] to [{}, {}]", in_outer, in_inner, out_outer, out_inner),
        dtype, expected, got);
  }

  void permute(const Group& group, DType dtype,
               const std::vector<std::pair<int32_t, int32_t>>& pairs, int64_t n) {
    const std::vector<Bytes> parts = values(group, dtype, n);
    Bytes expected(parts[0].size()), got(parts[0].size(), std::byte{0xa5});
    for (const auto& [from, to] : pairs)
      if (to == group.index) expected = parts[static_cast<size_t>(from)];
    communicator.permute(group, "cases", dtype, pairs, n,
                         parts[static_cast<size_t>(group.index)].data(), got.data());
    compare(group, fmt::format("permute [{}]", n), dtype, expected, got);
  }

  void broadcast(const Group& group, int32_t root, int64_t n) {
    const std::vector<Bytes> parts = values(group, DType::kU8, n);
    Bytes got = parts[static_cast<size_t>(group.index)];
    communicator.broadcast(group, "cases", root, got);
    compare(group, fmt::format("broadcast of {} from {}", n, root), DType::kU8,
            parts[static_cast<size_t>(root)], got);
  }
};

// All ranks; and of meshes with so many positions every row and column, where the caller stands.
std::vector<Group> groups_of(const Communicator& communicator) {
  std::vector<Group> groups = {communicator.all()};
  const auto add = [&](std::vector<std::string> names, std::vector<int64_t> extents) {
    const MeshShape mesh = {std::move(names), std::move(extents)};
    for (int axis = 0; axis < mesh.rank(); ++axis) {
      const int axes[] = {axis};
      std::vector<int32_t> ranks;
      for (const int64_t p : mesh.group(communicator.rank(), axes))
        ranks.push_back(static_cast<int32_t>(p));
      groups.push_back(Group::of(ranks, communicator.rank()));
    }
  };
  if (communicator.size() == 4) add({"x", "y"}, {2, 2});
  if (communicator.size() == 6) add({"x", "y"}, {2, 3});
  if (communicator.size() == 8) {
    add({"x", "y"}, {2, 4});
    add({"x", "y"}, {4, 2});
    // A group whose index is not in the order of its ranks.
    std::vector<int32_t> backwards;
    for (int32_t rank = communicator.size() - 1; rank >= 0; --rank) backwards.push_back(rank);
    groups.push_back(Group::of(backwards, communicator.rank()));
  }
  return groups;
}

}  // namespace

std::string check_collectives(Communicator& communicator, const CaseOptions& options) {
  Checker check{communicator, options.seed, {}};
  communicator.set_reduce_order(options.order);
  const std::vector<Group> groups = groups_of(communicator);
  constexpr ReduceKind kKinds[] = {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kMin,
                                   ReduceKind::kAnd, ReduceKind::kOr};
  // Rows and columns take turns without a barrier, so that some ranks are ahead of others.
  for (int d = 0; d < kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (options.few && dtype != DType::kF64 && dtype != DType::kF32 && dtype != DType::kBF16 &&
        dtype != DType::kI8)
      continue;
    for (const Group& group : groups) {
      const int32_t n = group.size();
      check.gather(group, dtype, 3, 5);
      check.gather(group, dtype, 17, 1);
      check.transpose(group, dtype, 2, 6, 4, 3);
      check.transpose(group, dtype, 7, 1, 1, 7);
      std::vector<std::pair<int32_t, int32_t>> shift, some;
      for (int32_t i = 0; i < n; ++i) shift.emplace_back(i, (i + 1) % n);
      for (int32_t i = 1; i < n; i += 2) some.emplace_back(i, i - 1);
      check.permute(group, dtype, shift, 11);
      check.permute(group, dtype, some, 3);
      for (const ReduceKind kind : kKinds) {
        const bool bitwise = kind == ReduceKind::kAnd || kind == ReduceKind::kOr;
        if ((bitwise && is_float(dtype)) || (kind == ReduceKind::kSum && dtype == DType::kBool))
          continue;
        check.scatter(group, kind, dtype, 3, 7);
        check.scatter(group, kind, dtype, 1, 601);
        check.reduce(group, kind, dtype, 13, false);
        check.reduce(group, kind, dtype, 1, true);
        // More than what every member reduces for itself, and no multiple of the members.
        if (kind == ReduceKind::kSum || dtype == DType::kBool)
          check.reduce(group, kind, dtype, 17000, true);
      }
    }
  }
  for (const Group& group : groups) {
    check.gather(group, DType::kF32, 0, 5);
    check.gather(group, DType::kF32, 3, 0);
    check.scatter(group, ReduceKind::kSum, DType::kF32, 2, 0);
    check.reduce(group, ReduceKind::kSum, DType::kF32, 0, false);
    check.transpose(group, DType::kF32, 0, 4, 0, 4);
    check.permute(group, DType::kF32, {}, 0);
    check.permute(group, DType::kF32, {}, 9);
    for (int32_t root = 0; root < group.size(); ++root) check.broadcast(group, root, 100 + root);
    communicator.barrier(group, "cases");
    if (!options.large) continue;
    // Several windows, and rows that end within a chunk.
    check.gather(group, DType::kF32, 1, 700'001);
    check.gather(group, DType::kBF16, 1001, 1003);
    check.scatter(group, ReduceKind::kSum, DType::kF32, 1, 350'003);
    check.scatter(group, ReduceKind::kSum, DType::kF32, 501, 703);
    check.reduce(group, ReduceKind::kSum, DType::kF32, 700'003, true);
    check.transpose(group, DType::kF32, 501, 703, 703, 501);
    std::vector<std::pair<int32_t, int32_t>> shift;
    for (int32_t i = 0; i < group.size(); ++i) shift.emplace_back(i, (i + 1) % group.size());
    check.permute(group, DType::kF32, shift, 800'001);
    check.broadcast(group, group.size() - 1, 3'000'001);
  }
  return check.fault;
}

std::string check_reduce_order(Communicator& communicator) {
  // 1 + 2^-8 is no number of bf16, 1 + 2^-7 is: a tree loses each term beside 1, their sum stays.
  const Group all = communicator.all();
  const int32_t n = all.size();
  if (n != 4) return "expected 4 ranks";
  const double own = communicator.rank() == 0 ? 1.0 : communicator.rank() == 1 ? 0x1p-8 : 0x1p-9;
  const auto in = *encode_scalar(DType::kBF16, own);
  const auto sum = [&](comm::ReduceOrder order) {
    communicator.set_reduce_order(order);
    std::vector<std::byte> out(2);
    communicator.all_reduce(all, "cases", ReduceKind::kSum, DType::kBF16, 1, in.data(), out.data());
    return decode_scalar(DType::kBF16, out);
  };
  const double by_tree = sum(comm::ReduceOrder::kTree), native = sum(comm::ReduceOrder::kNative);
  // (1 + 2^-8) rounds to 1; 1 + (2^-9 + 2^-9) = 1 + 2^-8 rounds to 1. In f32 the sum is 1 + 2^-7.
  if (by_tree != 1) return fmt::format("the tree gives 1 + {}", by_tree - 1);
  const double expected = communicator.has_native_reduction() ? 1 + 0x1p-7 : 1;
  if (native != expected) return fmt::format("native gives 1 + {}", native - 1);
  return sum(comm::ReduceOrder::kTree) == 1 ? "" : "the tree does not come back";
}

std::string check_compare(Communicator& communicator) {
  const Group group = communicator.all();
  const int32_t n = group.size();
  using Lists = std::vector<std::vector<int32_t>>;
  const auto run = [&](const std::vector<comm::Fingerprint>& items) {
    return communicator.compare(group, "cases", items);
  };
  if (run({{1, 2}, {3, 4}}) != Lists(2)) return "equal fingerprints differ";
  if (run({}) != Lists()) return "no fingerprints differ";
  const int64_t before = communicator.sent_bytes();
  run(std::vector<comm::Fingerprint>(1000, {5, 6}));
  if (const int64_t sent = communicator.sent_bytes() - before; sent > 64)
    return fmt::format("a comparison of a thousand items sent {} bytes", sent);
  if (n < 3) return "";
  for (int32_t odd = 0; odd < n; ++odd) {
    // One bit of one rank's second item, either word.
    std::vector<comm::Fingerprint> items = {{1, 2}, {3, 4}, {5, 6}};
    if (communicator.rank() == odd) items[1][static_cast<size_t>(odd % 2)] ^= uint64_t{1} << 63;
    Lists expected(3);
    expected[1] = {odd};
    if (run(items) != expected) return fmt::format("rank {} is odd, and is not found", odd);
  }
  std::vector<comm::Fingerprint> items = {{communicator.rank() < 2 ? 9u : 7u, 0}};
  if (n == 4 && run(items) != Lists{{2, 3}}) return "of two halves the one without rank 0 is odd";
  return "";
}

std::string check_factorings(Communicator& communicator) {
  constexpr int64_t kElems = 5003;
  const MeshShape mesh = {{"x", "y", "z"}, {2, 2, 2}};
  Checker check{communicator, 5, {}};
  const auto sum = [&](const Bytes& in, std::vector<int> axes) {
    std::vector<int32_t> ranks;
    for (const int64_t p : mesh.group(communicator.rank(), axes))
      ranks.push_back(static_cast<int32_t>(p));
    const Group group = Group::of(ranks, communicator.rank());
    Bytes out(in.size());
    communicator.all_reduce(group, "cases", ReduceKind::kSum, DType::kF32, kElems, in.data(),
                            out.data());
    return out;
  };
  const Bytes own = values_of(communicator.rank(), DType::kF32, kElems, 5);
  const Bytes whole = sum(own, {0, 1, 2});
  const Group all = communicator.all();
  check.compare(all, "4 then 2", DType::kF32, whole, sum(sum(own, {1, 2}), {0}));
  check.compare(all, "2 then 4", DType::kF32, whole, sum(sum(own, {2}), {0, 1}));
  check.compare(all, "2 then 2 then 2", DType::kF32, whole, sum(sum(sum(own, {2}), {1}), {0}));
  // The check must be able to fail: the other order of axes is another tree.
  if (check.fault.empty() && difference(DType::kF32, whole, sum(sum(own, {0}), {1, 2})) < 0)
    return "the major axis first gives the same bits, so the numbers prove nothing";
  return check.fault;
}

}  // namespace stow
