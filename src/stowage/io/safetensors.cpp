#include "stowage/io/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "stowage/base/bytes.h"
#include "stowage/io/json.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie");

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr size_t kMaxRank = 64;
constexpr int64_t kPieceBytes = 1 << 20;

// In the order of DType.
constexpr std::array<std::string_view, kNumDTypes> kDTypeNames = {
    "F64", "F32", "BF16", "F16", "I64", "I32", "I8", "U64", "U32", "U8", "BOOL"};

std::optional<DType> parse_file_dtype(std::string_view name) {
  for (size_t i = 0; i < kDTypeNames.size(); ++i)
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  return std::nullopt;
}

// A name as it may stand in a message of one line, whatever bytes it has.
std::string quoted(std::string_view name) {
  constexpr size_t kShown = 80;
  return Json(name.size() <= kShown ? std::string(name) : std::string(name.substr(0, kShown)) + "…")
      .dump();
}

Result<TensorInfo> parse_tensor(const std::string& name, const Json& json) {
  const auto bad = [&](std::string_view why) { return fail("tensor {}: {}", quoted(name), why); };
  if (!json.is_object()) return bad(fmt::format("expected an object, got {}", shown(json)));
  for (const JsonMember& member : *json.as_object())
    if (member.key != "dtype" && member.key != "shape" && member.key != "data_offsets")
      return bad(fmt::format("has an unknown field {}", quoted(member.key)));
  TensorInfo tensor{.name = name};

  const Json* dtype = json.find("dtype");
  if (!dtype || !dtype->as_string())
    return bad(fmt::format("dtype: expected a name, got {}", shown(dtype)));
  const std::optional<DType> known = parse_file_dtype(*dtype->as_string());
  if (!known)
    return bad(fmt::format("dtype {} is not supported; supported are {}",
                           quoted(*dtype->as_string()), fmt::join(kDTypeNames, ", ")));
  tensor.dtype = *known;

  const Json* shape = json.find("shape");
  if (!shape || !shape->as_array())
    return bad(fmt::format("shape: expected an array of extents, got {}", shown(shape)));
  if (shape->as_array()->size() > kMaxRank)
    return bad(fmt::format("shape: expected at most {} axes, got {}", kMaxRank,
                           shape->as_array()->size()));
  for (const Json& extent : *shape->as_array()) {
    const Result<int64_t> value = extent.as_int();
    if (!value || *value < 0)
      return bad(fmt::format("shape: expected extents of 0 or more, got {}", shown(extent)));
    tensor.shape.push_back(*value);
  }
  const std::optional<int64_t> bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes)
    return bad(fmt::format("the size of {} overflows", tensor_type(tensor.dtype, tensor.shape)));

  const Json* offsets = json.find("data_offsets");
  if (!offsets || !offsets->as_array() || offsets->as_array()->size() != 2)
    return bad(fmt::format("data_offsets: expected [begin, end], got {}", shown(offsets)));
  const Result<int64_t> begin = (*offsets->as_array())[0].as_int();
  const Result<int64_t> end = (*offsets->as_array())[1].as_int();
  if (!begin || !end || *begin < 0 || *end < *begin || *end > kMaxBytes)
    return bad(fmt::format("data_offsets: expected 0 <= begin <= end <= 2^62, got {}",
                           shown(*offsets)));
  if (*end - *begin != *bytes)
    return bad(fmt::format("data_offsets hold {} bytes, {} needs {}", *end - *begin,
                           tensor_type(tensor.dtype, tensor.shape), *bytes));
  tensor.offset_bytes = *begin;
  tensor.n_bytes = *bytes;
  return tensor;
}

// The order in which tensors lie.
bool lies_before(const TensorBytes* a, const TensorBytes* b) {
  const int64_t a_bytes = dtype_bytes(a->dtype), b_bytes = dtype_bytes(b->dtype);
  return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
}

