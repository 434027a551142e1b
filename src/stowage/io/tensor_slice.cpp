#include "stowage/io/tensor_slice.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace stow {
namespace {

// Gaps that are read along: a page is read as a whole anyway.
constexpr int64_t kGapBytes = 4096;
constexpr size_t kMostRuns = 8192;           // that wait for one read
constexpr int64_t kMostCoverWork = 1 << 22;  // slices looked at

// Calls visit(offset in a, offset in b, length), in elements, for each run of elements that follow
// one another in both boxes. Offsets in `a` grow. Returns the first failure.
template <typename Visit>
Result<void> each_run(const TensorSlice& a, const TensorSlice& b, const TensorSlice& common,
                      const Visit& visit) {
  const size_t rank = common.sizes.size();
  // Axes from `inner` on form one run: all but the first of them are whole in both.
  size_t inner = rank;
  int64_t run = 1;
  while (inner > 0) {
    --inner;
    run *= common.sizes[inner];
    if (common.sizes[inner] != a.sizes[inner] || common.sizes[inner] != b.sizes[inner]) break;
  }
  std::vector<int64_t> a_strides(rank), b_strides(rank);
  int64_t a_at = 0, b_at = 0, a_stride = 1, b_stride = 1;
  for (size_t i = rank; i-- > 0;) {
    a_strides[i] = a_stride;
    b_strides[i] = b_stride;
    a_at += (common.starts[i] - a.starts[i]) * a_stride;
    b_at += (common.starts[i] - b.starts[i]) * b_stride;
    a_stride *= a.sizes[i];
    b_stride *= b.sizes[i];
  }
  std::vector<int64_t> index(inner);
  while (true) {
    if (Result<void> done = visit(a_at, b_at, run); !done) return done;
    size_t i = inner;
    for (; i > 0; --i) {
      a_at += a_strides[i - 1];
      b_at += b_strides[i - 1];
      if (++index[i - 1] < common.sizes[i - 1]) break;
      index[i - 1] = 0;
      a_at -= common.sizes[i - 1] * a_strides[i - 1];
      b_at -= common.sizes[i - 1] * b_strides[i - 1];
    }
    if (i == 0) return {};
  }
}

// Looks along one axis after another: between two borders of an axis always the same slices are
// there.
class Cover {
 public:
  Cover(std::span<const int64_t> shape, std::span<const TensorSlice> slices)
      : slices_(slices), where_(whole_slice(shape)) {}

