#include "stowage/nn/named/scan.h"

#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"

namespace stow::named::scan_detail {
namespace {

std::string leaf_text(const std::string& path) {
  return path.empty() ? "what is scanned" : fmt::format("'{}'", path);
}

class Finder : public PathNamedVisitor {
 public:
  Finder(const char* what, const AxisSelector& axis) : what_(what), axis_(axis) {
    if (axis.size()) found.axis = {axis.name(), *axis.size()};
  }
  void leaf(Array& x) override {
    if (x.empty()) trace_error_here("[{}] {} is empty", what_, leaf_text(path));
    if (x.rank() > 0) add(x, 0);
  }
  void named(NamedArray& x) override {
    check_axes_fit(what_, x);
    if (const std::optional<size_t> place = find_axis(x.axes(), axis_.name()))
      add(x.array(), *place);
  }

  Scanned found;
  std::map<std::string, int64_t> places;

 private:
  void add(const Array& x, size_t place) {
    const int64_t size = x.shape()[static_cast<int>(place)];
    if (!first_.has_value()) first_ = path;
    if (found.leaves.empty() && !axis_.size()) found.axis = {axis_.name(), size};
    if (size != found.axis.size)
      trace_error_here("[{}] {} has {} slices on its axis {}, {} has {}", what_, leaf_text(path),
                       size, place, axis_.size() ? "the axis" : leaf_text(*first_),
                       found.axis.size);
    found.leaves.emplace(path, x);
    places[path] = static_cast<int64_t>(place);
  }
  const char* what_;
  const AxisSelector& axis_;
  std::optional<std::string> first_;
};

class Putter : public PathNamedVisitor {
 public:
  Putter(const std::map<std::string, Array>& slices, const Axis& axis)
      : slices_(slices), axis_(axis) {}
  void leaf(Array& x) override {
    if (const auto found = slices_.find(path); found != slices_.end()) x = found->second;
  }
  void named(NamedArray& x) override {
    const auto found = slices_.find(path);
    if (found == slices_.end()) return;
    NamedAccess::set_axes(x, without_axes(x.axes(), {axis_}));
    NamedAccess::set_array(x, found->second);
  }

 private:
  const std::map<std::string, Array>& slices_;
  const Axis& axis_;
};

class Prepender : public PathNamedVisitor {
 public:
  Prepender(const char* what, const Axis& axis) : what_(what), axis_(axis) {}
  void leaf(Array&) override {}
  void named(NamedArray& x) override {
    if (axis_.name.empty())
      trace_error_here(
          "[{}] the result {} is a NamedArray, and the axis has no name; Stacked has one", what_,
          path.empty() ? "" : "'" + path + "'");
    if (find_axis(x.axes(), axis_.name))
      trace_error_here("[{}] the result {}has axis '{}' already, {}; rename it", what_,
                       path.empty() ? "" : "'" + path + "' ", axis_.name, to_string(x.axes()));
    std::vector<Axis> axes{axis_};
    axes.insert(axes.end(), x.axes().begin(), x.axes().end());
    NamedAccess::set_axes(x, std::move(axes));
  }

 private:
  const char* what_;
  const Axis& axis_;
};

}  // namespace

Scanned find_scanned(const char* what, const TreeRef& xs, const AxisSelector& axis) {
  Finder finder(what, axis);
  xs.visit(xs.tree, finder);
  if (finder.found.leaves.empty() && !axis.size())
    trace_error_here("[{}] nothing has axis '{}'; give an Axis with a size", what, axis.name());
  for (const auto& [path, place] : finder.places) finder.found.places.push_back(place);
  return std::move(finder.found);
}

void put_slices(const TreeRef& x, const std::map<std::string, Array>& slices, const Axis& axis) {
  Putter putter(slices, axis);
  x.visit(x.tree, putter);
}

void prepend_axis(const char* what, const TreeRef& ys, const Axis& axis) {
  Prepender prepender(what, axis);
  ys.visit(ys.tree, prepender);
}

void name_carry(const TreeRef& carry) {
  std::vector<Array> leaves = leaves_of(carry);
  for (Array& leaf : leaves) leaf = stow::checkpoint_name(leaf, kScanCarryName);
  assign_leaves(carry, leaves);
}

void to_the_front(Scanned& scanned) {
  size_t i = 0;
  for (auto& [path, leaf] : scanned.leaves) {
    const int place = static_cast<int>(scanned.places[i]);
    if (place != 0) leaf = moveaxis(leaf, place, 0);
    scanned.places[i++] = 0;
  }
}

void check_options(const NamedScanOptions& options) {
  if (options.checkpoint.policy().nested && options.unroll != 1)
    trace_error_here("[scan] unroll is {}, and blocks are nested; leave one out", options.unroll);
}

}  // namespace stow::named::scan_detail
