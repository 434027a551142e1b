#include "stowage/ir/print.h"

#include <fmt/format.h>

#include <iterator>

#include "stowage/ir/element_text.h"
#include "stowage/ir/fields.h"

namespace stow {
namespace {

constexpr size_t kMaxReadableElements = 8;
constexpr size_t kLineColumns = 100;

class Printer {
 public:
  std::string take() { return std::move(out_); }

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
    if (!std::holds_alternative<NoParams>(n.params)) {
      out_ += " {";
      std::visit([this](const auto& params) { fields(params); }, n.params);
      out_ += '}';
    }
    if (n.region.valid()) put(" region {}", n.region.value);
    if (n.leaves) out_ += " leaves";
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
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void start_line(int indent) {
    out_ += '\n';
    out_.append(static_cast<size_t>(indent), ' ');
  }

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
  void type(const ArrayType& t) {
    out_ += to_string(t);
    if (t.weak) out_ += '~';
  }
  void provenance(const ProvenancePtr& p) {
    if (!p) return;
    out_ += " @";
    string(p->scope);
    if (p->location.line != 0 || *p->location.file != '\0') {
      out_ += ' ';
      string(p->location.file);
      put(":{}", p->location.line);
    }
    if (p->pass != Pass::kTraced) put(" by {}", pass_name(p->pass));
  }
  void string(std::string_view text) {
    out_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\')
        put("\\{}", c);
      else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        put("\\x{:02x}", static_cast<unsigned char>(c));
      else
        out_ += c;
    }
    out_ += '"';
  }

  template <typename Struct>
  void fields(const Struct& object) {
    bool first = true;
    visit_fields(object, [&](std::string_view name, const auto& value) {
      put("{}{}=", first ? "" : ", ", name);
      first = false;
      if constexpr (std::is_same_v<Struct, ConstantParams>)
        constant_field(object.type.dtype, value);
      else
        field(value);
    });
  }
  void constant_field(DType, const ArrayType& value) { type(value); }
  void constant_field(DType dtype, const std::vector<std::byte>& data) { elements(dtype, data); }

  void field(const ArrayType& value) { type(value); }
  void field(const Shape& value) { put("[{}]", to_string(value)); }
  void field(const Dims& value) { put("[{}]", fmt::join(value, ",")); }
  void field(int64_t value) { put("{}", value); }
  void field(int value) { put("{}", value); }
  void field(bool value) { put("{}", value); }
  void field(float value) { elements(DType::kF32, std::as_bytes(std::span(&value, 1))); }
  void field(DType value) { out_ += dtype_name(value); }
  void field(MemoryKind value) { out_ += memory_kind_name(value); }
  void field(const std::string& value) { string(value); }
  void field(RegionId value) { value.valid() ? put("{}", value.value) : put("none"); }
  void field(ReduceKind value) { out_ += reduce_kind_name(value); }
  void field(const MeshAxes& value) { put("[{}]", fmt::join(value, ",")); }
  void field(const MeshShape& value) {
    out_ += '[';
    for (size_t i = 0; i < value.names.size(); ++i) {
      if (i) out_ += ',';
      string(value.names[i]);
      put(":{}", value.extents[i]);
    }
    out_ += ']';
  }
  void field(const AxisSharding& value) {
    out_ += '[';
    for (size_t i = 0; i < value.axes.size(); ++i) {
      if (i) out_ += ',';
      field(value.axes[i]);
    }
    out_ += ']';
  }
  void field(const PolicyPtr& value) { value ? string(value->name) : put("none"); }

  // One number, a list of a few, or hex bytes.
  void elements(DType dtype, std::span<const std::byte> data) {
    const auto width = static_cast<size_t>(dtype_bytes(dtype));
    const size_t n = data.size() / width, start = out_.size();
    bool readable = data.size() % width == 0 && n >= 1 && n <= kMaxReadableElements;
    if (readable && n > 1) out_ += '[';
    for (size_t i = 0; readable && i < n; ++i) {
      const auto text = element_to_text(dtype, data.subspan(i * width, width));
      readable = text.has_value();
      if (readable) put("{}{}", i ? "," : "", *text);
    }
    if (readable && n > 1) out_ += ']';
    if (readable) return;
    out_.resize(start);
    out_ += "hex\"";
    for (const std::byte b : data) {
      out_ += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
      out_ += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
    }
    out_ += '"';
  }

  std::string out_;
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
