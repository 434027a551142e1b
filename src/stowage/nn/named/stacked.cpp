#include "stowage/nn/named/stacked.h"

#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"
#include "stowage/nn/named/index.h"
#include "stowage/nn/named/shape.h"

namespace stow::named::stacked_detail {
namespace {

std::string leaf_text(const std::string& path) {
  return path.empty() ? "the block" : fmt::format("'{}'", path);
}

class LayerTaker : public PathNamedVisitor {
 public:
  LayerTaker(const char* what, const Axis& axis, int64_t i) : what_(what), axis_(axis), i_(i) {}
  void leaf(Array& x) override {
    if (x.rank() > 0) x = x[i_];
  }
  void named(NamedArray& x) override {
    check_axes_fit(what_, x);
    if (x.has_axis(axis_)) x = take(x, axis_, i_);
  }

 private:
  const char* what_;
  const Axis& axis_;
  int64_t i_;
};

class Checker : public PathNamedVisitor {
 public:
  Checker(const char* what, const Axis& axis) : what_(what), axis_(axis) {}
  void leaf(Array& x) override {
    if (x.rank() == 0 || x.dim(0) != axis_.size)
      trace_error_here("[{}] expected {} with {} layers on its first axis, got {}", what_,
                       leaf_text(path), axis_.size, to_string(x.type()));
  }
  void named(NamedArray& x) override {
    check_axes_fit(what_, x);
    if (!x.has_axis(axis_))
      trace_error_here("[{}] expected {} with axis {}, got {}", what_, leaf_text(path),
                       to_string(axis_), to_string(x.axes()));
  }

 private:
  const char* what_;
  const Axis& axis_;
};

class NameRejecter : public PathNamedVisitor {
 public:
  explicit NameRejecter(const char* what) : what_(what) {}
  void leaf(Array&) override {}
  void named(NamedArray&) override {
    trace_error_here(
        "[{}] {} is a NamedArray, and layers are counted by the first axis here; use Stacked",
        what_, leaf_text(path));
  }

 private:
  const char* what_;
};

// Leaf number n of each block, in the order of visits.
class LeafLister : public PathNamedVisitor {
 public:
  std::vector<Array> arrays;
  std::vector<std::vector<Axis>> axes;  // of a NamedArray
  std::vector<std::string> paths;
  void leaf(Array& x) override { add(x, {}); }
  void named(NamedArray& x) override {
    check_axes_fit("Stacked", x);
    add(x.array(), x.axes());
  }

 private:
  void add(const Array& x, std::vector<Axis> names) {
    arrays.push_back(x);
    axes.push_back(std::move(names));
    paths.push_back(path);
  }
};

class Writer : public PathNamedVisitor {
 public:
  Writer(const std::vector<Array>& leaves, const Axis& axis) : leaves_(leaves), axis_(axis) {}
  void leaf(Array& x) override { x = leaves_[next_++]; }
  void named(NamedArray& x) override {
    std::vector<Axis> axes{axis_};
    axes.insert(axes.end(), x.axes().begin(), x.axes().end());
    check_axis_names("Stacked", axes);
    x = NamedAccess::make(leaves_[next_++], axes);
  }

 private:
  const std::vector<Array>& leaves_;
  const Axis& axis_;
  size_t next_ = 0;
};

}  // namespace

void stack_blocks(const char* what, const TreeRef& into, const std::vector<TreeRef>& blocks,
                  const Axis& axis) {
  if (blocks.empty()) trace_error_here("[{}] expected at least one block, got none", what);
  std::vector<LeafLister> listed(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].visit(blocks[i].tree, listed[i]);
  std::vector<Array> stacks;
  for (size_t leaf = 0; leaf < listed[0].arrays.size(); ++leaf) {
    std::vector<Array> parts;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const ArrayType &type = listed[i].arrays[leaf].type(), &first = listed[0].arrays[leaf].type();
      if (type.shape != first.shape || type.dtype != first.dtype)
        trace_error_here("[{}] {} of block {} is {}, and {} in block 0", what,
                         leaf_text(listed[0].paths[leaf]), i, to_string(type), to_string(first));
      parts.push_back(listed[i].arrays[leaf]);
    }
    stacks.push_back(stow::stack(parts));
  }
  Writer writer(stacks, axis);
  into.visit(into.tree, writer);
}

void take_layer(const char* what, const TreeRef& stacked, const Axis& axis, int64_t i) {
  if (i < -axis.size || i >= axis.size)
    trace_error_here("[{}] layer {} is out of range for {} layers", what, i, axis.size);
  LayerTaker taker(what, axis, i);
  stacked.visit(stacked.tree, taker);
}

void check_stacked(const char* what, const TreeRef& stacked, const Axis& axis) {
  Checker checker(what, axis);
  stacked.visit(stacked.tree, checker);
}

void reject_names(const char* what, const TreeRef& block) {
  NameRejecter rejecter(what);
  block.visit(block.tree, rejecter);
}

std::string node_text(const Axis& axis, const ScanCheckpoint& checkpoint) {
  return fmt::format("{} layers{} stacked, {}", axis.size,
                     axis.name.empty() ? "" : " by '" + axis.name + "'", to_string(checkpoint));
}

}  // namespace stow::named::stacked_detail
