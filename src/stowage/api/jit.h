// jit: a function traced, planned and compiled once for each structure and types of its arguments.
// Not the compile driver; that is session/compile.h.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "stowage/api/sharding.h"
#include "stowage/api/sharding_report.h"
#include "stowage/api/tree.h"
#include "stowage/session/compile.h"

namespace stow {

class MeshArguments;  // api/mesh_program.h
class MeshRunner;

struct JitOptions {
  /// Numbers of arguments whose arrays the program may overwrite; they cannot be used after a call.
  /// An array whose result lies in another memory kind is not donated; the log has a warning then.
  std::vector<int> donate_argnums = {};
  /// Shardings of arguments, by path: "0" is the first argument, "0/w1" a part of it. An argument
  /// that lies in another memory kind is an error, as in JAX.
  ShardingsByPath in_shardings = {};
  /// Shardings of results, by path in the result ("" is the whole). A result that a scan stacks is
  /// moved there slice by slice.
  ShardingsByPath out_shardings = {};
  /// True: over a mesh, each note of sharding_report() is an error that names its bytes and source.
  bool strict_sharding = false;
  /// The name of the function in errors and reports.
  std::string name = "jit";
  /// Options of the compiler. jit() sets its `donated` from donate_argnums.
  CompileOptions compile = {};
};

/// A tree that a type-erased function returned, kept alive.
struct OwnedTree {
  std::shared_ptr<void> owner;
  TreeRef ref;
};
/// A function over the leaves of its arguments.
using LeafFunction = std::function<OwnedTree(std::span<const Array>)>;

/// An array that a jitted function captured: a hidden argument.
struct CapturedArray {
  std::string name;  ///< "captured/0", as in the graph.
  ArrayType type;
  std::string made;  ///< The place that made it; empty if unknown.
};

/// An entry of jit's cache, for one structure and types of arguments.
struct JitEntry {
  std::string name, key;
  SourceLocation at;  ///< Location of the call of jit().
  CompileOptions options;
  ir::Graph graph;                           ///< Inputs: leaves of the arguments, then captures.
  std::vector<std::string> input_names;  ///< "0/layers/w1", then "captured/0".
  size_t n_leaves = 0;                   ///< Number of leaves of the arguments.
  std::vector<Array> captures;
  /// Over a mesh, by input; null: the argument is whole.
  std::vector<std::shared_ptr<const Sharding>> input_shardings;
  std::vector<std::string> input_mesh_keys;  ///< mesh_key() of each leaf when traced.
  /// Places whole arguments over the mesh; made when first needed.
  std::shared_ptr<MeshArguments> mesh_arguments;
  std::vector<ArrayType> output_types;
  /// Shardings of results; null: a result stays where it is made.
  std::vector<std::shared_ptr<const Sharding>> output_shardings;
  OwnedTree result;  ///< Its leaves are empty.
  std::shared_ptr<const sharding::Mesh> mesh;  ///< The mesh that it runs over; null: one device.
  std::unordered_map<const Executable*, std::shared_ptr<MeshRunner>> mesh_runners;  ///< By program.
  std::unordered_map<std::string, ExecutablePtr> executables;  ///< By the target's key.

  /// The program for a target, compiled when first needed.
  const ExecutablePtr& executable(const runtime::TargetPtr& target);
  /// `result`, which is result number `i`, with the sharding that the function gave it.
  Array placed(Array result, size_t i) const;
  /// Runs `program`, by default the one for the arguments' device, and marks donated arguments.
  /// Returns the leaves of the result; they are abstract if an argument is abstract.
  std::vector<Array> run(std::span<const TreeRef> arguments, const ExecutablePtr& program = {});
};
using JitEntryPtr = std::shared_ptr<JitEntry>;  ///< Shared by copies.

/// The trace cache of one jitted function.
class JitCache {
 public:
  JitCache(JitOptions options, SourceLocation at);
  /// The entry for arguments of this structure and these types; traces `function` if there is none.
  JitEntryPtr find(std::span<const TreeRef> arguments, const LeafFunction& function);
  int64_t n_traces() const { return n_traces_; }

 private:
  JitEntryPtr trace(std::span<const TreeRef> arguments, const LeafFunction& function) const;

