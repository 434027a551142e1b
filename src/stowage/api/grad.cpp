#include "stowage/api/grad.h"

#include <algorithm>

#include "stowage/api/math_internal.h"
#include "stowage/api/memory.h"
#include "stowage/api/shaping.h"
#include "stowage/api/vmap.h"
#include "stowage/autodiff/linear.h"
#include "stowage/autodiff/reverse.h"
#include "stowage/base/nearest.h"

namespace stow {
namespace {

std::string listed(const std::vector<std::string>& paths) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(paths.size(), kShown); ++i)
    text += fmt::format("{}'{}'", i ? ", " : "", paths[i]);
  return paths.size() > kShown ? text + ", …" : text;
}

// The loss: one Array, not a tree of them, of which some leaf would be taken for it.
void check_loss(const GradRequest& request, const TreeRef& result) {
  const char* what = request.what;
  const TreeRef part = request.loss ? request.loss(result) : result;
  const std::vector<std::string> paths = paths_of(part);
  const std::vector<Array> leaves = leaves_of(part);
  if (leaves.empty()) trace_error_here("[{}] the function returned no array", what);
  if (leaves.size() > 1 || !paths[0].empty())
    trace_error_here(
        "[{}] expected one Array, the loss, {}; got a tree with {} ({}); {}", what,
        request.loss ? "as the first of the pair" : "from the function",
        leaves.size() == 1 ? "the array" : fmt::format("{} arrays", leaves.size()), listed(paths),
        request.loss ? "put the other arrays into the second of the pair"
                     : "for other results beside the loss, return std::pair(loss, others) "
                       "and use grad_aux or value_and_grad_aux");
  const Array& loss = leaves[0];
  if (loss.rank() != 0)
    trace_error_here("[{}] the loss must be a scalar; the function returned {}", what,
                     describe(loss));
  if (!is_float(loss.dtype()))
    trace_error_here("[{}] the loss must be of a float type; the function returned {}", what,
                     describe(loss));
}

bool has_float(const std::vector<ArrayType>& types) {
  return std::any_of(types.begin(), types.end(),
                     [](const ArrayType& t) { return is_float(t.dtype); });
}

// Types of the leaves; none may be empty.
std::vector<ArrayType> leaf_types(const char* what, const std::vector<Array>& leaves,
                                  const std::vector<std::string>& paths) {
  std::vector<ArrayType> types;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].empty()) trace_error_here("[{}] argument {} is an empty Array", what, paths[i]);
    types.push_back(leaves[i].type());
  }
  return types;
}

std::vector<Array> abstract_like(const std::vector<ArrayType>& types) {
  std::vector<Array> arrays;
  for (const ArrayType& type : types) arrays.push_back(Array::abstract(type));
  return arrays;
}

// "layers/*/w1" covers "layers/0/w1" and what lies below.
bool covers(std::string_view pattern, std::string_view path) {
  while (true) {
    const size_t a = std::min(pattern.find('/'), pattern.size());
    const size_t b = std::min(path.find('/'), path.size());
    if (pattern.substr(0, a) != "*" && pattern.substr(0, a) != path.substr(0, b)) return false;
    if (a == pattern.size()) return true;
    if (b == path.size()) return false;
    pattern.remove_prefix(a + 1);
    path.remove_prefix(b + 1);
  }
}

