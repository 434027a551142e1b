#include "tests/fuzz/random_program.h"

#include <algorithm>
#include <charconv>
#include <random>

#include <fmt/ranges.h>

#include "stowage/autodiff/flatten.h"
#include "stowage/autodiff/reverse.h"
#include "stowage/core/scalar.h"
#include "stowage/ir/print.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/batch.h"
#include "stowage/ops/build.h"
#include "tests/support/crash_note.h"

namespace stow::testing {
namespace {

// What all graphs of one program share.
struct Context {
  std::mt19937_64 random;
  Dims extents;  // axes are mostly of these
  int64_t max_elems = 0;
  bool discrete = false;        // steps that are not continuous are allowed
  bool differentiated = false;  // open loops must not be on the way of a gradient
  bool away = false;            // values stay on the host or the disk, too
  std::vector<DType> floats;

  uint64_t below(uint64_t n) { return random() % n; }
  bool chance(uint64_t percent) { return below(100) < percent; }
  int64_t extent() { return extents[below(extents.size())]; }
  DType float_dtype() { return floats[below(floats.size())]; }
  MemoryKind kind_away() { return below(2) ? MemoryKind::kDisk : MemoryKind::kPinnedHost; }
  Shape shape(uint64_t max_rank) {
    while (true) {
      Dims dims(below(max_rank + 1));
      for (int64_t& d : dims) d = extent();
      if (Shape shape(dims); shape.elems() <= max_elems) return shape;
    }
  }
};

class Maker {
 public:
  Maker(Context& context, Graph& graph, int depth)
      : context_(context), builder_(graph), depth_(depth) {}

  void input(const ArrayType& type) {
    inputs_.emplace_back(builder_, builder_.graph().add_input(type));
    add(inputs_.back());
  }
  void grow(uint64_t n_steps) {
    for (uint64_t i = 0; i < n_steps; ++i) step();
  }
  /// Results of a scan whose carries begin with inputs that nothing else reads.
  std::vector<Val> scan_over_own_inputs() {
    std::vector<Val> inits;
    for (uint64_t n = 1 + below(3); inits.size() < n;) {
      const ArrayType type = inits.empty() || below(2) ? any_anywhere().type() : inits[0].type();
      inits.emplace_back(builder_, builder_.graph().add_input(type));
    }
    return scan_from(inits);
  }
  /// Any value on the device, the later the likelier, and likelier yet if nothing reads it.
  Val any() {
    if (pool_.empty()) pool_.push_back(constant(builder_, context_.floats[0], 0.5));
    const size_t n = pool_.size();
    if (context_.chance(30)) return unread();
    return pool_[std::max(context_.below(n), context_.below(n))];
  }
  Val unread() {
    std::vector<bool> read(builder_.graph().n_values());
    for (const Node& node : builder_.graph().nodes())
      for (ValueId v : node.operands) read[v.index()] = true;
    std::vector<Val> found;
    for (const Val& v : pool_)
      if (!read[v.id().index()]) found.push_back(v);
    return found.empty() ? pool_.back() : found[below(found.size())];
  }
  /// Any value, maybe one that lies elsewhere or is put there for it.
  Val any_anywhere() {
    if (!context_.away || context_.chance(50)) return any();
    if (away_.empty() || context_.chance(20)) return device_put(any(), context_.kind_away());
    return away_[context_.below(away_.size())];
  }
  Val any_float() {
    for (int tries = 0; tries < 20; ++tries)
      if (const Val v = any(); is_float(v.dtype())) return v;
    return constant(builder_, context_.floats[0], 0.5);
  }
  /// A value of that type, made where there is none.
  Val of(const ArrayType& type) {
    std::vector<Val> found;
    for (const Val& v : type.kind == MemoryKind::kDevice ? pool_ : away_)
      if (v.type() == type) found.push_back(v);
    if (!found.empty() && !context_.chance(20))
      return found[std::max(context_.below(found.size()), context_.below(found.size()))];
    if (type.kind != MemoryKind::kDevice)
      return device_put(of({type.dtype, type.shape}), type.kind);
    return fit(is_float(type.dtype) ? any_float() : any(), type);
  }
  /// Any value made to have that type.
  Val fit(Val v, const ArrayType& type) {
    if (is_float(v.dtype()) && !is_float(type.dtype)) v = iota_like(v.shape(), DType::kI32);
    if (v.shape() != type.shape) {
      if (v.type().elems() == type.elems()) {
        v = reshape(v, type.shape);
      } else {
        Dims axes;
        for (int i = 0; i < v.rank(); ++i) axes.push_back(i);
        if (v.dtype() == DType::kBool) v = convert(v, DType::kI32);
        v = reduce(OpKind::kReduceMax, pad_if_empty(v), axes);
        v = broadcast_scalar(v, type.shape);
      }
    }
    return convert(v, type.dtype);
  }
  /// Results: mostly of late values, some twice, some inputs, some views.
  std::vector<ValueId> outputs(uint64_t n) {
    std::vector<ValueId> result;
    for (uint64_t i = 0; i < n; ++i) {
      Val v = context_.chance(60) ? unread() : any();
      if (context_.chance(10)) v = pool_[context_.below(pool_.size())];
      if (context_.chance(10)) v = view(v);
      if (context_.chance(30)) v = any_anywhere();
      result.push_back(v.id());
      if (context_.chance(8)) result.push_back(v.id());
    }
    return result;
  }
  /// A float scalar of several values.
  Val loss() {
    // f64 where the program is.
    Val sum = constant(builder_, context_.floats[0], 0);
    for (uint64_t i = 0, n = 2 + context_.below(4); i < n; ++i) {
      Val v = unread();
      if (!is_float(v.dtype())) v = any_float();
      Dims axes;
      for (int a = 0; a < v.rank(); ++a) axes.push_back(a);
      sum = sum + reduce_sum(tanh(convert(v, sum.dtype())), axes);
    }
    return sum;
  }
  const std::vector<Val>& pool() const { return pool_; }

