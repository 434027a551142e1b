#include "stowage/api/jvp.h"

#include "stowage/api/math_internal.h"
#include "stowage/api/shaping.h"
#include "stowage/api/vmap.h"

namespace stow {

std::vector<Array> zero_leaves(const TreeRef& tree) {
  std::vector<Array> zeros;
  for (const Array& leaf : leaves_of(tree))
    zeros.push_back(zeros_of(leaf.type()));
  return zeros;
}

void check_tangents(const TreeRef& primals, const TreeRef& tangents, SourceLocation at) {
  const Site site(at);
  check_same_structure(primals, tangents, "[jvp] primals and tangents:", at);
  const std::vector<Array> of = leaves_of(primals), along = leaves_of(tangents);
  const std::vector<std::string> paths = paths_of(primals);
  for (size_t i = 0; i < of.size(); ++i) {
    if (of[i].empty() || along[i].empty())
      fail_here("[jvp] {} '{}' is an empty Array", of[i].empty() ? "primal" : "tangent", paths[i]);
    if (!(of[i].type() == along[i].type()))
      fail_here("[jvp] primal '{}' is {}, its tangent {}", paths[i], to_string(of[i].type()),
                to_string(along[i].type()));
  }
}

Array forward_jacobian_of(const Array& x, const std::function<Array(const Array&)>& function) {
  const int64_t n = x.size();
  Dims basis = x.shape().dims();
  basis.insert(basis.begin(), n);
  const auto column = [&](const Array& tangent) {
    return jvp(function, std::tuple(x), std::tuple(tangent)).second;
  };
  const Array columns = vmap(column, 0, -1)(eye(n, {}, x.dtype()).reshape(basis));
  Dims shape = columns.shape().dims();
  shape.pop_back();
  shape.insert(shape.end(), x.shape().begin(), x.shape().end());
  return columns.reshape(shape);
}

}  // namespace stow
