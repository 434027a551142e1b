#include "stowage/api/vmap.h"

#include <algorithm>

#include "stowage/api/trace.h"
#include "stowage/base/nearest.h"
#include "stowage/ops/batch.h"

namespace stow {
namespace {

bool is_below(const std::string& path, const std::string& prefix) {
  return prefix.empty() || path == prefix ||
         (path.size() > prefix.size() && path.compare(0, prefix.size(), prefix) == 0 &&
          path[prefix.size()] == '/');
}

std::string leaf_name(std::string_view what, const std::string& path) {
  return path.empty() ? fmt::format("the {}", what) : fmt::format("{} '{}'", what, path);
}

// The axis of the leaf at `path`, an axis of a value of `rank` axes.
int64_t axis_of(const TreeAxes& axes, const std::string& below, std::string_view what,
                const std::string& path, int rank, const ArrayType& type) {
  const std::pair<std::string, TreeAxes::Axis>* best = nullptr;
  for (const auto& entry : axes.by_path())
    if (is_below(below, entry.first) && (!best || entry.first.size() >= best->first.size()))
      best = &entry;
  if (!best)
    trace_error_here("[vmap] expected an entry of the axes for {}, got none",
                     leaf_name(what, path));
  if (!best->second) return kUnbatched;
  const int axis = *best->second;
  if (axis < -rank || axis >= rank)
    trace_error_here("[vmap] axis {} of {} is out of range for {}", axis, leaf_name(what, path),
                     to_string(type));
  return axis < 0 ? axis + rank : axis;
}

// One an entry of `paths`; the values over the batch have `more_rank` more axes than `types`.
std::vector<int64_t> axes_of(const VmapAxes& axes, std::string_view what,
                             const std::vector<std::string>& paths,
                             const std::vector<ArrayType>& types, int more_rank) {
  std::vector<int64_t> result;
  for (size_t i = 0; i < paths.size(); ++i) {
    const int rank = types[i].shape.rank() + more_rank;
    if (axes.all()) {
      // The paths of arguments begin with their number.
      const size_t slash = paths[i].find('/');
      const bool numbered = what == "argument";
      const std::string below = !numbered                    ? paths[i]
                                : slash == std::string::npos ? ""
                                                             : paths[i].substr(slash + 1);
      result.push_back(axis_of(*axes.all(), below, what, paths[i], rank, types[i]));
      continue;
    }
    size_t number = 0, used = 0;
    while (used < paths[i].size() && paths[i][used] >= '0' && paths[i][used] <= '9')
      number = 10 * number + static_cast<size_t>(paths[i][used++] - '0');
    if (used == 0 || (used < paths[i].size() && paths[i][used] != '/'))
      trace_error_here("[vmap] expected a tuple for a list of {} axes, got {} outside of one",
                       axes.each().size(), leaf_name(what, paths[i]));
    if (number >= axes.each().size())
      trace_error_here("[vmap] expected an entry of the axes for {}, got a list of {}",
                       leaf_name(what, paths[i]), axes.each().size());
    const std::string below = used < paths[i].size() ? paths[i].substr(used + 1) : "";
    result.push_back(axis_of(axes.each()[number], below, what, paths[i], rank, types[i]));
  }
  return result;
}

// The paths of all fields, keys and indices of a tree, with leaves or without.
class Places : public TreeVisitor {
 public:
  explicit Places(const TreeRef& tree) { tree.visit(tree.tree, *this); }

  std::vector<std::string> paths;
  int64_t n_elements = -1;  ///< Of the tree itself; negative where it is no list.

 private:
  void leaf(Array&) override {}
  void enter(std::string_view name) override {
    lengths_.push_back(path_.size());
    if (!path_.empty()) path_ += '/';
    path_ += name;
    paths.push_back(path_);
  }
  void leave() override {
    path_.resize(lengths_.back());
    lengths_.pop_back();
  }
  void node(std::string_view, int64_t children) override {
    if (lengths_.empty()) n_elements = children;
  }