[[noreturn]] void no_such_leaf(const std::string& path, const std::vector<std::string>& paths) {
  const std::string near = nearest_name(path, paths);
  trace_error_here("[grad_by_path] no leaf is at '{}'{}", path,
                   near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

}  // namespace

struct Linearized {
  const char* what;
  Graph backward;
  std::vector<Array> residuals;
  std::vector<int> outputs;  ///< Those that take a cotangent.
  std::vector<bool> dependent_outputs;
  std::vector<ArrayType> output_types, argument_types;
};

namespace {

[[noreturn]] void not_linear(const char* what, const Graph& forward, ValueId culprit) {
  if (forward.is_input(culprit))
    trace_error_here(
        "[{}] the function is not linear: its derivative depends on the argument {} itself", what,
        to_string(forward.type(culprit)));
  const Node& node = forward.def(culprit);
  const std::string place = to_string(node.provenance);
  trace_error_here(
      "[{}] the function is not linear: its derivative depends on {}, the "
      "result of {}{}",
      what, to_string(forward.type(culprit)), op_name(node.op),
      place.empty() ? "" : " at " + place);
}

void check_linear(const char* what, const SplitReverse& split, size_t n_outputs,
                  const std::vector<bool>& dependent) {
  if (const auto culprit = find_nonlinear_value(split, n_outputs, dependent))
    not_linear(what, split.forward, *culprit);
}

// The float inputs and outputs of a traced function: it is differentiated by the former, and the
// latter have cotangents.
ReverseSpec float_spec(const Graph& graph, size_t n_arguments, size_t n_results) {
  ReverseSpec spec;
  for (size_t i = 0; i < n_arguments; ++i)
    if (is_float(graph.type(graph.inputs()[i]).dtype)) spec.wrt.push_back(static_cast<int>(i));
  for (size_t i = 0; i < n_results; ++i)
    if (is_float(graph.type(graph.outputs()[i]).dtype)) spec.outputs.push_back(static_cast<int>(i));
  return spec;
}

// The two halves of a traced function, what they are told of in `linearized`. Its first results are
// differentiated.
Graph split_into(Linearized& linearized, const NestedTrace& nested, size_t n_results,
                 bool must_be_linear) {
  const Graph& graph = nested.graph;
  const size_t n_arguments = linearized.argument_types.size(), n_outputs = graph.outputs().size();
  const ReverseSpec spec = float_spec(graph, n_arguments, n_results);
  SplitReverse split = reverse_in_two(graph, spec);
  linearized.outputs = spec.outputs;
  for (ValueId v : graph.outputs()) linearized.output_types.push_back(graph.type(v));
  if (must_be_linear) {
    std::vector<bool> arguments(graph.inputs().size());
    std::fill_n(arguments.begin(), n_arguments, true);
    const std::vector<bool> dependent = dependent_values(split.forward, arguments);
    check_linear(linearized.what, split, n_outputs, dependent);
    for (size_t i = 0; i < n_outputs; ++i)
      linearized.dependent_outputs.push_back(dependent[split.forward.outputs()[i].index()]);
  }
  linearized.backward = std::move(split.backward);
  return std::move(split.forward);
}

}  // namespace

Linearization linearize_leaves(const LinearizeRequest& request, const TreeRef& arguments,
                               const LeafFunction& function) {
  Linearization l;
  auto linearized = std::make_shared<Linearized>();
  linearized->what = request.what;
  size_t n_outputs = 0;
  std::vector<Array> all = traced_or_run(request.what, [&]() -> std::vector<Array> {
    std::vector<Array> inputs = leaves_of(arguments);
    const std::vector<std::string> paths = paths_of(arguments);
    linearized->argument_types = leaf_types(request.what, inputs, paths);
    const std::vector<ArrayType>& types = linearized->argument_types;
    const NestedTrace nested =
        trace_nested(request.what, types, paths, types.size(), [&](std::span<const Array> leaves) {
          l.result = function(leaves);
          return leaves_of(l.result.ref);
        });
    const size_t n_aux = (request.aux ? leaves_of(request.aux(l.result.ref)).size() : 0) +
                         (nested.has_effects ? 1 : 0);
    Graph forward = split_into(*linearized, nested, nested.graph.outputs().size() - n_aux,
                               request.must_be_linear);
    if (nested.has_effects) linearized->output_types.pop_back();
    if (request.needs_outputs)
      n_outputs = nested.graph.outputs().size();
    else
      forward.set_outputs({forward.outputs().begin() +
                               static_cast<ptrdiff_t>(nested.graph.outputs().size()),
                           forward.outputs().end()});
    if (request.at_zeros) std::transform(types.begin(), types.end(), inputs.begin(), zeros_of);
    inputs.insert(inputs.end(), nested.captures.begin(), nested.captures.end());
    std::vector<Array> results = inline_graph(forward, inputs);
    return nested.has_effects && request.needs_outputs
               ? take_effects(std::move(results), --n_outputs)
               : results;
  });
  const auto first_residual = all.begin() + static_cast<ptrdiff_t>(n_outputs);
  l.outputs.assign(all.begin(), first_residual);
  linearized->residuals.assign(first_residual, all.end());
  l.output_types = abstract_like(linearized->output_types);
  l.argument_types = abstract_like(linearized->argument_types);
  l.linearized = std::move(linearized);
  return l;
}

std::span<const Array> residuals_of(const Linearized& linearized) {
  return linearized.residuals;
}

bool depends_on_arguments(const Linearized& linearized, size_t i) {
  return linearized.dependent_outputs[i];
}

std::vector<Array> pull_back_leaves(const Linearized& linearized, std::span<const Array> residuals,
                                    std::span<const Array> cotangents) {
  std::vector<Array> inputs(residuals.begin(), residuals.end());
  for (int i : linearized.outputs) inputs.push_back(cotangents[static_cast<size_t>(i)]);
  return traced_or_run(linearized.what, [&] {
    std::vector<Array> gradients = inline_graph(linearized.backward, inputs), all;
    size_t next = 0;
    for (const ArrayType& type : linearized.argument_types)
      all.push_back(is_float(type.dtype) ? with_weak(gradients[next++], type.weak)
                                         : zeros_of(type));
    return all;
  });
}

std::vector<Array> pull_back(const Linearized& linearized, const TreeRef& result,
                             const TreeRef& cotangent, SourceLocation at) {
  const CallSiteScope site(at);
  const char* what = linearized.what;
  check_same_structure(result, cotangent, fmt::format("[{}] output and cotangent:", what));
  const std::vector<Array> cotangents = leaves_of(cotangent);
  const std::vector<std::string> paths = paths_of(cotangent);
  for (int i : linearized.outputs) {
    const auto k = static_cast<size_t>(i);
    const ArrayType& type = linearized.output_types[k];
    if (cotangents[k].empty() || !(cotangents[k].type() == type))
      trace_error_here("[{}] expected a cotangent {} for output{}, got {}", what, to_string(type),
                       paths[k].empty() ? "" : " '" + paths[k] + "'",
                       cotangents[k].empty() ? "an empty Array" : to_string(cotangents[k].type()));
  }
  return pull_back_leaves(linearized, linearized.residuals, cotangents);
}

std::map<std::string, Array> selected_leaves(const TreeRef& tree,
                                             const std::vector<std::string>& patterns,
                                             SourceLocation at) {
  const CallSiteScope site(at);
  const std::vector<Array> leaves = leaves_of(tree);
  const std::vector<std::string> paths = paths_of(tree);
  std::map<std::string, Array> selected;
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!covers(pattern, paths[i])) continue;
      selected.emplace(paths[i], leaves[i]);
      any = true;
    }
    if (!any) no_such_leaf(pattern, paths);
  }
  return selected;
}

