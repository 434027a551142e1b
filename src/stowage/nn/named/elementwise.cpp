#include "stowage/api/math.h"
#include "stowage/api/nn.h"
#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"

namespace stow::named {
namespace {

void check_operand(const char* name, const NamedOperand& x) {
  if (x.is_named()) return check_axes_fit(name, x.named());
  if (x.value().rank() > 0)
    trace_error_here(
        "[{}] expected a NamedArray or a scalar, got {} without names; give it some: "
        "named(array, {{\"Batch\", …}})",
        name, to_string(x.value().array().type()));
}

// The axes of the operand that has all axes of the others.
std::vector<Axis> joint_axes(const char* name,
                             std::initializer_list<const NamedOperand*> operands) {
  const std::vector<Axis>* most = nullptr;
  for (const NamedOperand* x : operands)
    if (x->is_named() && (!most || x->named().axes().size() > most->size()))
      most = &x->named().axes();
  if (!most) return {};
  for (const NamedOperand* x : operands) {
    if (!x->is_named()) continue;
    for (const Axis& axis : x->named().axes()) {
      const std::optional<size_t> place = find_axis(*most, axis.name);
      if (!place)
        trace_error_here(
            "[{}] neither of {} and {} has all axes of the other: '{}' is missing in the "
            "larger; broadcast_axis adds axes",
            name, to_string(*most), to_string(x->named().axes()), axis.name);
      if (axis.size != (*most)[*place].size)
        trace_error_here("[{}] axis '{}' has two sizes, in {} and in {}", name, axis.name,
                         to_string(*most), to_string(x->named().axes()));
    }
  }
  return *most;
}

Operand operand_for(const NamedOperand& x, const std::vector<Axis>& axes) {
  if (!x.is_named()) return x.value();
  return Operand(aligned(x.named(), axes), x.at.file, x.at.line);
}

template <typename F, typename... X>
NamedArray apply(const char* name, F f, const NamedOperand& first, const X&... rest) {
  const CallSiteScope site(first.at);
  check_operand(name, first);
  (check_operand(name, rest), ...);
  std::vector<Axis> axes = joint_axes(name, {&first, &rest...});
  Array result = f(operand_for(first, axes), operand_for(rest, axes)...);
  return NamedAccess::make(std::move(result), axes);
}

}  // namespace

#define STOW_NAMED_OPERATOR(op)                                                                 \
  NamedArray operator op(const NamedOperand& a, const NamedOperand& b) {                        \
    return apply(                                                                               \
        #op, [](const Operand& x, const Operand& y) { return stow::operator op(x, y); }, a, b); \
  }
#define STOW_NAMED_UNARY(f)                                  \
  NamedArray f(const NamedOperand& x) {                      \
    return apply(                                            \
        #f, [](const Operand& y) { return stow::f(y); }, x); \
  }
#define STOW_NAMED_BINARY(f)                                                         \
  NamedArray f(const NamedOperand& a, const NamedOperand& b) {                       \
    return apply(                                                                    \
        #f, [](const Operand& x, const Operand& y) { return stow::f(x, y); }, a, b); \
  }
#include "stowage/nn/named/elementwise_list.h"
#undef STOW_NAMED_OPERATOR
#undef STOW_NAMED_UNARY
#undef STOW_NAMED_BINARY

NamedArray operator-(const NamedOperand& x) {
  return apply(
      "-", [](const Operand& y) { return stow::operator-(y); }, x);
}
NamedArray operator~(const NamedOperand& x) {
  return apply(
      "~", [](const Operand& y) { return stow::operator~(y); }, x);
}

NamedArray where(const NamedOperand& condition, const NamedOperand& a, const NamedOperand& b) {
  return apply(
      "where",
      [](const Operand& c, const Operand& x, const Operand& y) { return stow::where(c, x, y); },
      condition, a, b);
}

NamedArray clip(const NamedOperand& x, const NamedOperand& low, const NamedOperand& high) {
  return apply(
      "clip",
      [](const Operand& v, const Operand& l, const Operand& h) { return stow::clip(v, l, h); }, x,
      low, high);
}

NamedArray& operator+=(NamedArray& a, const NamedOperand& b) {
  return a = a + b;
}
NamedArray& operator-=(NamedArray& a, const NamedOperand& b) {
  return a = a - b;
}
NamedArray& operator*=(NamedArray& a, const NamedOperand& b) {
  return a = a * b;
}
NamedArray& operator/=(NamedArray& a, const NamedOperand& b) {
  return a = a / b;
}

}  // namespace stow::named
