// The compiler from row programs to row plans, in four files: row_compile.cpp, row_fuse.cpp,
// row_stores.cpp and row_emit.cpp.
// Not for callers; see row_plan.h.
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

// Decisions about a step, and its value. -1 is none.
struct Value {
  Span span = Span::kOne;
  int level = 0;             // The first phase in which it can be computed.
  int32_t operand = -1;      // The operand of a load or an iota.
  bool direct = false;       // True: a load that kernels do themselves, from memory.
  bool keep = false;         // True: kept for the whole row, for later phases.
  bool available = false;    // True: kept, and computed in an earlier phase.
  int32_t absorbed_by = -1;  // The step whose kernel computes this one, for its own use.
  int32_t computed_by = -1;  // The step whose kernel also computes this one, for other steps.
  int32_t fused_store = -1;  // The store that its kernel does itself.
  int32_t parked_in_output = -1;  // The output in whose memory it is kept until that is stored.
  int32_t reg = -1;          // Its register.
  bool by_position = false;  // True: a step that simplify_one_hot() has changed.
};

// The kernel of a step that also computes the steps that it absorbs.
struct Fused {
  MapKernel map = nullptr;
  std::vector<int> args;
  ReduceRowsKernel reduce = nullptr;
  int keeps = -1;         // A step that a reduction absorbs and that other steps read; -1: none.
  std::vector<int> more;  // Steps that a map computes and that other steps read.
  bool by_runs = false;   // True: a sum that reads an input in runs, without a load (fuse_runs()).
  const std::string* pattern = nullptr;  // The name of its formula, if it is one of row_patterns.h.
};

// Compiles one row program.
class Compiler {
 public:
  /// `may_alias`: see compile_row_plan(). Strips have about `tile_elems` elements, unless a
  /// reduction requires another size. `keeps`: values that later phases read are kept for the whole
  /// row, not computed again. `in_blocks`: the plan is for run_row_block().
  Compiler(const RowProgram& program, const RowOverlaps& overlaps, bool may_alias,
           int64_t tile_elems, bool keeps, bool in_blocks = false)
      : program_(program),
        overlaps_(overlaps),
        steps_(program.steps),
        may_alias_(may_alias),
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

  // Computes the span and level of each value. Aborts if the program breaks the contract.
  void analyse();

  // Returns the steps x and position if step i is `column == position ? x : 0`, with one i32
  // position for each row.
  std::optional<std::pair<int, int>> one_hot(int i) const;
  // Changes step i if it sums, adds or subtracts a row in which only one element is not 0: the step
  // then takes that element and its position, and the row is never computed.
  void simplify_one_hot(int i);
  // Returns the step position if step i is `column == position`, with one i32 for each row; else
  // -1.
  int one_hot_position(int i) const;

  // Aborts if store i does not fit its output.
  void check_store(int i);

  // True if an input alternates runs of columns of adjacent rows in memory, as when the rows are
  // the middle one of three dimensions.
  bool has_interleaved_rows() const;
  // Chooses r_tile, c_tile, unit_rows and unit_cols of the plan.
  void choose_tiles();
  // True if a step is a column reduction.
  bool reduces_columns() const;
  // True if output k is the result of a column reduction, written after the rows of its group.
  bool is_column_sum(int k) const;

  // True if a step's kernel can read and write bf16 and f16 in memory (Form).
  bool takes_forms(const Step& s) const;

  // True if store s writes floats with columns that are contiguous, by a map kernel.
  bool is_vector_store(const Step& s) const;

  // True if output `k` and input `input` may be the same memory.
  bool may_overlap(int k, int input);
  // True if the plan may assume that output `k` and `input` are different memory.
  bool can_be_apart(int k, int input) const;
  // Returns can_be_apart(). If true, adds the pair to the plan's must_differ.
  bool assume_apart(int k, int input);
  // The same for output `k` and all `inputs`; assumes nothing if it is false for one of them.
  bool assume_apart(int k, const std::vector<int>& inputs);

  // True if another output may have been written over the input of `load` before `store`, which
  // reads that input directly: stores come last in their phase.
  bool may_be_overwritten(const Value& load, const Step& store);

  // Sets Value::direct.
  void choose_direct_loads();

  // Returns the phase in which a store happens: the first in which its value is known, or the last
  // that reads inputs if the output may be the memory of an input.
  int store_phase(const Step& s);

  // Returns, for each step with columns, if phase `phase` must compute it, given the values that
  // earlier phases have kept.
  std::vector<bool> needed_in(int phase);

  // Sets is_live_, needed_, Value::keep and Value::available.
  void choose_phases();

  // Returns the first phase that executes step j.
  int executed_in(int j);
  // Returns the step whose kernel computes value i.
  int maker_of(int i) {
    const Value& v = value(i);
    return v.absorbed_by >= 0 ? v.absorbed_by : v.computed_by >= 0 ? v.computed_by : i;
  }

  // ---- steps that one kernel computes together: row_fuse.cpp ----

  // Groups steps that one kernel computes. Looks for the formulas with is_first, then for other
  // formulas, sums and pairs, each from the last step to the first: later steps are nearer to
  // stores.
  void choose_fused_steps();

