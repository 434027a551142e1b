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
  /// `unit` is that of that index, or makes an operand of its product: then `only` is written.
  RowsBuilder(const Graph& graph, const Unit& unit, const Units& units, int unit_index,
              ValueId only = {});

  /// Values that the program reads from memory, each once; the product that it follows first.
  const std::vector<ValueId>& loads() const { return loads_; }
  /// Values that it writes; of a unit that follows a product, the host first.
  const std::vector<ValueId>& stores() const { return stores_; }
  /// Values without elements that others read: no program writes them.
  const std::vector<ValueId>& empty() const { return empty_; }
  /// The program, given where loads and stores lie.
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

/// Element for element from one window to another of the same dims.
RowProgram copy_program(const View& from, const View& to);

}  // namespace stow
