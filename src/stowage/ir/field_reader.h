// Reads types, parameters and regions from text, by the table of ir/fields.h.
// Not nodes and graphs; ir/parse.cpp reads those.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/ir/parse.h"
#include "stowage/ir/token_reader.h"

namespace stow {

class FieldReader : public TokenReader {
 public:
  FieldReader(std::string_view text, const PolicyResolver& policies)
      : TokenReader(text), resolve_(policies) {}

  /// Reads an array type.
  ArrayType type();
  /// Reads the name of an op. `expected` names it in the error.
  OpKind op(std::string_view expected);
  /// Reads the provenance after the @: "scope" "file":line by pass. Equal texts share one object.
  ProvenancePtr provenance();
  /// Reads {name=value, …} into `params`, which must hold the alternative that `op` takes.
  void params(Params& params, OpKind op);
  /// Reads the fields of region `number`; its parent must have a lower number.
  void region(Region& region, size_t number);

 protected:
  void field(Dims& value);
  void field(DType& value);
  void field(MemoryKind& value);
  /// Reads the bytes of elements: one number, a list of numbers, or hex"…".
  std::vector<std::byte> elements(DType dtype);

 private:
  template <typename Struct>
  void fields(Struct& object, std::string_view what);
  Pass pass_word();

  void constant_field(ConstantParams& params, ArrayType& value, bool has_type);
  void constant_field(ConstantParams& params, std::vector<std::byte>& data, bool has_type);
  void field(ArrayType& value);
  void field(Shape& value);
  void field(int64_t& value);
  void field(int& value);
  void field(bool& value);
  void field(float& value);
  void field(std::string& value);
  void field(RegionId& value);
  void field(ReduceKind& value);
  void field(MeshAxes& value);
  void field(MeshShape& value);
  void field(AxisSharding& value);
  void field(PolicyPtr& value);
  std::vector<std::byte> hex_bytes();
  void element(DType dtype, std::vector<std::byte>& data);

  const PolicyResolver& resolve_;
  std::map<std::string, PolicyPtr> policies_;  ///< Policies resolved so far, by name.
  std::unordered_map<std::string, ProvenancePtr> provenances_;
  size_t n_earlier_regions_ = 0;
};

}  // namespace stow
