#include "stowage/io/gguf.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "stowage/base/bytes.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxEntries = 1 << 16, kMaxTensors = 1 << 17;
constexpr uint64_t kMaxNameBytes = 1 << 16;
// A text is a chat template at most; arrays are vocabularies.
constexpr uint64_t kMaxTextBytes = 1 << 24;
constexpr int64_t kMaxValues = 1 << 22;
constexpr int64_t kMaxHeaderBytes = int64_t{1} << 28;
constexpr int kMaxDepth = 4;
constexpr uint32_t kMaxAxes = 4;
constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr int64_t kPieceBytes = 1 << 18;

// Types of metadata values.
enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32Value,
  kBoolValue,
  kString,
  kArray,
  kU64,
  kI64,
  kF64Value
};

// Reads the header from front to back, piece by piece. The first error stays and everything read
// after it is zero.
class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file) : file_(file) {}

  template <typename T>
  T number() {
    T value = 0;
    bytes(&value, sizeof value);
    return value;
  }

  // Errors: longer than `most` or than the rest of the file.
  std::string text(uint64_t most) {
    const auto length = number<uint64_t>();
    if (failed()) return {};
    if (length > most) {
      refuse(fmt::format("expected a text of at most {} bytes, got {}", most, length));
      return {};
    }
    if (static_cast<int64_t>(length) > file_.size_bytes() - at_) {
      refuse(fmt::format("is cut short: a text of {} bytes at byte {}", length, at_));
      return {};
    }
    std::string text(length, '\0');
    bytes(text.data(), length);
    return text;
  }

  Json value(uint32_t type, int depth) {
    if (++n_values_ > kMaxValues) refuse(fmt::format("has more than {} values", kMaxValues));
    if (failed()) return {};
    switch (type) {
      case kU8:
        return Json(number<uint8_t>());
      case kI8:
        return Json(number<int8_t>());
      case kU16:
        return Json(number<uint16_t>());
      case kI16:
        return Json(number<int16_t>());
      case kU32:
        return Json(number<uint32_t>());
      case kI32:
        return Json(number<int32_t>());
      case kU64:
        return Json(number<uint64_t>());
      case kI64:
        return Json(number<int64_t>());
      case kF32Value:
        return Json(static_cast<double>(number<float>()));
      case kF64Value:
        return Json(number<double>());
      case kString:
        return Json(text(kMaxTextBytes));
      case kBoolValue: {
        const auto byte = number<uint8_t>();
        if (byte > 1) refuse(fmt::format("expected 0 or 1 for a bool, got {}", byte));
        return Json(byte == 1);
      }
      case kArray:
        return array(depth);
    }
    refuse(fmt::format("expected a type of value from 0 to 12, got {}", type));
    return {};
  }

  void refuse(std::string why) {
    if (error_.empty()) error_ = std::move(why);
  }
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  int64_t at() const { return at_; }

 private:
  Json array(int depth) {
    const auto type = number<uint32_t>();
    const auto n = number<uint64_t>();
    if (depth >= kMaxDepth)
      refuse(fmt::format("expected arrays nested at most {} deep", kMaxDepth));
    // Every element has at least a byte.
    if (n > static_cast<uint64_t>(file_.size_bytes() - at_))
      refuse(fmt::format("is cut short: an array of {} elements at byte {}", n, at_));
    if (n > static_cast<uint64_t>(kMaxValues))
      refuse(fmt::format("expected an array of at most {} elements, got {}", kMaxValues, n));
    Json::Array elements;
    for (uint64_t i = 0; i < n && !failed(); ++i) elements.push_back(value(type, depth + 1));
    return Json(std::move(elements));
  }

  void bytes(void* out, size_t n) {
    auto* to = static_cast<char*>(out);
    while (n > 0 && !failed()) {
      if (held_ == piece_.size() && !fill()) return;
      const size_t part = std::min(n, piece_.size() - held_);
      std::memcpy(to, piece_.data() + held_, part);
      held_ += part;
      at_ += static_cast<int64_t>(part);
      to += part;
      n -= part;
    }
  }

  bool fill() {
    const int64_t n = std::min({kPieceBytes, file_.size_bytes() - at_, kMaxHeaderBytes - at_});
    if (n <= 0) {
      refuse(at_ >= kMaxHeaderBytes
                 ? fmt::format("has a header of more than {}", format_bytes(kMaxHeaderBytes))
                 : fmt::format("is cut short: the header goes on behind byte {}", at_));
      return false;
    }
    piece_.resize(static_cast<size_t>(n));
    held_ = 0;
    if (Result<void> read = file_.read(at_, std::as_writable_bytes(std::span(piece_))); !read) {
      refuse(read.error());
      return false;
    }
    return true;
  }

  const InputFile& file_;
  std::vector<char> piece_;
  size_t held_ = 0;  // of piece_, bytes that were read
  int64_t at_ = 0;
  int64_t n_values_ = 0;
  std::string error_;
};

// The alignment of tensors, or an error.
Result<int64_t> alignment_of(const Json& metadata) {
  const Json* value = metadata.find("general.alignment");
  if (!value) return int64_t{32};
  const Result<int64_t> n = value->as_int();
  if (!n || *n < 1 || *n > 1 << 20 || (*n & (*n - 1)) != 0)
    return fail("general.alignment: expected a power of two up to 2^20, got {}", shown(*value));
  return *n;
}

