// The steps of random programs that are single ops or a few: elementwise work, views, reductions,
// products, indexing, windows, moves between memories.
#include <algorithm>
#include <string>

#include "tests/fuzz/random_program.h"
#include "tests/fuzz/random_program_maker.h"

namespace stow::testing::random_programs {

// The rarer functions, windows, convolutions, scatters and what runs along an axis.
void Maker::rarer_step() {
  const Val x = any_float();
  switch (below(7)) {
    case 6:
      return moved_step(x);
    case 0:
      return add(rare_function(x));
    case 1:
      return running_step(x);
    case 2:
      return window_step(x);
    case 3:
      return convolution_step(x);
    case 4:
      return scatter_step(x);
    case 5: {
      const ArrayType type{DType::kI32, context_.shape(2)};
      return add(unary(below(2) ? OpKind::kPopulationCount : OpKind::kCountLeadingZeros,
                       of(type)));
    }
  }
}

Val Maker::rare_function(const Val& x) {
  constexpr OpKind kWithinOne[] = {OpKind::kTan,  OpKind::kAsin,  OpKind::kAcos, OpKind::kAtan,
                                   OpKind::kSinh, OpKind::kCosh,  OpKind::kAsinh,
                                   OpKind::kAtanh, OpKind::kErfc};
  const Val y = bounded(x) * 0.8, positive = cos(bounded(x)) + 0.6;
  switch (below(4)) {
    case 0:
      return unary(OpKind::kAcosh, positive + 0.5);
    case 1:
      return unary(OpKind::kCbrt, positive);
    case 2:
      return binary(OpKind::kAtan2, of(x.type()), positive);
    default:
      return unary(kWithinOne[below(std::size(kWithinOne))], y);
  }
}

// To the host or the disk and back, as a whole or in part, maybe from one to the other.
void Maker::moved_step(const Val& x) {
  Val away = device_put(x, context_.kind_away());
  if (below(2) && x.rank() > 0 && x.shape()[0] > 0)
    away = slice_axis(away, 0, static_cast<int64_t>(below(2)) % x.shape()[0], x.shape()[0]);
  if (below(3) == 0) away = device_put(away, context_.kind_away());
  add(device_put(away, MemoryKind::kDevice));
}

// What can be done with a value that is not on the device.
void Maker::away_step() {
  if (away_.empty() || below(5) == 0) return add(device_put(any(), context_.kind_away()));
  const Val v = away_[std::max(below(away_.size()), below(away_.size()))];
  switch (below(8)) {
    case 0:
    case 1:
    case 2:
      return add(device_put(v, MemoryKind::kDevice));
    case 3: {
      if (v.rank() == 0) return;
      const int64_t axis = axis_of(v), n = v.shape()[static_cast<int>(axis)];
      const auto from = static_cast<int64_t>(below(static_cast<uint64_t>(n + 1)));
      return add(slice_axis(v, axis, from, n));
    }
    case 4:
      return add(below(2) ? transpose(v, shuffled_axes(v)) : reshape(v, {v.type().elems()}));
    case 5: {
      if (v.rank() == 0) return;
      const std::vector<Val> parts = {v, of(v.type())};
      return add(concatenate(parts, axis_of(v)));
    }
    case 6:
      return add(device_put(v, context_.kind_away()));
    case 7:
      return add(below(2) ? builder_.add1(OpKind::kOptimizationBarrier, NoParams{}, {v})
                          : builder_.add1(OpKind::kName, NameParams{"away"}, {v}));
  }
}

void Maker::running_step(const Val& x) {
  if (x.rank() == 0) return;
  const AxisParams p{axis_of(x), below(2) == 0};
  switch (below(6)) {
    case 0:
      return add(builder_.add1(OpKind::kCumProd, p, {cos(bounded(x))}));
    case 1:
      return add(builder_.add1(OpKind::kCumMax, p, {x}));
    case 2:
      return add(builder_.add1(OpKind::kCumMin, p, {x}));
    case 3:
      return add(builder_.add1(OpKind::kCumLogSumExp, p, {x}));
    case 4:
      return add(builder_.add1(OpKind::kLinearScan, p, {bounded(x), of(x.type())}));
    case 5: {
      const auto n = static_cast<uint64_t>(x.shape()[static_cast<int>(p.axis)]);
      const TopKParams k{p.axis, static_cast<int64_t>(below(n + 1))};
      const Val operands[] = {x};
      return add(builder_.add(OpKind::kTopK, k, operands)[0]);
    }
  }
}

Maker::Slide Maker::slide(int64_t n) {
  const auto number = [&](uint64_t more) { return 1 + static_cast<int64_t>(below(more)); };
  Slide s{number(3), number(2), number(4) - 2, number(4) - 2, number(2), number(2)};
  const int64_t room = (n == 0 ? 0 : (n - 1) * s.base_dilation + 1) + s.low + s.high;
  if (room < (s.size - 1) * s.window_dilation + 1) return {1, 1, 1, 0, 1, 1};
  return s;
}

void Maker::window_step(const Val& x) {
  WindowParams p;
  for (int64_t n : x.shape().dims()) {
    const Slide s = below(3) == 0 ? Slide{1, 1, 0, 0, 1, 1} : slide(n);
    p.sizes.push_back(s.size);
    p.strides.push_back(s.stride);
    p.low.push_back(s.low);
    p.high.push_back(s.high);
    p.base_dilation.push_back(s.base_dilation);
    p.window_dilation.push_back(s.window_dilation);
  }
  if (below(2)) return add(builder_.add1(OpKind::kWindowSum, p, {x}));
  // A window without elements has an infinite extreme.
  const Val y =
      builder_.add1(below(2) ? OpKind::kWindowMax : OpKind::kWindowMin, p, {bounded(x)});
  const Val one = full_like(y, 1);
  add(max(min(y, one), -one));
}

void Maker::convolution_step(const Val& x) {
  if (x.rank() < 2 || x.rank() > 4) return;
  ConvParams p;
  Dims kernel = {context_.extent(), x.shape()[1]};
  if (below(3) == 0) {  // one feature or two a channel
    p.feature_groups = x.shape()[1];
    kernel = {p.feature_groups * (1 + static_cast<int64_t>(below(2))), 1};
  } else if (below(3) == 0 && x.shape()[0] > 0) {
    p.batch_groups = x.shape()[0];
    kernel[0] = p.batch_groups;
  }
  if (p.feature_groups == 0) return;
  for (int i = 2; i < x.rank(); ++i) {
    const Slide s = slide(x.shape()[i]);
    kernel.push_back(s.size);
    p.strides.push_back(s.stride);
    p.low.push_back(s.low);
    p.high.push_back(s.high);
    p.lhs_dilation.push_back(s.base_dilation);
    p.rhs_dilation.push_back(s.window_dilation);
  }
  if (Shape(kernel).elems() > context_.max_elems) return;
  add(builder_.add1(OpKind::kConvolution, p, {x, of({x.dtype(), Shape(kernel)})}) * 0.4);
}

Maker::Indexed Maker::indexed(const Val& x) {
  const int64_t n = context_.extent();
  const bool along = x.rank() > 1 && below(3) == 0;
  Indexed i{{{}, {0}, {0}, x.shape().dims()}, {n, 1}, x.shape().dims()};
  i.params.slice_sizes[0] = 1;
  i.windows[0] = n;
  if (along) {
    i.params.collapsed_axes = {0, 1};
    i.params.batch_axes = i.params.index_batch_axes = {1};
    i.params.slice_sizes[1] = 1;
    i.vectors = {n, x.shape()[1], 1};
  }
  for (int k = along ? 2 : 1; k < x.rank(); ++k) i.params.offset_axes.push_back(k);
  return i;
}

void Maker::scatter_step(const Val& x) {
  if (x.rank() == 0 || x.type().elems() == 0) return;
  const auto [p, vectors, windows] = indexed(x);
  const Val index = of({DType::kI32, Shape(vectors)});
  const Val u = of({x.dtype(), Shape(windows)});
  constexpr OpKind kOps[] = {OpKind::kScatter, OpKind::kScatterMin, OpKind::kScatterMax};
  if (below(4) == 0)
    return add(builder_.add1(OpKind::kScatterMul, p, {x, index, cos(bounded(u)) + 0.3}));
  add(builder_.add1(kOps[below(std::size(kOps))], p, {x, index, u}));
}

void Maker::step() {
  if (context_.away && context_.chance(25)) return away_step();
  if (context_.chance(12)) return rarer_step();
  if (context_.chance(6)) return pairs_step();
  if (depth_ > 0 && context_.chance(4)) return batched_step();
  if (depth_ > 0 && context_.chance(3)) return custom_vjp_step();
  switch (below(depth_ > 0 ? 33 : 21)) {
    case 0:
    case 1:
    case 2:
      return unary_step();
    case 3:
    case 4:
    case 5:
      return binary_step();
    case 6:
      return broadcast_step();
    case 7:
    case 8:
      return reduce_step();
    case 9:
    case 10:
      return add(view(any()));
    case 11:
      return joining_step();
    case 12:
    case 13:
      return dot_step();
    case 14:
      return gather_step();
    case 15:
      return dynamic_step();
    case 16:
      return select_step();
    case 17:
      return other_step();
    case 18:
      return leaf_step();
    case 19:
      return mark_step();
    case 20:
      return composite_step();
    case 21:
    case 22:
    case 23:
    case 24:
      return scan_step();
    case 25:
    case 26:
      return checkpoint_step();
    case 27:
    case 28:
    case 29:
    case 30:
      return cond_step();
    case 31:
    case 32:
      return while_step();
  }
}

void Maker::unary_step() {
  const Val x = any_float();
  switch (below(12)) {
    case 0:
      return add(-x);
    case 1:
      return add(tanh(x));
    case 2:
      return add(sin(bounded(x)));
    case 3:
      return add(cos(bounded(x)));
    case 4:
      return add(logistic(x));
    case 5:
      return add(exp(bounded(x)));
    case 6:
      return add(log(sin(bounded(x)) + 1.5));
    case 7:
      return add(sqrt(cos(bounded(x)) + 0.5));
    case 8:
      return add(rsqrt(bounded(x) + 1.5));
    case 9:
      return add(abs(x));
    case 10:
      return add(unary(OpKind::kErf, x));
    case 11:
      return add(context_.discrete ? floor(x * 3) : x * 0.5);
  }
}

void Maker::binary_step() {
  Val a = any();
  if (a.dtype() == DType::kBool) a = convert(a, context_.float_dtype());
  const Val b = of(a.type());
  if (!is_float(a.dtype())) {
    constexpr OpKind kOps[] = {OpKind::kAdd, OpKind::kSub, OpKind::kMul, OpKind::kMax,
                               OpKind::kMin};
    return add(binary(kOps[below(std::size(kOps))], a, b));
  }
  switch (below(7)) {
    case 0:
    case 1:
      return add(a + b);
    case 2:
      return add(a - b);
    case 3:
      return add(bounded(a) * b);
    case 4:
      return add(a / (cos(bounded(b)) + 1.0));
    case 5:
      return add(max(a, b));
    case 6:
      return add(min(a, b));
  }
}

void Maker::broadcast_step() {
  const Val x = any();
  Dims dims = x.shape().dims(), axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  if (x.rank() > 2) return;
  const size_t at = below(dims.size() + 1);
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at), context_.extent());
  for (size_t i = at; i < axes.size(); ++i) ++axes[i];
  for (size_t i = 0; i < axes.size(); ++i)
    if (int64_t& d = dims[static_cast<size_t>(axes[i])]; d == 1) d = context_.extent();
  if (Shape(dims).elems() <= context_.max_elems) add(broadcast(x, Shape(dims), axes));
}

