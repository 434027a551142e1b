#include "stowage/passes/units_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "stowage/ir/print.h"

namespace stow {
namespace {

const char* name_of(UnitKind kind) {
  switch (kind) {
    case UnitKind::kRows:
      return "rows";
    case UnitKind::kOp:
      return "op";
    case UnitKind::kConcat:
      return "concat";
    case UnitKind::kCopy:
      return "copy";
    case UnitKind::kScan:
      return "scan";
    case UnitKind::kCond:
      return "cond";
    case UnitKind::kWhile:
      return "while";
  }
  return "?";
}

}  // namespace

std::string print(const Graph& graph, const Units& units) {
  std::string text;
  const auto put = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  };
  for (size_t u = 0; u < units.units.size(); ++u) {
    const Unit& unit = units.units[u];
    put("unit {} {}", u, name_of(unit.kind));
    if (unit.kind == UnitKind::kRows) put(" [{}]", fmt::join(unit.dims, ","));
    if (!unit.axes.empty()) put(" axes=[{}]", fmt::join(unit.axes, ","));
    if (unit.n_row_dims >= 0) put(" n_row_dims={}", unit.n_row_dims);
    if (unit.n_group_dims >= 0) put(" n_group_dims={}", unit.n_group_dims);
    if (!unit.operand_units.empty()) put(" reads {}", fmt::join(unit.operand_units, ", "));
    if (unit.epilogue_output.valid()) put(" epilogue_output=%{}", unit.epilogue_output.value);
    for (size_t i = 0; i < unit.prologues.size(); ++i)
      if (!unit.prologues[i].nodes.empty())
        put(" prologue {} makes %{}", i, unit.prologues[i].value.value);
    text += '\n';
    for (NodeId m : unit.nodes) put("  {}\n", print_node(graph, graph.node(m)));
  }
  return text;
}

}  // namespace stow
