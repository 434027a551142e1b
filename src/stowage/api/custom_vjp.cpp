#include "stowage/api/custom_vjp.h"

#include <algorithm>

#include "stowage/api/math_internal.h"

namespace stow {
namespace {

std::string at_leaf(const std::string& path) {
  return path.empty() ? "" : fmt::format(" at '{}'", path);
}

// The graph of a nested trace as one over its declared inputs and then the captures of all three,
// its own being those from `first` on.
GraphPtr over_all(const NestedTrace& nested, size_t n_declared, std::span<const Array> captures,
                  size_t first) {
  auto graph = std::make_shared<Graph>();
  const Graph& from = nested.graph;
  ValueMap map(from);
  for (size_t i = 0; i < n_declared; ++i) {
    const ValueId id = from.inputs()[i];
    map.set(id, graph->add_input(from.type(id), from.input_names()[i]));
  }
  for (size_t i = 0; i < captures.size(); ++i) {
    const ValueId id = graph->add_input(captures[i].type(), fmt::format("captured/{}", i));
    if (i >= first && i - first < nested.captures.size())
      map.set(from.inputs()[n_declared + i - first], id);
  }
  const std::vector<RegionId> regions = import_regions(from, *graph, RegionId());
  for (const Node& node : from.nodes()) copy_node(from, node, *graph, map, regions);
  std::vector<ValueId> outputs;
  for (ValueId id : from.outputs()) outputs.push_back(map[id]);
  graph->set_outputs(std::move(outputs));
  return graph;
}

// The cotangents that the backward rule returned, one a leaf of the arguments.
std::vector<Array> checked_cotangents(const OwnedTree& given, const TreeRef& arguments,
                                      std::span<const ArrayType> types) {
  check_same_structure(arguments, given.ref,
                       "[custom_vjp] arguments and what the backward rule "
                       "returns for them:");
  std::vector<Array> cotangents = leaves_of(given.ref);
  const std::vector<std::string> paths = paths_of(arguments);
  for (size_t i = 0; i < cotangents.size(); ++i) {
    if (cotangents[i].empty() || !is_float(types[i].dtype)) {
      cotangents[i] = zeros_of(types[i]);
      continue;
    }
    ArrayType wanted = types[i];
    if (cotangents[i].type().kind == MemoryKind::kDevice) wanted.kind = MemoryKind::kDevice;
    if (!(cotangents[i].type() == wanted))
      trace_error_here("[custom_vjp] expected {} from the backward rule for argument '{}', got {}",
                       to_string(wanted), paths[i], to_string(cotangents[i].type()));
  }
  return cotangents;
}

void check_forward(const CustomVjpRequest& request, const TreeRef& result,
                   const TreeRef& forward) {
  check_same_structure(result, forward,
                       fmt::format("[{}] results of the function and of {}:", request.what,
                                   request.forward_name));
  const std::vector<Array> a = leaves_of(result), b = leaves_of(forward);
  const std::vector<std::string> paths = paths_of(result);
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i].type() == b[i].type()))
      trace_error_here("[{}] expected {}{} from {}, as from the function, got {}", request.what,
                       to_string(a[i].type()), at_leaf(paths[i]), request.forward_name,
                       to_string(b[i].type()));
}

// The functions whose rules are being traced. A rule that calls its own function, or makes another
// such function and calls that, would be traced without end.
class RulesOf {
 public:
  explicit RulesOf(const CustomVjpRequest& request) {
    if (open().size() == 64 ||
        std::find(open().begin(), open().end(), request.identity) != open().end())
      trace_error_here(
          "[{}] a rule calls the function that it is a rule of; rules are traced at every "
          "call, so that has no end: call the plain function there",
          request.what);
    open().push_back(request.identity);
  }
  ~RulesOf() { open().pop_back(); }
  RulesOf(const RulesOf&) = delete;
  RulesOf& operator=(const RulesOf&) = delete;

