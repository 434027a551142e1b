// Trees: nested structs, vectors, maps, tuples, pairs, optionals and std::arrays of Array.
// Not a container; a tree is a type of the user, visited leaf by leaf.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "stowage/api/array.h"
#include "stowage/api/for_each_macro.h"

/// Makes a struct a tree of the listed fields: STOW_TREE(Layer, w1, w2) in the namespace of the
/// struct. For a class template it takes the name of the template: STOW_TREE(Pair, first, second)
/// for template <typename T> struct Pair. The template's parameters may be types, ints or size_ts,
/// or one type and then ints or size_ts.
/// Fields that are not listed are copied with the struct, but are not part of the tree. A plain
/// value that changes what a function computes must be a listed Static<T>; else a jitted function
/// does not notice its change.
#define STOW_TREE(Type, ...)                                            \
  template <typename StowSelf, typename StowVisit>                      \
  requires(::stow::tree_detail::is_of<Type, StowSelf>())                \
  void stow_visit_fields(StowSelf& stow_self, StowVisit&& stow_visit) { \
    (void)stow_self;                                                    \
    (void)stow_visit;                                                   \
    STOW_FOR_EACH_ARGUMENT(STOW_TREE_FIELD, __VA_ARGS__)                \
  }                                                                     \
  static_assert(true)
#define STOW_TREE_FIELD(field) stow_visit(#field, stow_self.field);

