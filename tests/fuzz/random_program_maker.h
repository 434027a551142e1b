// Maker: adds random steps to one graph of a random program; for random_program*.cpp.
// Not the whole program, its gradient and its arguments; random_program.cpp makes those.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "stowage/core/array_type.h"
#include "stowage/ir/graph.h"
#include "stowage/ir/params.h"
#include "stowage/ops/build.h"

namespace stow::testing::random_programs {

/// What all graphs of one program share.
struct Context {
  std::mt19937_64 random;
  Dims extents;  // axes are mostly of these
  int64_t max_elems = 0;
  bool discrete = false;        // steps that are not continuous are allowed
  bool differentiated = false;  // open loops must not be on the way of a gradient
  bool away = false;            // values stay on the host or the disk, too
  std::vector<DType> floats;

  uint64_t below(uint64_t n) { return random() % n; }
  bool chance(uint64_t percent) { return below(100) < percent; }
  int64_t extent() { return extents[below(extents.size())]; }
  DType float_dtype() { return floats[below(floats.size())]; }
  MemoryKind kind_away() { return below(2) ? MemoryKind::kDisk : MemoryKind::kPinnedHost; }
  Shape shape(uint64_t max_rank) {
    while (true) {
      Dims dims(below(max_rank + 1));
      for (int64_t& d : dims) d = extent();
      if (Shape shape(dims); shape.elems() <= max_elems) return shape;
    }
  }
};

/// One graph in the making, with the values that its steps may read.
class Maker {
 public:
  Maker(Context& context, Graph& graph, int depth)
      : context_(context), builder_(graph), depth_(depth) {}

  void input(const ArrayType& type) {
    inputs_.emplace_back(builder_, builder_.graph().add_input(type));
    add(inputs_.back());
  }
  void grow(uint64_t n_steps) {
    for (uint64_t i = 0; i < n_steps; ++i) step();
  }
  /// Results of a scan whose carries begin with inputs that nothing else reads.
  std::vector<Val> scan_over_own_inputs();
  /// Any value on the device, the later the likelier, and likelier yet if nothing reads it.
  Val any();
  /// A value on the device, of those that no node reads if there is one.
  Val unread();
  /// Any value, maybe one that lies elsewhere or is put there for it.
  Val any_anywhere();
  Val any_float();
  /// A value of that type, made where there is none.
  Val of(const ArrayType& type);
  /// Any value made to have that type.
  Val fit(Val v, const ArrayType& type);
  /// Results: mostly of late values, some twice, some inputs, some views.
  std::vector<ValueId> outputs(uint64_t n);
  /// A float scalar of several values.
  Val loss();

 private:
  void add(const Val& v) {
    if (v.type().elems() > context_.max_elems) return;
    (v.type().kind == MemoryKind::kDevice ? pool_ : away_).push_back(v);
  }
  Val pad_if_empty(const Val& v);
  Val iota_like(const Shape& shape, DType dtype);
  Val bounded(const Val& v) { return tanh(v); }
  uint64_t below(uint64_t n) { return context_.below(n); }
  int64_t axis_of(const Val& v) {
    return static_cast<int64_t>(below(static_cast<uint64_t>(v.rank())));
  }
  Dims shuffled_axes(const Val& v) {
    Dims axes;
    for (int i = 0; i < v.rank(); ++i) axes.push_back(i);
    std::shuffle(axes.begin(), axes.end(), context_.random);
    return axes;
  }
  Dims some_axes(const Val& v) {
    Dims axes = shuffled_axes(v);
    axes.resize(below(axes.size() + 1));
    return axes;
  }

  // ---- random_program_steps.cpp: steps of one op or a few ----
  void step();
  void rarer_step();
  Val rare_function(const Val& x);
  void moved_step(const Val& x);
  void away_step();
  void running_step(const Val& x);
  // A window over an axis of n elements that fits at least once: size, stride, low, high,
  // dilations.
  struct Slide {
    int64_t size, stride, low, high, base_dilation, window_dilation;
  };
  Slide slide(int64_t n);
  void window_step(const Val& x);
  void convolution_step(const Val& x);
  // Rows of x by vectors [n, 1], or, an axis going along, parts of rows by vectors [n, extent, 1].
  struct Indexed {
    GatherParams params;
    Dims vectors, windows;
  };
  Indexed indexed(const Val& x);
  void scatter_step(const Val& x);
  void unary_step();
  void binary_step();
  void broadcast_step();
  void reduce_step();
  void pairs_step();
  Val view(const Val& x);
  void joining_step();
  void dot_step();
  void gather_step();
  void dynamic_step();
  void select_step();
  void other_step();
  void leaf_step();
  void mark_step();
  void composite_step();

  // ---- random_program_nests.cpp: steps that hold graphs ----
  void scan_step();
  std::vector<Val> scan_from(const std::vector<Val>& inits);
  void scan_part(const ArrayType& stack, size_t axis, ScanParams& p, std::vector<Val>& operands,
                 std::vector<ArrayType>& types);
  Val successor(ValueId of_what);
  Val with_new_row(const Val& v);
  std::vector<ValueId> carries(Maker& inner, const std::vector<Val>& inputs, const ScanParams& p);
  void checkpoint_step();
  std::shared_ptr<Graph> nested(const std::vector<ArrayType>& inputs);
  void batched_step();
  void custom_vjp_step();
  void cond_step();
  void while_step();

  Context& context_;
  GraphBuilder builder_;
  int depth_;
  std::vector<Val> inputs_, pool_, away_;  // pool_: what is on the device; away_: what is not
};

}  // namespace stow::testing::random_programs
