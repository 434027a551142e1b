#include "stowage/io/tensor_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <set>

namespace stow {
namespace {

using Shape = std::vector<int64_t>;

int64_t random_up_to(std::mt19937& random, int64_t most) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1));
}

Shape random_shape(std::mt19937& random, int most_axes = 4) {
  Shape shape(random() % static_cast<unsigned>(most_axes + 1));
  for (int64_t& extent : shape) extent = 1 + random_up_to(random, 5);
  return shape;
}

TensorSlice random_slice(std::mt19937& random, const Shape& shape) {
  TensorSlice slice = whole_slice(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    slice.starts[i] = random_up_to(random, shape[i] - 1);
    slice.sizes[i] = 1 + random_up_to(random, shape[i] - slice.starts[i] - 1);
  }
  return slice;
}

// The row-major numbers, in a tensor of that shape, of a slice's elements: an oracle that counts.
std::vector<int32_t> numbers_of(const TensorSlice& slice, const Shape& shape) {
  std::vector<int32_t> numbers;
  for (int64_t e = 0; e < slice.elems(); ++e) {
    int64_t rest = e, number = 0, stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      number += (slice.starts[i] + rest % slice.sizes[i]) * stride;
      rest /= slice.sizes[i];
      stride *= shape[i];
    }
    numbers.push_back(static_cast<int32_t>(number));
  }
  return numbers;
}

TEST(TensorSlice, Prints) {
  EXPECT_EQ(to_string(TensorSlice{{0, 8}, {4, 8}}), "[0:4, 8:16]");
  EXPECT_EQ(to_string(TensorSlice{}), "[]");
}

TEST(TensorSlice, LiesWithinItsShape) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(lies_within({{1, 0}, {2, 4}}, Shape{3, 4}));
  EXPECT_FALSE(lies_within({{2, 0}, {2, 4}}, Shape{3, 4}));
  EXPECT_FALSE(lies_within({{0}, {3}}, Shape{3, 4}));
  EXPECT_FALSE(lies_within({{-1}, {2}}, Shape{3}));
  EXPECT_FALSE(lies_within({{1}, {-1}}, Shape{3}));
  EXPECT_FALSE(lies_within({{1}, {kMost}}, Shape{3}));
  EXPECT_FALSE(lies_within({{kMost}, {kMost}}, Shape{kMost}));
}

TEST(TensorSlice, IsThePartOfAPosition) {
  const MeshShape mesh = {{"data", "model"}, {2, 3}};
  const AxisSharding sharding = {.axes = {{}, {1, 0}}};
  EXPECT_EQ(slice_at(Shape{5, 12}, sharding, mesh, 0), (TensorSlice{{0, 0}, {5, 2}}));
  EXPECT_EQ(slice_at(Shape{5, 12}, sharding, mesh, 3), (TensorSlice{{0, 2}, {5, 2}}));
  EXPECT_EQ(slice_at(Shape{5, 12}, sharding, mesh, 5), (TensorSlice{{0, 10}, {5, 2}}));
}

TEST(TensorSlice, RangesHaveTheElementsInOrder) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const Shape shape = random_shape(random);
    const TensorSlice slice = random_slice(random, shape);
    const std::vector<int32_t> all = numbers_of(slice, shape);
    const int64_t begin = random_up_to(random, slice.elems());
    const int64_t end = begin + random_up_to(random, slice.elems() - begin);
    std::vector<int32_t> got;
    const std::vector<TensorSlice> parts = slices_of_range(slice, begin, end);
    for (const TensorSlice& part : parts)
      for (int32_t number : numbers_of(part, shape)) got.push_back(number);
    ASSERT_EQ(got, std::vector<int32_t>(all.begin() + begin, all.begin() + end))
        << to_string(slice) << " " << begin << " " << end;
    ASSERT_LE(parts.size(), std::max<size_t>(1, 2 * shape.size()));
  }
}

// The file is an array of the numbers of its elements.
TEST(TensorSlice, ReadsWhatTwoHaveInCommon) {
  std::mt19937 random(11);
  constexpr int64_t kOffset = 24;
  for (int i = 0; i < 3000; ++i) {
    const Shape shape = random_shape(random);
    const TensorSlice stored = random_slice(random, shape), wanted = random_slice(random, shape);
    const std::vector<int32_t> file = numbers_of(stored, shape),
                               numbers = numbers_of(wanted, shape);
    int64_t most_bytes = 0;
    const auto read = [&](int64_t offset, std::span<std::byte> out) -> Result<void> {
      offset -= kOffset;
      const int64_t n = static_cast<int64_t>(out.size());
      STOW_CHECK(offset >= 0 && offset + n <= static_cast<int64_t>(file.size() * 4));
      std::memcpy(out.data(), reinterpret_cast<const std::byte*>(file.data()) + offset, out.size());
      most_bytes += n;
      return {};
    };
    std::vector<int32_t> got(numbers.size(), -1);
    ASSERT_TRUE(
        read_common(read, stored, kOffset, wanted, 4, std::as_writable_bytes(std::span(got))).ok());
    const std::set<int32_t> there(file.begin(), file.end());
    for (size_t e = 0; e < got.size(); ++e)
      ASSERT_EQ(got[e], there.contains(numbers[e]) ? numbers[e] : -1)
          << to_string(stored) << " to " << to_string(wanted);
    ASSERT_LE(most_bytes, static_cast<int64_t>(file.size() * 4));
  }
}