namespace stow {
namespace tree_detail {

// True if T is `Type`, or an instance of the class template.
template <typename Type, typename T>
constexpr bool is_of() {
  return std::same_as<Type, T>;
}
template <typename T, template <typename...> class Template>
inline constexpr bool has_template = false;
template <typename... P, template <typename...> class Template>
inline constexpr bool has_template<Template<P...>, Template> = true;
template <template <typename...> class Template, typename T>
constexpr bool is_of() {
  return has_template<T, Template>;
}
#define STOW_TREE_OF_VALUES(name, ...)                                  \
  template <typename T, template <__VA_ARGS__> class Template>          \
  inline constexpr bool name = false;                                   \
  template <template <__VA_ARGS__> class Template, typename T>          \
  constexpr bool is_of() {                                              \
    return name<T, Template>;                                           \
  }
STOW_TREE_OF_VALUES(has_ints, int...)
template <int... N, template <int...> class Template>
inline constexpr bool has_ints<Template<N...>, Template> = true;
STOW_TREE_OF_VALUES(has_sizes, size_t...)
template <size_t... N, template <size_t...> class Template>
inline constexpr bool has_sizes<Template<N...>, Template> = true;
STOW_TREE_OF_VALUES(has_type_and_ints, typename, int, int...)
template <typename P, int M, int... N, template <typename, int, int...> class Template>
inline constexpr bool has_type_and_ints<Template<P, M, N...>, Template> = true;
STOW_TREE_OF_VALUES(has_type_and_sizes, typename, size_t, size_t...)
template <typename P, size_t M, size_t... N, template <typename, size_t, size_t...> class Template>
inline constexpr bool has_type_and_sizes<Template<P, M, N...>, Template> = true;
#undef STOW_TREE_OF_VALUES

}  // namespace tree_detail

/// A tree without leaves: nothing carried, nothing scanned.
struct None {};
STOW_TREE(None);

/// A plain value that is part of a tree's structure, and therefore of a jitted function's cache
/// key.
template <typename T>
requires(concepts::Scalar<T> || std::is_enum_v<T> || std::same_as<T, std::string>) struct Static {
  T value{};
  operator const T&() const { return value; }  // NOLINT: stands for its value
};

/// Visits a tree in preorder. The names of enter() form paths: "layers/0/w1".
class TreeVisitor {
 public:
  virtual ~TreeVisitor() = default;
  virtual void leaf(Array& array) = 0;
  /// Begins the subtree of a field, key or index; leave() ends it.
  virtual void enter(std::string_view name) = 0;
  virtual void leave() = 0;
  /// A node: its kind ("[", "{", "(", "?", "struct", or "static " and the value) and its number of
  /// children, -1 for a struct.
  virtual void node(std::string_view kind, int64_t children) = 0;
};

namespace tree_detail {

template <typename T>
inline constexpr bool is_pair = false;
template <typename A, typename B>
inline constexpr bool is_pair<std::pair<A, B>> = true;

struct AnyField {
  template <typename T>
  void operator()(const char*, T&) {}
};
template <typename T>
concept Struct = requires(T& t, AnyField v) {
  stow_visit_fields(t, v);
};
// A type that is an array with further structure, such as names of its axes. stow_visit_leaf, found
// by argument-dependent lookup, visits a node whose kind is the structure as text, then a leaf.
template <typename T>
concept CustomLeaf = requires(T& t, TreeVisitor& v) {
  stow_visit_leaf(t, v);
};

template <typename T>
struct Kind {
  static constexpr bool is_vector = false, is_map = false, is_optional = false, is_tuple = false,
                        is_array = false, is_static = false;
};
template <typename T, typename A>
struct Kind<std::vector<T, A>> : Kind<void> {
  static constexpr bool is_vector = true;
  using Element = T;
};
template <typename T, typename C, typename A>
struct Kind<std::map<std::string, T, C, A>> : Kind<void> {
  static constexpr bool is_map = true;
  using Element = T;
};
template <typename T>
struct Kind<std::optional<T>> : Kind<void> {
  static constexpr bool is_optional = true;
  using Element = T;
};
template <typename... T>
struct Kind<std::tuple<T...>> : Kind<void> {
  static constexpr bool is_tuple = true;
};
template <typename A, typename B>
struct Kind<std::pair<A, B>> : Kind<void> {
  static constexpr bool is_tuple = true;
};
template <typename T, size_t N>
struct Kind<std::array<T, N>> : Kind<void> {
  static constexpr bool is_array = true;
  using Element = T;
};
template <typename T>
struct Kind<Static<T>> : Kind<void> {
  static constexpr bool is_static = true;
};

template <typename T>
std::string static_text(const T& value) {
  if constexpr (std::same_as<T, std::string>)
    return value;
  else if constexpr (std::is_enum_v<T>)
    return std::to_string(static_cast<long long>(value));
  else if constexpr (std::floating_point<T>)
    return fmt::format("{}", value);
  else
    return std::to_string(value);
}

}  // namespace tree_detail

/// True for a type that is a tree.
template <typename T>
constexpr bool is_tree() {
  using K = tree_detail::Kind<T>;
  if constexpr (std::same_as<T, Array> || K::is_static || tree_detail::CustomLeaf<T> ||
                tree_detail::Struct<T>)
    return true;
  else if constexpr (K::is_vector || K::is_map || K::is_optional || K::is_array)
    return is_tree<typename K::Element>();
  else if constexpr (K::is_tuple)
    return []<size_t... I>(std::index_sequence<I...>) {
      return (is_tree<std::tuple_element_t<I, T>>() && ...);
    }
  (std::make_index_sequence<std::tuple_size_v<T>>());
  else return false;
}
namespace concepts {
template <typename T>
concept Tree = is_tree<std::remove_cvref_t<T>>();
}  // namespace concepts

/// Visits `tree` with `visitor`: fields in the order of STOW_TREE, map entries in the order of
/// keys.
template <typename T>
void visit_tree(T& tree, TreeVisitor& visitor) {
  static_assert(
      is_tree<T>(),
      "stowage: not a tree: only Array, NamedArray, Static, and vectors, maps from std::string, "
      "tuples, pairs, optionals, std::arrays and STOW_TREE structs of trees are");
  using K = tree_detail::Kind<T>;
  auto child = [&](std::string_view name, auto& element) {
    visitor.enter(name);
    visit_tree(element, visitor);
    visitor.leave();
  };
  if constexpr (std::same_as<T, Array>) {
    visitor.leaf(tree);
  } else if constexpr (tree_detail::CustomLeaf<T>) {
    stow_visit_leaf(tree, visitor);
  } else if constexpr (K::is_static) {
    visitor.node("static " + tree_detail::static_text(tree.value), 0);
  } else if constexpr (K::is_vector || K::is_array) {
    visitor.node("[", static_cast<int64_t>(tree.size()));
    for (size_t i = 0; i < tree.size(); ++i) child(std::to_string(i), tree[i]);
  } else if constexpr (K::is_map) {
    visitor.node("{", static_cast<int64_t>(tree.size()));
    for (auto& [key, element] : tree) child(key, element);
  } else if constexpr (K::is_optional) {
    visitor.node("?", tree.has_value() ? 1 : 0);
    if (tree.has_value()) visit_tree(*tree, visitor);
  } else if constexpr (K::is_tuple) {
    visitor.node("(", static_cast<int64_t>(std::tuple_size_v<T>));
    [&]<size_t... I>(std::index_sequence<I...>) {
      (child(std::to_string(I), std::get<I>(tree)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>());
  } else {
    visitor.node("struct", -1);
    stow_visit_fields(tree, [&](const char* name, auto& field) { child(name, field); });
  }
}

/// A type-erased reference to a tree; does not own it.
struct TreeRef {
  void* tree = nullptr;
  void (*visit)(void* tree, TreeVisitor& visitor) = nullptr;
  const std::type_info* type = nullptr;
};
/// Returns a reference to a tree. Only assign_leaves and replace_selected write through it.
template <concepts::Tree T>
TreeRef tree_ref(const T& tree) {
  return {const_cast<T*>(&tree),
          [](void* p, TreeVisitor& v) { visit_tree(*static_cast<T*>(p), v); }, &typeid(T)};
}

// tree_leaves, tree_paths, tree_structure and the assignment of leaves, type-erased.
std::vector<Array> leaves_of(const TreeRef& tree);
std::vector<std::string> paths_of(const TreeRef& tree);
/// The paths of all parts of a tree in preorder: leaves, and nodes with or without leaves. The path
/// of the tree itself is "".
std::vector<std::string> part_paths_of(const TreeRef& tree);
std::string structure_of(const TreeRef& tree);
void assign_leaves(const TreeRef& tree, std::span<const Array> leaves);
/// Throws TraceError naming the first path where the structures differ. `what` begins the message.
void check_same_structure(const TreeRef& a, const TreeRef& b, const std::string& what,
                          SourceLocation at = {});

/// The leaves of a tree, in order.
template <concepts::Tree T>
std::vector<Array> tree_leaves(const T& tree) {
  return leaves_of(tree_ref(tree));
}
/// The paths of the leaves ("layers/0/w1"); "" for a tree that is a single Array.
template <concepts::Tree T>
std::vector<std::string> tree_paths(const T& tree) {
  return paths_of(tree_ref(tree));
}
/// The structure without the leaves, as text. Equal texts mean equal structures.
template <concepts::Tree T>
std::string tree_structure(const T& tree) {
  return structure_of(tree_ref(tree));
}
/// A tree like `prototype` with these leaves. Errors: TraceError if their number differs.
template <concepts::Tree T>
T tree_unflatten(const T& prototype, std::span<const Array> leaves) {
  T copy = prototype;
  assign_leaves(tree_ref(copy), leaves);
  return copy;
}

/// Returns a tree like `tree` whose leaves are f(leaf of `tree`, leaf of each of `rest`…). A
/// function with further, defaulted parameters must be wrapped in a lambda, except zeros_like and
/// ones_like.
/// Errors: TraceError naming the first path at which structures differ.
template <typename F, concepts::Tree T, concepts::Tree... Rest>
T tree_map(F&& f, const T& tree, const Rest&... rest) {
  using Leaf = const Array&;
  static_assert(
      std::is_invocable_v<F&, Leaf, decltype((void)rest, std::declval<Leaf>())...>,
      "stowage: the function cannot be called with one leaf of each tree. If it has more "
      "parameters, with defaults, C++ does not see them here: pass a lambda that calls it, "
      "[](const Array& x) { return softmax(x); }");
  (check_same_structure(tree_ref(tree), tree_ref(rest), "[tree_map]"), ...);
  std::vector<Array> leaves = tree_leaves(tree);
  const std::array<std::vector<Array>, sizeof...(Rest)> others = {tree_leaves(rest)...};
  for (size_t i = 0; i < leaves.size(); ++i)
    leaves[i] = [&]<size_t... I>(std::index_sequence<I...>) {
      return Array(f(leaves[i], others[I][i]...));
    }
  (std::make_index_sequence<sizeof...(Rest)>());
  return tree_unflatten(tree, leaves);
}
/// tree_map of an overloaded function: selects the overload with one operand for each tree.
template <concepts::Tree T>
T tree_map(Array (*f)(const Operand&), const T& tree) {
  return tree_map([f](const Array& x) { return f(x); }, tree);
}
template <concepts::Tree T, concepts::Tree U>
T tree_map(Array (*f)(const Operand&, const Operand&), const T& tree, const U& other) {
  return tree_map([f](const Array& x, const Array& y) { return f(x, y); }, tree, other);
}

/// Returns a tree like `tree` whose leaves are f(path, leaf).
template <typename F, concepts::Tree T>
T tree_map_with_path(F&& f, const T& tree) {
  std::vector<Array> leaves = tree_leaves(tree);
  const std::vector<std::string> paths = tree_paths(tree);
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i] = f(paths[i], leaves[i]);
  return tree_unflatten(tree, leaves);
}

}  // namespace stow
