// Random functions of users under nested transforms: every way to a derivative gives the same.
//
// STOW_FUZZ_COUNT functions (30) from STOW_FUZZ_SEED (1) on, by a few checks each, but those that
// trace to more than STOW_FUZZ_NODES nodes (400). STOW_FUZZ_TEXT="scan(sin, 0, 1)" runs that
// function at the points of these seeds by all checks instead. STOW_FUZZ_FORK=1 as in
// plan_fuzz_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include <fmt/ranges.h>

#include "stowage/stowage.h"
#include "tests/fuzz/child_process.h"
#include "tests/fuzz/near.h"
#include "tests/fuzz/random_function.h"
#include "tests/fuzz/random_program.h"
#include "tests/support/crash_note.h"
#include "tests/support/execute.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::Expression;
using testing::Function;

using Along = std::function<Array(const Array& x, const Array& v)>;

Array random_vector(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> values;
  for (int i = 0; i < 4; ++i)
    values.push_back(3 * static_cast<double>(random() >> 11) * 0x1p-53 - 1.5);
  return Array::from(values, {4});
}

// A function, its loss and their derivatives, each made in the plainest way.
struct Subject {
  Subject(const Function& raw, uint64_t seed)
      : f([raw](const Array& x) { return tanh(raw(x) * 0.3); }),
        x(random_vector(seed)),
        v(random_vector(seed + 1)),
        w(random_vector(seed + 2)) {}

  static Function loss_of(const Function& f) {
    return [f](const Array& x) { return sum(sin(f(x)) * cos(arange(4, DType::kF64) * 1.3 + 0.4)); };
  }
  static Function gradient_of(const Function& loss) {
    return [loss](const Array& x) { return grad(loss)(x); };
  }
  /// The second derivative along v: reverse over reverse, or forward over reverse.
  static Along back_twice(const Function& g) {
    return [g](const Array& x, const Array& v) {
      return grad([&](const Array& at) { return sum(g(at) * v); })(x);
    };
  }
  static Along forward(const Function& g) {
    return
        [g](const Array& x, const Array& v) { return jvp(g, std::tuple(x), std::tuple(v)).second; };
  }

  Function f;
  Array x, v, w;
  Function loss = loss_of(f), g = gradient_of(loss);
  Along second = back_twice(g), pushed = forward(g);
};

// What a way to a derivative gave and what it must give.
struct Ways {
  Array got, want;
};
struct Way {
  const char* name;
  Ways (*run)(const Subject&);
};

Array checkpointed_second(const Subject& s, bool checkpoint_gradient) {
  const Function f =
      checkpoint_gradient ? s.f : [&s](const Array& x) { return checkpoint(s.f)(x); };
  const Function g = Subject::gradient_of(Subject::loss_of(f));
  const Function outer =
      checkpoint_gradient ? [&g](const Array& x) { return checkpoint(g)(x); } : g;
  return jit(checkpoint_gradient ? Subject::back_twice(outer) : Subject::forward(outer))(s.x, s.v);
}