  JitOptions options_;
  SourceLocation at_;
  std::unordered_map<std::string, JitEntryPtr> entries_;
  int64_t n_traces_ = 0;
};

/// Throws TraceError naming the first leaf whose type differs from the one that `entry` was traced
/// for.
void check_arguments(const JitEntry& entry, std::span<const TreeRef> arguments);
/// True if a trace is active in this thread.
bool is_tracing();

/// Returns an argument as a tree: a C++ scalar becomes a weak array, a tree is returned unchanged.
template <typename T>
decltype(auto) as_tree(const T& value) {
  if constexpr (concepts::Scalar<T>)
    return Array(value);
  else
    return value;
}
/// The type that as_tree returns for a T.
template <typename T>
using AsTree = std::conditional_t<concepts::Scalar<T>, Array, T>;

/// Fails compilation, with a message, if a function does not take or return trees of arrays, or
/// cannot be called with the arguments.
template <typename F, typename... Args>
constexpr void check_function() {
  static_assert(
      (is_tree<Args>() && ...),
      "stowage: expected trees of arrays as arguments. Trees are Array, C++ scalars, Static, "
      "structs named in STOW_TREE, and vectors, std::arrays, maps from std::string, "
      "tuples, pairs and optionals of trees");
  static_assert(std::is_invocable_v<F&, Args&...>,
                "stowage: the function cannot be called with these arguments");
  if constexpr (std::is_invocable_v<F&, Args&...>)
    static_assert(is_tree<std::remove_cvref_t<std::invoke_result_t<F&, Args&...>>>(),
                  "stowage: the function must return a tree of arrays");
}

/// The type that a body returns for arguments of these types, as a std::type_identity. If the body
/// cannot be called with them or returns no tree, compilation fails with a message.
template <typename F, typename... Args>
constexpr auto body_result() {
  static_assert(std::is_invocable_v<F&, Args&...>,
                "stowage: the body cannot be called with what it is given: scan's takes (carry, "
                "slice), fori_loop's (counter, carry), while_loop's and its condition (carry), "
                "the branches of cond and switch_ the operands");
  if constexpr (std::is_invocable_v<F&, Args&...>) {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, Args&...>>;
    static_assert(is_tree<R>(), "stowage: the body must return a tree of arrays");
    return std::type_identity<R>();
  } else {
    return std::type_identity<void>();
  }
}
template <typename F, typename... Args>
using BodyResult = typename decltype(body_result<F, Args...>())::type;  ///< void: not callable.

/// A function over leaves that calls `function` with a tree like `arguments`. It refers to both,
/// which must outlive it.
template <typename F, typename... Args>
LeafFunction leaf_function(F& function, const std::tuple<Args...>& arguments) {
  return [&function, &arguments](std::span<const Array> leaves) {
    std::tuple<Args...> traced = tree_unflatten(arguments, leaves);
    using R = std::remove_cvref_t<decltype(std::apply(function, traced))>;
    auto result = std::make_shared<R>(std::apply(function, traced));
    return OwnedTree{result, tree_ref(*result)};
  };
}

/// A compiled program. Calling it runs it on arguments of the same structure and types.
template <typename R>
class Compiled {
 public:
  Compiled(JitEntryPtr entry, ExecutablePtr executable)
      : entry_(std::move(entry)), executable_(std::move(executable)) {}
  /// The exact memory use of a run; nothing is run.
  const MemoryAnalysis& memory_analysis() const { return executable_->memory_analysis(); }
  /// Over a mesh: values that stay whole or are gathered on the way, and the bytes that positions
  /// send.
  ShardingReport sharding_report() const { return sharding_report_of(*executable_); }
  const Executable& executable() const { return *executable_; }  ///< The program itself.
  const std::vector<std::string>& input_names() const { return entry_->input_names; }  ///< By path.
  /// The arrays that the function captured; they are arguments of the program.
  std::vector<CapturedArray> captured() const;
  /// Errors: TraceError naming the leaf whose type differs; CapacityError.
  template <typename... Args>
  R operator()(const Args&... args) const {
    const std::tuple<AsTree<Args>...> tree(args...);
    const TreeRef ref[] = {tree_ref(tree)};
    check_arguments(*entry_, ref);
    return tree_unflatten(*static_cast<const R*>(entry_->result.ref.tree),
                          entry_->run(ref, executable_));
  }

