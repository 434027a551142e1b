#include "stowage/runtime/cpu/kernels/op_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>

#include "stowage/ops/op_def.h"
#include "stowage/runtime/reference/element.h"
#include "stowage/runtime/reference/reference.h"
#include "tests/support/test_tensor.h"

namespace stow {
namespace {

using testing::Rng;
using testing::TestTensor;
using testing::uniform;

constexpr DType kAllDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                                DType::kI64, DType::kI32, DType::kI8,   DType::kU64,
                                DType::kU32, DType::kU8,  DType::kBool};

// How the kernel must agree with the reference.
enum class Agree { kBytes, kValues, kNear };

struct Sample {
  OpKind op;
  Params params;
  std::vector<TestTensor> inputs;  ///< Filled, in random layouts.
  std::vector<std::pair<DType, Dims>> outputs;
  Agree agree = Agree::kBytes;
  double tolerance = 0;  ///< kNear: absolute.
  /// kNear of 16 bits: 2 where sums of products round apart, so that both may round to neighbours.
  int roundings = 1;
  bool in_place = false;  ///< Also run with output 0 as the view of operand 0.
};

// Any bits, or small numbers whose sums stay tame.
void fill_random(TestTensor& t, Rng& rng, bool any) {
  const DType dtype = t.view.dtype;
  ref::for_each_index(t.view.dims, [&](const Dims& i) {
    if (!is_float(dtype)) {
      ref::store_int(t.view, i, any ? static_cast<int64_t>(rng()) : uniform(rng, 0, 3));
      if (dtype == DType::kBool) ref::store_int(t.view, i, uniform(rng, 0, 1));
    } else if (any && uniform(rng, 0, 5) == 0) {
      const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e-30};
      ref::store_float(t.view, i, special[uniform(rng, 0, 5)]);
    } else if (any && uniform(rng, 0, 1) == 0) {
      ref::store_float(t.view, i, static_cast<double>(uniform(rng, -2, 2)));  // ties
    } else {
      ref::store_float(t.view, i, std::uniform_real_distribution<double>(-1, 1)(rng));
    }
  });
}

TestTensor random_tensor(DType dtype, Dims dims, Rng& rng, bool any = true) {
  TestTensor t(dtype, std::move(dims), rng);
  fill_random(t, rng, any);
  return t;
}

Dims random_dims(Rng& rng, int max_rank, int64_t max_extent, int64_t min_extent = 0) {
  Dims dims(static_cast<size_t>(uniform(rng, 0, max_rank)));
  for (int64_t& d : dims) d = uniform(rng, uniform(rng, 0, 9) == 0 ? min_extent : 1, max_extent);
  return dims;
}

std::vector<TensorView> views(const std::vector<TestTensor>& tensors) {
  std::vector<TensorView> result;
  for (const TestTensor& t : tensors) result.push_back(t.view);
  return result;
}

// Runs with scratch of exactly what was asked for, guarded on both sides and full of rubbish.
void run_guarded(OpKind op, const Params& params, const std::vector<TensorView>& in,
                 const std::vector<TensorView>& out, int threads) {
  auto null_in = in, null_out = out;
  for (auto* list : {&null_in, &null_out})
    for (TensorView& v : *list) v.data = nullptr;
  const int64_t bytes = cpu::op_scratch_bytes(op, params, null_in, null_out, threads);
  ASSERT_GE(bytes, 0);
  constexpr int64_t kGuardBytes = 128;
  std::vector<std::byte> memory(static_cast<size_t>(bytes + 2 * kGuardBytes + 64), std::byte{0xCD});
  std::byte* scratch = memory.data() + kGuardBytes;
  scratch += -reinterpret_cast<intptr_t>(scratch) & 63;
  std::fill_n(scratch, bytes, std::byte{0xFF});
  cpu::run_op(op, params, in, out, scratch, threads);
  for (std::byte* p = memory.data(); p != memory.data() + memory.size(); ++p)
    if (p < scratch || p >= scratch + bytes) {
      ASSERT_EQ(*p, std::byte{0xCD}) << "scratch overrun, " << threads << " threads";
    }
}