const Way kWays[] = {
    {"jit of grad",
     [](const Subject& s) {
       return Ways{jit(s.g)(s.x), s.g(s.x)};
     }},
    {"jit of grad of grad",
     [](const Subject& s) {
       return Ways{jit(s.second)(s.x, s.v), s.second(s.x, s.v)};
     }},
    {"jvp of grad",
     [](const Subject& s) {
       return Ways{s.pushed(s.x, s.v), s.second(s.x, s.v)};
     }},
    {"jit of jvp of grad",
     [](const Subject& s) {
       return Ways{jit(s.pushed)(s.x, s.v), s.second(s.x, s.v)};
     }},
    {"jit of grad of jvp",
     [](const Subject& s) {
       const auto slope = [&](const Array& x, const Array& v) {
         return jvp(s.loss, std::tuple(x), std::tuple(v)).second;
       };
       return Ways{jit(grad(slope))(s.x, s.v), s.second(s.x, s.v)};
     }},
    {"jit of vmap of jvp of grad, over tangents",
     [](const Subject& s) {
       const Array all = jit(vmap(s.pushed, {std::nullopt, 0}))(s.x, stack({s.v, s.v * 2}));
       return Ways{all[1] * 0.5, s.second(s.x, s.v)};
     }},
    {"jit of vmap of jvp of grad, over points",
     [](const Subject& s) {
       const Array all = jit(vmap(s.pushed, {1, std::nullopt}, 1))(stack({s.x * 2, s.x}, 1), s.v);
       return Ways{all.slice(1, 1, 2).reshape({4}), s.second(s.x, s.v)};
     }},
    {"jit of vmap of grad of grad",
     [](const Subject& s) {
       const Array all = jit(vmap(s.second, {-1, 0}))(stack({s.x, s.w}, 1), stack({s.v, s.w}));
       return Ways{all, stack({s.second(s.x, s.v), s.second(s.w, s.w)})};
     }},
    {"jit of hessian",
     [](const Subject& s) {
       return Ways{matmul(jit(hessian(s.loss))(s.x), s.v), s.second(s.x, s.v)};
     }},
    {"jit of jacrev of jacfwd",
     [](const Subject& s) {
       return Ways{matmul(jit(jacrev(jacfwd(s.loss)))(s.x), s.v), s.second(s.x, s.v)};
     }},
    {"jit of jacfwd of jacfwd",
     [](const Subject& s) {
       return Ways{matmul(jit(jacfwd(jacfwd(s.loss)))(s.x), s.v), s.second(s.x, s.v)};
     }},
    {"jit of jacfwd of grad",
     [](const Subject& s) {
       return Ways{matmul(jit(jacfwd(s.g))(s.x), s.v), s.second(s.x, s.v)};
     }},
    {"jit of jacfwd, jacrev",
     [](const Subject& s) {
       return Ways{jit(jacfwd(s.f))(s.x), jacrev(s.f)(s.x)};
     }},
    {"jit of grad of checkpoint",
     [](const Subject& s) {
       const Function f = [&](const Array& x) { return checkpoint(s.f)(x); };
       return Ways{jit(Subject::gradient_of(Subject::loss_of(f)))(s.x), s.g(s.x)};
     }},
    {"jit of jvp of grad of checkpoint",
     [](const Subject& s) {
       return Ways{checkpointed_second(s, false), s.second(s.x, s.v)};
     }},
    {"jit of grad of checkpoint of grad",
     [](const Subject& s) {
       return Ways{checkpointed_second(s, true), s.second(s.x, s.v)};
     }},
    {"jit of vmap of grad",
     [](const Subject& s) {
       return Ways{jit(vmap(s.g))(stack({s.x, s.w})), stack({s.g(s.x), s.g(s.w)})};
     }},
    {"jit of grad of vmap",
     [](const Subject& s) {
       const auto total = [&](const Array& xs) { return sum(vmap(s.loss, 1)(xs)); };
       return Ways{jit(grad(total))(stack({s.x, s.w}, 1)), stack({s.g(s.x), s.g(s.w)}, 1)};
     }},
    {"jit of jvp of vmap of grad",
     [](const Subject& s) {
       const Array xs = stack({s.x, s.w}), vs = stack({s.v, s.v});
       const auto along = [&](const Array& at, const Array& to) {
         return jvp(vmap(s.g), std::tuple(at), std::tuple(to)).second;
       };
       return Ways{jit(along)(xs, vs), stack({s.second(s.x, s.v), s.second(s.w, s.v)})};
     }},
    {"jit of linearize of grad, transposed",
     [](const Subject& s) {
       const auto back = [&](const Array& x, const Array& v) {
         const auto along = linearize(s.g, x).second;
         return std::get<0>(linear_transpose([&](const Array& t) { return along(t); }, x)(v));
       };
       return Ways{jit(back)(s.x, s.v), s.second(s.x, s.v)};
     }},
    {"jit of grad of steps down the gradient",
     [](const Subject& s) {
       const auto step = [&](const Array& c) { return c - s.g(c) * 0.1; };
       const auto looped = [&](const Array& x) {
         return s.loss(fori_loop(
             0, 2, [&](const Array&, const Array& c) { return step(c); }, x));
       };
       const auto written = [&](const Array& x) { return s.loss(step(step(x))); };
       return Ways{jit(grad(looped))(s.x), grad(written)(s.x)};
     }},
    {"jit of third derivatives",
     [](const Subject& s) {
       const auto back = [&](const Array& x, const Array& v, const Array& w) {
         return grad([&](const Array& at) { return sum(s.pushed(at, v) * w); })(x);
       };
       const auto forward = [&](const Array& x, const Array& v, const Array& w) {
         const auto second = [&](const Array& at) { return s.second(at, v); };
         return jvp(second, std::tuple(x), std::tuple(w)).second;
       };
       return Ways{jit(back)(s.x, s.v, s.w), jit(forward)(s.x, s.v, s.w)};
     }},
};

double largest(const Array& x) {
  return max(abs(x)).item<double>();
}

