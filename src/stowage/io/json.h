// Json: an ordered JSON value that is written as built and read strictly, and JSON lines.
// Not a document database: objects are lists, and looking a key up walks them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "stowage/base/result.h"

namespace stow {

struct JsonMember;

/// A JSON value. Objects keep the order in which their keys were set.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<JsonMember>;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(Array elements) : value_(std::move(elements)) {}
  Json(Object members);
  template <typename Int>
  requires std::is_integral_v<Int> Json(Int value) {
    if constexpr (std::is_signed_v<Int>)
      value_ = static_cast<int64_t>(value);
    else
      value_ = static_cast<uint64_t>(value);
  }
  static Json array() { return Json(Array{}); }
  static Json object(std::initializer_list<JsonMember> members = {});

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }

  /// The value, or null where this is of another type. as_int and as_uint also take the other
  /// signedness where the number fits.
  const bool* as_bool() const { return std::get_if<bool>(&value_); }
  const std::string* as_string() const { return std::get_if<std::string>(&value_); }
  const Array* as_array() const { return std::get_if<Array>(&value_); }
  const Object* as_object() const { return std::get_if<Object>(&value_); }
  Result<int64_t> as_int() const;
  Result<uint64_t> as_uint() const;
  Result<double> as_double() const;

  /// The member of that key, or null; null too where this is no object.
  const Json* find(std::string_view key) const;
  /// Sets a member of an object, in place where the key exists. A null value becomes an object.
  void set(std::string_view key, Json value);
  /// Appends to an array. A null value becomes an array.
  void push_back(Json value);

  /// The text on one line. Floats print so that they read back as the same double, with a point or
  /// an exponent; NaN and infinities as null. Bytes that are no UTF-8 print as U+FFFD.
  std::string dump() const;

  friend bool operator==(const Json&, const Json&);

 private:
  void dump_to(std::string& out) const;

  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

struct JsonMember {
  std::string key;
  Json value;
  friend bool operator==(const JsonMember&, const JsonMember&) = default;
};

/// What a text from outside may cost: how deep it nests and how many values it holds.
struct JsonLimits {
  int depth = 32;
  int64_t n_values = 1 << 20;
};

/// Reads one JSON text. Strict: no comments, no trailing text, valid UTF-8.
/// Errors: syntax (with the byte), duplicate keys, beyond the limits.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

/// Whether the bytes are valid UTF-8, as the text of a JSON string must be to survive.
bool is_utf8(std::string_view text);

/// The exact value of a float as C and Python read it: "0x1.62e43p+2".
std::string hex_float(float value);

/// Writes one JSON value a line, each line complete on the file when write returns.
class JsonLines {
 public:
  /// Creates or truncates `path`; "-" is standard output.
  /// Errors: the file cannot be created, with path and reason.
  static Result<JsonLines> open(const std::string& path);
  JsonLines(JsonLines&& other) noexcept;
  JsonLines& operator=(JsonLines&& other) noexcept;
  ~JsonLines();

  /// Errors: the line could not be written, with path and reason.
  Result<void> write(const Json& value);

 private:
  JsonLines(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
};

}  // namespace stow