void expect_agrees(const Sample& s, const TestTensor& got, const TestTensor& want) {
  const std::vector<std::byte> a = got.bytes(), b = want.bytes();
  if (s.agree == Agree::kBytes) {
    ASSERT_TRUE(a == b);
    return;
  }
  ref::for_each_index(want.view.dims, [&](const Dims& i) {
    if (!is_float(want.view.dtype)) {
      ASSERT_EQ(ref::load_int(got.view, i), ref::load_int(want.view, i));
      return;
    }
    const double x = ref::load_float(got.view, i), y = ref::load_float(want.view, i);
    if (std::isnan(y) || std::isinf(y) || s.agree == Agree::kValues) {
      ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << x << " for " << y;
    } else {
      const double ulp = want.view.dtype == DType::kBF16  ? 0x1p-8
                         : want.view.dtype == DType::kF16 ? 0x1p-11
                                                          : 0;
      ASSERT_NEAR(x, y, s.tolerance + s.roundings * ulp * 1.01 * std::fabs(y));
    }
  });
}

// Kernel = reference; the same bits for 1, 2 and 3 threads, for another layout and in place.
void check(const Sample& s, Rng& rng) {
  SCOPED_TRACE(op_name(s.op));
  std::string types;
  for (const TestTensor& t : s.inputs)
    types += to_string(ArrayType{t.view.dtype, Shape(t.view.dims)}) + " ";
  SCOPED_TRACE(types);
  const std::vector<TensorView> in = views(s.inputs);
  std::vector<TestTensor> want;
  for (const auto& [dtype, dims] : s.outputs) want.emplace_back(dtype, dims);
  reference_eval(s.op, s.params, in, views(want));
  std::vector<std::vector<std::byte>> first;
  for (int run = 0; run < 4; ++run) {
    const int threads = run % 3 + 1;
    std::vector<TestTensor> got;
    for (const auto& [dtype, dims] : s.outputs) got.emplace_back(dtype, dims, rng);
    std::vector<TestTensor> moved;  // the same values in other layouts
    for (const TestTensor& t : s.inputs) {
      moved.emplace_back(t.view.dtype, t.view.dims, rng);
      moved.back().set_bytes(t.bytes());
    }
    run_guarded(s.op, s.params, run < 2 ? in : views(moved), views(got), threads);
    if (::testing::Test::HasFatalFailure()) return;
    for (size_t k = 0; k < got.size(); ++k) {
      ASSERT_TRUE(got[k].guards_intact()) << "output " << k << ", " << threads << " threads";
      if (run == 0) {
        expect_agrees(s, got[k], want[k]);
        first.push_back(got[k].bytes());
      }
      ASSERT_TRUE(got[k].bytes() == first[k]) << "bits differ, " << threads << " threads";
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  if (!s.in_place) return;
  for (int threads = 1; threads <= 3; ++threads) {
    TestTensor both(s.inputs[0].view.dtype, s.inputs[0].view.dims, rng);
    both.set_bytes(s.inputs[0].bytes());
    std::vector<TensorView> aliased = in;
    aliased[0] = both.view;
    run_guarded(s.op, s.params, aliased, {both.view}, threads);
    ASSERT_TRUE(both.guards_intact());
    ASSERT_TRUE(both.bytes() == first[0]) << "in place, " << threads << " threads";
  }
}

DType random_dtype(Rng& rng) {
  return kAllDTypes[uniform(rng, 0, 10)];
}
DType random_int(Rng& rng) {
  return kAllDTypes[uniform(rng, 4, 9)];
}

// --- One generator an op. `large` asks for sizes that threads share. ---

Sample pad(Rng& rng, bool large) {
  Sample s{OpKind::kPad};
  Dims dims = large ? Dims{70, 300} : random_dims(rng, 3, 5);
  PadParams p;
  Dims out;
  for (int64_t d : dims) {
    const int64_t interior = uniform(rng, 0, 3) == 0 ? uniform(rng, 1, 2) : 0;
    const int64_t spread = d == 0 ? 0 : d + (d - 1) * interior;
    const int64_t low = uniform(rng, -3, 3), high = std::max(uniform(rng, -3, 3), -spread - low);
    p.low.push_back(low);
    p.high.push_back(high);
    p.interior.push_back(interior);
    out.push_back(spread + low + high);
  }
  const DType t = random_dtype(rng);
  s.inputs.push_back(random_tensor(t, dims, rng));
  s.inputs.push_back(random_tensor(t, {}, rng));
  s.params = p;
  s.outputs = {{t, out}};
  return s;
}

Sample concatenate(Rng& rng, bool large) {
  Sample s{OpKind::kConcatenate};
  Dims dims = large ? Dims{40, 500} : random_dims(rng, 3, 5);
  if (dims.empty()) dims = {3};
  const int64_t axis = uniform(rng, 0, static_cast<int64_t>(dims.size()) - 1);
  const DType t = random_dtype(rng);
  Dims out = dims;
  out[static_cast<size_t>(axis)] = 0;
  for (int64_t n = uniform(rng, 1, 4); n > 0; --n) {
    dims[static_cast<size_t>(axis)] = uniform(rng, 0, large ? 100 : 4);
    out[static_cast<size_t>(axis)] += dims[static_cast<size_t>(axis)];
    s.inputs.push_back(random_tensor(t, dims, rng));
  }
  s.params = AxisParams{axis};
  s.outputs = {{t, out}};
  return s;
}

void add_starts(Sample& s, size_t rank, Rng& rng) {
  const DType t = random_int(rng);
  for (size_t a = 0; a < rank; ++a) {
    s.inputs.push_back(random_tensor(t, {}, rng, uniform(rng, 0, 2) == 0));
    if (uniform(rng, 0, 1) == 0) ref::store_int(s.inputs.back().view, {}, uniform(rng, -2, 6));
  }
}

Sample dynamic_slice(Rng& rng, bool large) {
  Sample s{OpKind::kDynamicSlice};
  const Dims dims = large ? Dims{90, 700} : random_dims(rng, 3, 6);
  Dims out;
  for (int64_t d : dims) out.push_back(large ? d - 3 : uniform(rng, 0, d));
  const DType t = random_dtype(rng);
  s.inputs.push_back(random_tensor(t, dims, rng));
  add_starts(s, dims.size(), rng);
  s.params = ShapeParams{Shape(out)};
  s.outputs = {{t, out}};
  return s;
}

Sample dynamic_update_slice(Rng& rng, bool large) {
  Sample s = dynamic_slice(rng, large);
  s.op = OpKind::kDynamicUpdateSlice;
  const auto [t, update] = s.outputs[0];
  s.inputs.insert(s.inputs.begin() + 1, random_tensor(t, update, rng));
  s.params = NoParams{};
  s.outputs = {{t, s.inputs[0].view.dims}};
  s.in_place = true;
  return s;
}

// Dimension numbers of every form, for gather and the scatters alike.
Sample gather(Rng& rng, bool large) {
  Sample s{OpKind::kGather};
  GatherParams p;
  Dims dims = random_dims(rng, 3, 6, 1), batch = random_dims(rng, 2, 4);
  if (dims.empty()) dims = {4};
  if (large) {
    dims = uniform(rng, 0, 1) == 0 ? Dims{50, 96} : Dims{5, 30, 40};
    // The last has more index vectors than are taken at once.
    const Dims batches[] = {{300}, {7, 31}, {1300}};
    batch = batches[uniform(rng, 0, 2)];
  }
  Dims offsets;
  int64_t n_indexed = 0;
  for (size_t a = 0; a < dims.size(); ++a) {
    const bool indexed = uniform(rng, 0, 1) == 0 || (large && a == 0);
    int64_t size = dims[a];
    if (indexed) {
      p.start_index_map.push_back(static_cast<int64_t>(a));
      ++n_indexed;
      const bool collapsed = uniform(rng, 0, 2) != 0;
      size = collapsed ? 1 : uniform(rng, uniform(rng, 0, 9) == 0 ? 0 : 1, dims[a]);
      if (collapsed) p.collapsed_axes.push_back(static_cast<int64_t>(a));
      if (!collapsed) offsets.push_back(size);
    } else {
      offsets.push_back(size);
    }
    p.slice_sizes.push_back(size);
  }
  std::shuffle(p.start_index_map.begin(), p.start_index_map.end(), rng);
  // Offset axes lie anywhere among the result's.
  Dims out;
  size_t next_batch = 0, next_offset = 0;
  while (next_batch < batch.size() || next_offset < offsets.size()) {
    const bool take_offset =
        next_batch == batch.size() || (next_offset < offsets.size() && uniform(rng, 0, 1) == 0);
    if (take_offset) p.offset_axes.push_back(static_cast<int64_t>(out.size()));
    out.push_back(take_offset ? offsets[next_offset++] : batch[next_batch++]);
  }
  batch.push_back(n_indexed);
  const DType t = random_dtype(rng);
  s.inputs.push_back(random_tensor(t, dims, rng, false));
  s.inputs.emplace_back(random_int(rng), batch, rng);
  const bool all_within = uniform(rng, 0, 1) == 0;
  ref::for_each_index(batch, [&](const Dims& i) {
    if (all_within) {
      const auto axis = static_cast<size_t>(
          n_indexed == 0 ? 0 : p.start_index_map[static_cast<size_t>(i.back())]);
      return ref::store_int(s.inputs[1].view, i, uniform(rng, 0, dims[axis] - p.slice_sizes[axis]));
    }
    const bool wild = uniform(rng, 0, 19) == 0;
    ref::store_int(
        s.inputs[1].view, i,
        wild ? static_cast<int64_t>(rng()) : uniform(rng, wild ? -2 : 0, large ? 60 : 5));
  });
  s.params = p;
  s.outputs = {{t, out}};
  return s;
}

Sample scatter(Rng& rng, bool large) {
  Sample s = gather(rng, large);
  constexpr OpKind kOps[] = {OpKind::kScatterAdd, OpKind::kScatterAdd, OpKind::kScatter,
                             OpKind::kScatterMul, OpKind::kScatterMin, OpKind::kScatterMax};
  s.op = kOps[uniform(rng, 0, 5)];
  const auto [t, updates] = s.outputs[0];
  s.inputs.push_back(random_tensor(t, updates, rng, false));
  s.outputs = {{t, s.inputs[0].view.dims}};
  s.agree = Agree::kNear;
  s.tolerance = t == DType::kF64 ? 1e-12 : 1e-4;
  s.in_place = true;
  return s;
}

Sample arg_reduce(Rng& rng, bool large) {
  Sample s{uniform(rng, 0, 1) == 0 ? OpKind::kArgMax : OpKind::kArgMin};
  Dims dims = large ? Dims{60, 30, 40} : random_dims(rng, 3, 8);
  const auto axis = static_cast<size_t>(uniform(rng, 0, 2)) % (dims.size() + 1);
  if (!large) dims.insert(dims.begin() + static_cast<int64_t>(axis), uniform(rng, 1, 9));
  const auto a = std::min(axis, dims.size() - 1);
  const DType t = random_dtype(rng);
  const DType index = uniform(rng, 0, 1) == 0 ? DType::kI32 : random_int(rng);
  s.inputs.push_back(random_tensor(t, dims, rng));
  dims.erase(dims.begin() + static_cast<int64_t>(a));
  s.params = ArgReduceParams{static_cast<int64_t>(a), index};
  s.outputs = {{index, dims}};
  return s;
}

Sample cumulative(Rng& rng, bool large) {
  constexpr OpKind kOps[] = {OpKind::kCumSum, OpKind::kCumSum, OpKind::kCumProd,
                             OpKind::kCumMax, OpKind::kCumMin, OpKind::kCumLogSumExp};
  Sample s{kOps[uniform(rng, 0, 5)]};
  Dims dims = large ? Dims{60, 30, 40} : random_dims(rng, 3, 8);
  if (dims.empty()) dims = {5};
  const DType t = kAllDTypes[uniform(rng, 0, s.op == OpKind::kCumLogSumExp ? 3 : 9)];
  s.inputs.push_back(random_tensor(t, dims, rng, !is_float(t)));
  s.params =
      AxisParams{uniform(rng, 0, static_cast<int64_t>(dims.size()) - 1), uniform(rng, 0, 1) == 0};
  s.outputs = {{t, dims}};
  s.agree = Agree::kNear;
  s.tolerance = t == DType::kF64 ? 1e-12 : 1e-4;
  s.in_place = true;
  return s;
}

// The outputs that the type rule gives.
Sample with_outputs(Sample s) {
  std::vector<ArrayType> types;
  for (const TestTensor& t : s.inputs) types.push_back({t.view.dtype, Shape(t.view.dims)});
  for (const ArrayType& t : infer_types({s.op, types, s.params, {}}))
    s.outputs.push_back({t.dtype, t.shape.dims()});
  return s;
}

Sample linear_scan(Rng& rng, bool large) {
  Sample s = cumulative(rng, large);
  s.op = OpKind::kLinearScan;
  s.roundings = 2;
  const TensorView& x = s.inputs[0].view;
  s.inputs.push_back(random_tensor(x.dtype, x.dims, rng, !is_float(x.dtype)));
  s.in_place = false;
  return s;
}

Sample top_k(Rng& rng, bool large) {
  Sample s{OpKind::kTopK};
  Dims dims = large ? Dims{40, 6, 70} : random_dims(rng, 3, 9);
  if (dims.empty()) dims = {7};
  const int64_t axis = uniform(rng, 0, static_cast<int64_t>(dims.size()) - 1);
  s.inputs.push_back(random_tensor(random_dtype(rng), dims, rng));
  s.params = TopKParams{axis, uniform(rng, 0, dims[static_cast<size_t>(axis)])};
  return with_outputs(std::move(s));
}

Sample window(Rng& rng, bool large) {
  constexpr OpKind kOps[] = {OpKind::kWindowSum, OpKind::kWindowMax, OpKind::kWindowMin,
                             OpKind::kWindowArgMax, OpKind::kWindowArgMin};
  Sample s{kOps[uniform(rng, 0, 4)]};
  // Some have lanes side by side, fewer than a vector, and none that no window joins.
  const Dims of_large[] = {{20, 30, 70}, {3, 20, 25, 40}, {9, 40, 3},
                           {600},        {5, 7, 33},      {2, 9, 90}};
  const Dims dims = large ? of_large[uniform(rng, 0, 5)] : random_dims(rng, 4, 6);
  WindowParams p;
  for (size_t a = 0; a < dims.size(); ++a) {
    const bool plain =
        uniform(rng, 0, 2) == 0 || (large && dims[a] >= 33 && uniform(rng, 0, 1) == 0);
    const auto number = [&](int64_t least, int64_t most) {
      return plain ? std::max<int64_t>(least, 0) : uniform(rng, least, most);
    };
    p.sizes.push_back(number(1, 3));
    p.strides.push_back(number(1, 3));
    p.low.push_back(number(-2, 3));
    p.high.push_back(number(-2, 3));
    p.base_dilation.push_back(number(1, 2));
    p.window_dilation.push_back(number(1, 2));
  }
  const bool sum = s.op == OpKind::kWindowSum;
  const DType t = kAllDTypes[uniform(rng, 0, 9)];
  s.params = p;
  s.inputs.push_back(random_tensor(t, dims, rng, !sum));
  s.agree = sum ? Agree::kNear : Agree::kValues;
  s.tolerance = t == DType::kF64 ? 1e-12 : 1e-5;
  return with_outputs(std::move(s));
}

Sample convolution(Rng& rng, bool large) {
  Sample s{OpKind::kConvolution};
  ConvParams p;
  const int64_t groups = uniform(rng, 0, 2) == 0 ? uniform(rng, 1, 3) : 1;
  const bool of_batch = groups > 1 && uniform(rng, 0, 1) == 0;
  (of_batch ? p.batch_groups : p.feature_groups) = groups;
  const int64_t n_spatial = uniform(rng, large ? 1 : 0, large ? 2 : 3);
  const int64_t channels = uniform(rng, 1, !large ? 3 : n_spatial == 1 ? 120 : 9);
  Dims lhs = {uniform(rng, 1, 3) * (of_batch ? groups : 1), channels * (of_batch ? 1 : groups)};
  Dims rhs = {groups * (large && groups == 1 ? uniform(rng, 1, 3) * 16 : uniform(rng, 1, 3)),
              channels};
  for (int64_t n = n_spatial; n > 0; --n) {
    lhs.push_back(uniform(rng, large ? 20 : 0, large ? 30 : 5));
    rhs.push_back(uniform(rng, 1, 3));
    p.strides.push_back(uniform(rng, 1, 3));
    p.low.push_back(uniform(rng, -1, 2));
    p.high.push_back(uniform(rng, -1, 2));
    p.lhs_dilation.push_back(uniform(rng, 0, 3) == 0 ? uniform(rng, 2, 4) : 1);
    p.rhs_dilation.push_back(uniform(rng, 0, 3) == 0 ? uniform(rng, 2, 3) : 1);
  }
  const DType t = kAllDTypes[uniform(rng, 0, 9)];
  s.params = p;
  s.roundings = 2;
  s.inputs.push_back(random_tensor(t, lhs, rng, false));
  s.inputs.push_back(random_tensor(t, rhs, rng, false));
  s.agree = Agree::kNear;
  s.tolerance = t == DType::kF64 ? 1e-12 : 1e-4;
  return with_outputs(std::move(s));
}

Sample sort(Rng& rng, bool large) {
  Sample s{OpKind::kSort};
  // Lanes that comparisons order, and that digits do, short and long ones.
  const Dims of_large[] = {{40, 6, 70}, {3, 300, 5}, {9000}, {2, 1500}};
  Dims dims = large ? of_large[uniform(rng, 0, 3)] : random_dims(rng, 3, 9);
  if (dims.empty()) dims = {7};
  for (int64_t n = large && uniform(rng, 0, 2) != 0 ? 1 : uniform(rng, 1, 3); n > 0; --n) {
    const DType t = random_dtype(rng);
    s.inputs.push_back(random_tensor(t, dims, rng));
    s.outputs.push_back({t, dims});
  }
  s.params =
      AxisParams{uniform(rng, 0, static_cast<int64_t>(dims.size()) - 1), uniform(rng, 0, 1) == 0};
  return s;
}

Sample random_bits(Rng& rng, bool large) {
  Sample s{OpKind::kRandomBits};
  const Dims dims = large ? Dims{100, 301} : random_dims(rng, 3, 20);
  s.inputs.push_back(random_tensor(DType::kU32, {2}, rng));
  if (uniform(rng, 0, 1) == 0) {  // near where the upper word of the counter changes, too
    s.inputs.push_back(TestTensor::of<int64_t>(
        {}, {(uniform(rng, 1, 2) << 32) + uniform(rng, 0, 1) * uniform(rng, -200, 200)}));
  }
  s.params = ShapeParams{Shape(dims)};
  s.outputs = {{DType::kU32, dims}};
  return s;
}

Sample leaf(Rng& rng, bool large) {
  Dims dims = large ? Dims{100, 301} : random_dims(rng, 3, 9);
  const DType t = random_dtype(rng);
  if (uniform(rng, 0, 1) == 0 || dims.empty()) {
    const bool splat = uniform(rng, 0, 1) == 0;
    const TestTensor values = random_tensor(t, splat ? Dims{} : dims, rng);
    Sample s{OpKind::kConstant};
    ConstantParams& p = s.params.emplace<ConstantParams>();
    p.type = {t, Shape(dims)};
    p.data = values.bytes();
    s.outputs = {{t, dims}};
    return s;
  }
  if (uniform(rng, 0, 3) == 0) dims = {large ? 40000 : 400};
  const int64_t axis = uniform(rng, 0, static_cast<int64_t>(dims.size()) - 1);
  return {OpKind::kIota, IotaParams{{t, Shape(dims)}, axis}, {}, {{t, dims}}};
}

Sample view_copy(Rng& rng, bool large) {
  Sample s{OpKind::kReshape};
  Dims dims = large ? Dims{60, 20, 36} : random_dims(rng, 4, 6);
  if (large && uniform(rng, 0, 1) == 0) dims = {50000};
  const DType t = random_dtype(rng);
  const auto rank = static_cast<int64_t>(dims.size());
  s.inputs.push_back(random_tensor(t, dims, rng));
  Dims out;
  switch (uniform(rng, 0, 4)) {
    case 0: {
      Dims axes;
      for (int64_t a = 0; a < rank; ++a) axes.push_back(a);
      std::shuffle(axes.begin(), axes.end(), rng);
      for (int64_t a : axes) out.push_back(dims[static_cast<size_t>(a)]);
      s.op = OpKind::kTranspose;
      s.params = AxesParams{axes};
      break;
    }
    case 1: {
      int64_t n = s.inputs[0].view.elems();
      while (n > 1) {
        int64_t f = uniform(rng, 2, 12);
        while (n % f != 0) --f;
        if (f == 1 && uniform(rng, 0, 1) == 0) f = n;
        out.push_back(f);
        n /= f;
      }
      if (n == 0) out = {3, 0};
      s.params = ShapeParams{Shape(out)};
      break;
    }
    case 2: {
      SliceParams p;
      for (int64_t d : dims) {
        p.start.push_back(uniform(rng, 0, d));
        p.limit.push_back(uniform(rng, p.start.back(), d));
        p.stride.push_back(uniform(rng, 1, 3));
        out.push_back((p.limit.back() - p.start.back() + p.stride.back() - 1) / p.stride.back());
      }
      s.op = OpKind::kSlice;
      s.params = p;
      break;
    }
    case 3: {
      AxesParams p;
      for (int64_t a = 0; a < rank; ++a)
        if (uniform(rng, 0, 1) == 0) p.axes.push_back(a);
      s.op = OpKind::kReverse;
      s.params = p;
      out = dims;
      break;
    }
    default: {
      BroadcastParams p;
      for (int64_t d : dims) {
        while (!large && uniform(rng, 0, 3) == 0) out.push_back(uniform(rng, 0, 3));
        p.axes.push_back(static_cast<int64_t>(out.size()));
        out.push_back(d == 1 ? uniform(rng, 1, 4) : d);
      }
      p.shape = Shape(out);
      s.op = OpKind::kBroadcast;
      s.params = p;
    }
  }
  s.outputs = {{t, out}};
  return s;
}

Sample reduce(Rng& rng, bool large) {
  constexpr OpKind kOps[] = {OpKind::kReduceSum, OpKind::kReduceProd, OpKind::kReduceMax,
                             OpKind::kReduceMin, OpKind::kReduceAnd,  OpKind::kReduceOr};
  Sample s{kOps[uniform(rng, 0, 5)]};
  const bool bitwise = s.op == OpKind::kReduceAnd || s.op == OpKind::kReduceOr;
  const bool extreme = s.op == OpKind::kReduceMax || s.op == OpKind::kReduceMin;
  const DType t = bitwise ? kAllDTypes[uniform(rng, 4, 10)] : random_dtype(rng);
  const Dims large_dims[] = {{3, 20000}, {20000, 3}, {60, 20, 50}, {300, 200}};
  const Dims dims = large ? large_dims[uniform(rng, 0, 3)] : random_dims(rng, 4, 8);
  AxesParams p;
  Dims out;
  for (size_t a = 0; a < dims.size(); ++a) {
    const bool reduced = uniform(rng, 0, 1) == 0;
    if (reduced) p.axes.push_back(static_cast<int64_t>(a));
    if (!reduced) out.push_back(dims[a]);
  }
  s.inputs.push_back(random_tensor(t, dims, rng, extreme || !is_float(t)));
  s.params = p;
  s.outputs = {{t, out}};
  s.agree = extreme ? Agree::kValues : Agree::kNear;
  s.tolerance = t == DType::kF64 ? 1e-10 : 2e-3;
  return s;
}

struct Family {
  const char* name;
  Sample (*make)(Rng&, bool large);
  int n_large = 8;
};
void PrintTo(const Family& f, std::ostream* os) {
  *os << f.name;
}

class OpKernels : public ::testing::TestWithParam<Family> {};

TEST_P(OpKernels, AreTheReferenceForAnyLayoutAndThreads) {
  Rng rng(20240517);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    check(GetParam().make(rng, false), rng);
  }
  for (int i = 0; i < GetParam().n_large && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    check(GetParam().make(rng, true), rng);
  }
}

// These have kernels of their own for each instruction set.
TEST(OpKernelTargets, OfWindowsAreTheReferenceOnEveryTarget) {
  for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
    hwy::SetSupportedTargetsForTest(0);
    if (target != int64_t{HWY_EMU128} && !(hwy::SupportedTargets() & target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    Rng rng(7);
    for (int i = 0; i < 60 && !::testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(i);
      check(window(rng, i % 4 == 0), rng);
      check(convolution(rng, i % 4 == 0), rng);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

INSTANTIATE_TEST_SUITE_P(
    Families, OpKernels,
    ::testing::Values(Family{"pad", pad}, Family{"concatenate", concatenate},
                      Family{"dynamic_slice", dynamic_slice},
                      Family{"dynamic_update_slice", dynamic_update_slice},
                      Family{"gather", gather, 60}, Family{"scatter", scatter, 60},
                      Family{"linear_scan", linear_scan}, Family{"top_k", top_k},
                      Family{"window", window, 30}, Family{"convolution", convolution, 30},
                      Family{"arg_reduce", arg_reduce}, Family{"cumulative", cumulative},
                      Family{"sort", sort, 40}, Family{"random_bits", random_bits},
                      Family{"leaf", leaf}, Family{"view_copy", view_copy},
                      Family{"reduce", reduce}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stow
