// Writes types, parameters, regions and provenances as text, by the table of ir/fields.h.
// Not graphs and schedules (ir/print.cpp, ir/schedule_printer.cpp). FieldReader reads the text.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "stowage/base/inside.h"
#include "stowage/ir/fields.h"

namespace stow {

class FieldWriter {
 public:
  /// Moves out the text written so far.
  std::string take() { return std::move(out_); }

 protected:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void start_line(int indent) {
    out_ += '\n';
    out_.append(static_cast<size_t>(indent), ' ');
  }


  void type(const ArrayType& t);
  /// Writes " @"scope" "file":line by pass"; nothing if `p` is null.
  void provenance(const ProvenancePtr& p);
  /// Writes `text` in quotes, with escapes.
  void string(std::string_view text);
  /// Writes the parameters of a node or kernel: " {name=value, …}"; nothing for NoParams.
  void params(const Params& params);
  /// Writes name=value, … for each field of a params struct or region.
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
  void field(const Dims& value);
  void field(DType value);
  void field(MemoryKind value);
  /// Writes the bytes of elements: one number, a list of a few numbers, or hex"…".
  void elements(DType dtype, std::span<const std::byte> data);

  std::string out_;

 private:
  void constant_field(DType, const ArrayType& value) { type(value); }
  void constant_field(DType dtype, const std::vector<std::byte>& data) { elements(dtype, data); }
  void field(const ArrayType& value) { type(value); }
  void field(const Shape& value);
  void field(int64_t value);
  void field(int value);
  void field(bool value);
  void field(float value);
  void field(const std::string& value) { string(value); }
  void field(RegionId value);
  void field(ReduceKind value);
  void field(const MeshAxes& value);
  void field(const MeshShape& value);
  void field(const AxisSharding& value);
  void field(const PolicyPtr& value);
};

}  // namespace stow
