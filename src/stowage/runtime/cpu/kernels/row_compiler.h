// The compiler from row programs to row plans, over four files: row_compile.cpp, row_fuse.cpp, row_stores.cpp
// and row_emit.cpp. Not for callers; see row_plan.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/row_dims.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"

namespace stow::cpu::rows {

struct RowPattern;

// Facts of a step before it has a place.
struct Value {
  Span span = Span::kOne;
  int level = 0;             // The first phase in which it can be computed.
  int32_t operand = -1;      // The operand of a load or an iota.
  bool direct = false;       // A load that kernels do themselves.
  bool keep = false;         // For the whole row, beyond the phase that computes it.
  bool available = false;    // Kept, and computed in an earlier phase.
  int32_t absorbed_by = -1;  // The step whose kernel computes this one too.
  int32_t made_by = -1;      // Likewise, where others want this one as well.
  int32_t fused_store = -1;  // The store that its kernel does itself.
  int32_t parked_in_output = -1;    // The output that holds it until that is stored.
  int32_t reg = -1;
  bool by_position = false;  // A step that find_one_hot() has made.
};

// Kernel of a step together with the steps that it absorbs.
struct Fused {
  MapKernel map = nullptr;
  std::vector<int> args;
  ReduceRowsKernel reduce = nullptr;
  int keeps = -1;         // A step that it absorbs and others want as well.
  std::vector<int> more;  // Likewise, of a map.
  bool by_runs = false;   // A sum of a load that it absorbs.
  const std::string* pattern = nullptr;  // The name of its formula, if it is one of row_patterns.h.
};

class Compiler {
 public:
  /// Strips are of about so many elements, where no reduction asks for others. `keeps`: values that
  /// later phases want stay for the whole row.
  Compiler(const RowProgram& program, const RowOverlaps& overlaps, bool careful, int64_t tile_elems,
           bool keeps, bool in_blocks = false)
      : program_(program),
        overlaps_(overlaps),
        steps_(program.steps),
        careful_(careful),
        tile_elems_(tile_elems),
        keeps_(keeps) {
    plan_.in_blocks = in_blocks;
  }

  RowPlan compile();

 private:
  const Step& step(int i) const { return steps_[static_cast<size_t>(i)]; }
  Value& value(int i) { return values_[static_cast<size_t>(i)]; }
  int n_steps() const { return static_cast<int>(steps_.size()); }
  PlanOperand& operand(int i) { return plan_.operands[static_cast<size_t>(i)]; }
  static bool is_store(const Step& s) {
    return s.kind == StepKind::kStore || s.kind == StepKind::kReduceColumns;
  }
  int output_operand(const Step& s) const { return plan_.n_inputs + s.index; }
  bool has_many_strips() const { return plan_.cols > plan_.c_tile; }

  static int n_args(const Step& s) {
    int n = 0;
    while (n < 3 && s.args[n] >= 0) ++n;
    return n;
  }

  // Spans and levels; checks the contract.
  void analyse();

  // Returns x and position if step i is `column == position ? x : 0`, with one i32 position a row.
  std::optional<std::pair<int, int>> one_hot(int i) const;
  // Simplifies step i if it sums or adds a row that has but one element: the step then takes that
  // element and its position, and whole rows of zeros are never made.
  void find_one_hot(int i);
  // Returns the position if step i is `column == position`, with one i32 a row; else -1.
  int one_hot_position(int i) const;

  void check_store(int i);

  // True if an input has runs of columns of one row beside those of the next, as where the middle dimension
  // of three is that of the rows.
  bool lies_between_rows() const;
  void choose_tiles();
  // True if a step reduces over columns.
  bool reduces_columns() const;
  // True if output k is that of a column reduction: written after the rows of its group.
  bool is_column_sum(int k) const;

  // True if a step's kernel reads and writes the memory forms of bf16 and f16.
  bool takes_forms(const Step& s) const;

  // True if a store is a vector copy of floats.
  bool is_vector_store(const Step& s) const;

  // True if output `k` and input `input` may be the same memory.
  bool may_overlap(int k, int input);
  // True if the plan may take the two, which may_overlap(), to be different memory.
  bool can_be_apart(int k, int input) const;
  // Returns can_be_apart(). If true, the plan from then on requires the two to be different memory.
  bool assume_apart(int k, int input);
  // The same for output `k` and all of these inputs.
  bool assume_apart(int k, const std::vector<int>& inputs);

  // True if `store`, which reads the input of `load` straight from memory, may find another output
  // there: stores come last in their phase.
  bool may_be_overwritten(const Value& load, const Step& store);

  void choose_direct_loads();

  // The phase in which a store happens: as soon as can be, unless an input that may be the same
  // memory could be read again later.
  int store_phase(const Step& s);

  // Steps with columns that phase `phase` must compute, given what was kept before.
  std::vector<bool> needed_in(int phase);

  void choose_phases();

  // The phase that executes step j first.
  int executed_in(int j);
  // The step whose kernel computes value i.
  int maker_of(int i) {
    const Value& v = value(i);
    return v.absorbed_by >= 0 ? v.absorbed_by : v.made_by >= 0 ? v.made_by : i;
  }