Bytes bytes_of(const Array& x) {
  const std::vector<double> values = x.to_vector<double>();
  Bytes bytes(values.size() * sizeof(double));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// By how much rounding on the way may move the second derivative.
double rounding(const Subject& s) {
  const auto lowered = jit(s.second).lower(s.x, s.v);
  std::vector<Bytes> inputs = {bytes_of(s.x), bytes_of(s.v)};
  if (lowered.graph().inputs().size() > 2) inputs.push_back(bytes_of(testing::captured_weights()));
  const Bytes want = testing::evaluate(lowered.graph(), inputs)[0];
  double moved = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Bytes near = testing::evaluate_nudged(lowered.graph(), inputs, seed)[0];
    for (size_t i = 0; i < 4; ++i) {
      const double by =
          testing::number({DType::kF64, {}}, near, i) - testing::number({DType::kF64, {}}, want, i);
      moved = std::isfinite(by) ? std::max(moved, std::fabs(by)) : INFINITY;
    }
  }
  return moved;
}

std::string compare(const Way& way, const Subject& s) {
  const auto [got, want] = way.run(s);
  const double size = largest(want), error = largest(got - want);
  if (!std::isfinite(size) || error <= 1e-8 * std::max(1.0, size)) return "";
  if (error <= 1e-8 * std::max(1.0, size) + 100 * rounding(s)) return "";
  return fmt::format("{} for {}", got.to_vector<double>(), want.to_vector<double>());
}

// A derivative along v, and differences of what it is the derivative of.
std::string compare_slopes(const Subject& s, const Function& function, const Array& slope) {
  const auto difference = [&](double step) {
    return (function(s.x + s.v * step) - function(s.x - s.v * step)) / (2 * step);
  };
  const Array near = difference(1e-6), nearer = difference(2.5e-7);
  const double error = 1e-4 * std::max({1.0, largest(near), largest(slope)});
  // A kink in between, or too steep to tell.
  if (!(largest(near - nearer) <= error / 4) || largest(near - slope) <= error) return "";
  return fmt::format("{} for {} by differences", slope.to_vector<double>(),
                     near.to_vector<double>());
}

// The program under other policies and options has the bits of the plainest.
std::string compare_plans(const Subject& s, uint64_t seed) {
  const Function f = [&](const Array& x) {
    return checkpoint([&](const Array& t) { return s.f(checkpoint_name(sin(t), "b")) * t; })(x);
  };
  const Function g = Subject::gradient_of(Subject::loss_of(f));
  const auto lowered =
      jit(seed % 3 == 0 ? Subject::back_twice(g) : Subject::forward(g)).lower(s.x, s.v);
  const Graph& graph = lowered.graph();
  std::vector<Bytes> inputs = {bytes_of(s.x), bytes_of(s.v)};
  if (graph.inputs().size() > 2) inputs.push_back(bytes_of(testing::captured_weights()));
  const testing::Execution judge =
      testing::execute(graph, {.fuse = false, .reuse = false}, inputs, 1);
  if (!judge.fault.empty()) return "judge: " + judge.fault;
  if (std::string fault = testing::compare_loosely(graph, inputs, judge.outputs); !fault.empty())
    return fault;
  constexpr int kAhead[] = {0, 1, 3, 377};
  constexpr int64_t kTiles[] = {8, 32, 0};
  for (const PolicyPtr& policy : {PolicyPtr(), testing::random_policy(seed)}) {
    const char* how = policy ? "under another policy" : "as written";
    const testing::Execution e = testing::execute(graph,
                                                  {.override_policy = policy,
                                                   .transfers_ahead = kAhead[seed % 4],
                                                   .tile_bytes = kTiles[seed % 3]},
                                                  inputs, 1);
    if (!e.fault.empty()) return fmt::format("{}: {}", how, e.fault);
    if (e.outputs != judge.outputs) return fmt::format("{}: other bits", how);
  }
  return "";
}

struct Check {
  std::string name;
  std::function<std::string(const Subject&, uint64_t seed)> run;
};
// Differences, plans, then the ways.
std::vector<Check> all_checks() {
  std::vector<Check> checks = {
      {"differences",
       [](const Subject& s, uint64_t) { return compare_slopes(s, s.loss, sum(s.g(s.x) * s.v)); }},
      {"differences of the gradient",
       [](const Subject& s, uint64_t) { return compare_slopes(s, jit(s.g), s.second(s.x, s.v)); }},
      {"plans", compare_plans},
  };
  for (const Way& way : kWays)
    checks.push_back({way.name, [&way](const Subject& s, uint64_t) { return compare(way, s); }});
  return checks;
}