 private:
  void add(const Val& v) {
    if (v.type().elems() > context_.max_elems) return;
    (v.type().kind == MemoryKind::kDevice ? pool_ : away_).push_back(v);
  }
  Val pad_if_empty(const Val& v) {
    if (v.type().elems() > 0 || v.rank() == 0) return v;
    return broadcast_scalar(constant(builder_, v.dtype(), 0),
                            Shape(Dims(v.shape().dims().size(), 1)));
  }
  Val iota_like(const Shape& shape, DType dtype) {
    if (shape.rank() == 0) return constant(builder_, dtype, static_cast<double>(context_.below(4)));
    return iota(builder_, {dtype, shape},
                static_cast<int64_t>(context_.below(static_cast<uint64_t>(shape.rank()))));
  }
  Val bounded(const Val& v) { return tanh(v); }
  uint64_t below(uint64_t n) { return context_.below(n); }
  int64_t axis_of(const Val& v) {
    return static_cast<int64_t>(below(static_cast<uint64_t>(v.rank())));
  }
  Dims shuffled_axes(const Val& v) {
    Dims axes;
    for (int i = 0; i < v.rank(); ++i) axes.push_back(i);
    std::shuffle(axes.begin(), axes.end(), context_.random);
    return axes;
  }
  Dims some_axes(const Val& v) {
    Dims axes = shuffled_axes(v);
    axes.resize(below(axes.size() + 1));
    return axes;
  }