  // ---- what one kernel computes together: row_fuse.cpp ----

  // Groups steps that one kernel computes: whole formulas first, then from the last step to the first what is
  // near it. Of two choices the later step goes first, as it is nearer to what is stored.
  void choose_fused_steps();

  // Fuses step j as the first formula of row_patterns() that matches and whose is_first is `first`.
  // False if none matches.
  bool fuse_pattern(int j, bool first);
  bool has_types(const RowPattern& pattern, int j) const;
  // True if one kernel may compute step j with the steps `inside` and fused.more: it reads nothing that it
  // makes, makes nothing twice, and nothing else reads what is inside.
  bool can_be_one(int j, const Fused& fused, const std::vector<int>& inside, bool saves_scratch);
  // Reduction j with what it sums up, by the first formula of sum_patterns().
  void fuse_sum(int j);
  // True if row reduction j may compute step i on the way, though steps that are not `inside` read it: none
  // of them does before it.
  bool can_make(int j, int i, const std::vector<int>& inside);
  // Row reduction j as a sum of an input whose columns lie in runs, which then need not be copied.
  void fuse_runs(int j);
  // Step j, one element added to a row, with the product that makes the row.
  void fuse_poke(int j);
  // Fuses step j with one or two neighbouring steps that nothing else reads. False if it cannot.
  bool fuse_pair(int j);

  // True if step i is computed by a kernel of its own so far.
  bool is_free(int i);
  // True if the kernel of step i computes other steps too.
  bool absorbs(int i) { return fused_[static_cast<size_t>(i)].map != nullptr; }
  // True if step i is arithmetic of two f32 that one step alone reads.
  bool is_absorbable(int i);
  // True if that is step j, which reads it at each of its own points.
  bool can_absorb(int j, int i) { return is_absorbable(i) && value(i).span == value(j).span; }
  int n_absorbable(int i);
  // True if the kernel of step j may compute step i, which other steps read as well: none of them before
  // step j but those that it absorbs, nor in other phases.
  bool can_come_late(int i, int j, const std::vector<int>& absorbed);
  // True if an argument of step i needs no register for longer if step j reads it instead.
  bool lives_as_long(int argument, int i, int j, const std::vector<int>& absorbed);
  // The live steps that read step i, once for each time that they do.
  const std::vector<int>& users_of(int i) const { return users_[static_cast<size_t>(i)]; }

  // ---- what kernels write themselves: row_stores.cpp ----

  // A store whose value's own kernel can write the output: it must be the value's only phase, and
  // no input that may be the same memory may be read after the kernel.
  void choose_fused_stores();
  // True if a value has the elements of an output, each once.
  bool fills(const Value& v, const PlanOperand& out) const;

  // Returns the inputs that may be the same memory as output `output` and whose reads are overtaken
  // by the writes of kernel `kernel` to that output in phase `phase`. `meets(step, argument, phase,
  // reader)` sees every read from that phase on, and the step whose kernel does it.
  template <typename F>
  std::vector<int> overtaken(int kernel, int phase, int output, F meets);

  // Parks values of whole rows that are kept for a later store in the output of that store, if they
  // have its form. Rows are then read and written in one place, not in two.
  void choose_parking();
  // True if value i may lie in the output of store `store`, a fused one, until that store happens.
  bool can_park(int i, int store);

  // ---- registers, steps, places: row_emit.cpp ----

  // Returns the place of value i for a step at the present position.
  Place place_of(int i);

  int32_t constant(const Step& s);

  void define(int i);

  // Appends the step(s) that compute value i, or do store i, to `list`.
  void emit_step(int i, std::vector<PlanStep>& list);

  void emit_store(int i, PlanStep& p);

  void emit();

  // A sum of squares beside a sum of products by the same values: one pass over the row, in which
  // the additions of the two hide each other. What is between them in the list may be neither's
  // operand.
  void join_sums(std::vector<PlanStep>& steps) const;

  // The sums over columns and the values beside them that the gradient of a norm x s w is made of,
  // in one pass, for which dy w is multiplied again and not kept.
  void join_norm_gradient();

  int64_t register_bytes(const Register& r) const;

  void allocate();

  void bind_all();
  void bind_each(std::vector<PlanStep>& steps);
  // True if operand k is an output for PlanOperand::may_stream.
  bool may_stream(int32_t k) const;
  void bind(Place& p, bool by_row);

  const RowProgram& program_;
  const RowOverlaps& overlaps_;
  std::vector<Step> steps_;
  const bool careful_;
  const int64_t tile_elems_;
  const bool keeps_;
  RowPlan plan_;
  std::vector<Value> values_;
  std::vector<bool> is_live_;
  std::vector<std::vector<int>> users_;
  std::vector<Fused> fused_;
  std::vector<std::vector<bool>> needed_;
  std::vector<int> defined_, last_use_;  // Positions of each register's definition and last use.
  int n_phases_ = 1;
  int last_read_phase_ = 0;  // The last in which a strip reads inputs.
  int position_ = 0;
  int64_t shared_bytes_ = 0;
};

}  // namespace stow::cpu::rows