void Maker::reduce_step() {
  Val x = any();
  if (x.type().elems() == 0) return;
  if (x.dtype() == DType::kBool) x = convert(x, DType::kI32);
  const Dims axes = some_axes(x);
  switch (below(6)) {
    case 0:
      return add(reduce(OpKind::kReduceMax, x, axes));
    case 1:
      return add(reduce(OpKind::kReduceMin, x, axes));
    case 2:
      if (is_float(x.dtype())) x = cos(bounded(x));
      return add(reduce(OpKind::kReduceProd, x, axes));
    default:
      return add(reduce_sum(x, axes));
  }
}

// Reductions over any axes of elementwise work on all pairs of what two values hold, some of it
// less what another reduction gave.
void Maker::pairs_step() {
  const Val a = any_float(), b = any_float();
  if (a.rank() == 0 || a.rank() > 2 || b.rank() == 0) return;
  // a [i, k] with b [j, k], or [i] with [j], whose own axes are thrown together.
  Dims dims = a.shape().dims();
  dims.insert(dims.begin() + 1, context_.extent());
  if (Shape(dims).elems() > context_.max_elems || Shape(dims).elems() == 0) return;
  Dims others(dims.begin() + 1, dims.end()), axes_of_a = {0}, axes_of_b;
  for (int64_t i = 1; i < a.rank(); ++i) axes_of_a.push_back(i + 1);
  for (size_t i = 1; i < dims.size(); ++i) axes_of_b.push_back(static_cast<int64_t>(i));
  const Shape shape(dims);
  const Val x = broadcast(a, shape, axes_of_a);
  const Val y = broadcast(fit(b, {a.dtype(), Shape(others)}), shape, axes_of_b);
  Val pairs = below(2) ? x - y : bounded(x + y);
  if (below(2)) pairs = below(2) ? tanh(pairs) : pairs * pairs;
  for (uint64_t n = 1 + below(3); n > 0; --n) {
    const Dims axes = some_axes(pairs);
    const Val sum = reduce_sum(pairs, axes);
    add(sum);
    if (below(3) == 0) pairs = tanh(pairs - unreduce(sum, shape, axes));
  }
  if (below(3) == 0) add(pairs);
}

