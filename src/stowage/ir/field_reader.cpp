#include "stowage/ir/field_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "stowage/ir/element_text.h"
#include "stowage/ir/fields.h"
#include "stowage/ir/parse.h"

namespace stow {
namespace {

// A provenance that owns the name of its file.
struct OwnedProvenance {
  Provenance provenance;
  std::string file;
};

const std::unordered_map<std::string_view, OpKind>& ops_by_name() {
  static const auto* const kOps = [] {
    auto* ops = new std::unordered_map<std::string_view, OpKind>();
    for (int i = 0; i < kNumOps; ++i) ops->emplace(op_name(static_cast<OpKind>(i)), OpKind(i));
    return ops;
  }();
  return *kOps;
}

}  // namespace

ArrayType FieldReader::type() {
  ArrayType t;
  const Token& name = peek();
  const auto dtype = parse_dtype(name.text);
  if (name.kind != TokenKind::kWord || !dtype) unexpected("a type such as f32[8,64]");
  take();
  t.dtype = *dtype;
  if (take_punct('<')) {
    const auto kind = parse_memory_kind(peek().text);
    if (!kind) unexpected("device, pinned_host or disk");
    take();
    t.kind = *kind;
    expect('>');
  }
  if (!at_punct('[')) unexpected("'['");
  field(t.shape);
  t.weak = take_punct('~');
  return t;
}

OpKind FieldReader::op(std::string_view expected) {
  const auto op = ops_by_name().find(peek().text);
  if (peek().kind != TokenKind::kWord || op == ops_by_name().end()) unexpected(expected);
  take();
  return op->second;
}

ProvenancePtr FieldReader::provenance() {
  std::string scope = string("the scope, in quotes"), file;
  int line = 0;
  const size_t start = offset();
  if (peek().kind == TokenKind::kString) {
    file = string("");
    if (file.find('\0') != std::string::npos) error(start, "expected a file name without \\x00");
    expect(':');
    line = static_cast<int>(integer(0, INT32_MAX, "a line number"));
  }
  const Pass pass = take_word("by") ? pass_word() : Pass::kTraced;
  std::string key =
      fmt::format("{}\n{}\n{}\n{}", static_cast<int>(pass), line, file, scope);
  const auto [it, is_new] = provenances_.try_emplace(std::move(key));
  if (is_new) {
    auto owner = std::make_shared<OwnedProvenance>();
    owner->file = std::move(file);
    owner->provenance = {std::move(scope), {owner->file.c_str(), line}, pass};
    it->second = ProvenancePtr(owner, &owner->provenance);
  }
  return it->second;
}

Pass FieldReader::pass_word() {
  const std::string_view word = peek().text;
  for (int i = 0; i < kNumPasses; ++i)
    if (take_word(pass_name(static_cast<Pass>(i)))) return static_cast<Pass>(i);
  std::string names;
  for (int i = 0; i < kNumPasses; ++i)
    names += fmt::format("{}{}", i ? ", " : "", pass_name(static_cast<Pass>(i)));
  error(offset(), "there is no pass '{}'; the passes are {}", word, names);
}

// {name=value, …} in any order.
template <typename Struct>
void FieldReader::fields(Struct& object, std::string_view what) {
  unsigned seen = 0;
  expect('{');
  list('}', [&] {
    const Token name = take(TokenKind::kWord, "the name of a parameter");
    unsigned bit = 1;
    bool found = false;
    visit_fields(object, [&](std::string_view field_name, auto& value) {
      if (field_name == name.text) {
        found = true;
        if (seen & bit) error(name.offset, "{} is given twice", name.text);
        seen |= bit;
        expect('=');
        if constexpr (std::is_same_v<Struct, ConstantParams>)
          constant_field(object, value, (seen & 1) != 0);
        else
          field(value);
      }
      bit <<= 1;
    });
    if (!found) error(name.offset, "{} has no parameter {}", what, describe(name));
  });
}

void FieldReader::params(Params& params, OpKind op) {
  if (std::holds_alternative<NoParams>(params))
    error(offset(), "{} takes no parameters", op_name(op));
  std::visit([&](auto& p) { fields(p, op_name(op)); }, params);
}

void FieldReader::region(Region& region, size_t number) {
  n_earlier_regions_ = number;
  fields(region, "region");
}

void FieldReader::constant_field(ConstantParams&, ArrayType& value, bool) {
  value = type();
}
void FieldReader::constant_field(ConstantParams& params, std::vector<std::byte>& data,
                                 bool has_type) {
  if (!has_type) unexpected("type= before data=");
  data = elements(params.type.dtype);
}

void FieldReader::field(ArrayType& value) {
  value = type();
}
void FieldReader::field(Dims& value) {
  value.clear();
  expect('[');
  list(']', [&] { value.push_back(integer(-kMaxTextInteger, kMaxTextInteger, "an integer")); });
}
void FieldReader::field(Shape& value) {
  Dims dims;
  int64_t room = kMaxArrayBytes / 8;
  expect('[');
  list(']', [&] {
    const size_t here = offset();
    if (dims.size() == kMaxRank) error(here, "expected at most {} axes", kMaxRank);
    dims.push_back(integer(0, kMaxTextInteger, "an extent"));
    room /= std::max<int64_t>(dims.back(), 1);
    if (room == 0) error(here, "the array is larger than 2^56 bytes");
  });
  value = Shape(std::move(dims));
}
void FieldReader::field(int64_t& value) {
  value = integer(-kMaxTextInteger, kMaxTextInteger, "an integer");
}
void FieldReader::field(int& value) {
  value = static_cast<int>(integer(0, INT32_MAX, "an integer"));
}
void FieldReader::field(bool& value) {
  value = at_word("true");
  if (!value && !at_word("false")) unexpected("true or false");
  take();
}
void FieldReader::field(float& value) {
  const size_t here = offset();
  const std::vector<std::byte> data = elements(DType::kF32);
  if (data.size() != sizeof(float)) error(here, "expected one number");
  std::memcpy(&value, data.data(), sizeof(float));
}
void FieldReader::field(DType& value) {
  const auto dtype = parse_dtype(peek().text);
  if (peek().kind != TokenKind::kWord || !dtype) unexpected("a dtype such as f32");
  take();
  value = *dtype;
}
void FieldReader::field(MemoryKind& value) {
  const auto kind = parse_memory_kind(peek().text);
  if (peek().kind != TokenKind::kWord || !kind) unexpected("device, pinned_host or disk");
  take();
  value = *kind;
}
void FieldReader::field(std::string& value) {
  value = string("a string in quotes");
}
void FieldReader::field(RegionId& value) {
  if (take_word("none")) return;
  if (n_earlier_regions_ == 0) unexpected("none (a parent comes earlier in the list)");
  const auto last = static_cast<int64_t>(n_earlier_regions_) - 1;
  value = RegionId(static_cast<size_t>(integer(0, last, "none or an earlier region")));
}
void FieldReader::field(ReduceKind& value) {
  for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kMin,
                                ReduceKind::kAnd, ReduceKind::kOr})
    if (take_word(reduce_kind_name(kind))) return void(value = kind);
  unexpected("sum, max, min, and or or");
}
void FieldReader::field(MeshAxes& value) {
  value.clear();
  expect('[');
  list(']', [&] {
    value.push_back(static_cast<int>(integer(0, INT32_MAX, "the number of a mesh axis")));
  });
}
// ["data":4,"model":2]
void FieldReader::field(MeshShape& value) {
  value = {};
  expect('[');
  list(']', [&] {
    value.names.push_back(string("the name of a mesh axis in quotes"));
    expect(':');
    value.extents.push_back(integer(1, kMaxTextInteger, "an extent"));
  });
}
// [[0],[],[1,2]]
void FieldReader::field(AxisSharding& value) {
  value = {};
  expect('[');
  list(']', [&] { field(value.axes.emplace_back()); });
}
void FieldReader::field(PolicyPtr& value) {
  if (take_word("none")) return;
  const size_t here = offset();
  const std::string name = string("none or the name of a policy in quotes");
  const auto [it, is_new] = policies_.try_emplace(name);
  if (is_new && resolve_) it->second = resolve_(name);
  if (!it->second) error(here, "no policy has the name \"{}\"", name);
  value = it->second;
}