void replace_selected(const TreeRef& tree, const std::map<std::string, Array>& replacements,
                      SourceLocation at) {
  const CallSiteScope site(at);
  std::vector<Array> leaves = leaves_of(tree);
  const std::vector<std::string> paths = paths_of(tree);
  for (const auto& [path, leaf] : replacements) {
    const auto found = std::find(paths.begin(), paths.end(), path);
    if (found == paths.end()) no_such_leaf(path, paths);
    leaves[static_cast<size_t>(found - paths.begin())] = leaf;
  }
  assign_leaves(tree, leaves);
}

void check_jacobian(const char* what, const Array& x, const Array& y) {
  if (!is_float(x.dtype()))
    trace_error_here("[{}] expected a float as argument, got {}", what, to_string(x.type()));
  if (!is_float(y.dtype()))
    trace_error_here("[{}] expected a float as result, got {}", what, to_string(y.type()));
}

Array jacobian_of(const Array& x, const Array& y, const std::function<Array(const Array&)>& row) {
  check_jacobian("jacrev", x, y);
  const int64_t n = y.size();
  Dims basis = y.shape().dims(), shape = basis;
  basis.insert(basis.begin(), n);
  shape.insert(shape.end(), x.shape().begin(), x.shape().end());
  const MemoryKind kind = y.type().kind;  // where its cotangents lie
  if (n == 1) return row(device_put(ones_like(y), kind)).reshape(shape);
  return vmap(row)(device_put(eye(n, {}, y.dtype()).reshape(basis), kind)).reshape(shape);
}

