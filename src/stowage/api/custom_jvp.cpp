#include "stowage/api/custom_jvp.h"

#include "stowage/api/grad.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

// The rule is linear in the tangents, so what reverse mode needs is its transpose: a forward rule
// that gives the rule's result and what the transpose reads, and a backward rule that is the
// transpose.

// The result of the forward rule: a tree of two parts.
struct Forward {
  OwnedTree rule;  // keeps `result`
  TreeRef result;
  std::vector<Array> residuals;
};
TreeRef tree_of(Forward& forward) {
  const auto visit = [](void* tree, TreeVisitor& visitor) {
    const auto& f = *static_cast<Forward*>(tree);
    f.result.visit(f.result.tree, visitor);
    visit_tree(static_cast<Forward*>(tree)->residuals, visitor);
  };
  return {&forward, visit, &typeid(Forward)};
}

std::string at_leaf(const std::string& path) {
  return path.empty() ? "" : fmt::format(" at '{}'", path);
}

// Puts zeros where the rule gave none, and checks the others.
void complete_tangents(const TreeRef& result, const TreeRef& tangent) {
  check_same_structure(result, tangent, "[custom_jvp] the rule's result and its tangent:");
  const std::vector<Array> of = leaves_of(result);
  const std::vector<std::string> paths = paths_of(result);
  std::vector<Array> leaves = leaves_of(tangent);
  for (size_t i = 0; i < of.size(); ++i) {
    if (of[i].empty())
      trace_error_here("[custom_jvp] the rule returns an empty Array{}", at_leaf(paths[i]));
    if (leaves[i].empty() || !is_float(of[i].dtype()))
      leaves[i] = zeros_of(of[i].type());
    else if (!(leaves[i].type() == of[i].type()))
      trace_error_here(
          "[custom_jvp] expected a tangent {}{} from the rule, as its result is, got {}",
          to_string(of[i].type()), at_leaf(paths[i]), to_string(leaves[i].type()));
  }
  assign_leaves(tangent, leaves);
}

void check_result_is_constant(const Linearized& rule, const TreeRef& result) {
  const std::vector<std::string> paths = paths_of(result);
  for (size_t i = 0; i < paths.size(); ++i)
    if (depends_on_arguments(rule, i))
      trace_error_here(
          "[custom_jvp] expected a result{} that does not depend on the tangents; only its tangent "
          "may",
          at_leaf(paths[i]));
}

// The rule at these primals as a function of the tangents.
Linearization linearize_rule(const CustomJvpRequest& request, std::span<const Array> primals) {
  const LinearizeRequest how{.what = "custom_jvp", .at_zeros = true, .must_be_linear = true};
  const auto function = [&](std::span<const Array> tangents) {
    OwnedTree pair = request.rule(primals, tangents);
    const CallSiteScope site(request.at);
    const auto [result, tangent] = request.parts(pair);
    complete_tangents(result, tangent);
    return pair;
  };
  return linearize_leaves(how, request.arguments, function);
}

}  // namespace

CustomVjpResult run_custom_jvp(const CustomJvpRequest& request) {
  const CallSiteScope site(request.at);
  std::shared_ptr<const Linearized> rule;
  const auto forward = [&](std::span<const Array> primals) {
    const CallSiteScope here(request.at);
    const Linearization l = linearize_rule(request, primals);
    rule = l.linearized;
    auto made = std::make_shared<Forward>();
    made->rule = l.result;
    made->result = request.parts(l.result).first;
    check_result_is_constant(*rule, made->result);
    const size_t n = leaves_of(made->result).size();
    assign_leaves(made->result, std::span(l.outputs).first(n));
    const std::span<const Array> residuals = residuals_of(*rule);
    made->residuals.assign(residuals.begin(), residuals.end());
    return OwnedTree{made, tree_of(*made)};
  };
  const auto parts = [](const OwnedTree& tree) {
    const auto& made = *static_cast<const Forward*>(tree.ref.tree);
    return std::pair(made.result, tree_ref(made.residuals));
  };
  // Leaves: the cotangents of the result, then the residuals. The result itself is no tangent.
  const auto backward = [&](const OwnedTree& like, std::span<const Array> leaves) {
    const size_t n = leaves_of(static_cast<const Forward*>(like.ref.tree)->result).size();
    std::vector<Array> cotangents;
    for (const Array& ct : leaves.first(n)) cotangents.push_back(zeros_of(ct.type()));
    cotangents.insert(cotangents.end(), leaves.begin(), leaves.begin() + static_cast<ptrdiff_t>(n));
    return request.arguments_of(pull_back_leaves(*rule, leaves.subspan(n), cotangents));
  };
  return run_custom_vjp({.arguments = request.arguments,
                         .function = request.function,
                         .forward = forward,
                         .parts = parts,
                         .backward = backward,
                         .at = request.at,
                         .identity = request.identity,
                         .what = "custom_jvp",
                         .forward_name = "the rule"});
}

void add_tangents(const TreeRef& result, const TreeRef& tangent, std::vector<Array>& sums) {
  check_same_structure(result, tangent,
                       "[defjvps] the result and what a rule gives of its tangent:");
  const std::vector<Array> of = leaves_of(result), parts = leaves_of(tangent);
  for (size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].empty() && is_float(of[i].dtype()))
      sums[i] = sums[i].empty() ? parts[i] : sums[i] + parts[i];
}

}  // namespace stow
