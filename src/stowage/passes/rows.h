// RowsBuilder: the row program of one fused unit.
// Not the choice of units; that is fuse.h.
#pragma once

#include <map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/fuse.h"

namespace stow {

class RowsBuilder {
 public:
  /// `unit` is unit `unit_index`, or a prologue of its product. The program of a prologue writes
  /// only the operand `only`.
  RowsBuilder(const Graph& graph, const Unit& unit, const Units& units, int unit_index,
              ValueId only = {});

  /// Values that the program reads from memory, each once; for an epilogue, the product first.
  const std::vector<ValueId>& loads() const { return loads_; }
  /// Values that the program writes; for an epilogue, Unit::epilogue_output first.
  const std::vector<ValueId>& stores() const { return stores_; }
  /// Needed values without elements, which the program does not write.
  const std::vector<ValueId>& empty() const { return empty_; }
  /// Returns the program; `inputs` and `outputs` are the windows of loads() and stores().
  RowProgram build(const std::vector<View>& inputs, const std::vector<View>& outputs) const;

 private:
  bool is_step(ValueId v) const;
  bool is_member(ValueId root) const;  // made by a step
  int32_t operand_step(RowProgram& program, std::map<ValueId, int32_t>& steps, ValueId v) const;
  Dims program_strides(const View& view) const;

  const Graph& graph_;
  const Unit& unit_;
  const Units& units_;
  int unit_index_;
  int n_row_dims_, n_group_dims_;
  std::vector<ValueId> loads_, stores_, empty_;
};

/// Returns the program that copies one window to another of the same dims, element for element.
RowProgram copy_program(const View& from, const View& to);

}  // namespace stow
