// Reductions over any axes of any layout, in the orders of ir/row_program.h.
#include <cstdlib>

#include "stowage/base/bytes.h"
#include "stowage/ir/row_program.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_types.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {
namespace {

constexpr int64_t kLanes = 16;         // of the row order
constexpr int64_t kSegment = 512;      // columns gathered at a time; a multiple of kLanes
constexpr int64_t kRowGroup = 8;       // rows gathered together where they are the denser way
constexpr int64_t kColumnGroup = 256;  // columns summed together, and where rows are denser:
constexpr int64_t kFewColumns = 8;

// The parts of a plan that are the same for all dtypes: the loops, and whether partial results go
// through scratch.
struct Plan {
  bool by_rows = false;
  Nest<2> kept;       // y, x; the innermost axis apart, below
  LoopAxis<2> group;  // the kept axis along which results are computed together
  Nest<1> reduced;    // x, row-major over the reduced axes
  int64_t n_reduced = 1, n_kept = 1;
  int64_t groups = 1;  // along `group`
  int64_t parts = 1;   // blocks or chunks of the reduced elements
  int64_t part_size = 1;
  bool split = false;  // parts are units of work of their own

  int64_t group_size() const {
    const bool reduced_denser =
        !reduced.empty() && std::abs(reduced.back().stride[0]) < std::abs(group.stride[1]);
    const int64_t size =
        by_rows ? (reduced_denser ? 1 : kRowGroup) : (reduced_denser ? kFewColumns : kColumnGroup);
    return std::min(size, group.extent);
  }
  int64_t units() const { return count(kept) * groups; }
};

Plan make_plan(const AxesParams& params, const TensorView& x, const TensorView& y, int threads) {
  Plan plan;
  std::vector<bool> is_reduced(x.dims.size(), false);
  for (int64_t a : params.axes) is_reduced[static_cast<size_t>(a)] = true;
  plan.by_rows = !is_reduced.empty() && is_reduced.back();
  size_t y_axis = 0;
  for (size_t a = 0; a < x.dims.size(); ++a) {
    if (is_reduced[a]) {
      add_axis(plan.reduced, x.dims[a], {x.strides[a]});
      plan.n_reduced *= x.dims[a];
    } else {
      add_axis(plan.kept, x.dims[a], {y.strides[y_axis++], x.strides[a]});
      plan.n_kept *= x.dims[a];
    }
  }
  if (plan.n_kept == 0) return plan;
  merge(plan.reduced);
  sort_by_stride(plan.kept, 1);
  merge(plan.kept);
  if (!plan.kept.empty()) {
    plan.group = plan.kept.back();
    plan.kept.pop_back();
  }
  plan.groups = (plan.group.extent + plan.group_size() - 1) / plan.group_size();
  plan.part_size = plan.by_rows ? kReduceBlock : column_chunk_rows(plan.n_reduced);
  plan.parts = (plan.n_reduced + plan.part_size - 1) / plan.part_size;
  plan.split = threads > 1 && plan.parts > 1 && plan.units() < 2 * threads;
  return plan;
}

struct Sum {
  template <typename A>
  static A identity() {
    return A{0};
  }
  template <typename A>
  static A apply(A a, A b) {
    return add(a, b);
  }
};
struct Prod {
  template <typename A>
  static A identity() {
    return A{1};
  }
  template <typename A>
  static A apply(A a, A b) {
    return mul(a, b);
  }
};
struct Max {
  template <typename A>
  static A identity() {
    using L = std::numeric_limits<A>;
    return L::has_infinity ? -L::infinity() : L::lowest();
  }
  template <typename A>
  static A apply(A a, A b) {
    return maximum(a, b);
  }
};
struct Min {
  template <typename A>
  static A identity() {
    using L = std::numeric_limits<A>;
    return L::has_infinity ? L::infinity() : L::max();
  }
  template <typename A>
  static A apply(A a, A b) {
    return minimum(a, b);
  }
};
struct And {
  template <typename A>
  static A identity() {
    return static_cast<A>(~A{0});
  }
  template <typename A>
  static A apply(A a, A b) {
    return static_cast<A>(a & b);
  }
};
template <>
bool And::identity<bool>() {
  return true;
}
struct Or {
  template <typename A>
  static A identity() {
    return A{0};
  }
  template <typename A>
  static A apply(A a, A b) {
    return static_cast<A>(a | b);
  }
};

// The elements [column, column + n) of `rows` rows into to[row][...], walking the denser way.
template <typename T>
void gather_rows(const T* x, int64_t row_stride, int64_t rows, Walk<1>& walk, int64_t column_stride,
                 int64_t n, Acc<T> (*to)[kSegment]) {
  for (int64_t done = 0; done < n;) {
    const int64_t run = std::min(walk.run(), n - done);
    const T* from = x + walk.offset[0];
    if (column_stride == 1) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < run; ++i) to[r][done + i] = load(from[r * row_stride + i]);
    } else if (std::abs(column_stride) <= std::abs(row_stride)) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < run; ++i)
          to[r][done + i] = load(from[r * row_stride + i * column_stride]);
    } else {
      for (int64_t i = 0; i < run; ++i)
        for (int64_t r = 0; r < rows; ++r)
          to[r][done + i] = load(from[r * row_stride + i * column_stride]);
    }
    walk.advance(run);
    done += run;
  }
}