// The length of the header and the header itself, padded so that the data begin aligned.
Result<std::string> make_header(std::span<const TensorBytes* const> order,
                                const std::map<std::string, std::string>& metadata) {
  Json::Object header;
  if (!metadata.empty()) {
    Json::Object strings;
    for (const auto& [key, value] : metadata) {
      if (!is_utf8(key) || !is_utf8(value)) return fail("metadata {} is not UTF-8", quoted(key));
      strings.push_back({key, Json(value)});
    }
    header.push_back({std::string(kMetadataKey), Json(std::move(strings))});
  }
  std::set<std::string_view> names;
  int64_t at = 0;
  for (const TensorBytes* tensor : order) {
    if (tensor->name == kMetadataKey) return fail("the name {} is reserved", quoted(tensor->name));
    if (!is_utf8(tensor->name)) return fail("the name {} is not UTF-8", quoted(tensor->name));
    if (!names.insert(tensor->name).second)
      return fail("two tensors have the name {}", quoted(tensor->name));
    const std::optional<int64_t> bytes = tensor_bytes(tensor->dtype, tensor->shape);
    if (!bytes || (!tensor->read && static_cast<uint64_t>(*bytes) != tensor->bytes.size()))
      return fail("tensor {}: {} bytes given for {}", quoted(tensor->name), tensor->bytes.size(),
                  tensor_type(tensor->dtype, tensor->shape));
    Json::Array shape(tensor->shape.begin(), tensor->shape.end());
    header.push_back(
        {tensor->name,
         Json::object({{"dtype", Json(kDTypeNames[static_cast<size_t>(tensor->dtype)])},
                       {"shape", Json(std::move(shape))},
                       {"data_offsets", Json(Json::Array{Json(at), Json(at + *bytes)})}})});
    at += *bytes;
  }
  std::string text = Json(std::move(header)).dump();
  text.resize(static_cast<size_t>(align_up(static_cast<int64_t>(text.size()), 8)), ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes)
    return fail("the header would have {}, beyond the format's limit",
                format_bytes(static_cast<int64_t>(text.size())));
  const uint64_t length = text.size();
  std::string prefix(sizeof length, '\0');
  std::memcpy(prefix.data(), &length, sizeof length);
  return prefix + text;
}

}  // namespace

std::string tensor_type(DType dtype, std::span<const int64_t> shape) {
  std::string text(dtype_name(dtype));
  text += '[';
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + ']';
}

std::optional<int64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  // A zero anywhere makes nothing of the rest, but only of a rest that could be counted: another
  // reader multiplies from the left.
  int64_t n = dtype_bytes(dtype);
  for (int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(n, extent, &n) || n > kMaxBytes) return std::nullopt;
  }
  return n;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Result<InputFile> file = InputFile::open(path);
  if (!file) return file.failure();
  SafetensorsFile result(std::move(*file));
  if (Result<void> read = result.read_header(); !read) return fail("{}: {}", path, read.error());
  return result;
}