  std::string path_;
  std::vector<size_t> lengths_;
};

// Throws where one of `axes` is that of nothing in `tree`.
void check_used(const VmapAxes& axes, std::string_view what, const TreeRef& tree) {
  const Places places(tree);
  const auto n_axes = static_cast<int64_t>(axes.each().size());
  if (!axes.all() && places.n_elements >= 0 && n_axes > places.n_elements)
    trace_error_here("[vmap] the list of {} axes is longer than that of {} {}{}", n_axes,
                     places.n_elements, what, places.n_elements == 1 ? "" : "s");
  const auto check = [&](const TreeAxes& some, const std::vector<std::string>& below) {
    for (const auto& [path, axis] : some.by_path()) {
      if (path.empty() || std::find(below.begin(), below.end(), path) != below.end()) continue;
      const std::string near = nearest_name(path, below);
      trace_error_here("[vmap] an axis is given for '{}', where no {} has anything{}", path, what,
                       near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
    }
  };
  // The paths below each element, or below any.
  const auto below = [&](const std::string& element) {
    std::vector<std::string> result;
    for (const std::string& path : places.paths) {
      const size_t slash = path.find('/');
      if (slash != std::string::npos && (element.empty() || path.substr(0, slash) == element))
        result.push_back(path.substr(slash + 1));
    }
    return result;
  };
  if (axes.all()) check(*axes.all(), what == "argument" ? below("") : places.paths);
  for (size_t i = 0; i < axes.each().size(); ++i) check(axes.each()[i], below(std::to_string(i)));
}

int64_t batch_size(const VmapRequest& request, const std::vector<std::string>& paths,
                   const std::vector<ArrayType>& types, const std::vector<int64_t>& axes) {
  int64_t size = request.axis_size;
  size_t first = paths.size();
  for (size_t i = 0; i < paths.size(); ++i) {
    if (axes[i] == kUnbatched) continue;
    const int64_t extent = types[i].shape[static_cast<int>(axes[i])];
    if (size < 0) {
      size = extent;
      first = i;
    }
    if (extent == size) continue;
    if (first == paths.size())
      trace_error_here("[vmap] argument '{}' has {} examples on axis {} of {}, axis_size is {}",
                       paths[i], extent, axes[i], to_string(types[i]), size);
    trace_error_here(
        "[vmap] argument '{}' has {} examples on axis {} of {}, argument '{}' has {} on axis "
        "{} of {}",
        paths[first], size, axes[first], to_string(types[first]), paths[i], extent, axes[i],
        to_string(types[i]));
  }
  if (size < 0) trace_error_here("[vmap] no argument has a batch axis; give axis_size");
  return size;
}

}  // namespace

VmapResult run_vmap(const VmapRequest& request, const TreeRef& arguments,
                    const LeafFunction& function) {
  const CallSiteScope site(request.at);
  VmapResult result;
  result.outputs = traced_or_run("vmap", [&]() -> std::vector<Array> {
    std::vector<Array> inputs = leaves_of(arguments);
    const std::vector<std::string> paths = paths_of(arguments);
    std::vector<ArrayType> types;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].empty()) trace_error_here("[vmap] argument '{}' is an empty Array", paths[i]);
      types.push_back(inputs[i].type());
    }
    std::vector<int64_t> axes = axes_of(request.in_axes, "argument", paths, types, 0);
    check_used(request.in_axes, "argument", arguments);
    const int64_t size = batch_size(request, paths, types, axes);
    for (size_t i = 0; i < types.size(); ++i) {
      if (axes[i] == kUnbatched) continue;
      Dims dims = types[i].shape.dims();
      dims.erase(dims.begin() + axes[i]);
      types[i].shape = Shape(std::move(dims));
    }
    const SourceLocation here = context().site;
    std::vector<int64_t> wanted;
    std::vector<std::string> out_paths;
    NestedTrace nested =
        trace_nested("vmap", types, paths, types.size(), [&](std::span<const Array> examples) {
          result.result = function(examples);
          const CallSiteScope back(here);
          std::vector<Array> outputs = leaves_of(result.result.ref);
          out_paths = paths_of(result.result.ref);
          std::vector<ArrayType> output_types;
          for (size_t i = 0; i < outputs.size(); ++i) {
            if (outputs[i].empty())
              trace_error_here("[vmap] the function returned an empty Array{}",
                               out_paths[i].empty() ? "" : " at '" + out_paths[i] + "'");
            output_types.push_back(outputs[i].type());
          }
          wanted = axes_of(request.out_axes, "output", out_paths, output_types, 1);
          check_used(request.out_axes, "output", result.result.ref);
          return outputs;
        });
    inputs.insert(inputs.end(), nested.captures.begin(), nested.captures.end());
    axes.resize(inputs.size(), kUnbatched);
    std::vector<int64_t> asked = wanted;
    for (int64_t& axis : asked) axis = axis == kUnbatched ? kAnyAxis : axis;
    if (nested.has_effects) asked.push_back(kAnyAxis);
    BatchedGraph batched = batch_graph(nested.graph, size, axes, asked);
    for (size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i] == kUnbatched && batched.out_axes[i] != kUnbatched)
        trace_error_here("[vmap] {} of type {} differs between examples, and its out_axes is none",
                         leaf_name("output", out_paths[i]),
                         to_string(nested.graph.type(nested.graph.outputs()[i])));
    std::vector<Array> results = inline_graph(batched.graph, inputs);
    if (!nested.has_effects) return results;
    // Tokens of the examples become one, which has waited for all.
    if (batched.out_axes.back() != kUnbatched)
      results.back() = record1(OpKind::kReshape, ShapeParams{effect_token_type().shape},
                               {results.back()});
    return take_effects(std::move(results), results.size() - 1);
  });
  return result;
}

}  // namespace stow