// One block of the row order for each of up to kRowGroup rows: result[row].
template <typename Op, typename T>
void reduce_block(const Plan& plan, const T* x, int64_t rows, int64_t block, Acc<T>* result) {
  using A = Acc<T>;
  A lanes[kRowGroup][kLanes];
  A segment[kRowGroup][kSegment];
  for (int64_t r = 0; r < rows; ++r) std::fill_n(lanes[r], kLanes, Op::template identity<A>());
  const int64_t begin = block * kReduceBlock;
  const int64_t end = std::min(plan.n_reduced, begin + kReduceBlock);
  Walk<1> walk(plan.reduced, begin);
  const int64_t column_stride = plan.reduced.empty() ? 1 : plan.reduced.back().stride[0];
  for (int64_t column = begin; column < end; column += kSegment) {
    const int64_t n = std::min(kSegment, end - column);
    gather_rows(x, plan.group.stride[1], rows, walk, column_stride, n, segment);
    for (int64_t r = 0; r < rows; ++r) {
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes)
        for (int64_t l = 0; l < kLanes; ++l)
          lanes[r][l] = Op::apply(lanes[r][l], segment[r][i + l]);
      for (int64_t l = 0; i + l < n; ++l) lanes[r][l] = Op::apply(lanes[r][l], segment[r][i + l]);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t half = kLanes / 2; half >= 1; half /= 2)
      for (int64_t l = 0; l < half; ++l) lanes[r][l] = Op::apply(lanes[r][l], lanes[r][l + half]);
    result[r] = lanes[r][0];
  }
}

// One chunk of the column order for up to kColumnGroup columns: result[column].
template <typename Op, typename T>
void reduce_chunk(const Plan& plan, const T* x, int64_t columns, int64_t chunk, Acc<T>* result) {
  using A = Acc<T>;
  std::fill_n(result, columns, Op::template identity<A>());
  const int64_t begin = chunk * plan.part_size;
  const int64_t end = std::min(plan.n_reduced, begin + plan.part_size);
  const int64_t stride = plan.group.stride[1];
  Walk<1> walk(plan.reduced, begin);
  for (int64_t row = begin; row < end; ++row, walk.next()) {
    const T* from = x + walk.offset[0];
    if (stride == 1)
      for (int64_t i = 0; i < columns; ++i) result[i] = Op::apply(result[i], load(from[i]));
    else
      for (int64_t i = 0; i < columns; ++i)
        result[i] = Op::apply(result[i], load(from[i * stride]));
  }
}

template <typename Op, typename T>
void reduce_part(const Plan& plan, const T* x, int64_t n, int64_t part, Acc<T>* result) {
  if (plan.by_rows)
    reduce_block<Op>(plan, x, n, part, result);
  else
    reduce_chunk<Op>(plan, x, n, part, result);
}

