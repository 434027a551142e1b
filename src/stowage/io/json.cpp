#include "stowage/io/json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/base/error.h"

namespace stow {
namespace {

// The length of the valid UTF-8 sequence at `at`, or 0.
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xc2 && lead < 0xe0   ? 2
                   : lead >= 0xe0 && lead < 0xf0 ? 3
                   : lead >= 0xf0 && lead < 0xf5 ? 4
                                                 : 0;
  if (n == 0 || at + n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates and what lies beyond U+10FFFF.
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) >= 0xa0) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;
  return n;
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (const size_t n = utf8_length(text, i); n != 1) {
      out += n == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(i, n);
      i += std::max<size_t>(n, 1);
      continue;
    }
    ++i;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
  out += '"';
}

}  // namespace

Json::Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(Array elements) : value_(std::move(elements)) {}
Json::Json(Object members) : value_(std::move(members)) {}
Json::Json(Integer value) {
  if (value.is_signed)
    value_ = static_cast<int64_t>(value.bits);
  else
    value_ = value.bits;
}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::array() {
  return Json(Array{});
}

Json Json::object(std::initializer_list<JsonMember> members) {
  return Json(Object(members));
}

bool Json::is_null() const {
  return std::holds_alternative<std::monostate>(value_);
}
bool Json::is_object() const {
  return std::holds_alternative<Object>(value_);
}
bool Json::is_array() const {
  return std::holds_alternative<Array>(value_);
}

const bool* Json::as_bool() const {
  return std::get_if<bool>(&value_);
}
const std::string* Json::as_string() const {
  return std::get_if<std::string>(&value_);
}
const Json::Array* Json::as_array() const {
  return std::get_if<Array>(&value_);
}
const Json::Object* Json::as_object() const {
  return std::get_if<Object>(&value_);
}

Result<int64_t> Json::as_int() const {
  if (const auto* i = std::get_if<int64_t>(&value_)) return *i;
  const auto* u = std::get_if<uint64_t>(&value_);
  if (u && *u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return static_cast<int64_t>(*u);
  return fail("not a 64-bit integer");
}

Result<uint64_t> Json::as_uint() const {
  if (const auto* u = std::get_if<uint64_t>(&value_)) return *u;
  const auto* i = std::get_if<int64_t>(&value_);
  if (i && *i >= 0) return static_cast<uint64_t>(*i);
  return fail("not an unsigned 64-bit integer");
}

Result<double> Json::as_double() const {
  if (const auto* d = std::get_if<double>(&value_)) return *d;
  if (const auto* i = std::get_if<int64_t>(&value_)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value_)) return static_cast<double>(*u);
  return fail("not a number");
}

const Json* Json::find(std::string_view key) const {
  if (const Object* members = as_object())
    for (const JsonMember& member : *members)
      if (member.key == key) return &member.value;
  return nullptr;
}

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  auto* members = std::get_if<Object>(&value_);
  STOW_CHECK(members, "set of '{}' on a JSON value that is no object", key);
  for (JsonMember& member : *members) {
    if (member.key != key) continue;
    member.value = std::move(value);
    return;
  }
  members->push_back({std::string(key), std::move(value)});
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array{};
  auto* elements = std::get_if<Array>(&value_);
  STOW_CHECK(elements, "push_back on a JSON value that is no array");
  elements->push_back(std::move(value));
}

bool operator==(const Json& a, const Json& b) {
  return a.value_ == b.value_;
}

void Json::dump_to(std::string& out) const {
  struct Printer {
    std::string& out;
    void operator()(std::monostate) const { out += "null"; }
    void operator()(bool v) const { out += v ? "true" : "false"; }
    void operator()(int64_t v) const { out += std::to_string(v); }
    void operator()(uint64_t v) const { out += std::to_string(v); }
    void operator()(double v) const {
      if (!std::isfinite(v)) {
        out += "null";
        return;
      }
      const std::string text = fmt::format("{}", v);
      out += text;
      if (text.find_first_of(".e") == std::string::npos) out += ".0";
    }
    void operator()(const std::string& v) const { append_string(out, v); }
    void operator()(const Array& elements) const {
      out += '[';
      for (size_t i = 0; i < elements.size(); ++i) {
        if (i) out += ", ";
        elements[i].dump_to(out);
      }
      out += ']';
    }
    void operator()(const Object& members) const {
      out += '{';
      for (size_t i = 0; i < members.size(); ++i) {
        if (i) out += ", ";
        append_string(out, members[i].key);
        out += ": ";
        members[i].value.dump_to(out);
      }
      out += '}';
    }
  };
  std::visit(Printer{out}, value_);
}

std::string Json::dump() const {
  std::string out;
  dump_to(out);
  return out;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(text, i);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

std::string hex_float(float value) {
  return fmt::format("{:a}", value);
}

}  // namespace stow