Val Maker::view(const Val& x) {
  const int64_t n = x.type().elems();
  switch (below(5)) {
    case 0: {
      Dims dims = x.shape().dims();
      if (below(2)) {
        std::shuffle(dims.begin(), dims.end(), context_.random);
      } else if (dims.size() > 1) {  // merge two
        const size_t at = below(dims.size() - 1);
        dims[at] *= dims[at + 1];
        dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      } else if (const int64_t d = context_.extent(); d > 0 && n % d == 0) {
        dims = {d, n / d};
      }
      return reshape(x, Shape(dims));
    }
    case 1:
      return transpose(x, shuffled_axes(x));
    case 2:
      return reverse(x, some_axes(x));
    default: {
      Dims start, limit, stride;
      for (int64_t d : x.shape().dims()) {
        start.push_back(below(2) ? 0
                                 : static_cast<int64_t>(below(static_cast<uint64_t>(d) / 2 + 1)));
        limit.push_back(below(2) ? d
                                 : d - static_cast<int64_t>(below(
                                           static_cast<uint64_t>(d - start.back()) / 2 + 1)));
        stride.push_back(below(3) ? 1 : 2);
      }
      return slice(x, start, limit, stride);
    }
  }
}

void Maker::joining_step() {
  const Val x = any();
  if (x.rank() == 0) return;
  if (below(3) == 0) {
    Dims low, high, interior;
    for (int64_t d : x.shape().dims()) {
      low.push_back(static_cast<int64_t>(below(3)) - 1);
      high.push_back(static_cast<int64_t>(below(3)) - 1);
      interior.push_back(below(4) ? 0 : 1);
      if (d + low.back() + high.back() < 1) low.back() = high.back() = 1;
    }
    return add(pad(x, constant(builder_, x.dtype(), 0), low, high, interior));
  }
  const int64_t axis = axis_of(x);
  std::vector<Val> parts = {x};
  for (uint64_t i = 0, n = 1 + below(2); i < n; ++i) {
    ArrayType type = x.type();
    if (below(2)) type.shape[static_cast<int>(axis)] = context_.extent();
    parts.push_back(of(type));
  }
  std::shuffle(parts.begin(), parts.end(), context_.random);
  add(concatenate(parts, axis));
}

