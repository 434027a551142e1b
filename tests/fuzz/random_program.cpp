#include "tests/fuzz/random_program.h"

#include <algorithm>
#include <charconv>
#include <random>

#include <fmt/ranges.h>

#include "stowage/autodiff/reverse.h"
#include "stowage/core/scalar.h"
#include "stowage/ir/print.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "tests/fuzz/random_program_maker.h"
#include "tests/support/crash_note.h"

namespace stow::testing::random_programs {

std::vector<Val> Maker::scan_over_own_inputs() {
  std::vector<Val> inits;
  for (uint64_t n = 1 + below(3); inits.size() < n;) {
    const ArrayType type = inits.empty() || below(2) ? any_anywhere().type() : inits[0].type();
    inits.emplace_back(builder_, builder_.graph().add_input(type));
  }
  return scan_from(inits);
}

Val Maker::any() {
  if (pool_.empty()) pool_.push_back(constant(builder_, context_.floats[0], 0.5));
  const size_t n = pool_.size();
  if (context_.chance(30)) return unread();
  return pool_[std::max(context_.below(n), context_.below(n))];
}

Val Maker::unread() {
  std::vector<bool> read(builder_.graph().n_values());
  for (const Node& node : builder_.graph().nodes())
    for (ValueId v : node.operands) read[v.index()] = true;
  std::vector<Val> found;
  for (const Val& v : pool_)
    if (!read[v.id().index()]) found.push_back(v);
  return found.empty() ? pool_.back() : found[below(found.size())];
}

Val Maker::any_anywhere() {
  if (!context_.away || context_.chance(50)) return any();
  if (away_.empty() || context_.chance(20)) return device_put(any(), context_.kind_away());
  return away_[context_.below(away_.size())];
}

Val Maker::any_float() {
  for (int tries = 0; tries < 20; ++tries)
    if (const Val v = any(); is_float(v.dtype())) return v;
  return constant(builder_, context_.floats[0], 0.5);
}

Val Maker::of(const ArrayType& type) {
  std::vector<Val> found;
  for (const Val& v : type.kind == MemoryKind::kDevice ? pool_ : away_)
    if (v.type() == type) found.push_back(v);
  if (!found.empty() && !context_.chance(20))
    return found[std::max(context_.below(found.size()), context_.below(found.size()))];
  if (type.kind != MemoryKind::kDevice)
    return device_put(of({type.dtype, type.shape}), type.kind);
  return fit(is_float(type.dtype) ? any_float() : any(), type);
}

Val Maker::fit(Val v, const ArrayType& type) {
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

std::vector<ValueId> Maker::outputs(uint64_t n) {
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

Val Maker::loss() {
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

Val Maker::pad_if_empty(const Val& v) {
  if (v.type().elems() > 0 || v.rank() == 0) return v;
  return broadcast_scalar(constant(builder_, v.dtype(), 0),
                          Shape(Dims(v.shape().dims().size(), 1)));
}

Val Maker::iota_like(const Shape& shape, DType dtype) {
  if (shape.rank() == 0) return constant(builder_, dtype, static_cast<double>(context_.below(4)));
  return iota(builder_, {dtype, shape},
              static_cast<int64_t>(context_.below(static_cast<uint64_t>(shape.rank()))));
}

}  // namespace stow::testing::random_programs

namespace stow::testing {
namespace {

using random_programs::Context;
using random_programs::Maker;

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
