// What gradients save and recompute under each policy: counts, and listings beside JAX's.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "stowage/autodiff/flatten.h"
#include "stowage/ir/utilities.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/stowage.h"
#include "tests/support/realized.h"
#include "tests/support/source_path.h"

namespace stow {
namespace {

Array f32(Shape shape) {
  return Array::abstract(std::move(shape));
}

// ---- Counts: what the backward part computes ----

struct Counts {
  int64_t forward = 0, backward = 0;
};
Counts count(const Graph& graph, OpKind op) {
  Counts counts;
  for (const Node& node : graph.nodes())
    if (node.op == op) ++(node.backward ? counts.backward : counts.forward);
  return counts;
}

// The graph of (outputs, gradient) as it will run, but for fusion.
template <typename F, typename... Args>
Graph realized(F function, const Args&... args) {
  const auto both = jit([function](const auto&... a) {
    auto [y, pullback] = vjp(function, a...);
    return std::pair(y, pullback(ones_like(y)));
  });
  const Graph graph = both.lower(args...).graph();
  return testing::realized(graph);
}

TEST(Remat, BasicIsOneSineAndTwoCosines) {
  const Graph g = realized(checkpoint([](const Array& x) { return sin(sin(x)); }), f32({}));
  EXPECT_EQ(count(g, OpKind::kSin).forward, 2);
  EXPECT_EQ(count(g, OpKind::kSin).backward, 1);
  EXPECT_EQ(count(g, OpKind::kCos).forward, 0);
  EXPECT_EQ(count(g, OpKind::kCos).backward, 2);
}

using Function = std::function<Array(const Array&)>;

// JAX's recursive checkpointing: the second half of the work is recomputed from its beginning.
Function recursive(std::span<const Function> functions) {
  if (functions.size() == 1) return functions[0];
  const size_t half = functions.size() / 2;
  const Function last = recursive(functions.first(half));
  const Function first = recursive(functions.subspan(half));
  if (functions.size() == 2) return [=](const Array& x) { return last(first(x)); };
  return [=, first = checkpoint(first)](const Array& x) { return last(first(x)); };
}

TEST(Remat, RecursiveCheckpointsEvaluateTwoEightTwentyFour) {
  for (const auto& [n, evaluations] : {std::pair(4, 2), std::pair(8, 8), std::pair(16, 24)}) {
    const Array m = Array::abstract({4, 4});
    const Graph g = realized(
        [n = n](const Array& x, const Array& matrix) {
          const Function f = [&](const Array& a) { return sin(matmul(a, matrix)); };
          return recursive(std::vector<Function>(static_cast<size_t>(n), f))(x);
        },
        f32({3, 4}), m);
    // Each evaluation is a product; the derivative of each is two more.
    EXPECT_EQ(count(g, OpKind::kDotGeneral).forward, n);
    EXPECT_EQ(count(g, OpKind::kDotGeneral).backward, 2 * n + evaluations) << n;
  }
}

TEST(Remat, DotsSaveableIsTwoSinesAndSixProducts) {
  const auto f = checkpoint(
      [](Array x) {
        for (int i = 0; i < 3; ++i) x = sin(matmul(x, x));
        return x;
      },
      dots_saveable());
  const Graph g = realized(f, f32({2, 2}));
  EXPECT_EQ(count(g, OpKind::kSin).backward, 2);
  EXPECT_EQ(count(g, OpKind::kDotGeneral).backward, 6);
}

// What a loss outside of the checkpoint reads is there, as in JAX, and not computed again.
TEST(Remat, WhatTheGradientOutsideReadsIsKept) {
  const auto block = checkpoint([](const Array& x) { return x + matmul(sin(matmul(x, x)), x); });
  const Graph g = remove_dead_code(realize_residuals(
      simplify(flatten_all(jit(grad([&](const Array& x) { return sum(square(block(x))); }))
                               .lower(f32({4, 4}))
                               .graph())),
      PolicyPtr()));
  EXPECT_EQ(count(g, OpKind::kDotGeneral).forward, 2);
  // The inner product again, and two for the cotangents of each.
  EXPECT_EQ(count(g, OpKind::kDotGeneral).backward, 5);
}

// prevent_cse changes nothing: recomputation is made after equal work was merged.
TEST(Remat, PreventCseIsAlwaysSo) {
  for (const bool prevent : {false, true}) {
    const Graph g = realized(checkpoint([](const Array& x) { return sin(matmul(sin(x), x)); },
                                        nullptr, {.prevent_cse = prevent}),
                             f32({4, 4}));
    EXPECT_EQ(count(g, OpKind::kDotGeneral).backward, 3) << prevent;
  }
}

// ---- Listings beside JAX's ----

using Rows = std::vector<std::pair<std::string, std::string>>;  // type, source

Array mlp(const Array& x, const Array& w1, const Array& w2) {
  const Array h1 = checkpoint_name(matmul(x, w1), "h1");
  const Array h2 = checkpoint_name(sin(h1), "h2");
  return sin(matmul(h2, w2));
}
Array heads(const Array& q, const Array& k) {
  const Array s = exp(einsum("bij,bkj->bik", {sin(q), sin(k)}));
  return sin(matmul(s, ones({5, 2})));
}
Array layer(const Array& c, const Array& w) {
  return sin(checkpoint_name(matmul(c, w), "h"));
}

PolicyPtr exp_and_sin() {
  return custom_policy("exp and sin", [](const PolicyQuery& q) {
    const bool kept = q.op == OpKind::kExp || q.op == OpKind::kSin;
    return PolicyAnswer{kept ? Mark::kKeep : Mark::kRecompute};
  });
}

std::map<std::string, PolicyPtr> policies() {
  return {
      {"nothing_saveable", nullptr},
      {"everything_saveable", everything_saveable()},
      {"dots_saveable", dots_saveable()},
      {"dots_with_no_batch_dims_saveable", dots_with_no_batch_dims_saveable()},
      {"save_only_these_names(h1)", save_only_these_names({"h1"})},
      {"save_any_names_but_these(h1)", save_any_names_but_these({"h1"})},
      {"save_anything_except_these_names(h1)", save_anything_except_these_names({"h1"})},
      {"both(dots, h2)", save_from_both_policies(dots_saveable(), save_only_these_names({"h2"}))},
      {"custom(exp and sin)", exp_and_sin()},
      {"save_only_these_names(h)", save_only_these_names({"h"})},
      {"save_anything_except_these_names(h)", save_anything_except_these_names({"h"})}};
}

std::vector<SavedResidual> ours(const std::string& title) {
  const size_t space = title.find(' ');
  const std::string name = title.substr(0, space);
  const auto wrap = [&](auto f) -> std::function<Array(const Array&, const Array&)> {
    if (space == std::string::npos) return f;
    return checkpoint(f, policies().at(title.substr(space + 1)));
  };
  if (name == "mlp") {
    if (space == std::string::npos)
      return saved_residuals(mlp, f32({4, 8}), f32({8, 16}), f32({16, 2}));
    return saved_residuals(checkpoint(mlp, policies().at(title.substr(space + 1))), f32({4, 8}),
                           f32({8, 16}), f32({16, 2}));
  }
  if (name == "heads") return saved_residuals(wrap(heads), f32({3, 4, 6}), f32({3, 5, 6}));
  const auto body = wrap(layer);
  return saved_residuals([&](const Array& c, const Array& w) { return scan(body, c, w); },
                         f32({4, 8}), f32({5, 8, 8}));
}

Rows rows_of(const std::vector<SavedResidual>& residuals) {
  Rows rows;
  for (const SavedResidual& r : residuals) {
    std::string source = r.source == SavedResidual::Source::kArgument ? "argument"
                         : r.source == SavedResidual::Source::kNamed
                             ? fmt::format("named '{}'", r.name)
                         : r.source == SavedResidual::Source::kCarry ? "output of scan"
                                                                     : "output of " + r.name;
    rows.emplace_back(to_string(r.type), std::move(source));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

int64_t elements(const std::string& type) {
  int64_t n = 1;
  for (size_t at = type.find('['); type[at] != ']'; at = type.find_first_of(",]", at + 1))
    n *= std::stoll(type.substr(at + 1));
  return n;
}
int64_t computed_elements(const Rows& rows) {
  int64_t n = 0;
  for (const auto& [type, source] : rows) n += source == "argument" ? 0 : elements(type);
  return n;
}

nlohmann::json listings(const std::string& file_name) {
  std::ifstream file(source_path("tests/data/" + file_name));
  return nlohmann::json::parse(file);
}

// residual_listings.json has ours, where they differ from JAX's; they never hold more.
TEST(SavedResiduals, AreThoseOfJaxOrFewer) {
  const nlohmann::json jax = listings("jax_residuals.json");
  const nlohmann::json fewer = listings("residual_listings.json");
  for (const auto& [title, theirs] : jax.items()) {
    SCOPED_TRACE(title);
    const Rows want = theirs;
    const Rows got = rows_of(ours(title));
    EXPECT_LE(computed_elements(got), computed_elements(want));
    EXPECT_EQ(got, fewer.contains(title) ? Rows(fewer[title]) : want) << nlohmann::json(got).dump();
  }
}

// A value that is refused by name is not saved under another one.
TEST(SavedResiduals, RefuseWhatHoldsTheSameData) {
  const auto rows = [](const auto& name_it) {
    const auto f =
        checkpoint([&](const Array& x, const Array& w) { return sin(name_it(matmul(x, w))); },
                   save_anything_except_these_names({"h"}));
    return computed_elements(rows_of(saved_residuals(f, f32({4, 8}), f32({8, 6}))));
  };
  EXPECT_EQ(rows([](const Array& y) { return checkpoint_name(y, "h"); }), 0);
  EXPECT_EQ(rows([](const Array& y) { return checkpoint_name(y.reshape({6, 4}), "h"); }), 0);
  EXPECT_EQ(rows([](const Array& y) { return transpose(checkpoint_name(y, "h")); }), 0);
  EXPECT_EQ(rows([](const Array& y) { return checkpoint_name(checkpoint_name(y, "a"), "h"); }), 0);
  EXPECT_EQ(rows([](const Array& y) { return checkpoint_name(tanh(y), "h"); }), 4 * 6);  // y
}

// A forward rule's values are subject to the policy as any others.
TEST(SavedResiduals, OfACustomRuleFollowThePolicy) {
  const auto f =
      custom_vjp([](const Array& x) { return matmul(x, x); },
                 [](const Array& x) {
                   return std::pair(matmul(x, x), checkpoint_name(matmul(x, transpose(x)), "y"));
                 },
                 [](const Array& y, const Array& ct) { return ct * y; });
  const auto rows = [&](const PolicyPtr& policy) {
    return rows_of(saved_residuals(checkpoint(f, policy), f32({4, 4})));
  };
  EXPECT_EQ(rows(nullptr), (Rows{{"f32[4,4]", "argument"}}));
  EXPECT_EQ(rows(save_only_these_names({"y"})), (Rows{{"f32[4,4]", "named 'y'"}}));
}

TEST(SavedResiduals, OfAPolicyThatDoesNotDecideAreRecomputed) {
  const PolicyPtr undecided =
      custom_policy("undecided", [](const PolicyQuery&) { return PolicyAnswer{Mark::kUndecided}; });
  EXPECT_EQ(rows_of(saved_residuals(checkpoint(layer, undecided), f32({4, 8}), f32({8, 8}))),
            (Rows{{"f32[4,8]", "argument"}, {"f32[8,8]", "argument"}}));
}

TEST(SavedResiduals, SayWhereAndWhy) {
  const Array scale = ones({4, 8});
  const auto body = checkpoint(layer, save_only_these_names({"h"}));
  const std::string text = to_string(saved_residuals(
      [&](const std::map<std::string, Array>& p, const Array& x) {
        const Scope scope("stack");
        return exp(scan(body, x * scale, p.at("w"))) * x;
      },
      std::map<std::string, Array>{{"w", f32({5, 8, 8})}}, f32({4, 8})));
  EXPECT_EQ(std::regex_replace(text, std::regex("residuals_test.cpp:[0-9]+"), "T:@"),
            "f32[5,8,8] from the argument '0/w'\n"
            "f32[4,8] from the argument '1'\n"
            "f32[4,8] from a captured array\n"
            "f32[5,4,8] carry 'carry' at stack (T:@), stacked by scan\n"
            "f32[5,4,8] named 'h' at stack (T:@), stacked by scan\n"
            "f32[4,8] output of exp at stack (T:@)\n");
}

}  // namespace
}  // namespace stow