Derivative differentiate(const GradRequest& request, const TreeRef& arguments,
                         const LeafFunction& function) {
  const CallSiteScope site(request.at);
  Derivative derivative;
  size_t n_outputs = 0;
  const auto body = [&]() -> std::vector<Array> {
    const std::vector<Array> leaves = leaves_of(arguments);
    const std::vector<std::string> paths = paths_of(arguments);
    const std::vector<ArrayType> types = leaf_types(request.what, leaves, paths);
    const SourceLocation here = context().site;
    NestedTrace nested =
        trace_nested(request.what, types, paths, leaves.size(), [&](std::span<const Array> inputs) {
          derivative.result = function(inputs);
          std::vector<Array> outputs = leaves_of(derivative.result.ref);
          const CallSiteScope back(here);
          check_loss(request, derivative.result.ref);
          return outputs;
        });
    n_outputs = nested.graph.outputs().size();

    std::vector<size_t> asked;  // leaves of the arguments asked for, in the order of the argnums
    for (const int argnum : request.argnums)
      for (size_t i = 0; i < leaves.size(); ++i)
        if (std::stoi(paths[i]) == argnum) asked.push_back(i);
    ReverseSpec spec;
    for (const size_t i : asked) {
      if (is_float(types[i].dtype))
        spec.wrt.push_back(static_cast<int>(i));
      else if (!request.options.allow_int && has_float(types))
        trace_error_here(
            "[{}] expected a float as argument '{}', got {}; leave it out (grad_by_path, argnums) "
            "or set allow_int, which gives it zeros",
            request.what, paths[i], to_string(types[i]));
    }
    if (spec.wrt.empty() && !(request.options.allow_int && !asked.empty()))
      trace_error_here(
          "[{}] nothing to differentiate by: no leaf of the argument is of a float type{}",
          request.what,
          asked.empty() ? std::string() : ", the first is " + to_string(types[asked[0]]));
    std::vector<Array> inputs = leaves;
    inputs.insert(inputs.end(), nested.captures.begin(), nested.captures.end());
    spec.outputs = {0};
    spec.on_device = request.options.on_device;
    inputs.push_back(scalar_constant(1.0, nested.graph.type(nested.graph.outputs()[0]).dtype));
    std::vector<Array> results = inline_graph(reverse(nested.graph, spec), inputs);
    if (nested.has_effects) results = take_effects(std::move(results), --n_outputs);
    std::vector<Array> all(results.begin(), results.begin() + static_cast<int64_t>(n_outputs));
    size_t next = n_outputs;
    for (size_t i : asked)
      all.push_back(is_float(types[i].dtype) ? with_weak(results[next++], types[i].weak)
                                             : zeros_of(types[i]));
    return all;
  };
  std::vector<Array> all = traced_or_run(request.what, body);
  const auto split = all.begin() + static_cast<int64_t>(n_outputs);
  derivative.outputs.assign(all.begin(), split);
  derivative.gradients.assign(split, all.end());
  return derivative;
}

}  // namespace stow