// Rows of 64 KiB, of which 4 KiB are wanted: nothing else is read.
TEST(TensorSlice, ReadsNoMoreThanItNeeds) {
  int64_t n_bytes = 0, n_reads = 0;
  const auto read = [&](int64_t, std::span<std::byte> out) -> Result<void> {
    n_bytes += static_cast<int64_t>(out.size());
    ++n_reads;
    return {};
  };
  const auto reads_of = [&](const TensorSlice& stored, const TensorSlice& wanted) {
    n_bytes = n_reads = 0;
    std::vector<std::byte> out(static_cast<size_t>(wanted.elems() * 4));
    EXPECT_TRUE(read_common(read, stored, 0, wanted, 4, out).ok());
    return std::pair(n_bytes, n_reads);
  };
  const TensorSlice whole = whole_slice(Shape{100, 16384});
  EXPECT_EQ(reads_of(whole, {{0, 1024}, {100, 1024}}),
            std::pair(int64_t{100 * 4096}, int64_t{100}));
  EXPECT_EQ(reads_of(whole, {{50, 0}, {10, 16384}}), std::pair(int64_t{10 * 65536}, int64_t{1}));
  // Pieces that are narrower than what is wanted are read as a whole, in pieces.
  EXPECT_EQ(reads_of({{0, 1024}, {100, 1024}}, whole), std::pair(int64_t{100 * 4096}, int64_t{1}));
  // Rows of 64 bytes, of which 16 are wanted: their pages are read anyway.
  EXPECT_EQ(reads_of(whole_slice(Shape{100, 16}), {{0, 4}, {100, 4}}).second, 1);
}

std::string fault_of(const Shape& shape, const std::vector<TensorSlice>& slices) {
  const std::optional<CoverFault> fault = cover_fault(shape, slices);
  if (!fault) return "";
  if (fault->is_too_irregular) return "irregular";
  std::string text = to_string(fault->where);
  for (size_t k : fault->slices) text += fmt::format(" {}", k);
  return text;
}

TEST(TensorSlice, CoversATensorOnce) {
  EXPECT_EQ(fault_of({}, {{}}), "");
  EXPECT_EQ(fault_of({}, {}), "[]");
  EXPECT_EQ(fault_of({}, {{}, {}}), "[] 0 1");
  EXPECT_EQ(fault_of({0, 3}, {}), "");
  EXPECT_EQ(fault_of({4}, {{{2}, {2}}, {{0}, {2}}}), "");
  EXPECT_EQ(fault_of({4}, {{{2}, {2}}}), "[0:2]");
  EXPECT_EQ(fault_of({4}, {{{0}, {3}}}), "[3:4]");
  EXPECT_EQ(fault_of({4}, {{{0}, {3}}, {{2}, {2}}}), "[2:3] 0 1");
  // A pinwheel: no cut goes through.
  std::vector<TensorSlice> wheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_EQ(fault_of({3, 3}, wheel), "");
  wheel.pop_back();
  EXPECT_EQ(fault_of({3, 3}, wheel), "[1:2, 1:2]");
}

TEST(TensorSlice, FindsEveryHoleAndOverlap) {
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    const Shape shape = random_shape(random, 3);
    std::vector<TensorSlice> slices;
    for (size_t n = random() % 4; n > 0; --n) slices.push_back(random_slice(random, shape));
    if (random() % 4 == 0) {  // one that holds
      slices = {whole_slice(shape)};
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        const int64_t at = random_up_to(random, shape[axis]);
        if (at == 0 || at == shape[axis]) continue;
        std::vector<TensorSlice> cut;
        for (TensorSlice& slice : slices) {
          TensorSlice low = slice, high = slice;
          low.sizes[axis] = at;
          high.starts[axis] = at;
          high.sizes[axis] = shape[axis] - at;
          cut.insert(cut.end(), {low, high});
        }
        slices = cut;
      }
    }
    std::vector<int> times(static_cast<size_t>(whole_slice(shape).elems()));
    for (const TensorSlice& slice : slices)
      for (int32_t number : numbers_of(slice, shape)) ++times[static_cast<size_t>(number)];
    const std::optional<CoverFault> fault = cover_fault(shape, slices);
    ASSERT_EQ(!fault, std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
    if (!fault) continue;
    for (int32_t number : numbers_of(fault->where, shape))
      ASSERT_EQ(times[static_cast<size_t>(number)], static_cast<int>(fault->slices.size()));
  }
}

// Columns, each cut at a row of its own: comparing each with each would take minutes.
TEST(TensorSlice, BoundsItsTimeOnWhatIsNoGrid) {
  std::vector<TensorSlice> slices;
  constexpr int64_t kN = 20'000;
  for (int64_t i = 0; i < kN; ++i) {
    slices.push_back({{0, i}, {i + 1, 1}});
    slices.push_back({{i + 1, i}, {kN - i, 1}});
  }
  EXPECT_EQ(fault_of({kN + 1, kN}, slices), "irregular");
  // A grid of as many is no trouble.
  slices.clear();
  for (int64_t i = 0; i < 2 * kN; ++i) slices.push_back({{i / 200, i % 200}, {1, 1}});
  EXPECT_EQ(fault_of({kN / 100, 200}, slices), "");
}

}  // namespace
}  // namespace stow