// hex"…", one number, or a list of numbers.
std::vector<std::byte> FieldReader::elements(DType dtype) {
  std::vector<std::byte> data;
  if (take_word("hex")) return hex_bytes();
  if (take_punct('['))
    list(']', [&] { element(dtype, data); });
  else
    element(dtype, data);
  return data;
}
std::vector<std::byte> FieldReader::hex_bytes() {
  const Token token = take(TokenKind::kString, "hex digits in quotes");
  if (token.text.size() % 2 != 0)
    error(token.offset, "expected an even number of hex digits, found {}", token.text.size());
  auto digit = [&](size_t i) {
    const size_t d = std::string_view("0123456789abcdef").find(token.text[i]);
    if (d == std::string_view::npos) error(token.offset + 1 + i, "expected lower-case hex digits");
    return static_cast<unsigned>(d);
  };
  std::vector<std::byte> data;
  data.reserve(token.text.size() / 2);
  for (size_t i = 0; i < token.text.size(); i += 2)
    data.push_back(static_cast<std::byte>(digit(i) * 16 + digit(i + 1)));
  return data;
}

void FieldReader::element(DType dtype, std::vector<std::byte>& data) {
  const Token& token = peek();
  std::byte bytes[8];
  const std::span<std::byte> slot(bytes, static_cast<size_t>(dtype_bytes(dtype)));
  const bool is_text = token.kind == TokenKind::kNumber || token.kind == TokenKind::kWord;
  if (!is_text || !element_from_text(dtype, token.text, slot))
    unexpected(fmt::format("a number that fits {}", dtype_name(dtype)));
  take();
  data.insert(data.end(), slot.begin(), slot.end());
}

}  // namespace stow
