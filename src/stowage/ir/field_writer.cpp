#include "stowage/ir/field_writer.h"

#include "stowage/ir/element_text.h"

namespace stow {
namespace {

constexpr size_t kMaxReadableElements = 8;

}  // namespace

void FieldWriter::type(const ArrayType& t) {
  out_ += to_string(t);
  if (t.weak) out_ += '~';
}
void FieldWriter::provenance(const ProvenancePtr& p) {
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
void FieldWriter::string(std::string_view text) {
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
void FieldWriter::field(const Shape& value) {
  put("[{}]", to_string(value));
}
void FieldWriter::field(const Dims& value) {
  put("[{}]", fmt::join(value, ","));
}
void FieldWriter::field(int64_t value) {
  put("{}", value);
}
void FieldWriter::field(int value) {
  put("{}", value);
}
void FieldWriter::field(bool value) {
  put("{}", value);
}
void FieldWriter::field(float value) {
  elements(DType::kF32, std::as_bytes(std::span(&value, 1)));
}
void FieldWriter::field(DType value) {
  out_ += dtype_name(value);
}
void FieldWriter::field(MemoryKind value) {
  out_ += memory_kind_name(value);
}
void FieldWriter::field(RegionId value) {
  value.valid() ? put("{}", value.value) : put("none");
}
void FieldWriter::field(ReduceKind value) {
  out_ += reduce_kind_name(value);
}
void FieldWriter::field(const MeshAxes& value) {
  put("[{}]", fmt::join(value, ","));
}
void FieldWriter::field(const MeshShape& value) {
  out_ += '[';
  for (size_t i = 0; i < value.names.size(); ++i) {
    if (i) out_ += ',';
    string(value.names[i]);
    put(":{}", value.extents[i]);
  }
  out_ += ']';
}
void FieldWriter::field(const AxisSharding& value) {
  out_ += '[';
  for (size_t i = 0; i < value.axes.size(); ++i) {
    if (i) out_ += ',';
    field(value.axes[i]);
  }
  out_ += ']';
}
void FieldWriter::field(const PolicyPtr& value) {
  value ? string(value->name) : put("none");
}
void FieldWriter::elements(DType dtype, std::span<const std::byte> data) {
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
void FieldWriter::params(const Params& params) {
  if (std::holds_alternative<NoParams>(params)) return;
  out_ += " {";
  std::visit([this](const auto& p) { fields(p); }, params);
  out_ += '}';
}

}  // namespace stow
