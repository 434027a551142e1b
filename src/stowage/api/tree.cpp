#include "stowage/api/tree.h"

#include "stowage/api/trace.h"

namespace stow {
namespace {

struct LeafCollector : TreeVisitor {
  std::vector<Array> leaves;
  void leaf(Array& array) override { leaves.push_back(array); }
  void enter(std::string_view) override {}
  void leave() override {}
  void node(std::string_view, int64_t) override {}
};

struct LeafAssigner : TreeVisitor {
  explicit LeafAssigner(std::span<const Array> l) : leaves(l) {}
  std::span<const Array> leaves;
  size_t next = 0;
  void leaf(Array& array) override {
    if (next < leaves.size()) array = leaves[next];
    ++next;
  }
  void enter(std::string_view) override {}
  void leave() override {}
  void node(std::string_view, int64_t) override {}
};

/// Keeps the path of where it is; an event is a leaf or the beginning of a node.
struct PathVisitor : TreeVisitor {
  std::string path;
  std::vector<size_t> lengths;
  void enter(std::string_view name) override {
    lengths.push_back(path.size());
    if (!path.empty()) path += '/';
    path += name;
  }
  void leave() override {
    path.resize(lengths.back());
    lengths.pop_back();
  }
};

struct Event {
  std::string path, what;
  friend bool operator==(const Event&, const Event&) = default;
};

struct EventCollector : PathVisitor {
  std::vector<Event> events;
  void leaf(Array&) override { events.push_back({path, "an array"}); }
  void node(std::string_view kind, int64_t children) override {
    events.push_back({path, name(kind, children)});
  }
  static std::string name(std::string_view kind, int64_t n) {
    if (kind == "[") return fmt::format("a list of {}", n);
    if (kind == "{") return fmt::format("a map of {}", n);
    if (kind == "(") return fmt::format("a tuple of {}", n);
    if (kind == "?") return n ? "a value" : "an empty optional";
    if (kind == "struct") return "a struct";
    return std::string(kind);
  }
};

struct PathCollector : PathVisitor {
  std::vector<std::string> paths;
  void leaf(Array&) override { paths.push_back(path); }
  void node(std::string_view, int64_t) override {}
};

struct PartCollector : PathVisitor {
  std::vector<std::string> paths;
  void leaf(Array&) override { add(); }
  void node(std::string_view, int64_t) override { add(); }
  // A value in an optional has the optional's path.
  void add() {
    if (paths.empty() || paths.back() != path) paths.push_back(path);
  }
};

// A leaf is *, a node its kind and number of children, a child <length:name …>.
struct StructureWriter : TreeVisitor {
  std::string text;
  void leaf(Array&) override { text += '*'; }
  void enter(std::string_view name) override {
    text += '<';
    text += std::to_string(name.size());
    text += ':';
    text += name;
  }
  void leave() override { text += '>'; }
  void node(std::string_view kind, int64_t children) override {
    text += kind;
    if (children >= 0) text += std::to_string(children);
    text += ';';
  }
};

}  // namespace

std::vector<Array> leaves_of(const TreeRef& tree) {
  LeafCollector collector;
  tree.visit(tree.tree, collector);
  return std::move(collector.leaves);
}

std::vector<std::string> paths_of(const TreeRef& tree) {
  PathCollector collector;
  tree.visit(tree.tree, collector);
  return std::move(collector.paths);
}

std::vector<std::string> part_paths_of(const TreeRef& tree) {
  PartCollector collector;
  tree.visit(tree.tree, collector);
  return std::move(collector.paths);
}

std::string structure_of(const TreeRef& tree) {
  StructureWriter writer;
  tree.visit(tree.tree, writer);
  return std::move(writer.text);
}

void assign_leaves(const TreeRef& tree, std::span<const Array> leaves) {
  LeafAssigner assigner(leaves);
  tree.visit(tree.tree, assigner);
  if (assigner.next != leaves.size())
    trace_error_here("[tree_unflatten] the tree has {} leaves, {} were given", assigner.next,
                     leaves.size());
}

void check_same_structure(const TreeRef& a, const TreeRef& b, const std::string& what,
                          SourceLocation at) {
  const CallSiteScope site(at);
  EventCollector ea, eb;
  a.visit(a.tree, ea);
  b.visit(b.tree, eb);
  for (size_t i = 0; i < ea.events.size() || i < eb.events.size(); ++i) {
    if (i < ea.events.size() && i < eb.events.size() && ea.events[i] == eb.events[i]) continue;
    const Event* x = i < ea.events.size() ? &ea.events[i] : nullptr;
    const Event* y = i < eb.events.size() ? &eb.events[i] : nullptr;
    const std::string& path = x ? x->path : y->path;
    const auto side = [&](const Event* e) {
      return e && e->path == path ? e->what : std::string("nothing");
    };
    trace_error_here("{} the structures differ at {}: {} there, {} here", what,
                     path.empty() ? "the root" : "'" + path + "'", side(x), side(y));
  }
}

}  // namespace stow