 private:
  static std::vector<const void*>& open() {
    thread_local std::vector<const void*> functions;
    return functions;
  }
};

}  // namespace

CustomVjpResult run_custom_vjp(const CustomVjpRequest& request) {
  const CallSiteScope site(request.at);
  const SourceLocation here = context().site;
  CustomVjpResult result;
  std::vector<Array> operands = leaves_of(request.arguments);
  const std::vector<std::string> paths = paths_of(request.arguments);
  std::vector<ArrayType> types;
  for (const Array& array : operands) types.push_back(array.type());
  const size_t n_args = operands.size();

  const std::string what = request.what;
  NestedTrace function = trace_nested(what, types, paths, n_args, [&](auto inputs) {
    result.result = request.function(inputs);
    return leaves_of(result.result.ref);
  });
  const RulesOf rules(request);
  OwnedTree pair;
  size_t n_residuals = 0;
  NestedTrace forward = trace_nested(what + " (forward)", types, paths, n_args, [&](auto inputs) {
    pair = request.forward(inputs);
    const CallSiteScope back(here);
    check_forward(request, result.result.ref, request.parts(pair).first);
    n_residuals = leaves_of(request.parts(pair).second).size();
    return leaves_of(pair.ref);
  });

  // The token of effects is one more result, behind the others.
  const bool has_effects = function.has_effects || forward.has_effects;
  if (has_effects) {
    pass_effects(function);
    pass_effects(forward);
    std::vector<ValueId> outputs = forward.graph.outputs();
    std::rotate(outputs.end() - 1 - static_cast<ptrdiff_t>(n_residuals), outputs.end() - 1,
                outputs.end());
    forward.graph.set_outputs(std::move(outputs));
  }

  // Residuals come first in the graph, cotangents in the pair that the rule is given.
  std::vector<ArrayType> given;
  std::vector<std::string> names;
  const std::span<const ValueId> outputs = forward.graph.outputs();
  const size_t n_results = outputs.size() - n_residuals;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t at = i < n_residuals ? n_results + i : i - n_residuals;
    given.push_back(forward.graph.type(outputs[at]));
    names.push_back(i < n_residuals ? fmt::format("residual/{}", i)
                                    : fmt::format("cotangent/{}", at));
  }
  const NestedTrace backward =
      trace_nested(what + " (backward)", given, names, given.size(), [&](auto inputs) {
        std::vector<Array> leaves(inputs.begin() + static_cast<ptrdiff_t>(n_residuals),
                                  inputs.end() - (has_effects ? 1 : 0));
        leaves.insert(leaves.end(), inputs.begin(),
                      inputs.begin() + static_cast<ptrdiff_t>(n_residuals));
        const OwnedTree cotangents = request.backward(pair, leaves);
        const CallSiteScope back(here);
        if (!current_trace()->last_effect.empty())
          trace_error_here(
              "[{}] debug_print in a backward rule is not supported: return what it would "
              "print as a residual or a result",
              what);
        return checked_cotangents(cotangents, request.arguments, types);
      });

  std::vector<Array> captures;
  std::vector<size_t> first;
  for (const NestedTrace* nested :
       std::initializer_list<const NestedTrace*>{&function, &forward, &backward}) {
    first.push_back(captures.size());
    captures.insert(captures.end(), nested->captures.begin(), nested->captures.end());
  }
  operands.insert(operands.end(), captures.begin(), captures.end());
  result.outputs =
      record(OpKind::kCustomVjp,
             CustomVjpParams{static_cast<int>(n_args), static_cast<int>(n_residuals)}, operands,
             {over_all(function, n_args, captures, first[0]),
              over_all(forward, n_args, captures, first[1]),
              over_all(backward, given.size(), captures, first[2])});
  if (has_effects) result.outputs = take_effects(std::move(result.outputs), n_results - 1);
  return result;
}

}  // namespace stow
