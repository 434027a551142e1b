#include "stowage/api/grad.h"

#include <algorithm>

#include "stowage/api/math_internal.h"
#include "stowage/autodiff/reverse.h"

namespace stow {
namespace {

void check_loss(const char* what, const std::vector<Array>& outputs) {
  if (outputs.empty()) fail_here("[{}] the function returned no array", what);
  const Array& loss = outputs[0];
  if (loss.rank() != 0)
    fail_here("[{}] the loss must be a scalar; the function returned {}", what, describe(loss));
  if (!is_float(loss.dtype()))
    fail_here("[{}] the loss must be of a float type; the function returned {}", what,
              describe(loss));
}

void check_cotangents(const std::vector<Array>& outputs, const std::vector<Array>& cotangents) {
  if (outputs.size() != cotangents.size())
    fail_here("[vjp] the function returned {} arrays, the cotangent has {}", outputs.size(),
              cotangents.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!(outputs[i].type() == cotangents[i].type()))
      fail_here("[vjp] output {} is {}, its cotangent {}", i, to_string(outputs[i].type()),
                to_string(cotangents[i].type()));
}

Array zeros_of(const ArrayType& type) {
  const Array zero = scalar_constant(0, type.dtype);
  return broadcast_array(zero, type.shape);
}

}  // namespace

Derivative differentiate(const GradRequest& request, const TreeRef& arguments,
                         const LeafFunction& function) {
  const Site site(request.at);
  const bool is_vjp = std::string_view(request.what) == "vjp";
  Derivative derivative;
  size_t n_outputs = 0;
  const auto body = [&]() -> std::vector<Array> {
    const std::vector<Array> leaves = leaves_of(arguments);
    const std::vector<std::string> paths = paths_of(arguments);
    std::vector<ArrayType> types;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].empty())
        fail_here("[{}] argument {} is an empty Array", request.what, paths[i]);
      types.push_back(leaves[i].type());
    }
    const SourceLocation here = context().site;
    Nested nested =
        trace_nested(request.what, types, paths, leaves.size(), [&](std::span<const Array> inputs) {
          derivative.result = function(inputs);
          std::vector<Array> outputs = leaves_of(derivative.result.ref);
          const Site back(here);
          if (!is_vjp)
            check_loss(request.what, outputs);
          else
            check_cotangents(outputs, request.cotangents);
          return outputs;
        });
    n_outputs = nested.graph.outputs().size();

    std::vector<size_t> asked;  // leaves of the arguments asked for
    ReverseSpec spec;
    for (size_t i = 0; i < leaves.size(); ++i) {
      const auto& argnums = request.argnums;
      if (!argnums.empty() &&
          std::find(argnums.begin(), argnums.end(), std::stoi(paths[i])) == argnums.end())
        continue;
      asked.push_back(i);
      if (is_float(types[i].dtype)) spec.wrt.push_back(static_cast<int>(i));
    }
    if (spec.wrt.empty())
      fail_here("[{}] nothing to differentiate by: no leaf of the argument is of a float type{}",
                request.what,
                asked.empty() ? std::string() : ", the first is " + to_string(types[asked[0]]));
    std::vector<Array> inputs = leaves;
    inputs.insert(inputs.end(), nested.captures.begin(), nested.captures.end());
    if (!is_vjp) {
      spec.outputs = {0};
      const ArrayType& loss = nested.graph.type(nested.graph.outputs()[0]);
      inputs.push_back(scalar_constant(1.0, loss.dtype));
    }
    for (size_t i = 0; i < request.cotangents.size(); ++i) {
      if (!is_float(request.cotangents[i].dtype())) continue;
      spec.outputs.push_back(static_cast<int>(i));
      inputs.push_back(request.cotangents[i]);
    }
    std::vector<Array> results = inline_graph(reverse(nested.graph, spec), inputs);
    std::vector<Array> all(results.begin(), results.begin() + static_cast<int64_t>(n_outputs));
    size_t next = n_outputs;
    for (size_t i : asked)
      all.push_back(is_float(types[i].dtype) ? results[next++] : zeros_of(types[i]));
    return all;
  };
  std::vector<Array> all = traced_or_run(request.what, body);
  const auto split = all.begin() + static_cast<int64_t>(n_outputs);
  derivative.outputs.assign(all.begin(), split);
  derivative.gradients.assign(split, all.end());
  return derivative;
}

}  // namespace stow
