#include "stowage/api/jvp.h"

#include "stowage/api/math_internal.h"
#include "stowage/api/memory.h"
#include "stowage/api/shaping.h"
#include "stowage/api/vmap.h"

namespace stow {

void check_tangents(const char* what, const TreeRef& primals, const TreeRef& tangents,
                    SourceLocation at) {
  const CallSiteScope site(at);
  check_same_structure(primals, tangents, fmt::format("[{}] primals and tangents:", what), at);
  const std::vector<Array> of = leaves_of(primals), along = leaves_of(tangents);
  const std::vector<std::string> paths = paths_of(primals);
  for (size_t i = 0; i < of.size(); ++i) {
    if (of[i].empty() || along[i].empty())
      trace_error_here("[{}] {} '{}' is an empty Array", what, of[i].empty() ? "primal" : "tangent",
                       paths[i]);
    if (!(of[i].type() == along[i].type()))
      trace_error_here("[{}] expected a tangent {} for primal '{}', got {}", what,
                       to_string(of[i].type()), paths[i], to_string(along[i].type()));
  }
}

void check_linear_types(const Linearization& transpose, const TreeRef& arguments) {
  const std::vector<std::string> of = paths_of(arguments), to = paths_of(transpose.result.ref);
  for (size_t i = 0; i < of.size(); ++i)
    if (!is_float(transpose.argument_types[i].dtype()))
      trace_error_here("[linear_transpose] expected a float as argument '{}', got {}", of[i],
                       to_string(transpose.argument_types[i].type()));
  for (size_t i = 0; i < to.size(); ++i)
    if (!is_float(transpose.output_types[i].dtype()))
      trace_error_here("[linear_transpose] expected floats as results, got {}{}",
                       to_string(transpose.output_types[i].type()),
                       to[i].empty() ? "" : " at '" + to[i] + "'");
}

Array forward_jacobian_of(const Array& x, const Array& y,
                          const std::function<Array(const Array&)>& column) {
  check_jacobian("jacfwd", x, y);
  const int64_t n = x.size();
  Dims basis = x.shape().dims();
  basis.insert(basis.begin(), n);
  const Array each = device_put(eye(n, {}, x.dtype()).reshape(basis), x.type().kind);
  const Array columns = vmap(column, 0, -1)(each);
  Dims shape = columns.shape().dims();
  shape.pop_back();
  shape.insert(shape.end(), x.shape().begin(), x.shape().end());
  return columns.reshape(shape);
}

}  // namespace stow