 private:
  JitEntryPtr entry_;
  ExecutablePtr executable_;
};
std::vector<CapturedArray> captured_of(const JitEntry& entry);
template <typename R>
std::vector<CapturedArray> Compiled<R>::captured() const {
  return captured_of(*entry_);
}

/// A traced function: a graph that was neither planned nor compiled.
template <typename R>
class Lowered {
 public:
  explicit Lowered(JitEntryPtr entry) : entry_(std::move(entry)) {}
  const ir::Graph& graph() const { return entry_->graph; }  ///< As traced.
  /// The graph as ir/print.h prints it.
  std::string text() const;
  /// The types of the result.
  R result() const;
  /// Plans and compiles for the default device's threads. Allocates no tensor.
  /// Errors: TraceError for a policy that cannot take effect.
  Compiled<R> compile() const;
  /// compile() with other options, such as a policy for every region or a dump: another plan of the
  /// same trace. `options.donated` is ignored; jit's donate_argnums apply.
  Compiled<R> compile(CompileOptions options) const;

 private:
  JitEntryPtr entry_;
};
std::string print_graph(const ir::Graph& graph);
std::vector<Array> abstract_results(const JitEntry& entry);
const ExecutablePtr& compile_for_default_device(JitEntry& entry);
ExecutablePtr compile_for_default_device(const JitEntry& entry, CompileOptions options);

template <typename R>
std::string Lowered<R>::text() const {
  return print_graph(entry_->graph);
}
template <typename R>
R Lowered<R>::result() const {
  return tree_unflatten(*static_cast<const R*>(entry_->result.ref.tree), abstract_results(*entry_));
}
template <typename R>
Compiled<R> Lowered<R>::compile() const {
  return {entry_, compile_for_default_device(*entry_)};
}
template <typename R>
Compiled<R> Lowered<R>::compile(CompileOptions options) const {
  return {entry_, compile_for_default_device(std::as_const(*entry_), std::move(options))};
}

/// The result of jit(). Copies share the cache. Used by one thread at a time.
template <typename F>
class Jitted {
 public:
  Jitted(F function, JitOptions options, SourceLocation at)
      : state_(std::make_shared<State>(std::move(function), JitCache(std::move(options), at))) {}

  /// Runs the function as a compiled program. Traces and plans only for a structure and types of
  /// arguments that it has not seen yet. Inside a trace, calls the function.
  /// Errors: TraceError from tracing and for misused arguments; CapacityError.
  template <typename... Args>
  auto operator()(const Args&... args) const {
    check_function<F, AsTree<Args>...>();
    std::tuple<AsTree<Args>...> tree(args...);
    using R = std::remove_cvref_t<decltype(std::apply(state_->function, tree))>;
    if (is_tracing()) return R(std::apply(state_->function, tree));
    const TreeRef ref[] = {tree_ref(tree)};
    const JitEntryPtr entry = state_->cache.find(ref, leaf_function(state_->function, tree));
    return tree_unflatten(*static_cast<const R*>(entry->result.ref.tree), entry->run(ref));
  }
  /// Traces only; the arguments may be abstract.
  template <typename... Args>
  auto lower(const Args&... args) const {
    check_function<F, AsTree<Args>...>();
    std::tuple<AsTree<Args>...> tree(args...);
    using R = std::remove_cvref_t<decltype(std::apply(state_->function, tree))>;
    const TreeRef ref[] = {tree_ref(tree)};
    return Lowered<R>(state_->cache.find(ref, leaf_function(state_->function, tree)));
  }
  /// How many times the function was traced.
  int64_t n_traces() const { return state_->cache.n_traces(); }

 private:
  struct State {
    State(F f, JitCache c) : function(std::move(f)), cache(std::move(c)) {}
    F function;
    JitCache cache;
  };
  std::shared_ptr<State> state_;
};

/// Compiles `function`, a pure function of trees, at its first call. Arrays that it captures become
/// hidden arguments with the value that they have when it is traced. The C++ values that it
/// captures become constants then.
template <typename F>
Jitted<F> jit(F function, JitOptions options = {}, STOW_AT) {
  return Jitted<F>(std::move(function), std::move(options), at);
}

}  // namespace stow

template <>
struct fmt::formatter<stow::MemoryAnalysis> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <typename FormatContext>
  auto format(const stow::MemoryAnalysis& analysis, FormatContext& context) const {
    const std::string text = stow::to_string(analysis);
    return std::copy(text.begin(), text.end(), context.out());
  }
};
