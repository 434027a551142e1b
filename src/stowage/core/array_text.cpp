#include "stowage/core/array_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "stowage/core/scalar.h"

namespace stow {
namespace {

// NumPy's, as are the words and the brackets.
constexpr int64_t kThreshold = 1000;
constexpr int64_t kEdge = 3;
constexpr std::string_view kGap = "...";

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// The shortest digits that are this number in its dtype; a narrow one's are fewer than an f32's.
std::string shortest(DType dtype, std::span<const std::byte> element) {
  const double value = decode_scalar(dtype, element);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (dtype == DType::kF64) return fmt::format("{}", value);
  if (dtype == DType::kF32) return fmt::format("{}", static_cast<float>(value));
  constexpr int kMaxDigits = 9;
  for (int digits = 1; digits < kMaxDigits; ++digits) {
    const std::string text = fmt::format("{:.{}g}", value, digits);
    const auto same = encode_scalar(dtype, std::stod(text));
    if (same && std::equal(same->begin(), same->end(), element.begin())) return text;
  }
  return fmt::format("{}", value);
}

std::string plain_text(DType dtype, std::span<const std::byte> element, bool scalar) {
  if (dtype == DType::kU64) return fmt::format("{}", load<uint64_t>(element));
  if (dtype == DType::kI64) return fmt::format("{}", load<int64_t>(element));
  if (dtype == DType::kBool) return load<uint8_t>(element) ? "true" : "false";
  if (!is_float(dtype))
    return fmt::format("{}", static_cast<int64_t>(decode_scalar(dtype, element)));
  std::string text = shortest(dtype, element);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += scalar ? ".0" : ".";
  return text;
}

std::string element_text(DType dtype, std::span<const std::byte> element, std::string_view spec,
                         bool scalar) {
  if (spec.empty()) return plain_text(dtype, element, scalar);
  const std::string format = fmt::format("{{:{}}}", spec);
  if (dtype == DType::kU64) return fmt::format(fmt::runtime(format), load<uint64_t>(element));
  if (dtype == DType::kI64) return fmt::format(fmt::runtime(format), load<int64_t>(element));
  if (dtype == DType::kBool) return fmt::format(fmt::runtime(format), load<uint8_t>(element) != 0);
  const double value = decode_scalar(dtype, element);
  if (dtype == DType::kF64) return fmt::format(fmt::runtime(format), value);
  if (is_float(dtype)) return fmt::format(fmt::runtime(format), static_cast<float>(value));
  return fmt::format(fmt::runtime(format), static_cast<int64_t>(value));
}

// Elements as text, those that are shown, row after row.
class Writer {
 public:
  Writer(DType dtype, const Shape& shape, const ReadElements& read, std::string_view spec,
         int indent)
      : dtype_(dtype), shape_(shape), read_(read), spec_(spec), indent_(indent) {
    summarised_ = shape.elems() > kThreshold;
  }

  std::string write() {
    collect(0, 0);
    if (spec_.empty() && is_float(dtype_) && shape_.rank() > 0) align_points();
    for (const std::string& text : elements_) width_ = std::max(width_, text.size());
    put(0);
    return std::move(text_);
  }

 private:
  bool cut(int64_t extent) const { return summarised_ && extent > 2 * kEdge; }

  // Reads what is shown of the axes from `axis` on; `first` is the element that they begin at.
  void collect(int axis, int64_t first) {
    if (shape_.rank() == 0) return collect_run(first, 1);
    const int64_t extent = shape_[axis];
    if (axis + 1 == shape_.rank()) {
      if (!cut(extent)) return collect_run(first, extent);
      collect_run(first, kEdge);
      return collect_run(first + extent - kEdge, kEdge);
    }
    int64_t stride = 1;
    for (int a = axis + 1; a < shape_.rank(); ++a) stride *= shape_[a];
    if (stride == 0) return;
    for (int64_t i = 0; i < extent; ++i) {
      if (cut(extent) && i == kEdge) i = extent - kEdge;
      collect(axis + 1, first + i * stride);
    }
  }

  void collect_run(int64_t first, int64_t n) {
    if (n == 0) return;
    const auto bytes = static_cast<size_t>(dtype_bytes(dtype_));
    std::vector<std::byte> run(static_cast<size_t>(n) * bytes);
    read_(first, run);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i)
      elements_.push_back(element_text(dtype_, std::span(run).subspan(i * bytes, bytes), spec_,
                                       shape_.rank() == 0));
  }

  // Blanks behind the digits, so that the points of a column stand below each other. Where a number
  // has an exponent there is no such column.
  void align_points() {
    size_t most = 0;  // characters behind a point
    for (const std::string& text : elements_) {
      if (text.find('e') != std::string::npos) return;
      const size_t point = text.find('.');
      if (point != std::string::npos) most = std::max(most, text.size() - point - 1);
    }
    for (std::string& text : elements_) {
      const size_t point = text.find('.');
      if (point != std::string::npos) text.append(most - (text.size() - point - 1), ' ');
    }
  }

  void put(int axis) {
    if (shape_.rank() == 0) {
      text_ += elements_[0];
      return;
    }
    const int64_t extent = shape_[axis];
    const bool innermost = axis + 1 == shape_.rank();
    text_ += '[';
    for (int64_t i = 0; i < extent; ++i) {
      if (i > 0) separate(axis, innermost);
      if (cut(extent) && i == kEdge) {
        text_ += kGap;
        separate(axis, innermost);
        i = extent - kEdge;
      }
      if (innermost)
        text_ += fmt::format("{:>{}}", elements_[next_++], width_);
      else
        put(axis + 1);
    }
    text_ += ']';
  }

  // A space between elements; between rows a line, and a blank one for every axis further out.
  void separate(int axis, bool innermost) {
    if (innermost) {
      text_ += ' ';
      return;
    }
    text_.append(static_cast<size_t>(shape_.rank() - axis - 1), '\n');
    text_.append(static_cast<size_t>(indent_ + axis + 1), ' ');
  }

  const DType dtype_;
  const Shape& shape_;
  const ReadElements& read_;
  const std::string_view spec_;
  const int indent_;
  bool summarised_ = false;
  std::vector<std::string> elements_;
  size_t next_ = 0, width_ = 0;
  std::string text_;
};

}  // namespace

std::string array_text(DType dtype, const Shape& shape, const ReadElements& read,
                       std::string_view spec, int indent) {
  if (shape.elems() == 0) return "[]";
  return Writer(dtype, shape, read, spec, indent).write();
}

void check_element_spec(DType dtype, std::string_view spec) {
  if (spec.find_first_of("{}") != std::string_view::npos)
    throw fmt::format_error("braces in a format specification");
  const std::vector<std::byte> zero(static_cast<size_t>(dtype_bytes(dtype)));
  (void)element_text(dtype, zero, spec, true);
}

}  // namespace stow