  std::optional<CoverFault> check(std::vector<size_t> present, size_t axis) {
    if (present.empty()) return CoverFault{where_, {}};
    if (axis == where_.sizes.size()) {
      if (present.size() == 1) return std::nullopt;
      return CoverFault{where_, std::move(present)};
    }
    const auto start = [&](size_t k) { return slices_[k].starts[axis]; };
    const auto end = [&](size_t k) { return slices_[k].starts[axis] + slices_[k].sizes[axis]; };
    const int64_t extent = where_.sizes[axis];
    std::vector<int64_t> borders = {0, extent};
    for (size_t k : present) {
      borders.push_back(start(k));
      borders.push_back(end(k));
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::sort(present.begin(), present.end(), [&](size_t k, size_t l) {
      return start(k) != start(l) ? start(k) < start(l) : k < l;
    });
    std::vector<size_t> here;
    for (size_t i = 0, next = 0; i + 1 < borders.size(); ++i) {
      std::erase_if(here, [&](size_t k) { return end(k) <= borders[i]; });
      for (; next < present.size() && start(present[next]) <= borders[i]; ++next)
        here.push_back(present[next]);
      work_ += static_cast<int64_t>(here.size()) + 1;
      if (work_ > kMostCoverWork) return CoverFault{where_, {}, true};
      where_.starts[axis] = borders[i];
      where_.sizes[axis] = borders[i + 1] - borders[i];
      if (std::optional<CoverFault> fault = check(here, axis + 1)) return fault;
    }
    where_.starts[axis] = 0;
    where_.sizes[axis] = extent;
    return std::nullopt;
  }

 private:
  std::span<const TensorSlice> slices_;
  TensorSlice where_;
  int64_t work_ = 0;
};

void add_slices(const TensorSlice& slice, size_t axis, int64_t begin, int64_t end, TensorSlice& at,
                std::vector<TensorSlice>& out) {
  if (begin == end) return;
  if (axis == slice.sizes.size()) return out.push_back(at);
  int64_t row = 1;
  for (size_t i = axis + 1; i < slice.sizes.size(); ++i) row *= slice.sizes[i];
  const auto rows = [&](int64_t first, int64_t n, int64_t from, int64_t to) {
    at.starts[axis] = slice.starts[axis] + first;
    at.sizes[axis] = n;
    if (from == 0 && to == row) {
      out.push_back(at);
      return;
    }
    add_slices(slice, axis + 1, from, to, at, out);
    for (size_t i = axis + 1; i < slice.sizes.size(); ++i) {
      at.starts[i] = slice.starts[i];
      at.sizes[i] = slice.sizes[i];
    }
  };
  int64_t first = begin / row;
  if (begin % row != 0) {
    rows(first, 1, begin % row, std::min(row, end - first * row));
    ++first;
  }
  const int64_t last = end / row;
  if (last > first) rows(first, last - first, 0, row);
  if (last >= first && end % row != 0) rows(last, 1, 0, end % row);
}

}  // namespace

int64_t TensorSlice::elems() const {
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

std::string to_string(const TensorSlice& slice) {
  std::string text = "[";
  for (size_t i = 0; i < slice.starts.size(); ++i)
    text +=
        fmt::format("{}{}:{}", i ? ", " : "", slice.starts[i], slice.starts[i] + slice.sizes[i]);
  return text + "]";
}

TensorSlice whole_slice(std::span<const int64_t> shape) {
  return {std::vector<int64_t>(shape.size()), {shape.begin(), shape.end()}};
}

TensorSlice slice_at(std::span<const int64_t> shape, const AxisSharding& sharding,
                     const MeshShape& mesh, int64_t position) {
  STOW_CHECK(sharding.axes.size() == shape.size() && sharding.partial.empty(), "{} for {} axes",
             to_string(sharding, mesh), shape.size());
  TensorSlice slice = whole_slice(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    slice.sizes[i] /= mesh.extent_of(sharding.axes[i]);
    slice.starts[i] = part_index(sharding, static_cast<int>(i), mesh, position) * slice.sizes[i];
  }
  return slice;
}

bool lies_within(const TensorSlice& slice, std::span<const int64_t> shape) {
  if (slice.starts.size() != shape.size() || slice.sizes.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (slice.starts[i] < 0 || slice.sizes[i] < 0 || slice.starts[i] > shape[i] ||
        slice.sizes[i] > shape[i] - slice.starts[i])
      return false;
  return true;
}

std::optional<TensorSlice> intersection(const TensorSlice& a, const TensorSlice& b) {
  TensorSlice common = a;
  for (size_t i = 0; i < a.starts.size(); ++i) {
    common.starts[i] = std::max(a.starts[i], b.starts[i]);
    const int64_t end = std::min(a.starts[i] + a.sizes[i], b.starts[i] + b.sizes[i]);
    common.sizes[i] = end - common.starts[i];
    if (common.sizes[i] <= 0) return std::nullopt;
  }
  return common;
}

std::vector<TensorSlice> slices_of_range(const TensorSlice& slice, int64_t begin, int64_t end) {
  STOW_CHECK(0 <= begin && begin <= end && end <= slice.elems(), "elements {} to {} of {}", begin,
             end, slice.elems());
  std::vector<TensorSlice> slices;
  TensorSlice at = slice;
  add_slices(slice, 0, begin, end, at, slices);
  return slices;
}

std::optional<CoverFault> cover_fault(std::span<const int64_t> shape,
                                      std::span<const TensorSlice> slices) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return std::nullopt;
  std::vector<size_t> all(slices.size());
  for (size_t k = 0; k < all.size(); ++k) all[k] = k;
  return Cover(shape, slices).check(std::move(all), 0);
}

Result<void> read_common(const ReadBytes& read, const TensorSlice& stored, int64_t offset_bytes,
                         const TensorSlice& wanted, int64_t elem_bytes, std::span<std::byte> out) {
  STOW_CHECK(static_cast<int64_t>(out.size()) == wanted.elems() * elem_bytes, "{} bytes for {}",
             out.size(), to_string(wanted));
  const std::optional<TensorSlice> common = intersection(stored, wanted);
  if (!common) return {};

  struct Run {
    int64_t from = 0, to = 0, bytes = 0;
  };
  std::vector<Run> runs;  // that one read serves
  std::vector<std::byte> piece;
  const auto flush = [&]() -> Result<void> {
    if (runs.empty()) return {};
    const auto target = [&](const Run& run) {
      return out.subspan(static_cast<size_t>(run.to), static_cast<size_t>(run.bytes));
    };
    if (runs.size() == 1) {
      if (Result<void> done = read(runs[0].from, target(runs[0])); !done) return done;
    } else {
      const int64_t begin = runs.front().from;
      piece.resize(static_cast<size_t>(runs.back().from + runs.back().bytes - begin));
      if (Result<void> done = read(begin, piece); !done) return done;
      for (const Run& run : runs)
        std::memcpy(target(run).data(), piece.data() + (run.from - begin), target(run).size());
    }
    runs.clear();
    return {};
  };
  const auto add = [&](int64_t from, int64_t to, int64_t n) -> Result<void> {
    const Run run = {offset_bytes + from * elem_bytes, to * elem_bytes, n * elem_bytes};
    const bool joins = !runs.empty() && runs.size() < kMostRuns &&
                       run.from - (runs.back().from + runs.back().bytes) < kGapBytes &&
                       run.from + run.bytes - runs.front().from <= kSlicePieceBytes;
    if (!joins)
      if (Result<void> done = flush(); !done) return done;
    runs.push_back(run);
    return {};
  };
  if (Result<void> done = each_run(stored, wanted, *common, add); !done) return done;
  return flush();
}

}  // namespace stow