  // The rarer functions, windows, convolutions, scatters and what runs along an axis.
  void rarer_step() {
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

  Val rare_function(const Val& x) {
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
  void moved_step(const Val& x) {
    Val away = device_put(x, context_.kind_away());
    if (below(2) && x.rank() > 0 && x.shape()[0] > 0)
      away = slice_axis(away, 0, static_cast<int64_t>(below(2)) % x.shape()[0], x.shape()[0]);
    if (below(3) == 0) away = device_put(away, context_.kind_away());
    add(device_put(away, MemoryKind::kDevice));
  }

  // What can be done with a value that is not on the device.
  void away_step() {
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

  void running_step(const Val& x) {
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

  // A window over an axis of n elements that fits at least once: size, stride, low, high, dilations.
  struct Slide {
    int64_t size, stride, low, high, base_dilation, window_dilation;
  };
  Slide slide(int64_t n) {
    const auto number = [&](uint64_t more) { return 1 + static_cast<int64_t>(below(more)); };
    Slide s{number(3), number(2), number(4) - 2, number(4) - 2, number(2), number(2)};
    const int64_t room = (n == 0 ? 0 : (n - 1) * s.base_dilation + 1) + s.low + s.high;
    if (room < (s.size - 1) * s.window_dilation + 1) return {1, 1, 1, 0, 1, 1};
    return s;
  }

  void window_step(const Val& x) {
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

  void convolution_step(const Val& x) {
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

  // Rows of x by vectors [n, 1], or, an axis going along, parts of rows by vectors [n, extent, 1].
  struct Indexed {
    GatherParams params;
    Dims vectors, windows;
  };
  Indexed indexed(const Val& x) {
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

  void scatter_step(const Val& x) {
    if (x.rank() == 0 || x.type().elems() == 0) return;
    const auto [p, vectors, windows] = indexed(x);
    const Val index = of({DType::kI32, Shape(vectors)});
    const Val u = of({x.dtype(), Shape(windows)});
    constexpr OpKind kOps[] = {OpKind::kScatter, OpKind::kScatterMin, OpKind::kScatterMax};
    if (below(4) == 0)
      return add(builder_.add1(OpKind::kScatterMul, p, {x, index, cos(bounded(u)) + 0.3}));
    add(builder_.add1(kOps[below(std::size(kOps))], p, {x, index, u}));
  }

  void step() {
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

  void unary_step() {
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

  void binary_step() {
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

  void broadcast_step() {
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

  void reduce_step() {
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
  void pairs_step() {
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

  Val view(const Val& x) {
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

  void joining_step() {
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

  void dot_step() {
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

  void gather_step() {
    const Val x = any_float();
    if (x.rank() == 0 || x.type().elems() == 0) return;
    const auto [p, vectors, windows] = indexed(x);
    const Val index = of({DType::kI32, Shape(vectors)});
    if (below(2)) return add(gather(x, index, p));
    add(scatter_add(x, index, of({x.dtype(), Shape(windows)}), p));
  }

  void dynamic_step() {
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

  void select_step() {
    const Val a = any(), b = of(a.type());
    Val condition = [&] {
      if (context_.discrete && is_float(a.dtype()) && below(2)) return gt(a, b);
      const Val i = iota_like(a.shape(), DType::kI32);
      return le(i, of(i.type()));
    }();
    if (below(4) == 0) add(condition);
    add(select(condition, a, b));
  }

  void other_step() {
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

  void leaf_step() {
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

  void mark_step() {
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
  void composite_step() {
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

  void scan_step() {
    for (const Val& v : scan_from({})) add(v);
  }

  // A scan whose carries begin with these values; where there are none, with any.
  std::vector<Val> scan_from(const std::vector<Val>& inits) {
    constexpr int64_t kLengths[] = {0, 1, 2, 3, 3, 4, 5};
    ScanParams p{.length = kLengths[below(std::size(kLengths))], .reverse = below(2) == 0};
    if (below(3) == 0) p.unroll = static_cast<int64_t>(below(4));
    std::vector<Val> operands;
    std::vector<ArrayType> types;
    const auto take = [&](const Val& v) {
      operands.push_back(v);
      types.push_back(v.type());
    };
    p.n_consts = static_cast<int>(below(3));
    p.n_carries = inits.empty() ? static_cast<int>(below(4)) : static_cast<int>(inits.size());
    for (int i = 0; i < p.n_consts; ++i) take(any_anywhere());
    for (const Val& v : inits) take(v);
    for (int i = 0; i < p.n_carries && inits.empty(); ++i)
      take(i > 0 && below(2) ? of(operands.back().type()) : any_anywhere());
    for (uint64_t i = below(4); i > 0; --i) {
      const ArrayType slice = any_anywhere().type();
      if (slice.shape.rank() > 2 || slice.elems() * p.length > context_.max_elems) continue;
      Dims dims = slice.shape.dims();
      const size_t axis = below(dims.size() + 1);
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), p.length);
      const ArrayType stack{slice.dtype, Shape(dims), slice.kind};
      if (slice.kind == MemoryKind::kDevice && is_float(slice.dtype) && below(5) == 0) {
        scan_part(stack, axis, p, operands, types);
        continue;
      }
      operands.push_back(of(stack));
      types.push_back({slice.dtype, slice.shape, slice.kind});
      p.in_axes.push_back(static_cast<int64_t>(axis));
      if (below(4) == 0) {  // the same stack twice
        operands.push_back(operands.back());
        types.push_back(types.back());
        p.in_axes.push_back(p.in_axes.back());
      }
    }
    if (types.empty()) return {};
    auto body = std::make_shared<Graph>();
    Maker inner(context_, *body, depth_ - 1);
    for (const ArrayType& type : types) inner.input(type);
    const std::vector<Val> inputs = inner.inputs_;
    if (inner.pool_.size() + inner.away_.size() != types.size()) return {};
    inner.grow(2 + below(8));
    std::vector<ValueId> outputs = carries(inner, inputs, p);
    for (uint64_t i = below(4); i > 0; --i) {
      Val y = inner.any_anywhere();
      if (p.n_carries > 0 && below(3) == 0) {  // a carry as it comes or as it goes
        const auto k = below(static_cast<uint64_t>(p.n_carries));
        y = below(2) ? inputs[static_cast<size_t>(p.n_consts) + k]
                     : Val(inner.builder_, outputs[k]);
      }
      if (y.rank() > 3 || y.type().elems() * p.length > context_.max_elems) continue;
      outputs.push_back(y.id());
      p.out_axes.push_back(
          below(2) ? 0 : static_cast<int64_t>(below(static_cast<uint64_t>(y.rank()) + 1)));
    }
    if (outputs.empty()) return {};
    body->set_outputs(outputs);
    return builder_.add(OpKind::kScan, p, operands, {body});
  }

  // Scans what is a part of a concatenation as well, which is scanned beside it or read later.
  void scan_part(const ArrayType& stack, size_t axis, ScanParams& p, std::vector<Val>& operands,
                 std::vector<ArrayType>& types) {
    const auto take = [&](const Val& v) {
      Dims dims = v.shape().dims();
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
      operands.push_back(v);
      types.push_back({v.dtype(), Shape(dims)});
      p.in_axes.push_back(static_cast<int64_t>(axis));
    };
    const std::vector<Val> parts = {of(stack) * 0.5, of(stack)};
    const size_t joined = below(static_cast<uint64_t>(stack.shape.rank()));
    const Val whole = concatenate(parts, static_cast<int64_t>(joined));
    add(whole);
    take(parts[0]);
    if (joined != axis && below(2)) take(whole);
  }

  // Half of it and something new, where it lies.
  Val successor(ValueId of_what) {
    const Val v = device_put(Val(builder_, of_what), MemoryKind::kDevice);
    return device_put(v * 0.5 + tanh(of(v.type())), builder_.graph().type(of_what).kind);
  }

  // A value with a new row that depends on the old one, as a cache is updated.
  Val with_new_row(const Val& v) {
    std::vector<Val> start(static_cast<size_t>(v.rank()), constant_int(builder_, DType::kI32, 0));
    if (below(2)) start[0] = of({DType::kI32, {}});
    Dims row = v.shape().dims();
    row[0] = 1;
    const Val old = dynamic_slice(v, start, row);
    return dynamic_update_slice(v, below(2) ? of(old.type()) : old, start);
  }

  // What becomes of each carry: new, updated in place, passed through, or another's.
  std::vector<ValueId> carries(Maker& inner, const std::vector<Val>& inputs, const ScanParams& p) {
    std::vector<ValueId> outputs;
    for (int k = 0; k < p.n_carries; ++k) {
      const Val& in = inputs[static_cast<size_t>(p.n_consts + k)];
      if (below(6) == 0) {
        outputs.push_back(in.id());
      } else if (below(8) == 0 && inner.depth_ > 0) {
        const std::vector<Val> results = inner.scan_from({in});
        outputs.push_back(results.empty() ? in.id() : results[0].id());
      } else if (below(8) == 0 && in.rank() > 0 && in.type().elems() > 0 &&
                 in.type().kind == MemoryKind::kDevice) {
        outputs.push_back(inner.with_new_row(in).id());
      } else if (below(5) == 0) {
        std::vector<ValueId> alike;
        for (const Val& v : inputs)
          if (v.type() == in.type()) alike.push_back(v.id());
        outputs.push_back(alike[below(alike.size())]);
      } else if (is_float(in.dtype()) && below(4) > 0) {
        const Val here = device_put(in, MemoryKind::kDevice), v = inner.of(here.type());
        const Val out = [&] {
          switch (below(3)) {
            case 0:
              return tanh(v) + here * 0.5;
            case 1:
              return tanh(v + here);
            default:
              return cos(inner.bounded(here)) * inner.bounded(v);
          }
        }();
        outputs.push_back(device_put(out, in.type().kind).id());
      } else {
        outputs.push_back(inner.of(in.type()).id());
      }
    }
    return outputs;
  }

  void checkpoint_step() {
    std::vector<Val> operands;
    for (uint64_t i = 0, n = 1 + below(4); i < n; ++i) operands.push_back(any_anywhere());
    auto body = std::make_shared<Graph>();
    Maker inner(context_, *body, depth_ - 1);
    for (const Val& v : operands) inner.input(v.type());
    inner.grow(3 + below(8));
    body->set_outputs(inner.outputs(1 + below(3)));
    CheckpointParams p{.policy = below(5) ? random_policy(below(1000)) : nullptr,
                       .prevent_cse = below(3) > 0};
    for (const Val& v : builder_.add(OpKind::kCheckpoint, p, operands, {body})) add(v);
  }

  // A nested graph over inputs of these types.
  std::shared_ptr<Graph> nested(const std::vector<ArrayType>& inputs) {
    auto body = std::make_shared<Graph>();
    Maker inner(context_, *body, depth_ - 1);
    for (const ArrayType& type : inputs) inner.input(type);
    inner.grow(3 + below(6));
    body->set_outputs(inner.outputs(1 + below(3)));
    return body;
  }

  // What vmap does: the graph of one example over a batch, its nodes put here.
  void batched_step() {
    const int64_t size = context_.extent();
    if (size > 8) return;
    std::vector<Val> operands;
    std::vector<ArrayType> types;
    std::vector<int64_t> axes;
    for (uint64_t i = 0, n = 1 + below(3); i < n; ++i) {
      const Val v = any_anywhere();
      std::vector<int64_t> fitting = {kUnbatched};
      for (int64_t a = 0; a < v.rank(); ++a)
        if (v.shape()[static_cast<int>(a)] == size) fitting.insert(fitting.end(), {a, a});
      axes.push_back(fitting[below(fitting.size())]);
      types.push_back(v.type());
      if (axes.back() != kUnbatched) {
        Dims dims = v.shape().dims();
        dims.erase(dims.begin() + axes.back());
        types.back().shape = Shape(dims);
      }
      operands.push_back(v);
    }
    const auto body = nested(types);
    const BatchedGraph batched = batch_graph(
        *body, size, axes, std::vector<int64_t>(body->outputs().size(), kAnyAxis));
    ValueMap map(batched.graph);
    for (size_t i = 0; i < operands.size(); ++i)
      map.set(batched.graph.inputs()[i], operands[i].id());
    for (const Node& node : batched.graph.nodes())
      copy_node(batched.graph, node, builder_.graph(), map, {});
    for (ValueId v : batched.graph.outputs()) add(Val(builder_, map[v]));
  }

  // A function whose gradient rule is its gradient, with its arguments as residuals.
  void custom_vjp_step() {
    std::vector<Val> operands;
    std::vector<ArrayType> types;
    for (uint64_t i = 0, n = 1 + below(3); i < n; ++i) {
      operands.push_back(any_anywhere());
      types.push_back(operands.back().type());
    }
    const auto function = nested(types);
    ReverseSpec spec;
    for (size_t i = 0; i < types.size(); ++i)
      if (is_float(types[i].dtype)) spec.wrt.push_back(static_cast<int>(i));
    const auto is_float_output = [&](size_t i) {
      return is_float(function->type(function->outputs()[i]).dtype);
    };
    const size_t n_results = function->outputs().size();
    for (size_t i = 0; i < n_results; ++i)
      if (is_float_output(i)) spec.outputs.push_back(static_cast<int>(i));
    Graph joint;
    try {
      joint = reverse(*function, spec);
    } catch (const TraceError&) {
      return;  // an op without a gradient
    }
    auto forward = std::make_shared<Graph>(*function), backward = std::make_shared<Graph>();
    std::vector<ValueId> outputs = function->outputs();
    outputs.insert(outputs.end(), function->inputs().begin(), function->inputs().end());
    forward->set_outputs(outputs);

    GraphBuilder b(*backward);
    std::vector<ValueId> inputs, cotangents;
    for (const ArrayType& type : types) inputs.push_back(backward->add_input(type));
    for (size_t i = 0; i < n_results; ++i) {
      const ValueId ct = backward->add_input(function->type(function->outputs()[i]));
      if (is_float_output(i)) inputs.push_back(ct);
    }
    const std::vector<ValueId> all = inline_flat(joint, inputs, *backward, RegionId(), false);
    size_t next = n_results;
    for (const ArrayType& type : types)
      cotangents.push_back(is_float(type.dtype) ? all[next++] : full_anywhere(b, type, 0).id());
    backward->set_outputs(cotangents);
    const auto n = static_cast<int>(types.size());
    for (const Val& v : builder_.add(OpKind::kCustomVjp, CustomVjpParams{n, n}, operands,
                                     {function, forward, backward}))
      add(v);
  }

  // A condition, a switch; results that are new, handed through or an operand's successor.
  void cond_step() {
    const bool is_bool = below(2) == 0;
    Val index = of({is_bool ? DType::kBool : DType::kI32, {}});
    if (is_bool && context_.discrete && below(2)) {
      const Val x = any_float();
      Dims axes;
      for (int a = 0; a < x.rank(); ++a) axes.push_back(a);
      index = gt(reduce_sum(x, axes), constant(builder_, x.dtype(), 0.1));
    }
    std::vector<Val> operands = {index};
    for (uint64_t i = below(5); i > 0; --i)
      operands.push_back(below(3) == 0 && operands.size() > 1 ? of(operands.back().type())
                                                             : any_anywhere());
    if (below(8) == 0) operands.push_back(operands.back());
    std::vector<GraphPtr> graphs;
    std::vector<ArrayType> types;
    const uint64_t n_results = 1 + below(3);
    for (uint64_t n = is_bool ? 2 : 1 + below(4), b = 0; b < n; ++b) {
      auto graph = std::make_shared<Graph>();
      Maker inner(context_, *graph, depth_ - 1);
      for (size_t i = 1; i < operands.size(); ++i) inner.input(operands[i].type());
      const std::vector<Val> inputs = inner.inputs_;
      if (inner.pool_.size() + inner.away_.size() + 1 != operands.size()) return;
      if (inputs.empty()) inner.leaf_step();
      if (below(4) > 0) inner.grow(1 + below(7));
      std::vector<ValueId> outputs;
      for (size_t j = 0; j < n_results; ++j) {
        if (b == 0)
          types.push_back(below(3) > 0 && !inputs.empty() ? inputs[below(inputs.size())].type()
                                                          : inner.any_anywhere().type());
        std::vector<ValueId> alike;
        for (const Val& v : inputs)
          if (v.type() == types[j]) alike.push_back(v.id());
        if (!alike.empty() && below(3) == 0)
          outputs.push_back(alike[below(alike.size())]);
        else if (!alike.empty() && is_float(types[j].dtype) && below(2) == 0)
          outputs.push_back(inner.successor(alike[below(alike.size())]).id());
        else
          outputs.push_back(inner.of(types[j]).id());
      }
      graph->set_outputs(outputs);
      graphs.push_back(graph);
    }
    for (const Val& v : builder_.add(OpKind::kCond, CondParams{}, operands, graphs)) add(v);
  }

  // A few iterations of a counter, and where jumps are allowed as long as a sum is small.
  void while_step() {
    if (context_.differentiated && context_.floats == std::vector{DType::kF64}) return;
    const auto still = [&](const Val& v) {
      return context_.differentiated && is_float(v.dtype())
                 ? builder_.add1(OpKind::kStopGradient, NoParams{}, {v})
                 : v;
    };
    WhileParams p{.n_cond_consts = 1, .n_body_consts = static_cast<int>(below(3))};
    std::vector<Val> operands = {of({DType::kI32, {}})};
    for (int i = 0; i < p.n_body_consts; ++i) operands.push_back(still(any_anywhere()));
    const size_t first = operands.size();
    operands.push_back(below(2) ? constant_int(builder_, DType::kI32, 0)
                                : max(of({DType::kI32, {}}), constant_int(builder_, DType::kI32, 1)));
    for (uint64_t i = below(4); i > 0; --i)
      operands.push_back(still(below(2) ? of(operands.back().type()) : any_anywhere()));
    auto condition = std::make_shared<Graph>(), body = std::make_shared<Graph>();
    Maker c(context_, *condition, depth_ - 1), inner(context_, *body, depth_ - 1);
    c.input(operands[0].type());
    for (size_t i = 1; i < operands.size(); ++i) {
      if (i >= first) c.input(operands[i].type());
      inner.input(operands[i].type());
    }
    const std::vector<Val> seen = c.inputs_, inputs = inner.inputs_;
    if (inner.pool_.size() + inner.away_.size() + 1 != operands.size()) return;
    Val holds = lt(seen[1], min(seen[0], constant_int(c.builder_, DType::kI32, 4)));
    if (context_.discrete && below(2)) {
      const Val x = c.any_float();
      Dims axes;
      for (int a = 0; a < x.rank(); ++a) axes.push_back(a);
      holds = logical_and(holds, lt(reduce_sum(x, axes), constant(c.builder_, x.dtype(), 2)));
    }
    condition->set_outputs({holds.id()});
    inner.grow(1 + below(6));
    const std::vector<Val> carried(inputs.begin() + p.n_body_consts, inputs.end());
    std::vector<ValueId> outputs = carries(
        inner, inputs, ScanParams{.n_consts = p.n_body_consts,
                                  .n_carries = static_cast<int>(carried.size())});
    outputs[0] = (carried[0] + 1).id();
    body->set_outputs(outputs);
    for (const Val& v : builder_.add(OpKind::kWhile, p, operands, {condition, body})) add(v);
  }

  Context& context_;
  GraphBuilder builder_;
  int depth_;
  std::vector<Val> inputs_, pool_, away_;  // pool_: what is on the device; away_: what is not
};

Context make_context(uint64_t seed) {
  Context c;
  c.random.seed(seed);
  const bool large = c.chance(8);
  constexpr int64_t kSmall[] = {1, 2, 2, 3, 3, 4, 5, 7}, kLarge[] = {3, 16, 33, 65, 100};
  for (int i = 0; i < 3; ++i)
    c.extents.push_back(large ? kLarge[c.below(std::size(kLarge))]
                              : kSmall[c.below(std::size(kSmall))]);
  if (c.chance(5)) c.extents.push_back(0);
  c.max_elems = large ? 20'000 : 500;
  c.discrete = c.chance(25);
  c.away = seed % 3 == 0;
  c.floats = {DType::kF32};
  if (c.chance(20)) c.floats = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16};
  if (c.chance(10)) c.floats = {DType::kF32, DType::kF64};
  if (c.chance(20)) c.floats = {DType::kF64};
  return c;
}

bool holds_stop(const Graph& graph) {
  return count_ops(graph, OpKind::kStopGradient, true) > 0;
}

// w - g / 8 for each gradient, over the donated old one; or with a moment that waits on the host or
// the disk instead of g, scaled by the gradient's squares or not.
void add_update(Context& c, RandomProgram& program, const ReverseSpec& spec, size_t n_forward) {
  GraphBuilder b(program.graph);
  std::vector<ValueId> outputs(
      program.graph.outputs().begin(),
      program.graph.outputs().begin() + static_cast<std::ptrdiff_t>(n_forward));
  for (size_t i = 0; i < spec.wrt.size(); ++i) {
    const auto input = static_cast<size_t>(spec.wrt[i]);
    const Val w(b, program.graph.inputs()[input]);
    Val g = device_put(Val(b, program.graph.outputs()[n_forward + i]), MemoryKind::kDevice);
    if (c.chance(50)) {
      const MemoryKind kind = c.kind_away();
      if (c.chance(30)) g = device_put(g, kind);
      ArrayType type = w.type();
      type.kind = kind;
      const Val moment = device_put(Val(b, program.graph.add_input(type)), MemoryKind::kDevice);
      program.donated.push_back(c.chance(80));
      g = device_put(g, MemoryKind::kDevice);
      if (c.chance(50)) {
        Dims axes;
        for (int axis = 0; axis < g.rank(); ++axis) axes.push_back(axis);
        const Val squares = reduce_sum(g * g, axes);
        g = g / broadcast_scalar(squares + 1.0, g.shape());
      }
      g = moment * 0.5 + g;
      outputs.push_back(device_put(g, kind).id());
    }
    outputs.push_back(
        device_put(device_put(w, MemoryKind::kDevice) - g * 0.125, w.type().kind).id());
    if (c.chance(80)) program.donated[input] = true;
  }
  program.graph.set_outputs(outputs);
}

}  // namespace

RandomProgram random_program(uint64_t seed) {
  Context c = make_context(seed);
  RandomProgram program;
  program.smooth = !c.discrete;
  Maker maker(c, program.graph, c.chance(20) ? 3 : 2);
  for (uint64_t i = 0, n = 2 + c.below(4); i < n; ++i) {
    const bool integer = i > 1 && c.chance(15);
    const MemoryKind kind = c.away && c.chance(30) ? c.kind_away() : MemoryKind::kDevice;
    maker.input({integer ? DType::kI32 : c.float_dtype(), c.shape(3), kind});
  }
  const size_t n_inputs = program.graph.inputs().size();
  c.differentiated = program.differentiated = c.chance(60);
  maker.grow(6 + c.below(20));
  ReverseSpec spec;
  if (program.differentiated) {
    const Val loss = maker.loss();
    std::vector<ValueId> outputs = maker.outputs(c.below(3));
    outputs.insert(outputs.begin(), loss.id());
    program.graph.set_outputs(outputs);
    spec.outputs = {0};
    for (size_t i = 0; i < n_inputs; ++i)
      if (is_float(program.graph.type(program.graph.inputs()[i]).dtype) && c.chance(75))
        spec.wrt.push_back(static_cast<int>(i));
    set_crash_note(fmt::format("differentiating with respect to {}\n{}", fmt::join(spec.wrt, ", "),
                               print(program.graph)));
    if (c.floats == std::vector{DType::kF64} && program.smooth && !holds_stop(program.graph)) {
      program.forward = program.graph;
      program.wrt = spec.wrt;
    }
    program.graph = reverse(program.graph, spec);
  } else {
    std::vector<ValueId> outputs = maker.outputs(1 + c.below(5));
    if (c.chance(60))
      for (const Val& v : maker.scan_over_own_inputs()) outputs.push_back(v.id());
    program.graph.set_outputs(outputs);
  }
  program.donated.assign(program.graph.inputs().size(), false);
  if (program.differentiated && !program.forward && c.chance(50))
    add_update(c, program, spec, program.graph.outputs().size() - spec.wrt.size());
  for (size_t i = 0; i < program.donated.size(); ++i)
    if (c.chance(i < n_inputs ? 25 : 75)) program.donated[i] = true;
  for (ValueId v : program.graph.inputs())
    program.inputs.push_back(random_values(c.random(), program.graph.type(v)));
  return program;
}

PolicyPtr random_policy(uint64_t seed) {
  const auto decide = [seed](const PolicyQuery& query) -> PolicyAnswer {
    uint64_t hash =
        (seed + 1) * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(query.op) * 0x100000001B3;
    for (const char ch : query.name) hash = (hash ^ static_cast<uint64_t>(ch)) * 0x100000001B3;
    hash ^= hash >> 29;
    const bool keep = seed % 8 == 0   ? true
                      : seed % 8 == 1 ? false
                      : seed % 8 == 2 ? query.op == OpKind::kDotGeneral
                      : seed % 8 == 3 ? query.op == OpKind::kName && hash % 2 == 0
                                      : hash % 8 < seed % 8;
    if (!keep) return {Mark::kRecompute};
    if (seed % 3 == 0 && (hash >> 9) % 3 == 0)
      return {Mark::kOffload, (hash >> 14) % 2 ? MemoryKind::kDisk : MemoryKind::kPinnedHost};
    return {Mark::kKeep};
  };
  return std::make_shared<const Policy>(Policy{fmt::format("random:{}", seed), decide, {}});
}

PolicyPtr policy_of_name(std::string_view name) {
  constexpr std::string_view kPrefix = "random:";
  if (!name.starts_with(kPrefix)) return nullptr;
  uint64_t seed = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seed);
  return random_policy(seed);
}

Bytes random_values(uint64_t seed, const ArrayType& type) {
  std::mt19937_64 random(seed);
  Bytes bytes;
  for (int64_t i = 0; i < type.elems(); ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    const double x = type.dtype == DType::kBool ? static_cast<double>(random() % 2)
                     : is_float(type.dtype)     ? 2 * unit - 1
                                                : static_cast<double>(random() % 5);
    const auto element = *encode_scalar(type.dtype, x);
    bytes.insert(bytes.end(), element.begin(), element.end());
  }
  return bytes;
}

}  // namespace stow::testing
