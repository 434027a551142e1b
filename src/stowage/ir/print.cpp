#include "stowage/ir/print.h"

#include <fmt/format.h>

#include "stowage/ir/field_writer.h"

namespace stow {
namespace {

constexpr size_t kLineColumns = 100;

class Printer : public FieldWriter {
 public:
  void graph(const Graph& g, int indent) {
    signature(g, indent);
    for (size_t i = 0; i < g.regions().size(); ++i) {
      start_line(indent + 2);
      put("region {} {{", i);
      fields(g.regions()[i]);
      out_ += '}';
    }
    for (const Node& n : g.nodes()) {
      start_line(indent + 2);
      node(g, n);
      for (const GraphPtr& nested : n.graphs) {
        start_line(indent + 4);
        if (nested)
          graph(*nested, indent + 4);
        else
          out_ += "graph none";
      }
    }
    start_line(indent + 2);
    out_ += "return";
    values(g.outputs(), " ");
    start_line(indent);
    out_ += '}';
  }

  void node(const Graph& g, const Node& n) {
    for (int i = 0; i < n.n_results; ++i) put("{}%{}", i ? ", " : "", n.result(i).value);
    if (n.n_results > 0) out_ += " = ";
    out_ += op_name(n.op);
    out_ += '(';
    values(n.operands, "");
    out_ += ')';
    params(n.params);
    if (n.region.valid()) put(" region {}", n.region.value);
    if (n.escapes_region) out_ += " leaves";
    if (n.backward) out_ += " backward";
    out_ += " : ";
    if (n.n_results == 0) out_ += "()";
    for (int i = 0; i < n.n_results; ++i) {
      if (i) out_ += ", ";
      if (n.result(i).index() < g.n_values())
        type(g.type(n.result(i)));
      else
        out_ += '?';
    }
    provenance(n.provenance);
  }

 private:
  // "graph(inputs) {", on one line where it fits, else an input a line.
  void signature(const Graph& g, int indent) {
    const size_t start = out_.size();
    signature_inputs(g, indent, false);
    if (out_.size() - start + static_cast<size_t>(indent) <= kLineColumns) return;
    out_.resize(start);
    signature_inputs(g, indent, true);
  }
  void signature_inputs(const Graph& g, int indent, bool one_a_line) {
    out_ += "graph(";
    for (size_t i = 0; i < g.inputs().size(); ++i) {
      if (i) out_ += one_a_line ? "," : ", ";
      if (one_a_line) start_line(indent + 4);
      put("%{}: ", g.inputs()[i].value);
      type(g.type(g.inputs()[i]));
      if (!g.input_names()[i].empty()) {
        out_ += ' ';
        string(g.input_names()[i]);
      }
    }
    out_ += ") {";
  }

  void values(std::span<const ValueId> ids, const char* before) {
    for (size_t i = 0; i < ids.size(); ++i) put("{}%{}", i ? ", " : before, ids[i].value);
  }
};

}  // namespace

std::string print(const Graph& graph) {
  Printer printer;
  printer.graph(graph, 0);
  return printer.take() + "\n";
}

std::string print_node(const Graph& graph, const Node& node) {
  Printer printer;
  printer.node(graph, node);
  return printer.take();
}

}  // namespace stow