Result<void> SafetensorsFile::read_header() {
  uint64_t length = 0;
  if (size_bytes() < 8)
    return fail("is not a safetensors file: expected at least 8 bytes, got {}", size_bytes());
  if (Result<void> read = file_.read(0, std::as_writable_bytes(std::span(&length, 1))); !read)
    return read;
  if (length > kMaxHeaderBytes)
    return fail("is not a safetensors file: expected a header of at most {} bytes, got {}",
                kMaxHeaderBytes, length);
  if (static_cast<int64_t>(length) > size_bytes() - 8)
    return fail("is cut short: a header of {} bytes is announced, {} follow", length,
                size_bytes() - 8);
  std::string text(length, '\0');
  if (Result<void> read = file_.read(8, std::as_writable_bytes(std::span(text))); !read)
    return read;
  if (text.empty() || text[0] != '{')
    return fail("is not a safetensors file: expected a JSON object as header");
  const Result<Json> header = parse_json(text, {.depth = 3, .n_values = 4 << 20});
  if (!header) return fail("the header is {}", header.error());

  for (const auto& [name, json] : *header->as_object()) {
    if (name == kMetadataKey) {
      if (!json.is_object()) return fail("__metadata__: expected an object, got {}", shown(json));
      for (const auto& [key, value] : *json.as_object()) {
        if (!value.as_string())
          return fail("__metadata__: {}: expected a string, got {}", quoted(key), shown(value));
        metadata_[key] = *value.as_string();
      }
      continue;
    }
    Result<TensorInfo> tensor = parse_tensor(name, json);
    if (!tensor) return tensor.failure();
    tensors_.push_back(std::move(*tensor));
  }

  // Sorted by offset the tensors must follow one another, from the first byte to the last.
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.offset_bytes != b.offset_bytes ? a.offset_bytes < b.offset_bytes
                                            : a.n_bytes < b.n_bytes;
  });
  int64_t at = 0;
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.offset_bytes != at)
      return fail("tensor {} begins at {} of the data, {} {}", quoted(tensor.name),
                  tensor.offset_bytes,
                  tensor.offset_bytes < at ? "inside the one that ends at" : "a hole after", at);
    at += tensor.n_bytes;
    if (at > kMaxBytes) return fail("tensor {} ends beyond any file", quoted(tensor.name));
  }
  const int64_t data_begin = 8 + static_cast<int64_t>(length);
  const int64_t held = size_bytes() - data_begin;
  if (at > held) return fail("is cut short: the tensors have {} bytes, {} are there", at, held);
  if (at < held) return fail("has {} bytes behind the last tensor", held - at);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].offset_bytes += data_begin;
    index_[tensors_[i].name] = i;
  }
  return {};
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Result<void> SafetensorsFile::read(const TensorInfo& tensor, std::span<std::byte> out) const {
  STOW_CHECK(out.size() == static_cast<size_t>(tensor.n_bytes), "{} has {} bytes, not {}",
             tensor.name, tensor.n_bytes, out.size());
  return file_.read(tensor.offset_bytes, out);
}

Result<void> SafetensorsFile::read_part(const TensorInfo& tensor, int64_t offset_bytes,
                                        std::span<std::byte> out) const {
  STOW_CHECK(offset_bytes >= 0 && offset_bytes + static_cast<int64_t>(out.size()) <= tensor.n_bytes,
             "{} has {} bytes", tensor.name, tensor.n_bytes);
  return file_.read(tensor.offset_bytes + offset_bytes, out);
}

Result<Digest> SafetensorsFile::digest() const {
  Digest digest;
  std::vector<std::byte> piece(kPieceBytes);
  for (int64_t at = 0; at < size_bytes();) {
    const int64_t n = std::min(size_bytes() - at, static_cast<int64_t>(piece.size()));
    const std::span<std::byte> part(piece.data(), static_cast<size_t>(n));
    if (Result<void> read = file_.read(at, part); !read) return read.failure();
    digest.update(part);
    at += n;
  }
  return digest;
}

Result<AtomicFile> write_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     Digest* digest) {
  std::vector<const TensorBytes*> order;
  for (const TensorBytes& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), lies_before);
  const Result<std::string> header = make_header(order, metadata);
  if (!header) return fail("{}: {}", path, header.error());

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.failure();
  const auto put = [&](std::span<const std::byte> bytes) -> Result<void> {
    if (digest) digest->update(bytes);
    return file->write(bytes);
  };
  if (Result<void> written = put(as_bytes(*header)); !written) return written.failure();
  std::vector<std::byte> piece;
  for (const TensorBytes* tensor : order) {
    if (!tensor->read) {
      if (Result<void> written = put(tensor->bytes); !written) return written.failure();
      continue;
    }
    const int64_t bytes = *tensor_bytes(tensor->dtype, tensor->shape);
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, bytes)));
    for (int64_t at = 0; at < bytes; at += kPieceBytes) {
      const std::span<std::byte> part =
          std::span(piece).first(static_cast<size_t>(std::min(kPieceBytes, bytes - at)));
      tensor->read(at, part);
      if (Result<void> written = put(part); !written) return written.failure();
    }
  }
  return file;
}

Result<void> save_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                              const std::map<std::string, std::string>& metadata) {
  Result<AtomicFile> file = write_safetensors(path, tensors, metadata);
  if (!file) return file.failure();
  return file->commit();
}

}  // namespace stow