void Maker::dot_step() {
  const Val a = any_float();
  Val b = any_float();
  if (b.dtype() != a.dtype()) b = convert(b, a.dtype());
  DotParams p{.out = a.dtype()};
  int64_t elems = 1;
  std::vector<bool> used(b.shape().dims().size());
  for (int64_t i : shuffled_axes(a)) {
    const int64_t d = a.shape()[static_cast<int>(i)];
    bool paired = false;
    for (int64_t j : shuffled_axes(b)) {
      const auto at = static_cast<size_t>(j);
      if (used[at] || b.shape()[static_cast<int>(j)] != d || context_.chance(20)) continue;
      const bool batch = context_.chance(30);
      (batch ? p.lhs_batch : p.lhs_contract).push_back(i);
      (batch ? p.rhs_batch : p.rhs_contract).push_back(j);
      if (batch) elems *= d;
      used[at] = paired = true;
      break;
    }
    if (!paired) elems *= d;
  }
  for (size_t j = 0; j < used.size(); ++j)
    if (!used[j]) elems *= b.shape()[static_cast<int>(j)];
  if (elems > context_.max_elems) return;
  const Val y = dot_general(a, b, p);
  if (y.rank() <= 4) add(context_.chance(70) ? y * 0.4 : y);
}

void Maker::gather_step() {
  const Val x = any_float();
  if (x.rank() == 0 || x.type().elems() == 0) return;
  const auto [p, vectors, windows] = indexed(x);
  const Val index = of({DType::kI32, Shape(vectors)});
  if (below(2)) return add(gather(x, index, p));
  add(scatter_add(x, index, of({x.dtype(), Shape(windows)}), p));
}

