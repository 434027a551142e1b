// Json: a JSON value whose objects keep their order; a strict parser; a writer of JSON lines.
// Not for large objects: a lookup of a key is a linear search.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

struct JsonMember;

/// A JSON value. Objects keep the order in which their keys were set.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<JsonMember>;

  Json();
  Json(std::nullptr_t);
  Json(bool value);
  Json(double value);
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  Json(Array elements);
  Json(Object members);
  template <typename Int>
  requires std::is_integral_v<Int> Json(Int value)
      : Json(Integer{std::is_signed_v<Int>, static_cast<uint64_t>(value)}) {}
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  static Json array();
  static Json object(std::initializer_list<JsonMember> members = {});

  bool is_null() const;
  bool is_object() const;
  bool is_array() const;

  /// The value; null, or a Failure, if this has another type. as_int and as_uint convert between
  /// signed and unsigned if the number fits.
  const bool* as_bool() const;
  const std::string* as_string() const;
  const Array* as_array() const;
  const Object* as_object() const;
  Result<int64_t> as_int() const;
  Result<uint64_t> as_uint() const;
  Result<double> as_double() const;

  /// Returns the member of that key; null if there is none or this is not an object.
  const Json* find(std::string_view key) const;
  /// Sets a member of an object; an existing key keeps its place. A null value becomes an object.
  void set(std::string_view key, Json value);
  /// Appends to an array. A null value becomes an array.
  void push_back(Json value);

  /// Returns the text on one line. Floats have a point or an exponent and read back as the same
  /// double; NaN and infinities print as null. Bytes that are not UTF-8 print as U+FFFD.
  std::string dump() const;

  friend bool operator==(const Json&, const Json&);

 private:
  struct Integer {
    bool is_signed;
    uint64_t bits;
  };
  explicit Json(Integer value);
  void dump_to(std::string& out) const;

  // All functions that touch this variant are defined in the source file, where JsonMember is
  // complete.
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

struct JsonMember {
  std::string key;
  Json value;
  friend bool operator==(const JsonMember&, const JsonMember&) = default;
};

/// Limits of a parsed text: its nesting depth and its number of values.
struct JsonLimits {
  int depth = 32;
  int64_t n_values = 1 << 20;
};

/// Parses one JSON text, strictly: no comments, no trailing text, valid UTF-8.
/// Errors: a syntax error, with its byte; duplicate keys; the text exceeds the limits.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

/// True if the bytes are valid UTF-8. JSON strings with other bytes change in dump().
bool is_utf8(std::string_view text);

/// Returns the exact value of a float in hexadecimal, as C and Python parse it: "0x1.62e43p+2".
std::string hex_float(float value);

/// Writes JSON lines: one JSON value per line. The line is in the file when write() returns.
class JsonLines {
 public:
  /// Opens or creates `path`; "-" means standard output. An existing file is truncated at the first
  /// write(), so that a command that fails before it keeps the old file.
  /// Errors: "PATH: reason" if the file cannot be opened.
  static Result<JsonLines> open(const std::string& path);
  JsonLines(JsonLines&& other) noexcept;
  JsonLines& operator=(JsonLines&& other) noexcept;
  ~JsonLines();

  /// Writes a line. Errors: "PATH: reason".
  Result<void> write(const Json& value);

 private:
  JsonLines(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
  bool begun_ = false;
};

}  // namespace stow