// Name, shape and type of a tensor; its offset is from the start of the data.
Result<GgufTensor> read_tensor(HeaderReader& in) {
  GgufTensor tensor;
  tensor.name = in.text(kMaxNameBytes);
  const auto n_axes = in.number<uint32_t>();
  if (in.failed()) return fail("{}", in.error());
  const auto bad = [&](std::string_view why) {
    return fail("tensor {}: {}", shown_name(tensor.name), why);
  };
  if (!is_utf8(tensor.name)) return bad("the name is not UTF-8");
  if (n_axes < 1 || n_axes > kMaxAxes)
    return bad(fmt::format("expected 1 to {} axes, got {}", kMaxAxes, n_axes));
  int64_t n = 1;
  for (uint32_t i = 0; i < n_axes; ++i) {
    const auto extent = in.number<uint64_t>();
    if (in.failed()) return fail("{}", in.error());
    if (extent < 1 || extent > static_cast<uint64_t>(kMaxBytes) ||
        __builtin_mul_overflow(n, static_cast<int64_t>(extent), &n) || n > kMaxBytes / 8)
      return bad(fmt::format("its extent {} is out of range", extent));
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
  }
  const auto type = in.number<uint32_t>();
  const auto offset = in.number<uint64_t>();
  if (in.failed()) return fail("{}", in.error());
  const std::optional<GgmlType> known = ggml_type(type);
  if (!known)
    return bad(
        fmt::format("{} is not supported; supported are F32, F16, BF16, Q4_0, Q4_1, Q8_0, "
                    "Q4_K, Q6_K",
                    ggml_name(type)));
  tensor.type = *known;
  if (tensor.shape.back() % block_elements(*known) != 0)
    return bad(fmt::format("expected rows of whole blocks of {} elements for {}, got rows of {}",
                           block_elements(*known), ggml_name(*known), tensor.shape.back()));
  if (offset > static_cast<uint64_t>(kMaxBytes))
    return bad(fmt::format("its offset {} is out of range", offset));
  tensor.n_bytes = n / block_elements(*known) * block_bytes(*known);
  tensor.offset_bytes = static_cast<int64_t>(offset);
  return tensor;
}

}  // namespace

bool GgufFile::is_gguf(const std::string& path) {
  const Result<InputFile> file = InputFile::open(path);
  uint32_t magic = 0;
  return file.ok() && file->read(0, std::as_writable_bytes(std::span(&magic, 1))).ok() &&
         magic == kMagic;
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  Result<InputFile> file = InputFile::open(path);
  if (!file) return file.failure();
  GgufFile result(std::move(*file));
  if (Result<void> read = result.read_header(); !read) return fail("{}: {}", path, read.error());
  return result;
}

Result<void> GgufFile::read_header() {
  HeaderReader in(file_);
  if (in.number<uint32_t>() != kMagic || in.failed()) return fail("is not a GGUF file");
  const auto version = in.number<uint32_t>();
  if (!in.failed() && (version & 0xffff) == 0)
    return fail("is a big-endian GGUF file, which is not supported");
  if (!in.failed() && version != 2 && version != 3)
    return fail("has version {} of the format; supported are 2 and 3", version);
  const auto n_tensors = in.number<uint64_t>();
  const auto n_entries = in.number<uint64_t>();
  if (in.failed()) return fail("{}", in.error());
  if (n_tensors > kMaxTensors)
    return fail("expected at most {} tensors, got {}", kMaxTensors, n_tensors);
  if (n_entries > kMaxEntries)
    return fail("expected at most {} entries, got {}", kMaxEntries, n_entries);

  Json::Object entries;
  std::set<std::string> keys;
  for (uint64_t i = 0; i < n_entries; ++i) {
    std::string key = in.text(kMaxNameBytes);
    const auto type = in.number<uint32_t>();
    if (in.failed()) return fail("{}", in.error());
    if (!is_utf8(key)) return fail("{}: the key is not UTF-8", shown_name(key));
    if (!keys.insert(key).second) return fail("the key {} stands twice", shown_name(key));
    Json value = in.value(type, 0);
    if (in.failed()) return fail("{}: {}", shown_name(key), in.error());
    entries.push_back({std::move(key), std::move(value)});
  }
  metadata_ = Json(std::move(entries));
  const Result<int64_t> alignment = alignment_of(metadata_);
  if (!alignment) return alignment.failure();

  std::set<std::string> names;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    Result<GgufTensor> tensor = read_tensor(in);
    if (!tensor) return tensor.failure();
    if (tensor->offset_bytes % *alignment != 0)
      return fail("tensor {}: expected an offset that is a multiple of the alignment {}, got {}",
                  shown_name(tensor->name), *alignment, tensor->offset_bytes);
    if (!names.insert(tensor->name).second)
      return fail("two tensors have the name {}", shown_name(tensor->name));
    tensors_.push_back(std::move(*tensor));
  }

  std::stable_sort(tensors_.begin(), tensors_.end(), [](const GgufTensor& a, const GgufTensor& b) {
    return a.offset_bytes < b.offset_bytes;
  });
  const int64_t data = align_up(in.at(), *alignment);
  int64_t end = data;
  for (GgufTensor& tensor : tensors_) {
    tensor.offset_bytes += data;
    if (tensor.offset_bytes < end)
      return fail("tensor {}: begins at byte {}, inside the one that ends at {}",
                  shown_name(tensor.name), tensor.offset_bytes, end);
    end = tensor.offset_bytes + tensor.n_bytes;
    if (end > size_bytes())
      return fail("is cut short: tensor {} ends at byte {}, the file at {}",
                  shown_name(tensor.name), end, size_bytes());
  }
  return {};
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  for (const GgufTensor& tensor : tensors_)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

}  // namespace stow
