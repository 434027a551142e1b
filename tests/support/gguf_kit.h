// GgufBuilder: makes valid and invalid GGUF files for tests.
// Not the format's reader; the bytes follow the specification.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace stow {

/// Puts a GGUF file together from raw parts.
class GgufBuilder {
 public:
  template <typename T>
  static std::string raw(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string text(std::string_view value) {
    return raw<uint64_t>(value.size()) + std::string(value);
  }
  static std::string texts(const std::vector<std::string>& values) {
    std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(values.size());
    for (const std::string& value : values) bytes += text(value);
    return bytes;
  }

  /// Adds an entry with a raw type and value.
  GgufBuilder& entry(std::string_view key, uint32_t type, const std::string& value) {
    entries_ += text(key) + raw(type) + value;
    ++n_entries_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, uint32_t value) { return entry(key, 4, raw(value)); }
  GgufBuilder& i32(std::string_view key, int32_t value) { return entry(key, 5, raw(value)); }
  GgufBuilder& f32(std::string_view key, float value) { return entry(key, 6, raw(value)); }
  GgufBuilder& boolean(std::string_view key, bool value) {
    return entry(key, 7, std::string(1, value ? '\1' : '\0'));
  }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    return entry(key, 8, text(value));
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    return entry(key, 9, texts(values));
  }
  GgufBuilder& i32s(std::string_view key, const std::vector<int32_t>& values) {
    std::string bytes = raw<uint32_t>(5) + raw<uint64_t>(values.size());
    for (const int32_t value : values) bytes += raw(value);
    return entry(key, 9, bytes);
  }

  /// Adds a tensor. `extents`: in the file's order, the innermost first. `offset`: of its data; -1:
  /// after the data of earlier tensors.
  GgufBuilder& tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& extents,
                      std::string_view data, int64_t offset = -1) {
    while (data_.size() % alignment != 0) data_ += '\0';
    tensors_ += text(name) + raw<uint32_t>(static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) tensors_ += raw(extent);
    tensors_ +=
        raw(type) + raw<uint64_t>(offset < 0 ? data_.size() : static_cast<uint64_t>(offset));
    data_ += data;
    ++n_tensors_;
    return *this;
  }

  std::string build() const {
    std::string bytes =
        "GGUF" + raw(version) + raw(n_tensors_) + raw(n_entries_) + entries_ + tensors_;
    while (bytes.size() % alignment != 0) bytes += '\0';
    return bytes + data_;
  }

  uint32_t version = 3;
  size_t alignment = 32;

 private:
  std::string entries_, tensors_, data_;
  uint64_t n_entries_ = 0, n_tensors_ = 0;
};

}  // namespace stow