void Maker::dynamic_step() {
  const Val x = any();
  if (x.rank() == 0) return;
  std::vector<Val> starts;
  Dims sizes;
  for (int64_t d : x.shape().dims()) {
    starts.push_back(of({DType::kI32, {}}));
    sizes.push_back(d == 0 ? 0 : 1 + static_cast<int64_t>(below(static_cast<uint64_t>(d))));
  }
  if (below(2)) return add(dynamic_slice(x, starts, sizes));
  add(dynamic_update_slice(x, of({x.dtype(), Shape(sizes)}), starts));
}

void Maker::select_step() {
  const Val a = any(), b = of(a.type());
  Val condition = [&] {
    if (context_.discrete && is_float(a.dtype()) && below(2)) return gt(a, b);
    const Val i = iota_like(a.shape(), DType::kI32);
    return le(i, of(i.type()));
  }();
  if (below(4) == 0) add(condition);
  add(select(condition, a, b));
}

void Maker::other_step() {
  const Val x = any_float();
  switch (below(5)) {
    case 0:
      if (x.rank() > 0) add(cumsum(x, axis_of(x), below(2) == 0));
      return;
    case 1: {
      if (x.rank() == 0) return;
      const Val keys[] = {x};
      return add(sort(keys, axis_of(x), below(2) == 0)[0]);
    }
    case 2:
      return add(convert(x, context_.float_dtype()));
    case 3:
      if (context_.discrete) return add(convert(x * 2, DType::kI32));
      return add(convert(any(), context_.float_dtype()));
    case 4:
      if (context_.discrete && x.rank() > 0 && x.type().elems() > 0)
        add(builder_.add1(OpKind::kArgMax, ArgReduceParams{axis_of(x), DType::kI32}, {x}));
      return;
  }
}

void Maker::leaf_step() {
  const ArrayType type{context_.float_dtype(), context_.shape(2)};
  switch (below(4)) {
    case 0:
      return add(full(builder_, type, 0.75));
    case 1:
      return add(iota_like(type.shape, DType::kI32));
    case 2:
      return add(iota_like(type.shape, type.dtype) * 0.1);
    case 3: {
      ConstantParams p{type, random_values(context_.random(), type)};
      return add(builder_.add1(OpKind::kConstant, p, {}));
    }
  }
}

void Maker::mark_step() {
  const Val x = any_float();
  switch (below(4)) {
    case 0:
      return add(builder_.add1(OpKind::kOptimizationBarrier, NoParams{}, {x}));
    case 1:
      if (context_.chance(30)) add(builder_.add1(OpKind::kStopGradient, NoParams{}, {x}));
      return;
    default:
      return add(name(x, std::string(1, static_cast<char>('a' + below(4)))));
  }
}

// Rows that are normalized, as softmax and the norms do; attention.
void Maker::composite_step() {
  Val x = any_float();
  if (below(4) == 0 && x.dtype() != DType::kF64) {
    const int64_t g = 1 + static_cast<int64_t>(below(2)),
                  h = g * (1 + static_cast<int64_t>(below(2)));
    const int64_t batch = 1 + static_cast<int64_t>(below(2)), t = context_.extent(), d = 4;
    if (t == 0) return;
    const ArrayType q{x.dtype(), {batch, t, h, d}}, k{x.dtype(), {batch, t, g, d}};
    if (q.elems() > context_.max_elems) return;
    std::vector<Val> operands = {of(q), of(k), of(k)};
    if (below(3) == 0) {
      const ArrayType bound{DType::kI32, {batch, t}};
      operands.insert(operands.end(), {of(bound), of(bound)});
    }
    const std::vector<Val> results =
        builder_.add(OpKind::kAttention, AttentionParams{0.5f, below(2) == 0}, operands);
    return add(results[0]);
  }
  if (x.rank() == 0 || x.type().elems() == 0) return;
  const Dims last = {below(2) ? x.rank() - 1 : axis_of(x)};
  if (below(2)) {
    const Val e =
        exp(bounded(x - unreduce(reduce(OpKind::kReduceMax, x, last), x.shape(), last)));
    return add(e / unreduce(reduce_sum(e, last), x.shape(), last));
  }
  const Val ms = reduce_sum(bounded(x) * bounded(x), last) * 0.1 + 0.5;
  add(bounded(x) * unreduce(rsqrt(ms), x.shape(), last));
}

}  // namespace stow::testing::random_programs
