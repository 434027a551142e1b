// Reads types, parameters and regions, by the table of ir/fields.h.
// Not nodes and graphs; those are ir/parse.cpp.
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

  ArrayType type();
  /// The name of an op.
  OpKind op(std::string_view expected);
  /// The provenance that follows the @: "scope" "file":line by pass. Equal texts share one.
  ProvenancePtr provenance();
  /// {name=value, …}, into the alternative that `params` holds, which is that of `op`.
  void params(Params& params, OpKind op);
  /// The same for the region of that number; its parent must have a lower one.
  void region(Region& region, size_t number);

 protected:
  void field(Dims& value);
  void field(DType& value);
  void field(MemoryKind& value);
  /// One number, a list of numbers, or hex"…".
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
  std::map<std::string, PolicyPtr> policies_;  ///< Those asked for, by name.
  std::unordered_map<std::string, ProvenancePtr> provenances_;
  size_t n_earlier_regions_ = 0;
};

}  // namespace stow