  // Fuses step j as the first formula of row_patterns() that matches and whose is_first is `first`.
  // False if none matches.
  bool fuse_pattern(int j, bool first);
  // True if step j, and the values that it compares, have the dtypes that the formula requires.
  bool has_types(const RowPattern& pattern, int j) const;
  // True if one kernel may compute step j with the steps `inside` and fused.more: it reads none of
  // its own results, computes no step twice, and no other step reads those inside.
  bool can_fuse(int j, const Fused& fused, const std::vector<int>& inside, bool saves_scratch);
  // Fuses reduction j with the steps that compute its terms, by the first formula of sum_patterns()
  // that matches.
  void fuse_sum(int j);
  // True if the kernel of row reduction j may compute and write step i although steps that are not
  // `inside` read it: none of them runs before the reduction.
  bool can_keep(int j, int i, const std::vector<int>& inside);
  // Makes row reduction j read an input directly whose columns lie in several runs, without a load.
  void fuse_runs(int j);
  // Gives step j, which simplify_one_hot() has changed, its kernel. If it adds an element to a row
  // that is a product, the kernel also computes the product.
  void fuse_one_hot(int j);
  // Fuses step j with the steps that compute its operands, one or two, if no other step reads them.
  // Returns false if it cannot.
  bool fuse_pair(int j);

  // True if so far step i is computed by a kernel of its own.
  bool is_free(int i);
  // True if the kernel of step i computes other steps too.
  bool absorbs(int i) { return fused_[static_cast<size_t>(i)].map != nullptr; }
  // True if step i is an op of two f32 that only one step reads, once.
  bool is_absorbable(int i);
  // True if step j, which reads step i, may absorb it: both have the same span.
  bool can_absorb(int j, int i) { return is_absorbable(i) && value(i).span == value(j).span; }
  // Returns the number of operands of step i that it can absorb.
  int n_absorbable(int i);
  // True if the kernel of step j may compute step i although other steps read it: both are needed
  // in the same phases, and no step before j reads i, except stores and those in `absorbed`.
  bool can_delay(int i, int j, const std::vector<int>& absorbed);
  // True if `argument` of step i needs its register no longer when step j reads it instead of i.
  bool extends_no_lifetime(int argument, int i, int j, const std::vector<int>& absorbed);
  // Returns the live steps that read step i, one entry for each read.
  const std::vector<int>& users_of(int i) const { return users_[static_cast<size_t>(i)]; }

  // ---- outputs that kernels write directly: row_stores.cpp ----

  // Sets Value::fused_store of values whose own kernel writes the output. Only one phase may
  // compute the value, and no input that may be the same memory may be read after the kernel.
  void choose_fused_stores();
  // True if a value has exactly the elements of an output.
  bool fills(const Value& v, const PlanOperand& out) const;

  // Returns the write-after-read hazards of a store: the inputs that may be the same memory as
  // output `output` and that are still read after the kernel of step `kernel` has written it in
  // phase `phase`. Calls visit(step, argument, phase, reader) for every read from that phase on;
  // `reader` is the step whose kernel does it.
  template <typename F>
  std::vector<int> war_hazards(int kernel, int phase, int output, F visit);

  // Parks f32 values that are kept for whole rows in an output that is stored later. Rows then take
  // memory in one place, not in two.
  void choose_parking();
  // True if value i may be kept in the output of the fused store `store` until that store happens.
  bool can_park(int i, int store);

  // ---- registers, steps, places: row_emit.cpp ----

  // Returns the place of value i for a step at position_, and extends the life of its register.
  Place place_of(int i);

  // Returns the index of a constant of the plan, which it adds if it is new.
  int32_t constant(const Step& s);

  // Gives value i a register, unless it is written to an output.
  void define(int i);

  // Appends the plan step that computes value i, or does store i, to `list`.
  void emit_step(int i, std::vector<PlanStep>& list);

  // Fills plan step p for store i.
  void emit_store(int i, PlanStep& p);

  // Emits all steps of the plan.
  void emit();

  // Joins a sum of products and the sum of squares of the same values into one pass over the row,
  // where the latencies of the two chains of additions overlap.
  void join_sums(std::vector<PlanStep>& steps) const;

  // Joins the column sums and the values that are the gradient of a norm x s w into one pass, which
  // computes dy w again instead of keeping it.
  void join_norm_gradient();

  // Returns the bytes of a register, a multiple of 64.
  int64_t register_bytes(const Register& r) const;

  // Assigns offsets in scratch to registers and to the accumulators of reductions.
  void allocate();

  // Binds the places of all steps to bases, and decides what is prefetched.
  void bind_all();
  void bind_each(std::vector<PlanStep>& steps);
  // Returns PlanOperand::may_stream of operand k.
  bool may_stream(int32_t k) const;
  // Binds a place to its base. `by_row`: a value of each row is a vector for the step, not a splat.
  void bind(Place& p, bool by_row);

  const RowProgram& program_;
  const RowOverlaps& overlaps_;
  std::vector<Step> steps_;
  const bool may_alias_;
  const int64_t tile_elems_;
  const bool keeps_;
  RowPlan plan_;
  std::vector<Value> values_;
  std::vector<bool> is_live_;            // By step: an output needs it.
  std::vector<std::vector<int>> users_;  // By step: see users_of().
  std::vector<Fused> fused_;             // By step.
  std::vector<std::vector<bool>> needed_;  // By phase: needed_in().
  std::vector<int> defined_, last_use_;  // By register: positions of its definition and last use.
  int n_phases_ = 1;
  int last_read_phase_ = 0;  // The last phase in which a strip reads inputs.
  int position_ = 0;         // Number of steps emitted so far.
  int64_t shared_bytes_ = 0;
};

}  // namespace stow::cpu::rows