// What does not hold of a function, by which check; empty when all does.
struct Fault {
  std::string text;
  std::vector<Check> check;
};
Fault judge(const Expression& expression, uint64_t seed, const std::vector<Check>& checks) {
  for (const Check& check : checks) {
    testing::set_crash_note(
        fmt::format("seed {}: {}, {}", seed, to_string(expression), check.name));
    const auto run = [&]() -> std::string {
      try {
        return check.run(Subject(testing::function_of(expression), seed), seed);
      } catch (const std::exception& error) {
        return fmt::format("exception: {}", error.what());
      }
    };
    const std::string fault =
        testing::forks_checks() ? testing::check_in_child_process(run) : run();
    if (!fault.empty()) return {check.name + ": " + fault, {check}};
  }
  return {};
}

std::string report(Expression expression, uint64_t seed, Fault fault) {
  std::string text = fmt::format("seed {}: {}\n{}\n", seed, to_string(expression), fault.text);
  // The same check fails, or throws the same, whatever the numbers.
  const auto kind_of = [](const Fault& fault) {
    const size_t thrown = fault.text.find("exception: ");
    return thrown == std::string::npos ? "" : testing::kind_of(fault.text.substr(thrown));
  };
  uint64_t tries = testing::environment("STOW_FUZZ_SHRINK", 200);
  for (bool found = true; found;) {
    found = false;
    for (const Expression& candidate : testing::smaller(expression)) {
      if (found || tries == 0) break;
      --tries;
      const Fault its = judge(candidate, seed, fault.check);
      if (its.text.empty() || kind_of(its) != kind_of(fault)) continue;
      expression = candidate;
      fault = its;
      found = true;
    }
  }
  return text + fmt::format("made smaller: {}\n{}", to_string(expression), fault.text);
}

size_t n_nodes(const Graph& graph) {
  size_t n = graph.n_nodes();
  for (const Node& node : graph.nodes())
    for (const GraphPtr& nested : node.graphs) n += n_nodes(*nested);
  return n;
}

// What cannot be traced is left to the checks.
size_t n_traced_nodes(const Expression& expression) {
  try {
    const Array x = Array::abstract({4}, DType::kF64);
    return n_nodes(jit(testing::function_of(expression)).lower(x).graph());
  } catch (const std::exception&) {
    return 0;
  }
}

// One thread; one device for all, as an array that functions capture lies there.
std::shared_ptr<Device> device() {
  static const std::shared_ptr<Device> device = Device::cpu_with_capacity(int64_t{1} << 28, 1);
  return device;
}

TEST(NestedFuzz, EveryWayToADerivativeIsTheSame) {
  const DefaultDevice scope(device());
  const uint64_t first = testing::environment("STOW_FUZZ_SEED", 1),
                 count = testing::environment("STOW_FUZZ_COUNT", 30),
                 most_nodes = testing::environment("STOW_FUZZ_NODES", 400);
  const char* text = std::getenv("STOW_FUZZ_TEXT");
  int n_failed = 0;
  for (uint64_t seed = first; seed < first + count && n_failed < 20; ++seed) {
    const Expression expression =
        text ? testing::parse_expression(text) : testing::random_expression(seed);
    testing::set_crash_note(fmt::format("seed {}: {}", seed, to_string(expression)));
    std::vector<Check> checks = all_checks();
    if (!text) {
      if (n_traced_nodes(expression) > most_nodes) continue;
      std::mt19937_64 random(seed);
      constexpr size_t kDrawn = 4;
      for (size_t i = 0; i < kDrawn; ++i)
        std::swap(checks[i], checks[i + random() % (checks.size() - i)]);
      checks.resize(kDrawn);
    }
    if (const Fault fault = judge(expression, seed, checks); !fault.text.empty()) {
      ADD_FAILURE() << report(expression, seed, fault);
      ++n_failed;
    }
  }
}

// Every kind by itself, so that one that cannot be differentiated is seen; and texts are read back.
TEST(NestedFuzz, EveryKindHasADerivative) {
  const DefaultDevice scope(device());
  std::vector<Check> differences = all_checks();
  differences.resize(2);
  const Expression inner = testing::parse_expression("sin");
  for (const auto& kinds :
       {testing::base_functions(), testing::scan_functions(), testing::transform_functions()})
    for (const testing::FunctionKind& kind : kinds) {
      Expression e{&kind};
      e.inner.assign(kind.n_inner, inner);
      e.numbers.assign(kind.numbers.size(), 0);
      const std::string text = to_string(e);
      EXPECT_EQ(to_string(testing::parse_expression(text)), text);
      EXPECT_EQ(judge(e, 1, differences).text, "") << text;
    }
}

}  // namespace
}  // namespace stow