template <typename Op, typename T>
void reduce_typed(const Plan& plan, const TensorView& x, const TensorView& y, Acc<T>* partial,
                  int threads) {
  using A = Acc<T>;
  const T* from = reinterpret_cast<const T*>(x.data);
  T* to = reinterpret_cast<T*>(y.data);
  const int64_t size = plan.group_size(), units = plan.units();
  const int64_t part_bytes =
      size * std::min(plan.part_size, plan.n_reduced + 1) * int64_t{sizeof(T)};
  // First result of a unit along `group`, and how many.
  const auto first_of = [&](int64_t unit) { return unit % plan.groups * size; };
  const auto count_of = [&](int64_t unit) {
    return std::min(size, plan.group.extent - first_of(unit));
  };
  if (plan.split)
    parallel_for(threads, units * plan.parts, kBytesPerThread / part_bytes,
                 [&](int64_t begin, int64_t end, int) {
                   Walk<2> walk(plan.kept, 0);
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t unit = i / plan.parts, part = i % plan.parts;
                     walk.seek(unit / plan.groups);
                     reduce_part<Op>(plan,
                                     from + walk.offset[1] + first_of(unit) * plan.group.stride[1],
                                     count_of(unit), part, partial + i * size);
                   }
                 });
  parallel_for(threads, units, plan.split ? units : kBytesPerThread / (part_bytes * plan.parts + 1),
               [&](int64_t begin, int64_t end, int) {
                 A total[kColumnGroup], next[kColumnGroup];
                 Walk<2> walk(plan.kept, 0);
                 for (int64_t unit = begin; unit < end; ++unit) {
                   walk.seek(unit / plan.groups);
                   const int64_t n = count_of(unit), first = first_of(unit);
                   std::fill_n(total, n, Op::template identity<A>());
                   for (int64_t part = 0; part < plan.parts; ++part) {
                     const A* result = part == 0 ? total : next;
                     if (plan.split)
                       result = partial + (unit * plan.parts + part) * size;
                     else
                       reduce_part<Op>(plan, from + walk.offset[1] + first * plan.group.stride[1],
                                       n, part, part == 0 ? total : next);
                     if (part == 0)
                       std::copy_n(result, result == total ? 0 : n, total);
                     else
                       for (int64_t k = 0; k < n; ++k) total[k] = Op::apply(total[k], result[k]);
                   }
                   for (int64_t k = 0; k < n; ++k)
                     store<T>(total[k], to[walk.offset[0] + (first + k) * plan.group.stride[0]]);
                 }
               });
}

}  // namespace

int64_t reduce_scratch_bytes(OpKind, const AxesParams& params, Views in, Views out, int threads) {
  const Plan plan = make_plan(params, in[0], out[0], threads);
  if (plan.n_kept == 0 || !plan.split) return 0;
  const int64_t acc_bytes = is_float(in[0].dtype) ? std::max<int64_t>(dtype_bytes(in[0].dtype), 4)
                                                  : dtype_bytes(in[0].dtype);
  return align_up(plan.units() * plan.parts * plan.group_size() * acc_bytes, 64);
}

void reduce(OpKind op, const AxesParams& params, Views in, Views out, void* scratch, int threads) {
  const Plan plan = make_plan(params, in[0], out[0], threads);
  if (plan.n_kept == 0) return;
  with_dtype(in[0].dtype, [&](auto t) {
    using T = decltype(t);
    auto* partial = static_cast<Acc<T>*>(scratch);
    const auto run = [&](auto o) {
      reduce_typed<decltype(o), T>(plan, in[0], out[0], partial, threads);
    };
    if (op == OpKind::kReduceSum) return run(Sum{});
    if (op == OpKind::kReduceProd) return run(Prod{});
    if (op == OpKind::kReduceMax) return run(Max{});
    if (op == OpKind::kReduceMin) return run(Min{});
    if constexpr (!kIsFloat<T>) {
      if (op == OpKind::kReduceAnd) return run(And{});
      if (op == OpKind::kReduceOr) return run(Or{});
    }
    STOW_CHECK(false, "{} of {}", op_name(op), dtype_name(in[0].dtype));
  });
}

}  // namespace stow::cpu::kernels
